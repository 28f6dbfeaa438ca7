"""Replays one segment with today's code for `verify` and `audit`, and compares the outcome with the history."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError
from temporalio.api.common.v1 import Payload
from temporalio.bridge.proto.activity_result import ActivityResolution
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import WorkflowHistory
from temporalio.converter import PayloadConverter
from temporalio.worker import Replayer

from orga.client.history.chain import RunHistory
from orga.client.history.values import RunConverters
from orga.client.runners.workflows import REPLAY_BUILD, WORKFLOWS, ObservedRunner, Observer, our_runner
from orga.client.server.endpoint import Report
from orga.workflows.decisions.tool_calls.calls import call_fingerprint
from orga.workflows.types.control import NOTES_MEMO
from orga.workflows.types.goals.requests import GoalReply, GoalRequest
from orga.workflows.types.json_text import as_objects
from orga.workflows.types.text import one_line
from orga.workflows.types.tool_calls.decision import DECISION_GROUNDED

MESSAGE_CHARS = 500


@dataclass(frozen=True)
class ReplayOutcome:
    failure: str
    """Why the replay differed from the history, or ""."""
    ending: list[Any] | None
    """The run's result, or the input of its next segment. None if the history ends with neither, or after a failure."""


async def replay_history(history: WorkflowHistory, converters: RunConverters, *observers: Observer) -> ReplayOutcome:
    """Replay a whole history as workers would run it. Each observer sees each workflow task."""
    ending = _Ending()

    def observe(activation: WorkflowActivation, completion: WorkflowActivationCompletion) -> None:
        for observer in (ending.observe, *observers):
            observer(activation, completion)

    replayer = Replayer(
        workflows=WORKFLOWS,
        namespace=converters.namespace,
        data_converter=converters.base,
        unsandboxed_workflow_runner=ObservedRunner(our_runner(), observe),
        build_id=REPLAY_BUILD,
    )
    outcome = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    if outcome.replay_failure is not None:
        return ReplayOutcome(one_line(str(outcome.replay_failure), MESSAGE_CHARS), None)
    payloads = ending.payloads
    converter = converters.base.payload_converter
    return ReplayOutcome("", None if payloads is None else converter.from_payloads(payloads))


def progress_observer(report: Report, workflow_id: str, number: int, runs: Sequence[RunHistory]) -> Observer:
    """Return an observer that reports the progress of segment `number` (from 1). It runs in the replay's thread."""
    events = len(runs[number - 1].events)

    def observe(activation: WorkflowActivation, _: WorkflowActivationCompletion) -> None:
        position = f"event {activation.history_length:,} of {events:,}"
        report(f"{workflow_id}: segment {number} of {len(runs)}, {position}")

    return observe


async def recorded_ending(history: WorkflowHistory, converters: RunConverters) -> list[Any] | None:
    """Return the recorded result of the run, or the input of its next segment. None if the history has neither."""
    last = history.events[-1]
    if last.HasField("workflow_execution_completed_event_attributes"):
        payloads = last.workflow_execution_completed_event_attributes.result.payloads
    elif last.HasField("workflow_execution_continued_as_new_event_attributes"):
        payloads = last.workflow_execution_continued_as_new_event_attributes.input.payloads
    else:
        return None
    return await converters.own_converter.decode(payloads)


def computed_ending(outcome: ReplayOutcome, run_id: str) -> list[Any] | None:
    """Return the ending that today's code computes. A state that it carries into the next segment names `run_id`.

    In the replay of a run that was reset, it names the run from before the first reset.
    """
    match outcome.ending:
        case [given, {"carried_by": _} as state]:
            return [given, {**cast("dict[str, Any]", state), "carried_by": run_id}]
        case ending:
            return ending


def first_difference(recorded: Any, computed: Any, path: str = "") -> str:
    """Return the path to the first difference, as in `plan.steps[2]`, or "". `computed` may have additional keys."""
    match recorded, computed:
        case dict(), dict():
            old, new = cast("dict[str, Any]", recorded), cast("dict[str, Any]", computed)
            parts = [(value, new.get(key), f"{path}.{key}".lstrip(".")) for key, value in old.items()]
        case list(), list() if len(cast("list[Any]", recorded)) == len(cast("list[Any]", computed)):
            items = enumerate(zip(cast("list[Any]", recorded), cast("list[Any]", computed), strict=True))
            parts = [(old, new, f"{path}[{index}]") for index, (old, new) in items]
        case _:
            return "" if recorded == computed else path or "value"
    differences = (first_difference(old, new, place) for old, new, place in parts)
    return next(filter(None, differences), "")


class _Ending:
    """Records the arguments of the command that ends the segment."""

    def __init__(self) -> None:
        self.payloads: list[Payload] | None = None

    def observe(self, _: WorkflowActivation, completion: WorkflowActivationCompletion) -> None:
        for command in completion.successful.commands:
            if command.HasField("complete_workflow_execution"):
                self.payloads = deepcopy([command.complete_workflow_execution.result])  # a codec changes them in place
            elif command.HasField("continue_as_new_workflow_execution"):
                self.payloads = deepcopy(list(command.continue_as_new_workflow_execution.arguments))


DecisionData = dict[str, Any]


class DecisionRecord:
    """Records the decisions that a replay makes, in order."""

    def __init__(self, converter: PayloadConverter) -> None:
        self.made: list[DecisionData] = []
        self._converter = converter

    def observe(self, _: WorkflowActivation, completion: WorkflowActivationCompletion) -> None:
        for command in completion.successful.commands:
            if command.HasField("modify_workflow_properties"):
                fields = command.modify_workflow_properties.upserted_memo.fields
                if NOTES_MEMO in fields:
                    self.made += _decisions(self._converter.from_payloads([fields[NOTES_MEMO]])[0])


async def recorded_decisions(history: WorkflowHistory, converters: RunConverters) -> list[DecisionData]:
    """Return the decisions that the history records, in order."""
    decisions: list[DecisionData] = []
    for event in history.events:
        fields = event.workflow_properties_modified_event_attributes.upserted_memo.fields
        if NOTES_MEMO in fields:
            decisions += _decisions((await converters.own_converter.decode([fields[NOTES_MEMO]]))[0])
    return decisions


def decision_fault(recorded: list[DecisionData], made: list[DecisionData]) -> str:
    """Return the first decision that today's code makes differently, or "". The replay may make more than recorded."""
    for number, data in enumerate(recorded):
        name = data.get("decision")
        if number >= len(made):
            return f"decision {number + 1} ({name}): today's code makes no such decision"
        if path := first_difference(data, made[number]) or first_difference(made[number], data):
            return f"decision {number + 1} ({name}): today's code decides otherwise, first in {path}"
    return ""


def _decisions(notes: Any) -> list[DecisionData]:
    return [note.get("data") or {} for note in as_objects(notes) if note.get("event") == DECISION_GROUNDED]


class PlanRecord:
    """Compares the calls that a goal's plan asks for with the calls in the recorded answers of `goal_input`."""

    def __init__(self, converter: PayloadConverter) -> None:
        self.rounds = 0
        """The number of rounds with at least one planned call."""
        self.fault = ""
        """The first call that differs from the plan, or ""."""
        self._converter = converter
        self._requests: dict[int, GoalRequest] = {}

    def observe(self, activation: WorkflowActivation, completion: WorkflowActivationCompletion) -> None:
        for job in activation.jobs:
            if job.HasField("resolve_activity"):
                self._record_answer(job.resolve_activity.seq, job.resolve_activity.result)
        for command in completion.successful.commands:
            scheduled = command.schedule_activity
            if scheduled.activity_type == "goal_input":
                request = GoalRequest.model_validate(self._converter.from_payloads(scheduled.arguments)[0])
                self._requests[scheduled.seq] = request

    def _record_answer(self, seq: int, result: ActivityResolution) -> None:
        request = self._requests.pop(seq, None)
        if request is None or not request.calls or not result.HasField("completed"):
            return
        self.rounds += 1
        try:
            calls = GoalReply.model_validate(self._converter.from_payloads([result.completed.result])[0]).calls
        except ValidationError:
            calls = ()
        if len(calls) != request.round_size:  # no call of such a reply is executed
            return
        for index, planned in request.planned_calls.items():
            call = calls[index]
            differs = call.malformed is not None or call_fingerprint(call) != call_fingerprint(planned)
            if differs and not self.fault:
                self.fault = f"iteration {request.iteration}: step {planned.call_id} differs from its plan"
