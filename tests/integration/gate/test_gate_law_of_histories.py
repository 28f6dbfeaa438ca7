"""The law of the gate is checked on every history of the suite, and here on tampered histories."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_core import from_json, to_json
from temporalio.client import Client, WorkflowHistory

from orga.client.history.values import converters_in, data_converter
from orga.client.proof.gate_record import AnsweredRequest, GateRecord, breaches
from orga.client.proof.replay import replay_history
from orga.client.proof.verify import verify
from orga.testing import FakeTool, answers, calls
from tests.support.hold import Hold
from tests.support.runs.loop import Deny, a_loop


async def found(history: WorkflowHistory) -> tuple[list[str], GateRecord]:
    record, converters = GateRecord(data_converter.payload_converter), converters_in(history, data_converter, "default")
    assert (await replay_history(history, converters, record.observe)).failure == ""
    return await breaches(history, record, converters), record


def other_arguments(value: dict[str, Any]) -> dict[str, Any]:
    return value | {"arguments": {"path": "/etc/passwd"}}


def other_call(value: dict[str, Any]) -> dict[str, Any]:
    return value | {"call_id": "another"}


@pytest.mark.parametrize("change", [other_arguments, other_call])
async def test_a_changed_activity_input_is_a_breach_although_it_replays(
    client: Client, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    async with a_loop(client, [calls("look", arguments={"path": "a"}), answers()], FakeTool("look")) as loop:
        ran = await loop.run()
    history = copy.deepcopy(ran.history)
    (payload,) = [
        event.activity_task_scheduled_event_attributes.input.payloads[0]
        for event in history.events
        if event.activity_task_scheduled_event_attributes.activity_type.name == "look"
    ]
    payload.data = to_json(change(from_json(payload.data)))

    assert (await found(history))[0] == ["1.0 look: no earlier verdict allows exactly this call"]


async def test_denied_and_local_calls_are_in_the_record(client: Client) -> None:
    steps = [calls("look", "delete"), answers()]
    async with a_loop(client, steps, FakeTool("look"), FakeTool("delete"), engine=Deny("delete")) as loop:
        ran = await loop.run()
    faults, record = await found(ran.history)

    judged = [fact for fact in record.facts if isinstance(fact, AnsweredRequest)]
    decisions = [[verdict.decision for verdict in fact.decisions] for fact in judged]
    assert (faults, decisions) == ([], [["allow", "deny"], ["allow"]])
    assert judged[0].request.offered == ("look", "delete")


async def test_verify_checks_the_gate_of_a_live_run(client: Client) -> None:
    hold = Hold()
    async with a_loop(client, [calls("look"), hold.step(answers())], FakeTool("look")) as loop:
        handle = await loop.start()
        await hold.reached()
        checks = (await verify(client, handle.id)).checks
        hold.go.set()
        await loop.ended(handle)

    (gate,) = [check for check in checks if check.name == "gate"]
    assert (gate.ok, gate.detail) == (True, "1 judgements; nothing was carried out without one")
