"""The journal in words."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from client.cli.narration import Narrator
from client.cli.timeline import Timeline
from workflows.types.journal import JournalEntry

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def an_entry(event: str, at_s: float = 0.0, iteration: int = 1, **data: Any) -> JournalEntry:
    at = T0 + timedelta(seconds=at_s)
    return JournalEntry(sequence=0, timestamp=at, agent="a", iteration=iteration, event=event, data=data)


READ = {"tool": "read_file", "call_id": "c1", "arguments": {"path": "README.md"}}
WRITE = {"tool": "write_file", "call_id": "c2", "arguments": {"path": "x"}}

A_RUN = [
    an_entry("Started", 0, 0, task="What is\nthis?", input={}),
    an_entry("ReasoningComplete", 0.2, actions=[READ, WRITE], finish="tool_calls"),
    an_entry("PolicyEvaluated", 0.3, verdicts=[{"decision": "allow"}, {"decision": "deny", "reason": "not listed"}]),
    an_entry("ToolsDispatched", 0.3, tool_count=1, tools=[]),
    an_entry("ObservationsCollected", 0.55, outcomes=[{"tool": "read_file", "call_id": "c1", "outcome": "ok"}]),
    an_entry("ReasoningComplete", 0.9, 2, actions=[{"respond": "It is\na test."}], finish="stop"),
    an_entry("PolicyEvaluated", 0.9, 2, verdicts=[{"decision": "allow"}]),
    an_entry("Terminated", 1.0, 2, reason="completed", detail=""),
]


def test_a_run_is_told_as_a_timeline_grouped_by_iteration() -> None:
    timeline = Timeline()
    assert [line for entry in A_RUN for line in timeline.lines(entry)] == [
        "    +0.000s Started               task: What is this?",
        "── iteration 1",
        "    +0.200s ReasoningComplete     → read_file README.md",
        "                                  → write_file x",
        "    +0.300s PolicyEvaluated       ✗ denied write_file x: not listed",
        "    +0.300s ToolsDispatched       1 to run",
        "    +0.550s ObservationsCollected ✓ read_file README.md (0.25 s)",
        "── iteration 2",
        "    +0.900s ReasoningComplete     answers: It is a test.",
        "    +0.900s PolicyEvaluated       1 allowed",
        "    +1.000s Terminated            completed",
    ]


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        pytest.param(an_entry("PolicyEvaluated", error="Boom: x"), "✗ the gate failed: Boom: x", id="gate down"),
        pytest.param(
            an_entry("PolicyEvaluated", verdicts=[{"decision": "deny", "reason": "no"}]),
            "✗ denied the answer: no",
            id="a denied answer",
        ),
        pytest.param(
            an_entry(
                "ObservationsCollected", outcomes=[{"tool": "t", "call_id": "c", "outcome": "failed", "error": "E"}]
            ),
            "✗ t: failed, E (0.00 s)",
            id="a failed call that nobody knows",
        ),
        pytest.param(an_entry("InterventionReceived", kind="steer", text="look"), "steer: look", id="guidance"),
        pytest.param(an_entry("InterventionReceived", kind="pause"), "pause", id="a signal without text"),
        pytest.param(
            an_entry("Terminated", reason="max_tokens", detail="limit of 5"), "max_tokens: limit of 5", id="end"
        ),
        pytest.param(an_entry("FromTheFuture", a=1), "{'a': 1}", id="an event of a later version"),
        pytest.param(an_entry("ContextCompacted", messages_dropped=4), "4 older messages", id="compaction"),
        pytest.param(
            an_entry("ReasoningComplete", actions=[{"respond": "x"}], finish="length"),
            "the reply ended early: length",
            id="a cut reply",
        ),
        pytest.param(
            an_entry(
                "ReasoningComplete", actions=[{"tool": "t", "call_id": "c", "arguments": {"x": "\x1b]0;o\x07[red]"}}]
            ),
            "→ t [red]",
            id="hostile arguments",
        ),
    ],
)
def test_an_entry_in_words(entry: JournalEntry, text: str) -> None:
    assert any(text in line.text for line in Narrator().tell(entry))
