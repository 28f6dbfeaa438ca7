"""Plan review and step overrides on a real server: people approve, replace or return a plan, and override its steps."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic_core import from_json, to_json
from temporalio.client import Client, WorkflowHandle, WorkflowHistory, WorkflowUpdateFailedError

from orga.activities.ports import ModelRequest, ToolContext
from orga.client.history.chain import RunHistory, histories, run_chain
from orga.client.past.fork import fork
from orga.client.proof.verify import check_histories, verify
from orga.client.runs.goals import GoalHandle
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.messages import Reply
from tests.support.hold import Hold, wait_until
from tests.support.model.goals import BAD, GoalModel, a_step, evaluation_reply, says
from tests.support.runs import rewound
from tests.support.runs.delegates import a_cast, agent, status_of
from tests.support.runs.goals import answer_goal, start, wait_for_goal
from tests.support.runs.loop import WORKER_FACTS, Deny, a_loop
from tests.support.runs.questions import wait_for_question


def a_model(**turns: Any) -> GoalModel:
    plan = says(steps=[a_step("a", at=1)])
    return GoalModel(
        **({"plan": plan, "evaluate": evaluation_reply("a"), "decide": says(action="done", confidence=0.9)} | turns)
    )


class HeldPlan(GoalModel):
    """A model that can be held while it plans."""

    def __init__(self, hold: Hold, **turns: Any) -> None:
        super().__init__(**turns)
        self._hold = hold

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        reply = await super().complete(request, on_text)
        return await self._hold.then(reply) if self.turns == ["plan"] else reply


async def test_a_plan_waits_for_approval(client: Client) -> None:
    look = FakeTool("look")
    async with a_loop(client, a_model(), look) as loop:
        handle = await start(loop, plan_review="always")
        asked = await wait_for_question(handle)
        assert asked["kind"] == "answer"
        assert "a (look): do a" in asked["question"]
        assert look.contexts == []
        await answer_goal(handle, " Yes ")
        pursued = await wait_for_goal(handle, client)
    assert pursued.reason == "completed"
    assert len(look.contexts) == 1
    reported = [event for event in pursued.events if event.startswith(("Plan", "Question"))]
    assert reported == ["PlanMade", "QuestionAsked", "QuestionAnswered"]


async def test_an_approval_covers_only_the_plan_that_was_shown(client: Client) -> None:
    """A step override changes the plan, so the person who approves it must see the changed plan first."""
    seen = list[Any]()
    look = FakeTool("look", lambda arguments, _: seen.append(arguments["at"]) or "ok")
    async with a_loop(client, a_model(), look) as loop:
        handle = await start(loop, plan_review="always")
        first = await wait_for_question(handle)
        await handle.signal("override_step", {"skill": "look", "input": {"at": 9}})

        async def asks_again() -> bool:
            return (await wait_for_question(handle))["wait_id"] != first["wait_id"]

        await wait_until(asks_again)
        with pytest.raises(WorkflowUpdateFailedError):
            await answer_goal(handle, {"question_id": first["wait_id"], "text": "yes"})
        again = await wait_for_question(handle)
        assert ('{"at":9}' in first["question"], '{"at":9}' in again["question"]) == (False, True)
        assert seen == []
        await answer_goal(handle, "yes")
        pursued = await wait_for_goal(handle, client)
    assert (pursued.reason, seen) == ("completed", [9])


async def test_guidance_is_decided_about_before_a_plan_made_without_it_starts(client: Client) -> None:
    look, hold = FakeTool("look"), Hold()
    model = HeldPlan(
        hold,
        plan=says(steps=[a_step("a", at=1)]),
        decide=says(action="stuck", reason="production is not to be touched", confidence=0.9),
    )
    async with a_loop(client, model, look) as loop:
        handle = await start(loop)
        await hold.reached()
        await handle.signal("steer", "do not touch production")
        hold.go.set()
        pursued = await wait_for_goal(handle, client)
    assert (pursued.reason, look.contexts) == ("stuck", [])


async def test_requested_changes_go_back_to_the_model(client: Client) -> None:
    plans = [says(steps=[a_step("a", at=1)]), says(steps=[a_step("a", at=2)])]
    seen = list[Any]()
    look = FakeTool("look", lambda arguments, _: seen.append(arguments["at"]) or "ok")
    model = a_model(plan=plans)
    async with a_loop(client, model, look) as loop:
        handle = await start(loop, plan_review="always")
        first = await wait_for_question(handle)
        await answer_goal(handle, {"question_id": first["wait_id"], "text": "look at 2"})
        second = await wait_for_question(handle)
        while second["wait_id"] == first["wait_id"]:
            second = await wait_for_question(handle)
        await answer_goal(handle, "ok")
        pursued = await wait_for_goal(handle, client)
    assert (pursued.reason, seen) == ("completed", [2])
    assert "[Plan sent back by the operator] look at 2" in model.asked[1][1]


async def test_a_person_may_replace_the_plan_and_sees_its_errors(client: Client) -> None:
    seen = list[Any]()
    look = FakeTool("look", lambda arguments, _: seen.append(arguments["at"]) or "ok")
    async with a_loop(client, a_model(evaluate=evaluation_reply("mine")), look) as loop:
        handle = await start(loop, plan_review="always")
        asked = await wait_for_question(handle)
        await answer_goal(handle, to_json({"steps": [{"id": "mine", "goal": "g", "skill": "fly"}]}).decode())
        again = await wait_for_question(handle)
        while again["wait_id"] == asked["wait_id"]:
            again = await wait_for_question(handle)
        assert "skill 'fly' is none of look" in again["question"]
        await answer_goal(handle, to_json({"steps": [a_step("mine", at=7)]}).decode())
        pursued = await wait_for_goal(handle, client)
    assert (pursued.reason, seen, pursued.result.plan) == ("completed", [7], ("mine",))
    [adjusted] = [entry.data for entry in pursued.journal if entry.event == "PlanAdjusted"]
    assert adjusted["by"] == "operator"


EACH_TURN = WORKER_FACTS.model_copy(update={"roll_over_events": 1})
KNOWN, MISSING = a_step("a", at="of the plan"), a_step("b", "save") | {"arguments": None}
"""One step whose arguments are in the plan, and one whose arguments the model makes in the same round."""


class Looked:
    """Two tools that record their arguments."""

    def __init__(self) -> None:
        self.seen = list[tuple[str, str]]()
        self.tools = [FakeTool(name, self._noting(name)) for name in ("look", "save")]

    def _noting(self, name: str) -> Callable[[dict[str, Any], ToolContext], str]:
        return lambda arguments, _: self.seen.append((name, arguments["at"])) or "ok"


def filling_in(*made: str, **turns: Any) -> GoalModel:
    """Return a model that makes these calls when asked for the calls of a round."""
    by_model = calls(*made, arguments={"at": "by the model"})
    return a_model(**({"input": by_model, "evaluate": evaluation_reply("a", "b")} | turns))


@pytest.mark.parametrize("made", [["save"], ["look", "save"]], ids=["the missing call", "all calls of the round"])
@pytest.mark.parametrize(
    ("planned", "answer", "setup"),
    [
        pytest.param([KNOWN, MISSING], None, WORKER_FACTS, id="no review"),
        pytest.param([KNOWN, MISSING], "yes", WORKER_FACTS, id="a person approves it"),
        pytest.param([KNOWN, MISSING], "yes", EACH_TURN, id="each turn continues as new"),
        pytest.param(
            [a_step("z")], to_json({"steps": [KNOWN, MISSING]}).decode(), WORKER_FACTS, id="a person types it"
        ),
    ],
)
async def test_arguments_of_a_plan_are_kept_and_the_model_fills_in_the_missing_ones(
    client: Client, planned: list[Any], answer: str | None, setup: Any, made: list[str]
) -> None:
    looked = Looked()
    async with a_loop(client, filling_in(*made, plan=says(steps=planned)), *looked.tools, setup=setup) as loop:
        handle = await start(loop, plan_review="never" if answer is None else "always")
        if answer is not None:
            await wait_for_question(handle)
            await answer_goal(handle, answer)
        pursued = await wait_for_goal(handle, client)
        verified = await verify(client, handle.id)
    assert sorted(looked.seen) == [("look", "of the plan"), ("save", "by the model")]
    assert (pursued.reason, verified.ok) == ("completed", True)
    assert "1 rounds of steps have the arguments of the plan" in [each.detail for each in verified.checks]


async def test_arguments_of_a_step_override_are_kept(client: Client) -> None:
    looked = Looked()
    async with a_loop(client, filling_in("look", "save", plan=says(steps=[KNOWN, MISSING])), *looked.tools) as loop:
        handle = await start(loop, plan_review="always")
        first = await wait_for_question(handle)
        await handle.signal("override_step", {"skill": "look", "input": {"at": "of a person"}})
        while (await wait_for_question(handle))["wait_id"] == first["wait_id"]:
            pass
        await answer_goal(handle, "yes")
        await wait_for_goal(handle, client)
    assert sorted(looked.seen) == [("look", "of a person"), ("save", "by the model")]


async def test_a_fork_of_an_approved_plan_keeps_its_arguments(client: Client) -> None:
    looked = Looked()
    async with a_loop(client, filling_in("look", "save", plan=says(steps=[KNOWN, MISSING])), *looked.tools) as loop:
        handle = await start(loop, plan_review="always")
        await wait_for_question(handle)
        await answer_goal(handle, "yes")
        await wait_for_goal(handle, client)
        await rewound.wait_for_rewound(client, await fork(client, handle.id, 1))
    assert sorted(looked.seen) == [("look", "of the plan")] * 2 + [("save", "by the model")] * 2


async def test_verify_finds_arguments_that_differ_from_the_plan(client: Client) -> None:
    """This code would not carry out such a reply, so the history names calls that this code does not make."""
    looked = Looked()
    async with a_loop(client, filling_in("save", plan=says(steps=[KNOWN, MISSING])), *looked.tools) as loop:
        handle = await start(loop)
        await wait_for_goal(handle, client)
    [run] = await histories(client, await run_chain(client, handle.id))
    forged = RunHistory(run.run_id, WorkflowHistory.from_json(handle.id, run.history.to_json()))
    of_input = [
        event.event_id
        for event in forged.events
        if event.activity_task_scheduled_event_attributes.activity_type.name == "goal_input"
    ]
    for event in forged.events:
        done = event.activity_task_completed_event_attributes
        if done.scheduled_event_id in of_input:
            reply = from_json(done.result.payloads[0].data)
            reply["parts"][0]["arguments"] = {"at": "elsewhere"}
            done.result.payloads[0].data = to_json(reply)
    checks, _ = await check_histories(client, handle.id, [forged])
    found = {check.name: check.detail for check in checks if not check.ok}
    assert found["plan"] == "iteration 2: step a differs from its plan"


async def test_an_abort_ends_a_review_before_any_step(client: Client) -> None:
    look = FakeTool("look")
    async with a_loop(client, a_model(), look) as loop:
        handle = await start(loop, plan_review="always")
        await wait_for_question(handle)
        await handle.signal("abort", "no")
        pursued = await wait_for_goal(handle, client)
    assert (pursued.reason, look.contexts) == ("aborted", [])


@pytest.mark.parametrize("denied", [False, True])
async def test_a_step_override_replaces_the_next_step(client: Client, denied: bool) -> None:
    """The override arrives while the first step runs, so it replaces the second step. Policy still applies to it."""
    hold = Hold()
    seen = list[str]()

    async def first(arguments: dict[str, Any], _: ToolContext) -> str:
        return await hold.then("ok")

    tools = [
        FakeTool("look", first),
        FakeTool("old", lambda arguments, _: seen.append("old") or "ok"),
        FakeTool("new", lambda arguments, _: seen.append(f"new {arguments}") or "ok"),
    ]
    model = a_model(
        plan=says(steps=[a_step("a"), a_step("b", "old", "a")]), evaluate=[evaluation_reply("a"), evaluation_reply("b")]
    )
    engine = Deny("new") if denied else None
    async with a_loop(client, model, *tools, engine=engine) as loop:
        handle = await start(loop)
        await hold.reached()
        goal = GoalHandle(client, handle.id)
        await goal.override_step("fly", "away", by="ada", intervention_id="o-1")
        for _ in range(2):
            await goal.override_step("new", {"at": 3}, by="ada", intervention_id="o-2")
        hold.go.set()
        pursued = await wait_for_goal(handle, client)
    steps = {step.id: step for step in pursued.result.steps}
    assert seen == ([] if denied else ["new {'at': 3}"])
    assert (steps["b"].skill, steps["b"].status) == ("new", "failed" if denied else "done")
    assert "On the operator's instruction, step b is now new" in model.asked[-1][1]
    [refused] = [entry.data for entry in pursued.journal if entry.event == "InterventionRefused"]
    assert "skill 'fly' is none of look, old, new" in refused["reason"]
    [applied] = [entry.data for entry in pursued.journal if entry.event == "InterventionApplied"]
    assert (refused["id"], refused["by"], applied["id"], applied["by"]) == ("o-1", "ada", "o-2", "ada")
    assert [entry.event for entry in pursued.journal].count("StepOverridden") == 1


async def test_a_step_override_survives_a_change_of_the_plan(client: Client) -> None:
    """The override arrives while the model decides, so the decision does not know it."""
    seen, hold = list[str](), Hold()

    class Held(GoalModel):
        """A model that can be held before its first decision."""

        async def complete(self, request: Any, on_text: Any) -> Any:
            reply = await super().complete(request, on_text)
            is_first = [turn for turn, _ in self.asked] == ["goal_plan", "goal_evaluate", "goal_decide"]
            return await hold.then(reply) if is_first else reply

    model = Held(
        plan=says(steps=[a_step("a"), a_step("z", "look", "a")]),
        evaluate=[evaluation_reply("a", **BAD), evaluation_reply("operator-1", "c")],
        decide=[
            says(action="adjust", confidence=0.5, new_plan=[a_step("c", at=1)]),
            says(action="done", confidence=0.9),
        ],
    )
    look = FakeTool("look", lambda arguments, _: seen.append(str(arguments)) or "ok")
    async with a_loop(client, model, look) as loop:
        handle = await start(loop)
        await hold.reached()
        await GoalHandle(client, handle.id).override_step("look", {"at": "once"})
        hold.go.set()
        pursued = await wait_for_goal(handle, client)
    assert "{'at': 'once'}" in seen
    assert pursued.reason == "completed"


async def test_a_step_override_is_not_sent_to_an_agent_at_work_on_another_step(client: Client) -> None:
    """Guidance is sent after the override. Once the agent has it, the override would have arrived, too."""
    hold = Hold()
    plan = says(steps=[{"id": "a", "goal": "first", "skill": "scout"}, a_step("b", "look", "a", at=2)])
    look = FakeTool("look")
    agents = {"lead": agent("lead", "scout", tools=["look"]), "scout": agent("scout")}
    model = a_model(plan=plan, evaluate=[evaluation_reply("a"), evaluation_reply("b")])
    scripts = {"lead": model, "scout": [hold.step(answers("seen")), answers("seen, with care")]}
    async with a_cast(client, agents, scripts, look) as (loop, cast):
        handle = await start(loop, agent="lead")
        await hold.reached()
        await GoalHandle(client, handle.id).override_step("look", {"at": "Wipe the folder of 1999."})
        await handle.signal("steer", "mind the gap")
        child = client.get_workflow_handle(f"{handle.id}.2.0")
        await wait_until(lambda: _has_received(child, "mind the gap"))
        hold.go.set()
        pursued = await wait_for_goal(handle, client)
    assert pursued.reason == "completed"
    assert cast.messages_to("scout") == ["seen", "[Guidance from the operator] mind the gap"]
    assert "On the operator's instruction, step b is now look" in model.asked[-1][1]


async def _has_received(child: WorkflowHandle[Any, Any], text: str) -> bool:
    return any(item["text"] == text for item in (await status_of(child)).unread_interventions)
