"""The law of the gate, checked on a history: nothing is carried out without an earlier yes to exactly that call."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter

from client.gate_record import Fact, GateRecord, Judged, Started, carried_out
from workflows.types.delegation import delegate_arguments
from workflows.types.gate import Verdict
from workflows.types.loop_tools import DELEGATE
from workflows.types.messages import ToolCall

_BY_A_PERSON = re.compile(r"\.r\d+$")
"""What a person has tried once more: the same call at the same place, under the verdict that it has."""

Key = tuple[str, str, str]
"""Tool, id of the call, arguments: what a verdict is bound to."""


async def breaches(history: WorkflowHistory, record: GateRecord, converter: DataConverter) -> list[str]:
    """Return what the history shows to have been carried out against the law, one line each.

    Args:
        history: Of one run.
        record: What a replay of just that history showed.
        converter: That the history is written with.
    """
    return unlicensed(record.facts, await carried_out(history, converter))


def unlicensed(facts: Sequence[Fact], recorded: Sequence[Started]) -> list[str]:
    """Return the breaches: one yes allows one place, however often the server or a person tries there.

    What a replay starts without a trace in the history was withdrawn in the same workflow task, a local activity
    excepted, whose input no history has.
    """
    in_history: dict[tuple[str, str], list[Started]] = {}
    for started in recorded:
        in_history.setdefault((started.kind, started.place), []).append(started)
    allowed: Counter[Key] = Counter()
    used: dict[Key, set[str]] = {}
    found: list[str] = []
    for fact in facts:
        if isinstance(fact, Judged):
            allowed.update(_licences(fact))
            continue
        there = [fact] if fact.kind == "local" else in_history.get((fact.kind, fact.place), [])
        if not there:
            continue
        started = there.pop(0)
        key = _key(started.name, started.call_id, started.arguments)
        places = used.setdefault(key, set())
        places.add(_BY_A_PERSON.sub("", started.place))
        if len(places) > allowed[key]:
            found.append(f"{started.place} {started.name}: no earlier verdict allows exactly this call")
    left = (started for there in in_history.values() for started in there)
    return found + [f"{started.place} {started.name}: the code of today starts no such call" for started in left]


def _licences(judged: Judged) -> list[Key]:
    pairs = zip(judged.request.calls, judged.decisions, strict=False)
    return [key for call, verdict in pairs if verdict.decision == "allow" for key in _keys(call, verdict)]


def _keys(call: ToolCall, verdict: Verdict) -> list[Key]:
    arguments = call.arguments if verdict.arguments is None else verdict.arguments
    keys = [_key(call.name, call.call_id, arguments)]
    if call.name == DELEGATE:
        agent, task = delegate_arguments(arguments)
        keys.append(_key(DELEGATE, "", {"agent": agent, "task": task}))
    return keys


def _key(name: str, call_id: str, arguments: dict[str, Any]) -> Key:
    return name, call_id, json.dumps(arguments, sort_keys=True)
