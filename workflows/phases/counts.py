"""Metrics and spans of what workflow code decides: told once, not again by a replay."""

from opentelemetry.trace import get_current_span, get_tracer
from temporalio import workflow

from activities.instruments import count_opened_circuit, count_recovery, record_wait
from workflows.types import telemetry_names as names
from workflows.types.notes import Note
from workflows.types.state import AgentState
from workflows.types.waits import Wait


def show_change(before: AgentState, after: AgentState) -> None:
    """Tell what a change of the state means to who watches: circuits, recoveries, questions that are closed."""
    for note in after.notes:
        _count(note)
    if before.waits != after.waits:
        still = {wait.wait_id for wait in after.waits}
        for wait in before.waits:
            if wait.wait_id not in still:
                _show_wait(wait)


def _count(note: Note) -> None:
    if workflow.unsafe.is_replaying():
        return
    if note.event == "CircuitOpened":
        count_opened_circuit(note.data["tool"], "run")
    elif note.event == "RecoveryTriggered":
        count_recovery(note.data)


def _show_wait(wait: Wait) -> None:
    """Show a question from its asking to its closing as a span of its own; a replay makes it, too, and ends it not."""
    if get_current_span().is_recording():
        tracer = get_tracer(names.SCOPE, schema_url=names.SCHEMA_URL)
        since = int(wait.since.timestamp() * 1e9)
        tracer.start_span(f"wait {wait.kind}", attributes={names.WAIT_KIND: wait.kind}, start_time=since).end()
    if not workflow.unsafe.is_replaying():
        record_wait(wait.kind, wait.since)
