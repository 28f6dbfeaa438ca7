"""Journal entries for tests of the commands that show a run."""

from datetime import timedelta
from typing import Any

from orga.workflows.types.status import JournalEntry
from tests.support.values.core import T0


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


ESCAPE = "\x1b[2J"


TURN = [
    an_entry("TurnStarted", 0, 0, turn=1, message=f"What is\nin it?{ESCAPE}"),
    an_entry("ReasoningComplete", 0.2, 1, actions=[READ], finish="tool_calls"),
    an_entry("PolicyEvaluated", 0.3, 1, verdicts=[{"decision": "allow"}]),
    an_entry("ToolsDispatched", 0.3, 1, tool_count=1, tools=[]),
    an_entry("ObservationsCollected", 0.55, 1, outcomes=[{"tool": "read_file", "call_id": "c1", "outcome": "ok"}]),
    an_entry("ReasoningComplete", 0.9, 2, actions=[{"respond": f"A test.{ESCAPE}"}], finish="stop"),
]


ENDED = an_entry("TurnEnded", 1, 2, turn=1, reason="completed", detail="")


CUT = [
    an_entry("TurnStarted", 60, 2, turn=2, message="And then?"),
    an_entry("TurnEnded", 61, 2, turn=2, reason="interrupted", detail="Ctrl-C"),
]
