"""`offline:extractive`: no language model, but a reader that searches files, reads them, and answers in quotes.

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
from orga.workflows.types.recall import CONTEXT_BLOCK
from orga.workflows.types.text import undelimited_text
from orga.workflows.types.tool_calls.tools import ToolSpec

SIGNATURE = "offline:extractive: no language model; passages quoted as found"
MAX_CALLS, MAX_PARALLEL_CALLS = 6, 3  # tool calls for one question, and in one turn
WINDOW_LINES, MAX_CHARS, CHARS_PER_TOKEN = 150, 2_000, 4  # of one read; of a question, a quoted line
# files that are never quoted: the configuration, this reader, generated files
_IGNORED_PATH = re.compile(
    r"(^|/)orga\.toml$|(^|/)activities/adapters/offline/|\.(svg|lock|map|min\.\w+|png|jpe?g|gif|webp)$", re.I
)
_DELIMITED_BLOCK = re.compile(r"^\[([0-9a-f]{12}) begins: ([^\n]*)\]\n(.*?)\n\[\1 ends\]$", re.M | re.S)
_UNSEEN = re.compile(r"\[The (?:image|document) ?([^\]\n]*?) ?\([^\]\n]*\) cannot be shown to you\]")
NextCall = tuple[ToolCall, str]  # a call and its purpose


class Evidence:
    """The known lines of files, the questions that people ask, and the calls: all, and those for the last question."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.lines, self.read = dict[str, dict[int, str]](), set[tuple[str, int]]()  # read: not only search hits
        self.listing, self.asked, self.refused = list[str](), list[str](), dict[str, str]()
        self.unseen = list[str]()  # the pictures and documents of the last message
        self.made, self.calls = 0, {call.call_id: call for message in messages for call in message.calls}
        for number, message in enumerate(messages, 1):
            text = undelimited_text(message.text)
            ids = re.findall(r"^read-\w+-(\d)$", message.call_id or "")  # compaction may leave no more of a turn
            self.made = max(self.made + len(message.calls), *map(int, ids), 0)
            if message.role == "tool":
                self._take_message(message, text)
            elif message.knowledge:
                self._add_lines("recalled knowledge", "\n".join(_recalled_lines(text)))
            elif message.text.startswith(CONTEXT_BLOCK):
                marks = re.findall(r"lines that begin with \[([0-9a-f]{12}) ", message.text)[:1]
                for mark, source, content in _DELIMITED_BLOCK.findall(message.text):
                    if mark in marks and "), from " in source:
                        self._add_lines(source.rpartition(" (")[0], content, is_file=source.endswith(" read_file"))
            elif message.role == "system" or (message.role == "user" and message.pinned and self.asked):
                self._add_lines(f"conversation message {number}", message.text)
            elif message.role == "user" and not message.summary and not message.text.startswith(UNUSABLE_MARKER):
                is_turn = goal_prompt_in(message.text) != ""
                text = _UNSEEN.sub("", message.text)
                self.asked += [] if is_turn and number < len(messages) else _message_questions(text)
                self.unseen = self.unseen if is_turn else [name or "it" for name in _UNSEEN.findall(message.text)]
                self.made = self.made if is_turn else 0
        self.lines = {path: lines for path, lines in self.lines.items() if not _IGNORED_PATH.search(path)}
        self.listing = [path for path in self.listing if not _IGNORED_PATH.search(path)]

    def _take_message(self, message: Message, text: str) -> None:
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
        found = re.match(r"(.+?) \(lines \d+-\d+ of ", head) if is_file else None
        known = dict(enumerate((rest if head.startswith("Content of ") else text).split("\n"), 1))
        if found:
            known = {int(row[1]): row[2] for row in re.finditer(r"^(\d{1,9})\t(.*)$", rest, re.M)}
        name = (name or (found[1] if found else "")).removeprefix("./")
        self.lines.setdefault(name, {}).update(known)
        self.read |= {(name, number) for number in known}


def _recalled_lines(block: str) -> Iterator[str]:
    """Yield the lines of recalled items. An item that this reader wrote yields only its quotes."""
    is_readers = False
    for line in block.split("\n"):
        is_readers = ", model=offline:" in line if line.startswith("- ") else is_readers
        text = re.match(r"  (?!Task: |---)((?:> ?)*)(.*)", line)
        yield text[2] if text and (text[1] or text[2].startswith("—") or not is_readers) else ""


def _message_questions(text: str) -> list[str]:
    """Return the question of a message, after the text that only helps to find it: the input of a pipeline's step."""
    if turn := goal_prompt_in(text):
        steps = re.findall(r"^- \S+ \([^()\n]+\): (.+?)(?: with \{.*\})?$", text, re.M)
        return ["\n".join(steps)] if turn == "goal_input" and steps else []
    own, is_framed, rest = re.sub(r"^\s*\[[^\]\n]{1,60}\]:?\s*", "", text).strip().partition(f"\n\n{THE_GOAL}\n")
    goal, _, added = _DELIMITED_BLOCK.sub("", rest).partition(f"\n\n{FROM_OPERATOR}\n")
    added += "\n".join(data for _, source, data in _DELIMITED_BLOCK.findall(rest) if source.startswith(INPUT))
    return [each for each in (added.strip(), own if own.endswith("?") or not is_framed else goal.strip()) if each]


def next_calls(
    question: ReaderQuestion, evidence: Evidence, matches: list[PassageMatch], specs: Sequence[ToolSpec]
) -> list[NextCall]:
    """Return the calls of the next turn, without repetition, or none if it is time to answer."""
    denied = {tool for tool, why in evidence.refused.items() if why.startswith("[Policy denied]")}
    tools: dict[str, Any] = {spec.name: spec.parameters.get("properties") for spec in specs if spec.name not in denied}
    made = [(call.name, call.arguments) for call in evidence.calls.values()]
    steps, places, best = list[NextCall](), list[tuple[str, int]](), matches[:300]

    def add(tool: str, purpose: str, **arguments: str | int) -> None:
        known = {name: value for name, value in arguments.items() if name in (tools.get(tool) or ())}
        has_room = len(steps) < min(MAX_PARALLEL_CALLS, MAX_CALLS - evidence.made)
        if has_room and tool in tools and (tool, known) not in made:
            steps.append((ToolCall(call_id="", name=tool, arguments=known), purpose))

    def worth(match: PassageMatch) -> float:
        here = match.passage  # a window counts by the different words of the question within it
        near = (each for each in best if each.passage.path == here.path and abs(each.passage.first - here.first) < 9)
        return sum({term: value for each in near for term, value in each.held.items()}.values()) + match.score / 10

    top = [(each.passage.path, each.passage.first) for each in matches[: len(question.parts)] if each.answers]
    if not question.text or (len(top) == len(question.parts) and evidence.read.issuperset(top)):
        return []
    for query, purpose in search_queries(question) if evidence.made == 0 else ():
        add("search_text", purpose, query=query, regex=True, limit=WINDOW_LINES)
    for match in sorted(best, key=worth, reverse=True):
        path, line = match.passage.path, match.passage.first
        first = 1 if line <= 80 else line - 40
        is_chosen = any(path == other and abs(first - start) < 80 for other, start in places)
        places += [] if is_chosen or (path, line) in evidence.read else [(path, first)]
    if not steps and not places:
        add("list_files", "look at the list of files")
        known = {path: len(question.weights(words_and_numbers(path))) for path in evidence.listing}
        files = sorted(evidence.listing, key=lambda path: (-known[path], path.count("/"), path))
        places = [(path, 1) for path in [*question.paths, *(files or ["README.md"])]]
    for path, first in () if steps else places:
        last = first + WINDOW_LINES
        add("read_file", f"read {path}:{first}-{last}", path=path, start_line=first, end_line=last)
    return steps


def search_queries(question: ReaderQuestion) -> list[tuple[str, str]]:
    """Return patterns and their purpose: for lines with two of the words, or their beginnings, then for one word."""
    items = {" ".join(row): r"[\W_]{0,3}".join(map(re.escape, row)) for row in question.names}
    for word in [*sorted(question.needed, key=len, reverse=True), *sorted(question.helpful)] if question.needed else ():
        start = word[: max(len(question.stem(word)), 3, len(word) * 3 // 5)].rstrip("iy" if len(word) > 4 else "")
        if word not in question.exact:
            items[word] = re.escape(start) if len(start) > 4 or not start.isascii() else rf"(?:\b|_){re.escape(start)}"
    parts = list(items.values())
    pairs = "|".join(f"{one}.*(?:{'|'.join(other for other in parts[:6] if other != one)})" for one in parts[:6])
    single = [(part, f"look for {question.needed.get(word, word)}") for word, part in items.items()]
    both = [(pairs, f"look for {', '.join(question.needed.values())}")]
    return [*both, *single[:2]] if len(parts) > 1 and len(pairs) < 1_000 else single[:3]


def quoted_answer(question: ReaderQuestion, evidence: Evidence, matches: Sequence[PassageMatch], room: int) -> str:
    """Return up to four quotes with their sources, or what no passage contains."""
    notes = [f"I called {tool} without success: {why}" for tool, why in evidence.refused.items()]
    notes += [f"I cannot see {', '.join(evidence.unseen)}. A model of a provider can."] if evidence.unseen else []
    first, others = matches[: len(question.parts)], matches[len(question.parts) :]
    answering = [match for match in (*first, *(x for x in others if x.score >= 0.6 * first[0].score)) if match.answers]
    sources = [*dict.fromkeys(match.passage.source for match in answering)][:3]  # one passage may answer two parts
    found = [match for match in answering if match.passage.source in sources]
    gap = [word for word in question.needed if found and not any(word in match.held for match in found)]
    rest = [match for match in matches if gap and match.held.keys() >= {*gap, *question.exact}][:1]
    if found:
        blocks = [f"The closest passage is in `{found[0].passage.source}`."]
        for passage in {match.passage.source: match.passage for match in (*found, *rest)}.values():
            under = f", under “{passage.above[-1]}”" if passage.above else ""
            lines = [f"> {line[:MAX_CHARS]}".rstrip() for line in passage.lines]
            blocks.append("\n".join([*lines, f"— `{passage.source}`{under}"]))
        notes += [f"In no quote: {', '.join(question.needed[word] for word in gap)}."] if gap and not rest else []
    else:
        sought = ", ".join(dict.fromkeys(question.needed.values())) or "the question"
        near = [f"Nearest to it is `{match.passage.source}`." for match in matches[:1]]
        blocks = [f"I found no passage that contains all of: {sought}.", *near]
    while len(text := "\n\n".join([*blocks, *notes, SIGNATURE])) > room and len(blocks) > 2:
        blocks.pop()
    return text


def goal_reply(messages: Sequence[Message], steps: Sequence[NextCall], answer: str, *, is_found: bool) -> str | None:
    """Return the reply to the latest turn of a goal, by the next steps and the answer so far; None outside a goal."""
    prompt = next((m.text for m in reversed(messages) if m.role == "user" and goal_prompt_in(m.text)), "")
    most, turn = re.search(r"at most (\d+) of", prompt), goal_prompt_in(prompt)
    planned = [
        {"id": f"s{number}", "goal": purpose, "skill": call.name, "arguments": call.arguments}
        for number, (call, purpose) in enumerate(steps, 1 + sum(len(message.calls) for message in messages))
    ][: int(most[1]) if most else 4]
    due = re.findall(r"^(?:\[goal_evaluate\] )?- (\S+): ", prompt, re.M)
    worth, quality = (3, "partial") if steps else (4, "good") if is_found else (2, "partial")
    scores = {**dict.fromkeys(("relevance", "completeness", "usability", "goal_progress"), worth), "quality": quality}
    action, reason = ("done", "a passage answers") if is_found else ("stuck", "no passage answers")
    action, reason = ("adjust", "more can be looked up") if planned else (action, reason)
    memory = prompt.partition("Kept in mind:\n")[2]
    replies = {
        "goal_plan": {"steps": planned} if planned else {"error": "no tool that searches or reads is offered"},
        "goal_evaluate": {"steps": [{"id": step, "summary": reason, **scores} for step in due]},
        "goal_decide": {"action": action, "confidence": 0.6 if planned else 0.8, "reason": reason, "steps": planned},
        "goal_compress": {"memory": memory[: len(memory) // 2]},
    }
    return answer if turn == "goal_summary" else to_json(replies[turn]).decode() if turn in replies else None


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
    if request.tool_choice == "none" and not request.tools:  # a request for a summary, which it cannot write
        return Reply()
    evidence, room = Evidence(request.messages), request.max_output_tokens * CHARS_PER_TOKEN
    latest, earlier = "".join(evidence.asked[-1:])[:MAX_CHARS], "".join(evidence.asked[-2:-1])[:MAX_CHARS]
    question = ReaderQuestion(latest, earlier)
    question = question if question.needed or not earlier else ReaderQuestion(f"{earlier}\n{latest}")
    parts = [ReaderQuestion(each, earlier) for each in question.parts] if len(question.parts) > 1 else [question]
    known = [[p for file in evidence.lines.items() for p in file_passages(*file, part)] for part in parts]
    read = [each for each in known[0] if (each.path, each.first) in evidence.read and len(each.words) > 6]
    ranked = [match for row in zip_longest(*map(ranked_matches, parts, known)) for match in row if match]
    ranked = ranked if question.needed else [PassageMatch(each, True, 1.0, {}) for each in read]
    matches = sorted(ranked, key=lambda match: not match.answers)  # the best of each part is first
    steps = next_calls(question, evidence, matches, request.tools)
    answer = quoted_answer(question, evidence, matches, room)
    if (in_goal := goal_reply(request.messages, steps, answer, is_found="\n> " in answer)) is not None:
        return Reply.of(in_goal)
    if steps and request.tool_choice != "none":
        topic = hashlib.sha256(question.text.encode()).hexdigest()[:6]
        calls = [call.with_id(f"read-{topic}-{number}") for number, (call, _) in enumerate(steps, evidence.made + 1)]
        return Reply.of(" ".join(f"I {purpose}." for _, purpose in steps), calls=calls, finish="tool_calls")
    if request.output_schema is not None:  # JSON is whole even if its text is cut
        return Reply.of(filled_schema(request.output_schema, answer[:room]))
    return Reply.of(answer[:room], finish="stop" if len(answer) <= room else "length")
