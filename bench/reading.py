"""(p) How well the offline reader answers: questions over three sets of documents, through the real tools."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.figures import Figure
from bench.rig import Rig
from orga.activities.adapters.offline.reader import ExtractiveProvider
from orga.activities.adapters.tools.list_files import ListFiles
from orga.activities.adapters.tools.read_file import ReadFile
from orga.activities.adapters.tools.root import FileRoot
from orga.activities.adapters.tools.search_text import SearchText
from orga.activities.ports import ModelRequest, Tool, ToolContext, ToolError
from orga.workflows.types.messages import Message, ToolCall

FOLDER = Path(__file__).parent / "questions" / "reader"
PROJECT = Path(__file__).parents[1]
DOCUMENTS = {"docs": PROJECT / "docs", "examples": PROJECT / "examples", "office": FOLDER / "office"}

Questions = Literal["asked", "held_out"]
"""The set that the reader was tuned on, and the one that it was not."""

RIGHT = 23
"""Of the 28 that are asked."""
CALLS = 6
"""Of tools, for one question, at most."""
_LEAST: dict[Questions, int] = {"asked": RIGHT, "held_out": 0}
_ITERATIONS = 12
_QUOTE = re.compile(r"(?:^>.*\n?)+", re.M)


@dataclass(frozen=True)
class Asked:
    """A question, what its first quote has to hold, and what none may hold; without `expects` there is no answer."""

    set: str
    question: str
    expects: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    def is_right(self, answer: str) -> bool:
        """Return whether the first quote answers; of what has no answer, whether it says so and quotes nothing."""
        quotes = [_unmarked(quote) for quote in _QUOTE.findall(answer)]
        if any(wrong in quote for wrong in self.never for quote in quotes):
            return False
        if not self.expects:
            return answer.startswith("I found no passage") and not quotes
        return bool(quotes) and all(fact in quotes[0] for fact in self.expects)


@dataclass(frozen=True)
class Answered:
    """What came of a question."""

    asked: Asked
    answer: str
    calls: tuple[ToolCall, ...]

    @property
    def is_right(self) -> bool:
        """Whether the answer is right."""
        return self.asked.is_right(self.answer)


def questions(of: Questions) -> list[Asked]:
    """Return the questions of a set."""
    rows = [json.loads(line) for line in (FOLDER / f"{of}.jsonl").read_text(encoding="utf-8").splitlines()]
    return [
        Asked(row["set"], row["question"], tuple(row.get("expects", ())), tuple(row.get("never", ()))) for row in rows
    ]


async def answers(of: Questions) -> list[Answered]:
    """Ask all questions of a set."""
    return [await answered(asked) for asked in questions(of)]


async def answered(asked: Asked) -> Answered:
    """Play one question to its answer: the reader's calls are carried out by the tools themselves."""
    root = FileRoot(DOCUMENTS[asked.set])
    tools: dict[str, Tool] = {tool.spec.name: tool for tool in (ListFiles(root), SearchText(root), ReadFile(root))}
    specs, calls = tuple(tool.spec for tool in tools.values()), list[ToolCall]()
    messages = [Message.of("user", asked.question, pinned=True)]
    for _ in range(_ITERATIONS):
        request = ModelRequest(model="extractive", messages=tuple(messages), tools=specs, max_output_tokens=4096)
        reply = await ExtractiveProvider().complete(request, lambda piece: None)
        if not reply.calls:
            return Answered(asked, reply.text, tuple(calls))
        calls += reply.calls
        messages += [reply.message(), *[await _result(tools[call.name], call) for call in reply.calls]]
    raise AssertionError(f"the reader did not come to an end: {asked.question}")


async def measure(_: Rig) -> list[Figure]:
    """Return the figures; the ratio is what is missing, and 1 its limit."""
    figures: list[Figure] = []
    for of, least in _LEAST.items():
        found = await answers(of)
        right = sum(each.is_right for each in found)
        name = f"right answers of the offline reader, {of.replace('_', ' ')}"
        figures.append(Figure("p", name, f"of {len(found)}", right, least, least / right if right else 9.0, 1.0))
    return figures


async def _result(tool: Tool, call: ToolCall) -> Message:
    context = ToolContext(call_id=call.call_id, idempotency_key=call.call_id)
    try:
        said, is_error = (await tool.call(call.arguments, context)).content, False
    except ToolError as error:
        said, is_error = f"[Error] {error}", True
    return Message.of_result(call_id=call.call_id, tool=call.name, text=str(said), is_error=is_error)


def _unmarked(quote: str) -> str:
    return " ".join(line.removeprefix(">").strip() for line in quote.splitlines())
