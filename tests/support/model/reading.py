"""Conversations of the offline model over a real folder, with small but real tools."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orga.activities.adapters.offline.reader import SIGNATURE, ExtractiveProvider
from orga.activities.ports import ModelRequest, ToolChoice
from orga.workflows.types.messages import Message, Reply, ToolCall
from orga.workflows.types.tool_calls.tools import ToolSpec

Answer = Callable[[ToolCall], str]

GATE = """# Manual

## The gate

Every proposed call meets the gate before it runs.

The gate decides by policy: a tool that is not listed is denied.

## Time

The default timeout of a tool is 30 seconds.
"""
CODE = '''"""Retries."""


def parse_retry_after(value: str) -> float:
    """Read the retry-after header in seconds."""
    return float(value)
'''
FILES = {
    "docs/manual.md": GATE,
    "docs/notes.md": "The gate has " + "a very long story that nobody has told in full so far. " * 9 + "\n",
    "src/retry.py": CODE,
    "tests/test_gate.py": "def test_the_gate_decides() -> None:\n    assert gate_decides()\n",
    "docs/küche.md": "# Küche\n\nDer Käse liegt im Kühlschrank 🧀 neben der Milch.\n\n実行制限は三十秒です。\n",
    "README.md": "# Hive\n\nHive keeps bees and counts their honey every day.\n\n## Use\n\nOpen the hive slowly.\n",
    "uv.lock": "gate decides gate decides\n" * 30,
}


def _schema(**properties: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in properties.items()}}


LIST = ToolSpec(name="list_files", parameters=_schema(path="string", limit="integer"), effect="read_only")
SEARCH = ToolSpec(
    name="search_text",
    parameters=_schema(query="string", regex="boolean", context="integer", limit="integer"),
    effect="read_only",
)
READ = ToolSpec(
    name="read_file", parameters=_schema(path="string", start_line="integer", end_line="integer"), effect="read_only"
)
ALL = (LIST, SEARCH, READ)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with these files."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def tools_over(folder: Path) -> Answer:
    """Return the three tools, with output in their documented text form."""

    def answer(call: ToolCall) -> str:
        if call.name == "list_files":
            return "\n".join(sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()))
        if call.name == "search_text":
            return _search(folder, **call.arguments)
        return _read(folder, **call.arguments)

    return answer


def _search(folder: Path, query: str, regex: bool = False, context: int = 0, limit: int = 50) -> str:
    wanted = re.compile(query if regex else re.escape(query), re.IGNORECASE)
    rows: list[str] = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        lines = path.read_text(encoding="utf-8").split("\n")
        hits = {n for n, line in enumerate(lines, 1) if wanted.search(line)}
        near = {n for hit in hits for n in range(hit - context, hit + context + 1) if 1 <= n <= len(lines)}
        marks = {n: ":" if n in hits else "-" for n in sorted(near)}
        rows += [f"{path.relative_to(folder)}{mark}{n}{mark} {lines[n - 1]}" for n, mark in marks.items()]
    return "\n".join([*rows[:limit], "[cut]"] if len(rows) > limit else rows) or f"No match for {query!r}"


def _read(folder: Path, path: str, start_line: int = 1, end_line: int | None = None) -> str:
    if not (folder / path).is_file():
        return f"[Error] no such file: {path}"
    lines = (folder / path).read_text(encoding="utf-8").removesuffix("\n").split("\n")
    last = min(end_line or len(lines), len(lines))
    rows = [f"{n}\t{lines[n - 1]}" for n in range(start_line, last + 1)]
    return "\n".join([f"{path} (lines {start_line}-{last} of {len(lines)})", *rows])


class Run:
    """A conversation without a server: the messages so far, and each reply."""

    def __init__(self, question: str, answer: Answer, tools: tuple[ToolSpec, ...] = ALL) -> None:
        """Ask the question."""
        self.messages = [Message.of("user", question, pinned=True)]
        self.tools = tools
        self.answer = answer
        self.calls: list[ToolCall] = []

    async def step(self, tool_choice: ToolChoice = "auto", max_output_tokens: int = 4096) -> Reply:
        """Let the model reply, and carry out its calls."""
        request = ModelRequest(
            model="extractive",
            messages=tuple(self.messages),
            tools=self.tools,
            tool_choice=tool_choice,
            max_output_tokens=max_output_tokens,
        )
        pieces: list[str] = []
        reply = await ExtractiveProvider().complete(request, pieces.append)
        assert "".join(pieces) == reply.text
        self.messages.append(reply.message())
        self.calls += reply.calls
        self.messages += [self.result(call) for call in reply.calls]
        return reply

    async def to_the_end(self) -> str:
        """Continue to the end, and return the answer."""
        for _ in range(6):
            reply = await self.step()
            if not reply.calls:
                assert reply.text.endswith(SIGNATURE)
                return reply.text
        raise AssertionError("the reader did not come to an end")

    def result(self, call: ToolCall) -> Message:
        text = self.answer(call)
        is_error = text.startswith(("[Error]", "[Policy denied]"))
        return Message.of_result(call_id=call.call_id, tool=call.name, text=text, is_error=is_error)
