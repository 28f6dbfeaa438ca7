"""The provider of `offline:extractive`: no language model, but a reader that searches files and answers in quotes.

Only people decide what the reader looks for. A file is evidence: its text never decides which tool is called.
"""

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

from pydantic_core import to_json

from orga.activities.adapters.agents.agents import filled_schema
from orga.activities.adapters.offline.passages import (
    PassageMatch,
    ReaderQuestion,
    file_passages,
    ranked_matches,
    words_and_numbers,
)
from orga.activities.ports import ModelRequest
from orga.workflows.types.goals.pipelines import FROM_OPERATOR, INPUT, THE_GOAL
from orga.workflows.types.goals.requests import goal_prompt_in
from orga.workflows.types.messages import UNUSABLE_MARKER, Message, Reply, ToolCall
from orga.workflows.types.models.usage import Usage
from orga.workflows.types.recall import LOOKUPS_HEADER
from orga.workflows.types.text import undelimited_text
from orga.workflows.types.tool_calls.tools import ToolSpec

SIGNATURE = "offline:extractive: no language model; passages quoted as found"
MAX_CALLS, MAX_PARALLEL_CALLS = 6, 3  # tool calls for one question, and in one turn
WINDOW_LINES = 150  # lines of one read, and hits of one search
LINES_BEFORE = 40  # lines of a read before the passage
NEAR_LINES = 9  # passages with fewer lines between their beginnings support each other
MAX_COMPARED = 300  # best passages that decide what is read next
MAX_CHARS = 2_000  # characters of a question, and of a quoted line
CHARS_PER_TOKEN = 4
# files that are never quoted: the configuration, this reader, generated files
_IGNORED_PATH = re.compile(
    r"(^|/)orga\.toml$|(^|/)activities/adapters/offline/|\.(svg|lock|map|min\.\w+|png|jpe?g|gif|webp)$", re.I
)
_DELIMITED_BLOCK = re.compile(r"^\[([0-9a-f]{12}) begins: ([^\n]*)\]\n(.*?)\n\[\1 ends\]$", re.M | re.S)
_UNSEEN = re.compile(r"\[The (?:image|document) ?([^\]\n]*?) ?\([^\]\n]*\) cannot be shown to you\]")
NextCall = tuple[ToolCall, str]  # a call and its purpose


class Evidence:
    """The contents of a conversation: the lines of files that it shows, the questions, and the calls."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.lines = dict[str, dict[int, str]]()  # the known lines by file and number
        self.read = set[tuple[str, int]]()  # file and number of known lines, except of those that only a search found
        self.listing = list[str]()  # files that `list_files` found
        self.asked = list[str]()  # the questions of people, the last one last
        self.refused = dict[str, str]()  # the first failure of each tool
        self.unseen = list[str]()  # pictures and documents of the last question
        self.calls = {call.call_id: call for message in messages for call in message.calls}
        self.made = 0  # calls for the last question
        for number, message in enumerate(messages, 1):
            text = undelimited_text(message.text)
            # compaction may have dropped calls, but the number in the id of a later call still counts them
            ids = re.findall(r"^read-\w+-(\d)$", message.call_id or "")
            self.made = max(self.made + len(message.calls), *map(int, ids), 0)
            if message.role == "tool":
                self._add_result(message, text)
            elif message.knowledge:
                self._add_lines("recalled knowledge", "\n".join(_recalled_lines(text)))
            elif message.text.startswith(LOOKUPS_HEADER):
                self._add_context_block(message.text)
            elif message.role == "system" or (message.role == "user" and message.pinned and self.asked):
                self._add_lines(f"conversation message {number}", message.text)
            elif message.role == "user" and not message.summary and not message.text.startswith(UNUSABLE_MARKER):
                self._add_question(message, is_last=number == len(messages))
        self.lines = {path: lines for path, lines in self.lines.items() if not _IGNORED_PATH.search(path)}
        self.listing = [path for path in self.listing if not _IGNORED_PATH.search(path)]

    def _add_context_block(self, text: str) -> None:
        """Add what was looked up before the first iteration. Only the mark that the block names delimits parts."""
        marks = re.findall(r"lines that begin with \[([0-9a-f]{12}) ", text)[:1]
        for mark, source, content in _DELIMITED_BLOCK.findall(text):
            if mark in marks and "), from " in source:
                self._add_lines(source.rpartition(" (")[0], content, is_file=source.endswith(" read_file"))

    def _add_question(self, message: Message, *, is_last: bool) -> None:
        """Add a message of a person, or a goal prompt. A goal prompt is a question only if it is the last message."""
        is_goal_prompt = goal_prompt_in(message.text) != ""
        if is_last or not is_goal_prompt:
            self.asked += _message_questions(_UNSEEN.sub("", message.text))
        if not is_goal_prompt:
            self.unseen = [name or "it" for name in _UNSEEN.findall(message.text)]
            self.made = 0

    def _add_result(self, message: Message, text: str) -> None:
        if message.is_error or text.startswith(("[Policy denied]", "[Error]", "[Schema validation failed]")):
            self.refused.setdefault(message.tool or "", " ".join(text.split())[:200])
        elif message.tool == "list_files":
            self.listing += re.findall(r"^(?:\./)?(?!No files )([^\s\[].{0,400})$", text, re.M)
        elif message.tool == "read_file" and not text.startswith("["):
            call = self.calls.get(message.call_id or "")
            self._add_lines(str(call.arguments.get("path", "")) if call else "", text, is_file=True)
        elif message.tool == "search_text":
            for hit in re.finditer(r"^(?:\./)?([^:\n]{1,400}?)([:-])(\d{1,9})\2(?: (.*))?$", text, re.M):
                self.lines.setdefault(hit[1], {}).setdefault(int(hit[3]), hit[4] or "")

    def _add_lines(self, name: str, text: str, *, is_file: bool = False) -> None:
        """Add the numbered lines that `read_file` returns, or the lines of any other text."""
        text = _UNSEEN.sub("", text)
        head, _, rest = text.partition("\n")
        file_head = re.match(r"(.+?) \(lines \d+-\d+ of ", head) if is_file else None
        if file_head:
            name = name or file_head[1]
            numbered = {int(row[1]): row[2] for row in re.finditer(r"^(\d{1,9})\t(.*)$", rest, re.M)}
        else:
            body = rest if head.startswith("Content of ") else text
            numbered = dict(enumerate(body.split("\n"), 1))
        name = name.removeprefix("./")
        self.lines.setdefault(name, {}).update(numbered)
        self.read |= {(name, number) for number in numbered}


def _recalled_lines(block: str) -> Iterator[str]:
    """Yield the lines of recalled items. An item that this reader wrote yields only its quotes."""
    is_own = False
    for line in block.split("\n"):
        if line.startswith("- "):  # an item begins
            is_own = ", model=offline:" in line
        found = re.match(r"  (?!Task: |---)((?:> ?)*)(.*)", line)
        is_quote = found and (found[1] or found[2].startswith("—"))  # a quoted line, or the source below it
        yield found[2] if found and (is_quote or not is_own) else ""


def _message_questions(text: str) -> list[str]:
    """Return the question of a message, after text that only helps to find its answer.

    - A step of a goal: its task, or the goal if the task is no question. The operator's text and the input help.
    - The goal prompt `goal_input`: the tasks of its steps. Other goal prompts ask nothing.
    - Any other message: all of it.
    """
    if prompt := goal_prompt_in(text):
        steps = re.findall(r"^- \S+ \([^()\n]+\): (.+?)(?: with \{.*\})?$", text, re.M)
        return ["\n".join(steps)] if prompt == "goal_input" and steps else []
    without_label = re.sub(r"^\s*\[[^\]\n]{1,60}\]:?\s*", "", text).strip()
    own, is_step, rest = without_label.partition(f"\n\n{THE_GOAL}\n")
    goal, _, helpful = _DELIMITED_BLOCK.sub("", rest).partition(f"\n\n{FROM_OPERATOR}\n")
    helpful += "\n".join(data for _, source, data in _DELIMITED_BLOCK.findall(rest) if source.startswith(INPUT))
    question = goal.strip() if is_step and not own.endswith("?") else own
    return [each for each in (helpful.strip(), question) if each]


def next_calls(
    question: ReaderQuestion, evidence: Evidence, matches: list[PassageMatch], specs: Sequence[ToolSpec]
) -> list[NextCall]:
    """Return the calls of the next turn, without repetition, or none if it is time to answer."""
    denied = {tool for tool, why in evidence.refused.items() if why.startswith("[Policy denied]")}
    tools: dict[str, Any] = {spec.name: spec.parameters.get("properties") for spec in specs if spec.name not in denied}
    made = [(call.name, call.arguments) for call in evidence.calls.values()]
    calls, best = list[NextCall](), matches[:MAX_COMPARED]
    windows = list[tuple[str, int]]()  # file and first line of each read that would help

    def add(tool: str, purpose: str, **arguments: str | int) -> None:
        known = {name: value for name, value in arguments.items() if name in (tools.get(tool) or ())}
        has_room = len(calls) < min(MAX_PARALLEL_CALLS, MAX_CALLS - evidence.made)
        if has_room and tool in tools and (tool, known) not in made:
            calls.append((ToolCall(call_id="", name=tool, arguments=known), purpose))

    def worth(match: PassageMatch) -> float:
        """Return the weight of all words of the question near a passage, plus a tenth of the passage's score."""
        here = match.passage
        near = (
            each
            for each in best
            if each.passage.path == here.path and abs(each.passage.first - here.first) < NEAR_LINES
        )
        return sum({term: value for each in near for term, value in each.held.items()}.values()) + match.score / 10

    answers = [(each.passage.path, each.passage.first) for each in matches[: len(question.parts)] if each.answers]
    is_answered = len(answers) == len(question.parts) and evidence.read.issuperset(answers)
    if is_answered or not question.text:
        return []
    if evidence.made == 0:
        for query, purpose in search_queries(question):
            add("search_text", purpose, query=query, regex=True, limit=WINDOW_LINES)
    for match in sorted(best, key=worth, reverse=True):
        path, line = match.passage.path, match.passage.first
        first = 1 if line <= 2 * LINES_BEFORE else line - LINES_BEFORE
        is_chosen = any(path == other and abs(first - start) < 2 * LINES_BEFORE for other, start in windows)
        if not is_chosen and (path, line) not in evidence.read:
            windows.append((path, first))
    if not calls and not windows:
        add("list_files", "look at the list of files")
        words = {path: len(question.weights(words_and_numbers(path))) for path in evidence.listing}
        files = sorted(evidence.listing, key=lambda path: (-words[path], path.count("/"), path))
        windows = [(path, 1) for path in [*question.paths, *(files or ["README.md"])]]
    if not calls:
        for path, first in windows:
            last = first + WINDOW_LINES
            add("read_file", f"read {path}:{first}-{last}", path=path, start_line=first, end_line=last)
    return calls


def search_queries(question: ReaderQuestion) -> list[tuple[str, str]]:
    """Return patterns with their purposes: one for lines with two of the words, and then some for single words.

    A name is searched as it is. Any other word is searched by its beginning, so that its other forms are found.
    """
    patterns = {" ".join(row): r"[\W_]{0,3}".join(map(re.escape, row)) for row in question.names}
    words = [*sorted(question.needed, key=len, reverse=True), *sorted(question.helpful)] if question.needed else []
    for word in words:
        if word not in question.exact:
            start = word[: max(len(question.stem(word)), 3, len(word) * 3 // 5)].rstrip("iy" if len(word) > 4 else "")
            is_short = len(start) <= 4 and start.isascii()  # a short start would be found inside many words
            patterns[word] = rf"(?:\b|_){re.escape(start)}" if is_short else re.escape(start)
    parts = list(patterns.values())
    pairs = "|".join(f"{one}.*(?:{'|'.join(other for other in parts[:6] if other != one)})" for one in parts[:6])
    single = [(pattern, f"look for {question.needed.get(word, word)}") for word, pattern in patterns.items()]
    both = [(pairs, f"look for {', '.join(question.needed.values())}")]
    return [*both, *single[:2]] if len(parts) > 1 and len(pairs) < 1_000 else single[:3]


def quoted_answer(question: ReaderQuestion, evidence: Evidence, matches: Sequence[PassageMatch], room: int) -> str:
    """Return up to four quotes with their sources, or the words that no passage contains together."""
    notes = [f"I called {tool} without success: {why}" for tool, why in evidence.refused.items()]
    notes += [f"I cannot see {', '.join(evidence.unseen)}. A model of a provider can."] if evidence.unseen else []
    first, others = matches[: len(question.parts)], matches[len(question.parts) :]
    close = [match for match in others if match.score >= 0.6 * first[0].score]  # nearly as good
    answering = [match for match in (*first, *close) if match.answers]
    sources = [*dict.fromkeys(match.passage.source for match in answering)][:3]  # one passage may answer two parts
    found = [match for match in answering if match.passage.source in sources]
    missing = [word for word in question.needed if found and not any(word in match.held for match in found)]
    wanted = {*missing, *question.exact}
    supplement = [match for match in matches if missing and match.held.keys() >= wanted][:1]  # has all missing words
    if found:
        blocks = [f"The closest passage is in `{found[0].passage.source}`."]
        for passage in {match.passage.source: match.passage for match in (*found, *supplement)}.values():
            under = f", under “{passage.titles[-1]}”" if passage.titles else ""
            lines = [f"> {line[:MAX_CHARS]}".rstrip() for line in passage.lines]
            blocks.append("\n".join([*lines, f"— `{passage.source}`{under}"]))
        if missing and not supplement:
            notes.append(f"In no quote: {', '.join(question.needed[word] for word in missing)}.")
    else:
        sought = ", ".join(dict.fromkeys(question.needed.values())) or "the question"
        near = [f"Nearest to it is `{match.passage.source}`." for match in matches[:1]]
        blocks = [f"I found no passage that contains all of: {sought}.", *near]
    while len(text := "\n\n".join([*blocks, *notes, SIGNATURE])) > room and len(blocks) > 2:
        blocks.pop()
    return text


def goal_reply(messages: Sequence[Message], calls: Sequence[NextCall], answer: str, *, is_found: bool) -> str | None:
    """Return the reply to the latest goal prompt, or None if there is none.

    Args:
        calls: The next calls, which become the steps of a plan.
        answer: The answer from the evidence so far.
        is_found: True if that answer quotes a passage.
    """
    prompt = next((m.text for m in reversed(messages) if m.role == "user" and goal_prompt_in(m.text)), "")
    most, name = re.search(r"at most (\d+) of", prompt), goal_prompt_in(prompt)
    planned = [
        {"id": f"s{number}", "goal": purpose, "skill": call.name, "arguments": call.arguments}
        for number, (call, purpose) in enumerate(calls, 1 + sum(len(message.calls) for message in messages))
    ][: int(most[1]) if most else 4]
    due = re.findall(r"^(?:\[goal_evaluate\] )?- (\S+): ", prompt, re.M)
    score, quality = (4, "good") if is_found else (2, "partial")
    if calls:
        score, quality = 3, "partial"
    scores = {**dict.fromkeys(("relevance", "completeness", "usability", "goal_progress"), score), "quality": quality}
    if planned:
        action, reason = "adjust", "more can be looked up"
    else:
        action, reason = ("done", "a passage answers") if is_found else ("stuck", "no passage answers")
    memory = prompt.partition("Kept in mind:\n")[2]
    replies = {
        "goal_plan": {"steps": planned} if planned else {"error": "no tool that searches or reads is offered"},
        "goal_evaluate": {"steps": [{"id": step, "summary": reason, **scores} for step in due]},
        "goal_decide": {"action": action, "confidence": 0.6 if planned else 0.8, "reason": reason, "steps": planned},
        "goal_compress": {"memory": memory[: len(memory) // 2]},
    }
    if name == "goal_summary":
        return answer
    return to_json(replies[name]).decode() if name in replies else None


class ExtractiveProvider:
    """A model provider that reads and quotes: the same request gives the same reply."""

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        reply = await asyncio.to_thread(_reply, request)
        for piece in reply.text.splitlines(keepends=True):
            on_text(piece)
            await asyncio.sleep(0)
        read, written = len(to_json([request.messages, request.tools, request.system])), len(to_json(reply.parts))
        usage = Usage(input_tokens=read // CHARS_PER_TOKEN + 1, output_tokens=written // CHARS_PER_TOKEN + 1)
        return reply.with_usage(usage, "extractive", 0.0)


def _reply(request: ModelRequest) -> Reply:
    if request.tool_choice == "none" and not request.tools:  # a request for a summary, which the reader cannot write
        return Reply()
    evidence, room = Evidence(request.messages), request.max_output_tokens * CHARS_PER_TOKEN
    latest, earlier = "".join(evidence.asked[-1:])[:MAX_CHARS], "".join(evidence.asked[-2:-1])[:MAX_CHARS]
    question = ReaderQuestion(latest, earlier)
    if earlier and not question.needed:  # such as "and why?"
        question = ReaderQuestion(f"{earlier}\n{latest}")
    parts = [ReaderQuestion(each, earlier) for each in question.parts] if len(question.parts) > 1 else [question]
    files = list(evidence.lines.items())
    known = [[each for path, lines in files for each in file_passages(path, lines, part)] for part in parts]
    if question.needed:
        ranked = [match for row in zip_longest(*map(ranked_matches, parts, known)) for match in row if match]
    else:  # a question about everything: each passage that was read answers it, unless it is very short
        read = [each for each in known[0] if (each.path, each.first) in evidence.read and len(each.words) > 6]
        ranked = [PassageMatch(each, True, 1.0, {}) for each in read]
    matches = sorted(ranked, key=lambda match: not match.answers)  # the best of each part is first
    planned = next_calls(question, evidence, matches, request.tools)
    answer = quoted_answer(question, evidence, matches, room)
    if (in_goal := goal_reply(request.messages, planned, answer, is_found="\n> " in answer)) is not None:
        return Reply.of(in_goal)
    if planned and request.tool_choice != "none":
        topic = hashlib.sha256(question.text.encode()).hexdigest()[:6]
        calls = [call.with_id(f"read-{topic}-{number}") for number, (call, _) in enumerate(planned, evidence.made + 1)]
        return Reply.of(" ".join(f"I {purpose}." for _, purpose in planned), calls=calls, finish="tool_calls")
    if request.output_schema is not None:  # cutting the text keeps the JSON whole
        return Reply.of(filled_schema(request.output_schema, answer[:room]))
    return Reply.of(answer[:room], finish="stop" if len(answer) <= room else "length")
