"""(p) The quality of the offline reader: questions over three sets of documents, through the real tools."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.figures import Figure
from bench.sides.rig import Rig
from orga.activities.adapters.offline.reader import ExtractiveProvider
from orga.activities.adapters.tools.file_search import ListFiles, SearchText
from orga.activities.adapters.tools.read_file import ReadFile
from orga.activities.adapters.tools.root import FileRoot
from orga.activities.ports import ModelRequest, Tool, ToolContext, ToolError
from orga.workflows.types.messages import Message, ToolCall

FOLDER = Path(__file__).parent / "questions" / "reader"
PROJECT = Path(__file__).parents[2]
DOCUMENTS = {"docs": PROJECT / "docs", "examples": PROJECT / "examples", "office": FOLDER / "office"}

Questions = Literal["asked", "held_out"]
"""The questions that the reader was tuned on, and questions that it was not tuned on."""

RIGHT = 23
"""Right answers required of the 28 questions in `asked`."""
CALLS = 6
"""Limit of tool calls for one question."""
_LEAST: dict[Questions, int] = {"asked": RIGHT, "held_out": 0}
_ITERATIONS = 12
_QUOTE = re.compile(r"(?:^>.*\n?)+", re.M)


@dataclass(frozen=True)
class Asked:
    """A question, the text its first quote must contain, and the text no quote may contain.

    Without `expects`, the documents have no answer.
    """

    set: str
    question: str
    expects: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    def is_right(self, answer: str) -> bool:
        """Return whether the first quote answers. Without an answer, the reader must say so and quote nothing."""
        quotes = [_unmarked(quote) for quote in _QUOTE.findall(answer)]
        if any(wrong in quote for wrong in self.never for quote in quotes):
            return False
        if not self.expects:
            return answer.startswith("I found no passage") and not quotes
        return bool(quotes) and all(fact in quotes[0] for fact in self.expects)


@dataclass(frozen=True)
class Answered:
    """The answer to a question, with the calls for it."""

    asked: Asked
    answer: str
    calls: tuple[ToolCall, ...]

    @property
    def is_right(self) -> bool:
        """True if the answer is right."""
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
    """Return the answer to one question. The real tools execute the reader's calls."""
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
    """Return the figures. The ratio compares the required right answers with the actual ones, and its limit is 1."""
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
        text, is_error = (await tool.call(call.arguments, context)).content, False
    except ToolError as error:
        text, is_error = f"[Error] {error}", True
    return Message.of_result(call_id=call.call_id, tool=call.name, text=str(text), is_error=is_error)


def _unmarked(quote: str) -> str:
    return " ".join(line.removeprefix(">").strip() for line in quote.splitlines())
