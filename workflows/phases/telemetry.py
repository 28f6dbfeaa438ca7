"""Metrics and attributes of spans of what an agent's workflow code decides: told once, not again by a replay."""

from opentelemetry.trace import get_current_span
from temporalio import workflow

from orga.activities.instruments import count_opened_circuit, count_recovery
from orga.workflows.types import telemetry_names as names
from orga.workflows.types.context import Setup
from orga.workflows.types.control import Note
from orga.workflows.types.gate import Verdict


def count_notes(notes: tuple[Note, ...]) -> None:
    """Count the circuits that opened, and the recoveries."""
    if not notes or workflow.unsafe.is_replaying():
        return
    for note in notes:
        if note.event == "CircuitOpened":
            count_opened_circuit(note.data["tool"], "run")
        elif note.event == "RecoveryTriggered":
            count_recovery(note.data)


def name_run(setup: Setup) -> None:
    """Name the run's span after its agent, and say which model it has."""
    span = get_current_span()
    span.update_name(f"invoke_agent {setup.agent}")
    provider, _, model = setup.model.partition(":")
    span.set_attribute(names.AGENT, setup.agent)
    span.set_attribute(names.PROVIDER, provider)
    span.set_attribute(names.REQUEST_MODEL, model)


def show_verdicts(verdicts: tuple[Verdict, ...]) -> None:
    """Note on the phase's span how much was turned down."""
    span = get_current_span()
    if span.is_recording():
        span.set_attribute(names.DENIED, sum(verdict.decision == "deny" for verdict in verdicts))
