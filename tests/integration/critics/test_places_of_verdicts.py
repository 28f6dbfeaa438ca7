"""Verdicts of gate, people and critics are matched to a call by their place field, whatever other fields contain."""

from collections.abc import Callable
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.gate.gate import GateActivities
from orga.client.proof.audit import Rejudger, run_audits
from orga.client.proof.verify import verify
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.tool_calls.gate import GateRequest, Verdicts
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.critics import a_critic, agents_with_critics, verdict
from tests.support.runs.loop import Deny, Ran, a_loop
from tests.support.runs.questions import send_update

Change = Callable[[GateRequest, Verdicts], Verdicts]


def in_another_order(request: GateRequest, given: Verdicts) -> Verdicts:
    return Verdicts(verdicts=given.verdicts[::-1], places=given.places[::-1])


def of_another_reply(request: GateRequest, given: Verdicts) -> Verdicts:
    return Verdicts(verdicts=given.verdicts, places=tuple(f"9{place}" for place in request.places))


def of_one_call_twice(request: GateRequest, given: Verdicts) -> Verdicts:
    return Verdicts(verdicts=given.verdicts, places=given.places[:1] * len(given.places))


def without_places(request: GateRequest, given: Verdicts) -> Verdicts:
    return Verdicts(verdicts=given.verdicts)


@pytest.mark.parametrize(
    ("change", "run", "dispatched"),
    [
        pytest.param(in_another_order, 1, ["look_1"], id="verdicts in another order"),
        pytest.param(of_another_reply, 0, [], id="verdicts on another reply"),
        pytest.param(of_one_call_twice, 0, [], id="two verdicts on one call"),
        pytest.param(without_places, 0, [], id="verdicts on nothing"),
    ],
)
async def test_a_verdict_counts_only_for_its_place(
    client: Client, monkeypatch: pytest.MonkeyPatch, change: Change, run: int, dispatched: list[str]
) -> None:
    def changed(_: Any, request: GateRequest, given: Verdicts) -> Verdicts:
        return change(request, given)

    monkeypatch.setattr(GateActivities, "_with_permits", changed)
    delete, look = FakeTool("delete"), FakeTool("look")
    async with a_loop(client, [calls("delete", "look"), *[answers()] * 3], delete, look, engine=Deny("delete")) as loop:
        ran = await loop.run()

    assert (len(delete.contexts), len(look.contexts)) == (0, run)
    assert of(ran, "ToolsDispatched", "tools", "call_id") == dispatched
    assert (await verify(client, ran.handle.id)).ok


async def test_every_event_about_a_call_names_its_place(client: Client) -> None:
    agents = agents_with_critics(a_critic(tools=("pay",)), tools=("look", "pay"))
    steps = [calls("look", "pay"), verdict(), answers("done")]
    tools = [FakeTool("look"), FakeTool("pay", effect="irreversible")]
    async with a_loop(client, steps, *tools, engine=Asks(), agents=agents) as loop:
        handle = await loop.start()
        [question] = await wait_for_held_calls(handle)
        await send_update(handle, "approve", approval_argument(question))
        ran = await loop.ended(handle)
        (audit,) = [found async for found in run_audits(client, [handle.id], Rejudger(Asks()))]

    judged = [entry.data["places"] for entry in ran.journal if entry.event == "PolicyEvaluated"]
    assert judged == [["1.0", "1.1"], ["1.0"], ["1.1"], ["2"]]
    for event in ("ApprovalRequested", "ApprovalResolved", "CritiqueEvaluated"):
        assert {e.data["place"] for e in ran.journal if e.event == event and e.data["kind"] != "approval"} == {"1.1"}
    assert (audit.is_same, audit.breaches) == (True, ())


async def test_an_audit_names_a_call_that_ran_without_permission(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none(*_: Any) -> list[str]:
        return ["1.0 look: no earlier verdict allows exactly this call"]

    async with a_loop(client, [calls("look"), answers()], FakeTool("look")) as loop:
        ran = await loop.run()
    monkeypatch.setattr("orga.client.proof.audit.breaches", none)
    (audit,) = [found async for found in run_audits(client, [ran.handle.id], Rejudger(Deny()))]
    assert (audit.is_same, audit.breaches) == (False, ("1.0 look: no earlier verdict allows exactly this call",))


def of(ran: Ran, event: str, key: str, field: str) -> list[str]:
    reported = [entry.data[key] for entry in ran.journal if entry.event == event]
    return [each[field] for several in reported for each in several]
