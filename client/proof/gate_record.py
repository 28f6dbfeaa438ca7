"""Checks the law of the gate on a history: no call is executed without an earlier verdict for exactly that call.

The record has the requests of a run to its gate, the verdicts, and the calls that the run started, in replay order.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError
from temporalio.api.common.v1 import Payload
from temporalio.bridge.proto.activity_result import ActivityResolution
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter, PayloadConverter

from orga.client.history.values import RunConverters
from orga.workflows.decisions.journal.verdicts import ProposalStatuses
from orga.workflows.decisions.review_stages import CALL_STAGES
from orga.workflows.types.json_text import as_object
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.names import OWN_ACTIVITIES
from orga.workflows.types.tool_calls.delegation import delegate_activity_id, delegate_arguments
from orga.workflows.types.tool_calls.gate import RECONFIRMED_PURPOSES, GateRequest, Verdict, Verdicts, call_activity_id
from orga.workflows.types.tool_calls.loop_tools import RUN_TOOL, loop_tool
from orga.workflows.types.tool_calls.tools import Caller

GATE = "gate"


@dataclass(frozen=True)
class AnsweredRequest:
    """A request to the gate, with its verdicts."""

    request: GateRequest
    verdicts: tuple[Verdict, ...] | None
    """Verdicts in call order. None if the gate failed or judged other places, which denies every call."""

    @property
    def decisions(self) -> tuple[Verdict, ...]:
        """One verdict for each proposal, as the run used them. If the gate failed, each is a denial."""
        proposals = len(self.request.calls) or 1
        if self.verdicts is None or len(self.verdicts) != proposals:
            return (Verdict(decision="deny", reason="the gate could not decide"),) * proposals
        return self.verdicts


@dataclass(frozen=True)
class StartedCall:
    """A tool call, or a run of another agent, that was started."""

    kind: Literal["activity", "local", "child"]
    name: str
    place: str
    """`<iteration>.<index>`, with a suffix if the call was made again."""
    call_id: str
    """Empty for a run of another agent, whose input does not have it."""
    arguments: dict[str, Any]
    permit: str = ""
    """The gate's signature in the input of the call."""
    caller: Caller | None = None


GateFact = AnsweredRequest | StartedCall


class GateRecord:
    """Watches a replay. It reads only inputs and outputs of workflow code, so it does not have to trust that code."""

    def __init__(self, converter: PayloadConverter) -> None:
        self.facts: list[GateFact] = []
        self._converter = converter
        self._requests: dict[int, GateRequest] = {}

    def observe(self, activation: WorkflowActivation, completion: WorkflowActivationCompletion) -> None:
        """Read one workflow task: its input first, then its commands."""
        for job in activation.jobs:
            if job.HasField("resolve_activity"):
                self._record_answer(job.resolve_activity.seq, job.resolve_activity.result)
        for command in completion.successful.commands:
            self._record_command(command)

    def _record_answer(self, seq: int, result: ActivityResolution) -> None:
        request = self._requests.pop(seq, None)
        if request is None or result.HasField("backoff"):  # the same request will be repeated
            return
        verdicts: tuple[Verdict, ...] | None = None
        if result.HasField("completed"):
            with suppress(ValidationError):
                answer = Verdicts.model_validate(_first_value(self._converter, [result.completed.result]))
                verdicts = answer.for_places(request.places)
        self.facts.append(AnsweredRequest(request, verdicts))

    def _record_command(self, command: WorkflowCommand) -> None:
        if command.HasField("start_child_workflow_execution"):
            child = command.start_child_workflow_execution
            self.facts.append(started_child(child.workflow_id, _first_value(self._converter, child.input)))
            return
        if command.HasField("schedule_local_activity"):
            kind, scheduled = "local", command.schedule_local_activity
        elif command.HasField("schedule_activity"):
            kind, scheduled = "activity", command.schedule_activity
        else:
            return
        request = _first_value(self._converter, scheduled.arguments)
        if scheduled.activity_type == GATE:
            self._requests[scheduled.seq] = GateRequest.model_validate(request)
        elif scheduled.activity_type not in OWN_ACTIVITIES:
            self.facts.append(started_tool(scheduled.activity_type, scheduled.activity_id, request, kind))


async def started_calls(history: WorkflowHistory, converters: RunConverters) -> list[StartedCall]:
    """Return the tool calls and runs of other agents in the history, in order. No history has the local calls."""
    calls: list[StartedCall] = []
    for event in history.events:
        if event.HasField("activity_task_scheduled_event_attributes"):
            scheduled = event.activity_task_scheduled_event_attributes
            if scheduled.activity_type.name not in OWN_ACTIVITIES:
                value = await _decode(converters.for_activity(scheduled), scheduled.input.payloads)
                calls.append(started_tool(scheduled.activity_type.name, scheduled.activity_id, value, "activity"))
        elif event.HasField("start_child_workflow_execution_initiated_event_attributes"):
            child = event.start_child_workflow_execution_initiated_event_attributes
            value = await _decode(converters.for_workflow(child.workflow_id), child.input.payloads)
            calls.append(started_child(child.workflow_id, value))
    return calls


def started_tool(name: str, place: str, request: Any, kind: Literal["activity", "local"]) -> StartedCall:
    """Return a tool's activity, from its input as plain JSON."""
    given = as_object(request)
    return StartedCall(
        kind,
        name,
        place,
        call_id=str(given.get("call_id", "")),
        arguments=as_object(given.get("arguments")),
        permit=str(given.get("permit", "")),
        caller=_caller(given),
    )


def _caller(request: dict[str, Any]) -> Caller | None:
    """Return the caller in a tool's input. An invalid caller becomes one that no permit fits."""
    try:
        return Caller.model_validate(request["caller"]) if "caller" in request else None
    except ValidationError:
        return Caller()


def started_child(workflow_id: str, given: Any) -> StartedCall:
    """Return a run of another agent as the `delegate` call that started it, from its input as plain JSON."""
    agent, task = delegate_arguments(as_object(given))
    place = delegate_activity_id(workflow_id)
    return StartedCall("child", RUN_TOOL, place, call_id="", arguments={"agent": agent, "task": task})


async def _decode(converter: DataConverter, payloads: Sequence[Payload]) -> Any:
    return next(iter(await converter.decode(payloads)), None)


def _first_value(converter: PayloadConverter, payloads: Sequence[Payload]) -> Any:
    return next(iter(converter.from_payloads(payloads)), None)


class CallKey(NamedTuple):
    """Identifies a call for the gate: a verdict counts only for calls with the same key."""

    tool: str
    call_id: str
    arguments: str
    """As JSON with sorted keys."""


async def breaches(history: WorkflowHistory, record: GateRecord, converters: RunConverters) -> list[str]:
    """Return the calls that the history shows as executed against the law, one line each."""
    return unlicensed_calls(record.facts, await started_calls(history, converters))


def unlicensed_calls(facts: Sequence[GateFact], recorded: Sequence[StartedCall]) -> list[str]:
    """Return the breaches. One verdict allows one call at one place, including retries by the server or a person.

    The gate's last verdict on a place counts, if it may follow the earlier ones.

    A call of the replay that is not in the history is ignored, because the same workflow task has withdrawn it. A local
    activity always counts, because no history has its input.
    """
    in_history: dict[tuple[str, str], list[StartedCall]] = {}
    for started in recorded:
        in_history.setdefault((started.kind, started.place), []).append(started)
    allowed = _AllowedCalls()
    problems: list[str] = []
    for fact in facts:
        if isinstance(fact, AnsweredRequest):
            allowed.record_verdicts(fact)
            continue
        matching = [fact] if fact.kind == "local" else in_history.get((fact.kind, fact.place), [])
        if not matching:
            continue
        started = matching.pop(0)
        if not allowed.is_allowed(started):
            problems.append(f"{started.place} {started.name}: no earlier verdict allows exactly this call")
    unmatched = (started for calls in in_history.values() for started in calls)
    problems += [f"{started.place} {started.name}: today's code starts no such call" for started in unmatched]
    return problems


class _AllowedCalls:
    """The calls that may be executed now, by the gate's last verdict on each place."""

    def __init__(self) -> None:
        self._statuses = ProposalStatuses[str](CALL_STAGES)
        self._keys: dict[str, list[CallKey]] = {}
        """The keys that the last verdict on a place allows, by place."""

    def record_verdicts(self, judged: AnsweredRequest) -> None:
        request = judged.request
        for call, place, verdict in zip(request.calls, request.places, judged.decisions, strict=False):
            if request.approved_by:
                self._statuses.apply_verdict(place, "yes")
            elif request.purpose in RECONFIRMED_PURPOSES:
                self._statuses.begin_judging(place)
            may_follow = self._statuses.apply_verdict(place, verdict.decision)
            self._keys[place] = _call_keys(call, verdict) if may_follow else []

    def is_allowed(self, started: StartedCall) -> bool:
        place = call_activity_id(started.place)
        key = _call_key(started.name, started.call_id, started.arguments)
        return not self._statuses.missing_verdict_text(place) and key in self._keys.get(place, [])


def _call_keys(call: ToolCall, verdict: Verdict) -> list[CallKey]:
    """Return the keys of a call. A delegation also has one without the call id, which its run's input does not have."""
    arguments = call.arguments if verdict.arguments is None else verdict.arguments
    keys = [_call_key(call.name, call.call_id, arguments)]
    if loop_tool(call.name).is_run:
        agent, task = delegate_arguments(arguments)
        keys.append(_call_key(call.name, "", {"agent": agent, "task": task}))
    return keys


def _call_key(name: str, call_id: str, arguments: dict[str, Any]) -> CallKey:
    return CallKey(name, call_id, json.dumps(arguments, sort_keys=True))
