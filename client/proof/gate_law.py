"""The law of the gate, checked on a history: no call is executed without an earlier verdict for exactly that call."""

import json
from collections.abc import Sequence
from typing import Any

from temporalio.client import WorkflowHistory

from orga.client.history.values import RunValues
from orga.client.proof.gate_record import AnsweredRequest, GateFact, GateRecord, StartedCall, started_calls
from orga.workflows.decisions.review_stages import CALL_STAGES, ProposalStatuses
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.tool_calls.delegation import delegate_arguments
from orga.workflows.types.tool_calls.gate import RECONFIRMED_PURPOSES, Verdict, call_activity_id
from orga.workflows.types.tool_calls.loop_tools import loop_tool

Key = tuple[str, str, str]
"""Tool, id of the call and arguments, which a verdict is bound to."""


async def breaches(history: WorkflowHistory, record: GateRecord, values: RunValues) -> list[str]:
    """Return the calls that the history shows as executed against the law, one line each.

    Args:
        values: Decodes its values.
    """
    return unlicensed_calls(record.facts, await started_calls(history, values))


def unlicensed_calls(facts: Sequence[GateFact], recorded: Sequence[StartedCall]) -> list[str]:
    """Return the breaches. One verdict allows one call at one place, including retries by the server or a person.

    The gate's last verdict on a place counts, if it may follow the earlier ones.

    If the history has no trace of a call that the replay starts, the same workflow task has withdrawn it. A local
    activity counts all the same, because no history has its input.
    """
    in_history: dict[tuple[str, str], list[StartedCall]] = {}
    for started in recorded:
        in_history.setdefault((started.kind, started.place), []).append(started)
    allowed = _AllowedCalls()
    found: list[str] = []
    for fact in facts:
        if isinstance(fact, AnsweredRequest):
            allowed.record_verdicts(fact)
            continue
        matching = [fact] if fact.kind == "local" else in_history.get((fact.kind, fact.place), [])
        if not matching:
            continue
        started = matching.pop(0)
        if not allowed.is_allowed(started):
            found.append(f"{started.place} {started.name}: no earlier verdict allows exactly this call")
    left = (started for calls in in_history.values() for started in calls)
    return found + [f"{started.place} {started.name}: today's code starts no such call" for started in left]


class _AllowedCalls:
    """The calls that may be executed now, by the gate's last verdict on each place if that could follow."""

    def __init__(self) -> None:
        self._statuses = ProposalStatuses[str](CALL_STAGES)
        self._keys: dict[str, list[Key]] = {}

    def record_verdicts(self, judged: AnsweredRequest) -> None:
        request = judged.request
        for call, place, verdict in zip(request.calls, request.places, judged.decisions, strict=False):
            if request.approved_by:
                self._statuses.apply_verdict(place, "yes")
            elif request.purpose in RECONFIRMED_PURPOSES:
                self._statuses.begin_judging(place)
            self._keys[place] = (
                _call_keys(call, verdict) if self._statuses.apply_verdict(place, verdict.decision) else []
            )

    def is_allowed(self, started: StartedCall) -> bool:
        place = call_activity_id(started.place)
        key = _call_key(started.name, started.call_id, started.arguments)
        return not self._statuses.missing_verdict_text(place) and key in self._keys.get(place, [])


def _call_keys(call: ToolCall, verdict: Verdict) -> list[Key]:
    arguments = call.arguments if verdict.arguments is None else verdict.arguments
    keys = [_call_key(call.name, call.call_id, arguments)]
    if loop_tool(call.name).is_run:
        agent, task = delegate_arguments(arguments)
        keys.append(_call_key(call.name, "", {"agent": agent, "task": task}))
    return keys


def _call_key(name: str, call_id: str, arguments: dict[str, Any]) -> Key:
    return name, call_id, json.dumps(arguments, sort_keys=True)
