"""Learnings of a run: the call that stores them at the end, and the texts that are no answer and are not stored."""

from __future__ import annotations

import re

from orga.workflows.decisions.recall import knowledge_reader
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.recall import STORE_KNOWLEDGE
from orga.workflows.types.state import AgentState
from orga.workflows.types.text import one_line
from orga.workflows.types.tool_calls.gate import LEARNINGS

MAX_SUBJECT_CHARS = 200
"""Characters of the task."""

MAX_LEARNINGS_BYTES = 2_000
BETWEEN_LEARNINGS = "\n\n---\n\n"
CUT_MARKER = "..."

MAX_NO_ANSWER_CHARS = 1_500
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
"""Matches a clause in lower case."""

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
    return BETWEEN_LEARNINGS.join(text for text in texts if not is_no_answer(text))


def is_no_answer(text: str) -> bool:
    """Return True if a text only says that nothing was found, and how it was searched.

    Such a text would be recalled before the text that answers the next question in the same words.
    """
    if len(text) > MAX_NO_ANSWER_CHARS:
        return False
    parts = _CLAUSE_END.split(text.casefold().replace("’", "'"))
    clauses = [clause for part in parts if (clause := part.strip(" \"'*_`.,!?:()[]{}>-"))]
    left = [clause for clause in clauses if not _NO_ANSWER.search(clause)]
    return len(left) < len(clauses) and all(map(_NO_STATEMENT.match, left))


def _clipped_learnings(text: str) -> str:
    whole = text.encode("utf-8", "replace")
    if len(whole) <= MAX_LEARNINGS_BYTES:
        return text
    return whole[: MAX_LEARNINGS_BYTES - len(CUT_MARKER)].decode("utf-8", "ignore") + CUT_MARKER


def learning_call(state: AgentState, text: str, confidence: float | None = None) -> ToolCall | None:
    """Return the call that stores the run's learnings, or None if there are none or it may not store them.

    Args:
        confidence: Confidence in them. None leaves it to the tool.
    """
    settings, setup = state.config.knowledge, state.setup
    if settings is None or setup is None or not state.config.uses_knowledge or not settings.auto_persist:
        return None
    if not text.strip() or is_no_answer(text) or setup.tool(STORE_KNOWLEDGE) is None:
        return None
    arguments = {
        "subject": one_line(state.input.task, MAX_SUBJECT_CHARS),
        "predicate": "taught",
        "object": _clipped_learnings(text),
        "scope": "user" if knowledge_reader(state).user else "agent",
        **({} if confidence is None else {"confidence": confidence}),
    }
    return ToolCall(call_id=LEARNINGS, name=STORE_KNOWLEDGE, arguments=arguments)


def learning_key(state: AgentState, turn: int = 0) -> str:
    """Return the key of a run's or a turn's learnings. It makes sure that they are stored only once."""
    return f"{LEARNINGS}/{state.origin}/{turn}" if turn else f"{LEARNINGS}/{state.origin}"
