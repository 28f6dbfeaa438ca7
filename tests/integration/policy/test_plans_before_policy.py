"""Plans are judged by policy, on a real server: by Cedar, by a real OPA server, and by the list of tools."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import to_json
from temporalio.client import Client, WorkflowUpdateFailedError

from orga.activities.adapters.policy.cedar import CedarPolicies
from orga.activities.adapters.policy.engines import ListedTools, gate_execution
from orga.activities.adapters.policy.opa import OpaServer
from orga.activities.ports import PolicyEngine
from orga.client.cli.policy.explain import explanations
from orga.client.journal.phases import goal_phases
from orga.client.journal.reading import read_journal
from orga.testing import FakeTool
from tests.support.model.goals import BAD, GOOD, GoalModel, a_step, evaluation_reply, says
from tests.support.parts.opa import running_opa
from tests.support.parts.time_skipping import time_skipping
from tests.support.runs.goals import answer_goal, pursue, start, wait_for_goal
from tests.support.runs.loop import WORKER_FACTS, a_loop
from tests.support.runs.questions import wait_for_question
from tests.support.values.policies import a_folder

CEDAR = """
@id("calls") permit (principal, action in [Action::"tool_call", Action::"respond"], resource);
@id("plans") permit (principal, action == Action::"plan", resource);
@id("no-paying") @reason("money stays here")
forbid (principal, action == Action::"plan", resource)
when { context has plan && context.plan.skills.contains("pay") };
@id("changes") @approval("ada") @expires("1h") @reason("it changes something")
forbid (principal, action == Action::"plan", resource)
when { context has plan && context.plan.effects.contains("irreversible") };
"""

REGO = """
package orga

default decision := {"decision": "allow"}

decision := {"decision": "deny", "reason": "money stays here"} if {
    input.action == "plan"
    "pay" in {step.skill | some step in input.plan}
}

decision := {"decision": "require_approval", "reason": "it changes something", "approvers": ["ada"]} if {
    input.action == "plan"
    effects := {step.tool.effect | some step in input.plan}
    "irreversible" in effects
    not "pay" in {step.skill | some step in input.plan}
}
"""

Engine = Callable[[Path], AbstractAsyncContextManager[PolicyEngine]]


@asynccontextmanager
async def cedar(folder: Path) -> AsyncGenerator[PolicyEngine]:
    yield CedarPolicies(a_folder(folder, a=CEDAR))


@asynccontextmanager
async def opa_server(folder: Path) -> AsyncGenerator[PolicyEngine]:
    file = folder / "orga.rego"
    file.write_text(REGO)
    with running_opa(file) as url:
        engine = OpaServer(url, "orga/decision")
        try:
            yield engine
        finally:
            await engine.close()


ENGINES = [pytest.param(cedar, id="Cedar"), pytest.param(opa_server, id="an OPA server")]


def a_model(*plans: dict[str, Any], **turns: Any) -> GoalModel:
    replies = [says(steps=[plan]) for plan in plans]
    return GoalModel(plan=replies, evaluate=evaluation_reply("a"), decide=says(action="done", confidence=0.9), **turns)


def a_worker(client: Client, model: GoalModel, engine: PolicyEngine, *tools: FakeTool) -> Any:
    setup = WORKER_FACTS.model_copy(update={"gate_execution": gate_execution(engine)})
    return a_loop(client, model, *tools, engine=engine, setup=setup)


@pytest.mark.parametrize("made", ENGINES)
async def test_a_denied_plan_goes_back_to_the_model_with_the_reason(
    client: Client, tmp_path: Path, made: Engine
) -> None:
    look, pay = FakeTool("look"), FakeTool("pay")
    model = a_model(a_step("a", "pay"), a_step("a", "look", at=1))
    async with made(tmp_path) as engine, a_worker(client, model, engine, look, pay) as loop:
        handle = await start(loop, plan_review="policy")
        pursued = await wait_for_goal(handle, client)
    assert (pursued.reason, len(look.contexts), pay.contexts) == ("completed", 1, [])
    assert "[Reply not usable] the policy denies this plan: " in model.asked[1][1]
    assert "money stays here" in model.asked[1][1]
    judged = [entry.data for entry in pursued.journal if entry.data.get("about") == "plan"]
    assert [each["verdicts"][0]["decision"] for each in judged] == ["deny", "allow"]
    assert [found.place for found in explanations(pursued.journal, "1")] == ["1.plan"]
    found = await goal_phases(read_journal(client, handle.id))
    assert "money stays here" in found.phases[0].errors[0]


async def test_several_denied_plans_end_the_goal_like_unusable_replies(client: Client, tmp_path: Path) -> None:
    """Each plan is valid in itself, so only the denials are counted."""
    model = a_model(a_step("a", "pay"))
    async with cedar(tmp_path) as engine, a_worker(client, model, engine, FakeTool("pay")) as loop:
        pursued = await pursue(loop, plan_review="policy")
    assert (pursued.reason, model.turns) == ("stuck", ["plan", "plan", "plan", "summary"])
    assert "3 replies in a row could not be used" in pursued.result.termination.detail


@pytest.mark.parametrize("made", ENGINES)
async def test_policy_may_require_approval_of_a_plan_by_a_named_person(
    client: Client, tmp_path: Path, made: Engine
) -> None:
    write = FakeTool("write", effect="irreversible")
    async with made(tmp_path) as engine, a_worker(client, a_model(a_step("a", "write")), engine, write) as loop:
        handle = await start(loop, plan_review="policy")
        asked = await wait_for_question(handle)
        assert "it changes something; ada may approve it" in asked["question"]
        assert "a (write): do a" in asked["question"]
        assert (asked["data"]["approvers"], bool(asked["data"]["expires_at"])) == (["ada"], True)
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await answer_goal(handle, {"text": "yes", "by": "bob"})
        assert "'bob' may not decide this; these may: ada" in str(refused.value.cause)
        assert write.contexts == []
        await answer_goal(handle, {"text": "yes", "by": "ada"})
        pursued = await wait_for_goal(handle, client)
    assert (pursued.reason, len(write.contexts)) == ("completed", 1)


async def test_a_plan_that_nobody_approves_in_time_is_not_carried_out(tmp_path: Path) -> None:
    """It counts as an unusable reply, so the goal does not ask for ever."""
    write = FakeTool("write", effect="irreversible")
    model = a_model(a_step("a", "write"))
    async with (
        time_skipping() as environment,
        cedar(tmp_path) as engine,
        a_worker(environment.client, model, engine, write) as loop,
    ):
        loop.execution_timeout = timedelta(days=1)
        handle = await start(loop, plan_review="policy")
        pursued = await wait_for_goal(handle, environment.client)
    assert (pursued.reason, write.contexts) == ("stuck", [])
    assert pursued.events.count("QuestionAsked") == 3


async def test_a_plan_given_by_a_person_has_to_pass_policy_too(client: Client, tmp_path: Path) -> None:
    write, pay = FakeTool("write", effect="irreversible"), FakeTool("pay")
    model = a_model(a_step("a", "write"), a_step("a", "look", at=1))
    tools = (FakeTool("look"), write, pay)
    async with cedar(tmp_path) as engine, a_worker(client, model, engine, *tools) as loop:
        handle = await start(loop, plan_review="policy")
        await wait_for_question(handle)
        await answer_goal(handle, {"text": to_json({"steps": [a_step("p", "pay")]}).decode(), "by": "ada"})
        pursued = await wait_for_goal(handle, client)
    assert (pursued.reason, write.contexts, pay.contexts) == ("completed", [], [])
    assert "the policy denies this plan" in model.asked[1][1]


async def test_a_denied_change_of_the_plan_is_not_carried_out(client: Client, tmp_path: Path) -> None:
    """Finished work remains. The model decides again, and cannot continue with the removed steps."""
    pay = FakeTool("pay")
    decisions = [
        says(action="adjust", confidence=0.5, steps=[a_step("c", "pay")]),
        says(action="continue", confidence=0.9),
        says(action="done", confidence=0.9),
    ]
    plan = says(steps=[a_step("a", at=1), a_step("b", at=2), a_step("z", "look", "a")])
    model = GoalModel(plan=plan, evaluate=says(steps=[{"id": "a", **BAD}, {"id": "b", **GOOD}]), decide=decisions)
    async with cedar(tmp_path) as engine, a_worker(client, model, engine, FakeTool("look"), pay) as loop:
        pursued = await pursue(loop, plan_review="policy")
    assert (pursued.reason, pay.contexts) == ("completed", [])
    assert model.turns == ["plan", "evaluate", "decide", "decide", "decide", "summary"]
    assert "no open step can be done now" in model.asked[4][1]


async def test_the_list_of_tools_allows_every_plan(client: Client) -> None:
    look = FakeTool("look")
    async with a_worker(client, a_model(a_step("a")), ListedTools(), look) as loop:
        pursued = await pursue(loop, plan_review="policy")
    assert (pursued.reason, len(look.contexts)) == ("completed", 1)
    assert [entry.data["verdicts"] for entry in pursued.journal if entry.data.get("about") == "plan"] == [
        [{"decision": "allow"}]
    ]
