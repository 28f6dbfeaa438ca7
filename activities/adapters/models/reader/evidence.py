"""Evidence: all that the messages at hand say about files, folded from tool calls and their results."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from orga.activities.adapters.models.reader.hydrated import Source, sources_of
from orga.activities.adapters.models.reader.recalled import NAME, recalled_text
from orga.activities.adapters.models.reader.results import Excerpt, Hits, excerpt_of, hits_of, listed, refusal_of
from orga.workflows.types.hydration import CONTEXT_BLOCK
from orga.workflows.types.messages import Message, ToolCall
from orga.workflows.types.text import undelimited

_CALL_ID = re.compile(r"^read-([0-9a-f]{6})-(\d+)-\d+")


@dataclass
class Evidence:
    """What has been asked and found, from the messages that are there: a compacted conversation has gaps."""

    lines: dict[str, dict[int, str]] = field(default_factory=dict[str, dict[int, str]])
    """Known lines by path and number."""
    read: dict[str, set[int]] = field(default_factory=dict[str, set[int]])
    """Numbers of the lines that `read_file` returned; other known lines are hits of searches."""
    totals: dict[str, int] = field(default_factory=dict[str, int])
    listing: dict[str, None] = field(default_factory=dict[str, None])
    """Listed paths, in order."""
    listing_is_cut: bool = False
    searches: dict[str, Hits] = field(default_factory=dict[str, Hits])
    """Hits by query."""
    asked: set[str] = field(default_factory=set[str])
    """Fingerprints of the calls made, so that none is repeated."""
    refusals: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Texts of denials and failures by tool."""
    denied: set[str] = field(default_factory=set[str])
    succeeded: set[str] = field(default_factory=set[str])
    context: dict[str, None] = field(default_factory=dict[str, None])
    """Pseudo-paths of messages that are material themselves."""

    def is_read(self, path: str, number: int) -> bool:
        """Whether a line is known in full, and in its surroundings, not only as a hit."""
        return path in self.context or number in self.read.get(path, ())

    def is_off(self, tool: str) -> bool:
        """Whether a tool has only been denied, or has only failed twice and more: it is not called again."""
        if tool in self.succeeded:
            return False
        return tool in self.denied or len(self.refusals.get(tool, ())) > 1


def fingerprint(name: str, arguments: dict[str, Any]) -> str:
    """Return what makes two calls the same."""
    return f"{name} {to_json(dict(sorted(arguments.items()))).decode()}"


def call_id(topic: str, turn: int, index: int) -> str:
    """Return an id that tells the question and the turn, so that compaction cannot hide how far the reader got."""
    return f"read-{topic}-{turn}-{index}"


def turns_taken(messages: Sequence[Message], topic: str) -> int:
    """Return how many turns with tools the question has had, by the call ids or, where they were changed, by count."""
    ids = [call.call_id for message in messages for call in message.calls]
    ids += [message.call_id for message in messages if message.call_id]
    by_id = [int(match[2]) for one in ids if (match := _CALL_ID.match(one)) and match[1] == topic]
    since = max((i for i, m in enumerate(messages) if m.role == "user" and not m.pinned), default=0)
    return max([0, *by_id, sum(1 for message in messages[since:] if message.calls)])


def evidence_of(messages: Sequence[Message]) -> Evidence:
    """Return the evidence of a conversation."""
    evidence = Evidence()
    calls: dict[str, ToolCall] = {}
    seen_task = False
    for number, message in enumerate(messages):
        for call in message.calls:
            calls[call.call_id] = call
            evidence.asked.add(fingerprint(call.name, call.arguments))
        if message.role == "tool":
            _add_result(evidence, message, calls.get(message.call_id or ""))
        elif message.role == "system" or (message.role == "user" and message.pinned and seen_task):
            _add_context(evidence, message, number)
        seen_task |= message.role == "user"
    return evidence


def _add_result(evidence: Evidence, message: Message, call: ToolCall | None) -> None:
    tool = message.tool or (call.name if call else "")
    said = undelimited(message.text)
    refusal = refusal_of(said, message.is_error)
    if refusal is not None:
        evidence.refusals.setdefault(tool, []).append(said)
        if refusal == "denied":
            evidence.denied.add(tool)
        return
    evidence.succeeded.add(tool)
    arguments = call.arguments if call else {}
    if tool == "list_files":
        paths, is_cut = listed(said)
        evidence.listing |= dict.fromkeys(paths)
        evidence.listing_is_cut |= is_cut
    elif tool == "search_text":
        _add_hits(evidence, hits_of(said), str(arguments.get("query", "")))
    elif tool == "read_file":
        _add_read(evidence, excerpt_of(said, _text(arguments.get("path"))))


def _add_hits(evidence: Evidence, hits: Hits, query: str) -> None:
    if query:
        evidence.searches[query] = hits
    for excerpt in hits.excerpts:
        known = evidence.lines.setdefault(excerpt.path, {})
        for number, text in excerpt.lines.items():
            known.setdefault(number, text)


def _add_read(evidence: Evidence, excerpt: Excerpt | None) -> None:
    if excerpt is not None:
        _add_excerpt(evidence, excerpt)
        evidence.read.setdefault(excerpt.path, set()).update(excerpt.lines)


def _add_excerpt(evidence: Evidence, excerpt: Excerpt) -> None:
    evidence.lines.setdefault(excerpt.path, {}).update(excerpt.lines)
    if excerpt.total is not None:
        evidence.totals[excerpt.path] = excerpt.total


def _add_context(evidence: Evidence, message: Message, number: int) -> None:
    if message.knowledge:
        _add_material(evidence, NAME, recalled_text(message.text))
    elif message.text.startswith(CONTEXT_BLOCK):
        for source in sources_of(message.text):
            _add_source(evidence, source)
    else:
        _add_material(evidence, f"conversation message {number + 1}", message.text)


def _add_source(evidence: Evidence, source: Source) -> None:
    """Take in what was fetched before the first step: lines of a file as such, all else under its reference."""
    if source.tool == "read_file":
        _add_read(evidence, excerpt_of(source.text, source.value))
    else:
        _add_material(evidence, source.value, source.text)


def _add_material(evidence: Evidence, path: str, text: str) -> None:
    evidence.context[path] = None
    evidence.lines[path] = dict(enumerate(text.split("\n"), start=1))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
