"""Recall and learning: the words to search for, the block of recalled knowledge, and what a run learns at its end."""

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import cast

from orga.workflows.decisions.conversation import estimated_bytes, message_budget, with_message, without_recall_block
from orga.workflows.decisions.refused_content import LEFT_OUT_TEXT
from orga.workflows.types.context import MessageRef, text_digest
from orga.workflows.types.conversation import knowledge_message
from orga.workflows.types.goals.requests import goal_prompt_in
from orga.workflows.types.input import RunKnowledge
from orga.workflows.types.knowledge import Behalf, Reader
from orga.workflows.types.messages import UNUSABLE_MARKER, Message, ToolCall
from orga.workflows.types.recall import (
    COMMON_WORDS,
    KNOWLEDGE_TOOLS,
    LOOKUPS_HEADER,
    MAX_BLOCK_BYTES,
    MAX_TAINT_CHARS,
    STORE_KNOWLEDGE,
    TALK_WORDS,
    RecalledContext,
    RecallRequest,
    Recollection,
)
from orga.workflows.types.state import AgentState
from orga.workflows.types.text import MARK_CHARS, one_line
from orga.workflows.types.tool_calls.gate import LEARNINGS

MAX_RECENT_MESSAGES = 5
"""Newest messages whose words are searched for."""

MAX_RECENT_CALLS = 20
"""Newest messages in whose calls paths are searched. Work on a file lasts longer than a subject."""

MAX_CALL_PATHS = 5
MAX_ARGUMENT_ITEMS = 20

MAX_TERMS_PER_MESSAGE = 10
MAX_TERMS = 15
"""Terms after which no older message is used. The last used message may exceed this number."""

MIN_TERM_BYTES = 4
MAX_TERM_CHARS = 40
"""Characters of a word. A longer text is a term only if it is a path whose parts are all shorter."""

MAX_PATH_CHARS = 160
_PATH = re.compile(rf"(?=.*/)(?!.*://)[\w@+.:/-]{{1,{MAX_PATH_CHARS}}}", re.ASCII)
_FILE = re.compile(r"[\w@+.-]+\.[A-Za-z]\w{0,7}", re.ASCII)
"""The name of a file in the root folder, without a path."""

RECALL_SHARE = 0.25
"""The block takes at most this share of the budget for messages."""

MAX_RECALLED_TAINT = 50
"""Names that recalled items may add to the taint of a run."""

MAX_NAME_CHARS = 200
MAX_ERROR_CHARS = 300

SEARCH_STOP_WORDS = COMMON_WORDS | TALK_WORDS
"""Words that say nothing about the subject. Words below MIN_TERM_BYTES are never terms."""


def search_terms(messages: tuple[Message, ...]) -> tuple[str, ...]:
    """Return the words to search for, each once, newest message first.

    They come from recent messages of people and tools, at most ten from each message. If there are fifteen, no further
    message is read. Words of three bytes or less, stop words, and the loop's own texts are left out.
    """
    terms: dict[str, str] = {}
    counted = 0
    for message in reversed(messages):
        text = spoken_text(message)
        if text or message.role == "assistant":
            counted += 1
        for term in _terms_in(text):
            terms.setdefault(term.casefold(), term)
        if len(terms) >= MAX_TERMS or counted == MAX_RECENT_MESSAGES:
            break
    return tuple(terms.values())


_LOOP_TEXT_MARKERS = (
    *(UNUSABLE_MARKER, LEFT_OUT_TEXT, "[Not run]", "[Policy denied]", "[Answer not accepted]"),
    *("[Plan given by the operator]", "[Guidance lost]"),
)

_ONE_LINE_MARKERS = ("[Requeued call]", "[Result from the operator]")
"""Texts whose first line the loop wrote. The lines after it come from people or tools."""

_PEOPLE_MARKER = re.compile(
    r"\[(?:(?:Guidance|Context) from|Plan sent back by) the operator\]|\[Question to .*\n\[Answer of the operator\]"
)
_DELIMITER_LINE = re.compile(rf"^\[([0-9a-f]{{{MARK_CHARS}}}) begins: ", re.MULTILINE)
_UNRESOLVED = re.compile(r"\d+ not resolved")


def spoken_text(message: Message) -> str:
    """Return the text of people and tools in a message, without texts of the loop, summaries and recalled knowledge."""
    if message.role == "tool":
        return "" if message.tool in KNOWLEDGE_TOOLS else _tool_text(message)
    text = message.text
    if message.role != "user" or message.knowledge or message.summary:
        return ""
    if goal_prompt_in(text) or text.startswith(_LOOP_TEXT_MARKERS):
        return ""
    if text.startswith(LOOKUPS_HEADER):
        return _delimited_text(text)
    if text.startswith(_ONE_LINE_MARKERS):
        return text.partition("\n")[2]
    tag = _PEOPLE_MARKER.match(text)
    return text[tag.end() :] if tag else text


def _tool_text(message: Message) -> str:
    """Return the tool's own text. If the loop wrote the text, return the part that it quotes from another agent."""
    _, own, _ = message.ours.split(message.text)
    return own or _delimited_text(message.text)


def _delimited_text(text: str) -> str:
    """Return the content of a text's delimited blocks, without the block of failed lookups."""
    first = _DELIMITER_LINE.search(text)
    if first is None:
        return ""
    blocks = (block.partition("\n") for block in text.split(f"[{first[1]} begins: ")[1:])
    contents = (body for title, _, body in blocks if not _UNRESOLVED.match(title))
    return "\n".join(body.partition(f"\n[{first[1]} ends]")[0] for body in contents)


def recent_call_paths(messages: tuple[Message, ...]) -> tuple[str, ...]:
    """Return the files and directories in recent calls, each once, newest call first.

    An argument that is a path shows where the agent works, whatever its results are about.
    """
    paths: dict[str, None] = {}
    for message in reversed(messages[-MAX_RECENT_CALLS:]):
        for call in reversed(message.calls):
            paths.update(dict.fromkeys(_call_paths(call)))
    return tuple(paths)[:MAX_CALL_PATHS]


def _call_paths(call: ToolCall) -> Iterator[str]:
    for given in call.arguments.values():
        values = cast("list[object]", given) if isinstance(given, list) else [given]
        for value in islice(values, MAX_ARGUMENT_ITEMS):
            if isinstance(value, str) and _names_file(value):
                yield value


def _names_file(text: str) -> bool:
    return len(text) <= MAX_PATH_CHARS and (_is_path(text) or _FILE.fullmatch(text) is not None)


def _terms_in(text: str) -> list[str]:
    terms = filter(_is_meaningful, map(_trimmed_word, text.split()))
    return list(islice(terms, MAX_TERMS_PER_MESSAGE))


def _trimmed_word(word: str) -> str:
    """Return the word without leading and trailing characters that are neither letters nor digits."""
    if len(word) > MAX_PATH_CHARS * 2:
        return ""
    start, end = 0, len(word)
    while start < end and not word[start].isalnum():
        start += 1
    while end > start and not word[end - 1].isalnum():
        end -= 1
    return word[start:end]


def _is_meaningful(term: str) -> bool:
    is_short = len(term) <= MAX_TERM_CHARS or _is_path(term)
    is_word = is_short and len(term.encode()) >= MIN_TERM_BYTES and term.isprintable()
    return is_word and term.casefold() not in SEARCH_STOP_WORDS


def _is_path(term: str) -> bool:
    return _PATH.fullmatch(term) is not None and all(len(part) <= MAX_TERM_CHARS for part in term.split("/"))


def knowledge_reader(state: AgentState) -> Reader:
    """Return the reader on whose behalf the run recalls and stores. Only its starter and its setup determine it."""
    user = _user_name(state.input.trusted_context.get("user"))
    return Reader(tenant=state.input.tenant or "", user=user, agent=state.agent)


def _user_name(user: object) -> str:
    """Return the user's name. A value that is no text, such as 0, becomes JSON, so that it does not mean nobody."""
    if user is None:
        return ""
    name = user if isinstance(user, str) else json.dumps(user, sort_keys=True, separators=(",", ":"))
    if len(name) <= MAX_NAME_CHARS:
        return name
    digest = text_digest(json.dumps(name))  # two long names may begin alike
    return f"{name[: MAX_NAME_CHARS - len(digest) - 1]}:{digest}"


def call_behalf(state: AgentState) -> Behalf:
    model = state.setup.model if state.setup else ""
    settings = state.config.knowledge or RunKnowledge()
    return Behalf(
        reader=knowledge_reader(state),
        iteration=state.iteration,
        model=model,
        taint=state.taint,
        threshold=settings.relevance_threshold,
    )


def due_recall(state: AgentState) -> RecallRequest | None:
    """Return the recall before the next model call, or None if there are no new words."""
    settings = state.config.knowledge
    if settings is None or not state.config.uses_knowledge:
        return None
    request = _recall_request(state, settings)
    terms = {term.casefold() for term in request.search_terms}
    latest_terms = {term.casefold() for term in state.recollection.terms}
    return request if terms and terms != latest_terms else None


def _recall_request(state: AgentState, settings: RunKnowledge) -> RecallRequest:
    messages = state.conversation.messages
    is_shown = any(message.knowledge for message in messages)
    return RecallRequest(
        iteration=state.iteration + 1,
        terms=search_terms(messages),
        paths=recent_call_paths(messages),
        reader=knowledge_reader(state),
        limit=settings.max_context_items,
        threshold=settings.relevance_threshold,
        max_bytes=min(MAX_BLOCK_BYTES, estimated_bytes(message_budget(state) * RECALL_SHARE)),
        content=state.recollection.content if is_shown else "",
    )


def with_recalled_context(state: AgentState, recalled: RecalledContext, activity_id: str) -> AgentState:
    """Return the state with the new block in place of the previous one, or without a block if nothing was found.

    A block stays where it is if its content is the same, or if the recall failed. Both set `recalled.same`.
    """
    conversation = state.conversation
    if not recalled.same:
        conversation = without_recall_block(conversation)
        if recalled.text:
            block = knowledge_message(recalled.text)
            conversation = with_message(conversation, block, MessageRef(recall=activity_id))
    recollection = _recollection(recalled, state.recollection)
    state = state.with_dialogue(conversation=conversation, recollection=recollection)
    return with_recalled_taint(state, recalled.taint)


def _recollection(recalled: RecalledContext, last: Recollection) -> Recollection:
    """Return the record of the latest recall. A failed one is tried once more even if the words are the same.

    After a second failure only other words cause another try.
    """
    if not recalled.error:
        return Recollection(terms=recalled.terms, content=recalled.content, items=len(recalled.items))
    block = last if recalled.same else Recollection()
    return Recollection(
        terms=recalled.terms if last.error else last.terms,
        content=block.content,
        items=block.items,
        error=one_line(recalled.error, MAX_ERROR_CHARS),
    )


def with_recalled_taint(state: AgentState, taint: tuple[str, ...]) -> AgentState:
    """Return the state with the taint of the recalled items, up to the limit. The run's own tools do not count."""
    own = {tool.name for tool in state.tools}
    fresh = [name[:MAX_TAINT_CHARS] for name in taint if name[:MAX_TAINT_CHARS] not in state.taint]
    room = MAX_RECALLED_TAINT - sum(name not in own for name in state.taint)
    all_taint = tuple(dict.fromkeys((*state.taint, *fresh[: max(room, 0)])))
    return state if all_taint == state.taint else state.with_dialogue(taint=all_taint)


_MAX_SUBJECT_CHARS = 200

MAX_LEARNINGS_BYTES = 2_000
_BETWEEN_LEARNINGS = "\n\n---\n\n"
_CUT_MARKER = "..."

_MAX_NO_ANSWER_CHARS = 1_500
"""Characters. A longer text has content, even if something was not found."""

_CLAUSE_END = re.compile(
    r"(?<=[.!?])\s+|\n+|;\s+(?![^()]*\))|\s[–—]\s"
    r"|,?\s+(?:but|however|although|though|yet|instead|aber|mais|pero)\b,?\s*"
)
_NO_ANSWER = re.compile(
    r"""
    (?:^|\b(?:i|we|they)(?:'ve|\shave|\shad)?\s(?:really\s|currently\s|also\s|still\s|just\s|so\sfar\s)?)
        (?:(?:could|can|did|do|have|was|were|am|are)(?:\s?not|n't)|can't
            |(?:am\s|are\s|was\s|were\s|been\s)?(?:unable|not\sable)\sto|failed\sto)
        \s(?:\w+\s){0,3}?
        (?:find|found|locate|determine|figure|identif\w+|answer|tell|say|know|see|access|verif\w+|confirm|discover
            |provide|help|complete|retrieve|conclude|establish|sure|certain|aware|able|have)\b
    |\b(?:could|can|was|were|is|are)(?:\s?not|n't)\s(?:be\s)?
        (?:found|determined|answered|located|identified|verified|confirmed|established|retrieved|specified|mentioned)\b
    |\b(?:not\s|im)possible\sto\s(?:\w+\s){0,2}?(?:answer|determine|find|say|tell|know|verify|confirm)\b
    |\b(?:i|we)\shave\sno\sway\sto\b|\b(?:information|answer|details)\b.*\b(?:is|are)\smissing\b
    |^(?:that\s|this\s|it\s|which\s|the\sanswer\s)?(?:is|remains|was)\s(?:unclear|unknown|not\s(?:clear|known|given))
    |\b(?:document\w*|docs|files?|texts?|sources?|context|pages?|readme|results?|search\w*|materials?|information|tools?)
        \s(?:do|does|did)(?:\snot|n't)\s(?:\w+\s)?(?:mention|say|state|specify|answer|tell|show|cover|reveal
            |(?:contain|include|provide|hold|have|give)\s(?:the\s|an\s|any\s|enough\s|that\s|this\s)
                (?:\w+\s)?(?:information|answer|details|mention))
    |^(?:it|they|that|this)\s(?:do|does|did)(?:\snot|n't)\s(?:\w+\s)?(?:mention|say|state|specify|tell|show)\b
    |\b(?:information|answer|details)\b.*\b(?:is|are)(?:\snot|n't)\s(?:available|there|given|in)\b
    |\bno\s(?:\w+\s)?(?:information|answers?|results?|documents?|records?|match\w*|references?|mention)
        \s(?:was|were|could\sbe|is|are)\s(?:found|available)\b
    |\bthere\s(?:is|are|was|were)(?:\snot|n't)\s(?:any|enough)\s(?:\w+\s)?(?:information|answer|details|mention|evidence)
    |\b(?:no|none\sof\sthe|neither|nothing\sin\sthe)\s(?:\w+\s){0,3}?(?:mentions?|says?|states?|specif\w+|answers?)\b
    |(?:^|\b(?:there\s(?:is|are|was|were)|have|has|had|found|find|see|returned|gave)\s)(?:no|not\sany|not\senough|insufficient)\s
        (?:\w+\s)?(?:information|answers?|results?|data|details|mention|evidence|record|match\w*|passages?|idea|knowledge|context)
    |\bnothing\s(?:was\s|could\sbe\s|is\s)?(?:found|about|on|matches|fits|answers|there|that)\b
    |\b(?:found|find)\snothing\b
    |^not\s(?:specified|mentioned|known|available|stated|given|sure|certain|found)\b|^answer\snot\sfound
    |^(?:unknown|n/a|none|null|nothing|no\sanswer|no\sidea)\b
    |\b(?:i|we)\s(?:would\s|still\s)?need\s(?:more|further|additional|access)\b
    |\b(?:nicht|nichts|keine?n?)\b.*\b(?:finden|gefunden|herausfinden|wissen|beantworten|feststellen|bekannt)\b
    |\bich\swei(?:ß|ss)\s(?:\w+\s){0,3}nicht\b
    |\bje\s(?:ne\ssais|n'ai)\s(?:pas|rien)\b
    |\bno\s(?:pude|he\spodido|puedo|encontré|lo\ssé|sé|hay\sinformación)\b
    """,
    re.VERBOSE,
)
"""Matches a clause, in lower case, that reports that something was not found."""

_NO_STATEMENT = re.compile(
    r"""
    (?:i'm\s|i\sam\s|we\sare\s)?(?:very\s|so\s)?sorry|apologies|no\sluck|i\sgave\sup|unfortunately$|leider$|no$|offline:extractive|passages\squoted\sas
    |(?:i|we)(?:'ve|'ll|\shave|\swill)?\s(?:also\s|already\s)?
        (?:search|look|check|read|tried|try|went|review|examin|used|called)
    |after\s|let\sme\s|please|nearest\sto\sit
    |(?:could|would|can)\syou|do\syou|if\syou|you\s(?:can|may|could|might|should|would)
    |perhaps|feel\sfree|is\sthere|how\scan\si|what\swould\syou|bitte|s'il\svous|por\sfavor
    """,
    re.VERBOSE,
)
"""Matches the beginning of a clause that reports work or asks for something."""


def learnings_text(state: AgentState, since: int = 0) -> str:
    """Return the model's texts that are worth keeping, oldest first, from message `since` on, or ""."""
    messages = state.conversation.messages[since:]
    texts = [text for message in messages if message.role == "assistant" and (text := message.text.strip())]
    if is_no_answer("\n".join(texts)):
        return ""
    return _BETWEEN_LEARNINGS.join(text for text in texts if not is_no_answer(text))


def is_no_answer(text: str) -> bool:
    """Return True if a text only reports that nothing was found, and how it was searched.

    If it were stored, the same question would later recall it before a text with the answer.
    """
    if len(text) > _MAX_NO_ANSWER_CHARS:
        return False
    parts = _CLAUSE_END.split(text.casefold().replace("’", "'"))
    clauses = [clause for part in parts if (clause := part.strip(" \"'*_`.,!?:()[]{}>-"))]
    others = [clause for clause in clauses if not _NO_ANSWER.search(clause)]
    return len(others) < len(clauses) and all(map(_NO_STATEMENT.match, others))


def _clipped_learnings(text: str) -> str:
    whole = text.encode("utf-8", "replace")
    if len(whole) <= MAX_LEARNINGS_BYTES:
        return text
    return whole[: MAX_LEARNINGS_BYTES - len(_CUT_MARKER)].decode("utf-8", "ignore") + _CUT_MARKER


def learning_call(state: AgentState, text: str, confidence: float | None = None) -> ToolCall | None:
    """Return the call that stores the run's learnings, or None if there are none or the run may not store them."""
    settings = state.config.knowledge
    learns = settings is not None and settings.enabled and settings.auto_persist
    if not learns or state.tool(STORE_KNOWLEDGE) is None:
        return None
    if not text.strip() or is_no_answer(text):
        return None
    arguments = {
        "subject": one_line(state.input.task, _MAX_SUBJECT_CHARS),
        "predicate": "taught",
        "object": _clipped_learnings(text),
        "scope": "user" if knowledge_reader(state).user else "agent",
        **({} if confidence is None else {"confidence": confidence}),
    }
    return ToolCall(call_id=LEARNINGS, name=STORE_KNOWLEDGE, arguments=arguments)


def learning_key(state: AgentState, turn: int = 0) -> str:
    """Return the key of a run's or a turn's learnings. With the key they are stored only once."""
    return f"{LEARNINGS}/{state.origin}/{turn}" if turn else f"{LEARNINGS}/{state.origin}"
