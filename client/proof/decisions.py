"""What a replay decides, compared with its history: decisions from fields, facts and rules; the calls of a plan."""

from typing import Any, cast

from pydantic import ValidationError
from temporalio.bridge.proto.activity_result import ActivityResolution
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import WorkflowHistory
from temporalio.converter import PayloadConverter

from orga.client.history.values import RunValues
from orga.client.proof.replay import difference
from orga.workflows.decisions.calls import fingerprint
from orga.workflows.types.control import NOTES_MEMO
from orga.workflows.types.decision import DECISION_GROUNDED
from orga.workflows.types.goals.turns import GoalReply, GoalRequest

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


class PlanRecord:
    """Watches a replay, and compares the calls that a plan has with those that the history holds in their places."""

    def __init__(self, converter: PayloadConverter) -> None:
        self.rounds = 0
        """Of which the plan has at least one call."""
        self.fault = ""
        """The first call that is another one than the plan's."""
        self._converter = converter
        self._asked: dict[int, GoalRequest] = {}

    def observe(self, activation: WorkflowActivation, completion: WorkflowActivationCompletion) -> None:
        """Take in one workflow task."""
        for job in activation.jobs:
            if job.HasField("resolve_activity"):
                self._answered(job.resolve_activity.seq, job.resolve_activity.result)
        for command in completion.successful.commands:
            scheduled = command.schedule_activity
            if scheduled.activity_type == "goal_input":
                request = GoalRequest.model_validate(self._converter.from_payloads(scheduled.arguments)[0])
                self._asked[scheduled.seq] = request

    def _answered(self, seq: int, result: ActivityResolution) -> None:
        request = self._asked.pop(seq, None)
        if request is None or not request.calls or not result.HasField("completed"):
            return
        self.rounds += 1
        try:
            calls = GoalReply.model_validate(self._converter.from_payloads([result.completed.result])[0]).calls
        except ValidationError:
            calls = ()
        if len(calls) != request.size:  # the run carries out nothing of such a reply
            return
        for place, planned in request.planned.items():
            is_other = calls[place].malformed is not None or fingerprint(calls[place]) != fingerprint(planned)
            if is_other and not self.fault:
                self.fault = f"turn {request.iteration}: step {planned.call_id} has other arguments than its plan"
