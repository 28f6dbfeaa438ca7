"""Whether the decisions that a history tells of are those that its replay makes, from replies, facts and rules."""

from typing import Any, cast

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import WorkflowHistory
from temporalio.converter import PayloadConverter

from orga.client.history.values import RunValues
from orga.client.proof.replay import difference
from orga.workflows.types.control import NOTES_MEMO
from orga.workflows.types.decision import DECISION_GROUNDED

Told = dict[str, Any]
"""The data of one `DecisionGrounded`."""


class DecisionRecord:
    """Watches a replay, and keeps the decisions that it makes, in order."""

    def __init__(self, converter: PayloadConverter) -> None:
        self.made: list[Told] = []
        self._converter = converter

    def observe(self, _: WorkflowActivation, completion: WorkflowActivationCompletion) -> None:
        """Take in what one workflow task decided."""
        for command in completion.successful.commands:
            if command.HasField("modify_workflow_properties"):
                fields = command.modify_workflow_properties.upserted_memo.fields
                if NOTES_MEMO in fields:
                    self.made += _decisions(self._converter.from_payloads([fields[NOTES_MEMO]])[0])


async def recorded_decisions(history: WorkflowHistory, values: RunValues) -> list[Told]:
    """Return the decisions that the history itself tells of, in order."""
    found: list[Told] = []
    for event in history.events:
        fields = event.workflow_properties_modified_event_attributes.upserted_memo.fields
        if NOTES_MEMO in fields:
            found += _decisions((await values.own.decode([fields[NOTES_MEMO]]))[0])
    return found


def fault_of(recorded: list[Told], made: list[Told]) -> str:
    """Return the first decision that is told otherwise than it is made, or ""; a live run may make one more."""
    for number, told in enumerate(recorded):
        name = told.get("decision")
        if number >= len(made):
            return f"decision {number + 1} ({name}): the code of today makes no such decision"
        if place := difference(told, made[number]) or difference(made[number], told):
            return f"decision {number + 1} ({name}): the code of today decides otherwise, first in {place}"
    return ""


def _decisions(notes: Any) -> list[Told]:
    listed = cast("list[Any]", notes) if isinstance(notes, list) else []
    tables = [cast("Told", note) for note in listed if isinstance(note, dict)]
    return [note.get("data") or {} for note in tables if note.get("event") == DECISION_GROUNDED]
