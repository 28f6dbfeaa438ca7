"""An audit judges past runs again with other engines. It carries nothing out and reports each changed verdict."""

import copy
import uuid
from typing import Any

import pytest
from pydantic_core import from_json, to_json
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from orga.activities.ports import PolicyEngine
from orga.client.errors import OrgaError, RunNotFound
from orga.client.history.chain import RunHistory
from orga.client.proof import audit as auditing
from orga.client.proof.audit import Rejudger, RunAudit, VerdictComparison, change_counts, run_audits
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from tests.support.hold import Hold
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.delegates import a_cast, agent, delegates
from tests.support.runs.loop import WORKER_FACTS, Deny, Ran, a_loop
from tests.support.runs.questions import send_update
from tests.support.values.policies import a_verdict

EACH_ITERATION = WORKER_FACTS.model_copy(update={"roll_over_events": 1})


class Says:
    """An engine that judges tool calls by a function, and allows answers."""

    is_embedded = True

    def __init__(self, judge: Any) -> None:
        self._judge = judge
        self.seen: list[GateRequest] = []

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Call the function."""
        self.seen.append(proposal)
        return self._judge(proposal) if proposal.call else a_verdict(True)


def allowed(_: GateRequest) -> Verdict:
    return a_verdict(True)


async def audit(client: Client, run: str, engine: PolicyEngine) -> list[RunAudit]:
    return [found async for found in run_audits(client, [run], Rejudger(engine))]


async def only(client: Client, run: str, engine: PolicyEngine) -> tuple[VerdictComparison, ...]:
    (found,) = await audit(client, run, engine)
    assert found.not_rebuilt == ()
    return found.judgements


def shown(judgements: Any) -> list[tuple[str, str]]:
    return [(judgement.tool, judgement.change) for judgement in judgements]


async def a_run(client: Client, setup: Any = WORKER_FACTS) -> Ran:
    """Run two tools, one of them denied, then answer."""
    steps = [calls("look", "delete", arguments={"path": "a"}), calls("look", arguments={"path": "b"}), answers("done")]
    tools = (FakeTool("look"), FakeTool("delete"))
    async with a_loop(client, steps, *tools, engine=Deny("delete"), setup=setup) as loop:
        return await loop.run({"task": "t", "tenant": "acme", "trusted_context": {"level": "low"}})


@pytest.mark.parametrize("setup", [WORKER_FACTS, EACH_ITERATION], ids=["one run", "a chain of runs"])
async def test_the_same_policy_changes_no_verdict(client: Client, setup: Any) -> None:
    ran = await a_run(client, setup)
    found = await only(client, ran.handle.id, Deny("delete"))
    assert shown(found) == [(name, "same") for name in ("look", "delete", "look", "(answer)")]


async def test_stricter_and_laxer_policies_change_the_expected_verdicts(client: Client) -> None:
    ran = await a_run(client)
    (found,) = await audit(client, ran.handle.id, Deny("look", words=["done"]))
    assert shown(found.judgements) == [
        ("look", "allow→deny"),
        ("delete", "deny→allow"),
        ("look", "allow→deny"),
        ("(answer)", "allow→deny"),
    ]
    assert change_counts([found]) == {"allow→deny": 3, "deny→allow": 1}
    assert not found.is_same
    assert found.judgements[0].now.reason == "look is forbidden"


async def test_the_audit_asks_the_engine_exactly_what_the_run_asked(client: Client) -> None:
    """Budgets, taint, tenant and trusted context are rebuilt exactly from the history."""
    then, now = Says(allowed), Says(allowed)
    steps = [calls("look", reply_cost_usd=0.25), calls("look", "look", reply_cost_usd=0.25), answers("done")]
    async with a_loop(client, steps, FakeTool("look"), engine=then, setup=EACH_ITERATION) as loop:
        given = {"task": "t", "tenant": "acme", "trusted_context": {"level": "low"}}
        ran = await loop.run(given, max_cost_usd=2.0, max_tool_calls=9)
    await only(client, ran.handle.id, now)

    assert now.seen == then.seen
    assert [proposal.taint for proposal in now.seen] == [(), ("look",), ("look",), ("look",)]
    assert now.seen[1].left["cost_usd"] == 1.5
    assert "time_s" in now.seen[1].left


async def test_the_audit_shows_approvals_and_changed_arguments(client: Client) -> None:
    ran = await a_run(client)

    def judge(proposal: GateRequest) -> Verdict:
        assert proposal.call is not None
        return a_verdict(True, arguments={"path": "safe"}, policies=("narrow",))

    assert shown(await only(client, ran.handle.id, Asks(tools=("look",)))) == [
        ("look", "allow→approval"),
        ("delete", "deny→allow"),
        ("look", "allow→approval"),
        ("(answer)", "same"),
    ]
    changed = await only(client, ran.handle.id, Says(judge))
    assert shown(changed)[0] == ("look", "arguments")
    assert (changed[0].arguments, changed[0].now.arguments) == ({"path": "a"}, {"path": "safe"})
    assert changed[0].now.policies == ("narrow",)


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        pytest.param(Asks(), ["same", "same"], id="the same person may still decide"),
        pytest.param(Asks(version="v2"), ["same", "same"], id="another version asks the same person"),
        pytest.param(Asks(approvers=("bob",)), ["approval", "allow→approval"], id="another person would decide"),
        pytest.param(Deny("pay"), ["approval→deny", "allow→deny"], id="nobody could approve it"),
        pytest.param(Deny(), ["approval→allow", "same"], id="nobody would be asked"),
    ],
)
async def test_approved_calls_are_judged_again_with_their_approvers(
    client: Client, engine: PolicyEngine, expected: list[str]
) -> None:
    async with a_loop(client, [calls("pay"), answers()], FakeTool("pay"), engine=Asks()) as loop:
        handle = await loop.start()
        [question] = await wait_for_held_calls(handle)
        await send_update(handle, "approve", approval_argument(question))
        ran = await loop.ended(handle)
    found = [judgement for judgement in await only(client, ran.handle.id, engine) if judgement.tool == "pay"]
    assert [judgement.change for judgement in found] == expected
    assert [judgement.approved_by for judgement in found] == ["", "ada"]


async def test_delegates_are_audited_once(client: Client) -> None:
    agents = {"default": agent("boss", "helper"), "helper": agent("helper", tools=["look"])}
    scripts = {"boss": [delegates("helper"), answers()], "helper": [calls("look"), answers("seen")]}
    async with a_cast(client, agents, scripts, FakeTool("look")) as (loop, _):
        ran = await loop.run()
    boss, helper = await audit(client, ran.handle.id, Deny("look"))

    assert shown(boss.judgements) == [("delegate", "same"), ("(answer)", "same")]
    assert (helper.run, shown(helper.judgements)) == (
        f"{ran.handle.id}.1.0",
        [("look", "allow→deny"), ("(answer)", "same")],
    )
    both = [found.run async for found in run_audits(client, [helper.run, boss.run], Rejudger(Deny()))]
    assert both == [helper.run, boss.run]


async def test_a_live_run_is_audited_up_to_its_last_call(client: Client) -> None:
    hold = Hold()
    async with a_loop(client, [calls("look"), hold.step(answers())], FakeTool("look")) as loop:
        handle = await loop.start()
        await hold.reached()
        assert shown(await only(client, handle.id, Deny("look"))) == [("look", "allow→deny")]
        hold.go.set()
        await loop.ended(handle)


async def test_a_verdict_that_cannot_be_rebuilt_is_reported_not_guessed(client: Client, monkeypatch: Any) -> None:
    """Other code wrote this history: its second reply was changed afterwards."""
    ran = await a_run(client)
    history = copy.deepcopy(ran.history)
    completed = [
        event.activity_task_completed_event_attributes
        for event in history.events
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED
    ]
    (second,) = [event.result.payloads[0] for event in completed if b'"b"' in event.result.payloads[0].data]
    second.data = to_json(from_json(second.data) | {"parts": []})

    async def changed(*_: Any) -> list[RunHistory]:
        return [RunHistory("changed-run", history)]

    monkeypatch.setattr(auditing, "histories", changed)
    (found,) = await audit(client, ran.handle.id, Deny("delete"))
    (why,) = found.not_rebuilt
    assert shown(found.judgements)[:2] == [("look", "same"), ("delete", "same")]
    assert "today's code does not replay it, so" in why
    assert not found.is_same


async def test_a_failing_engine_ends_the_audit_and_denies_nothing(client: Client) -> None:
    ran = await a_run(client)

    def fails(_: GateRequest) -> Verdict:
        raise ValueError("out of order")

    with pytest.raises(OrgaError, match="the policy engine failed: ValueError: out of order"):
        await audit(client, ran.handle.id, Says(fails))


async def test_an_unknown_run_is_refused(client: Client) -> None:
    with pytest.raises(RunNotFound):
        await audit(client, f"agent-{uuid.uuid4()}", Deny())


async def test_a_run_that_vanishes_during_a_query_does_not_end_the_audit(client: Client) -> None:
    ran = await a_run(client)
    runs = [f"agent-{uuid.uuid4()}", ran.handle.id]
    gone, there = [found async for found in run_audits(client, runs, Rejudger(Deny("delete")), are_named=False)]
    assert ("the server no longer has its history" in gone.not_rebuilt[0], gone.is_same) == (True, False)
    assert there.is_same
