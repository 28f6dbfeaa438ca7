"""A goal plans with stored knowledge, and stores its findings for later goals."""

import asyncio
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.ports import ToolContext
from orga.client.past.fork import fork
from orga.client.proof.verify import verify
from orga.client.testing.script import USAGE
from orga.testing import FakeTool, answers
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.messages import Reply
from tests.support.model.goals import GoalModel, a_step, evaluation_reply, says
from tests.support.runs import rewound
from tests.support.runs.goals import pursue, start, wait_for_goal
from tests.support.runs.loop import Deny, a_loop
from tests.support.values.shelf import Shelf, a_fact

KNOWING = AgentConfig(tools=("look",), config=LoopConfig.model_validate({"knowledge": {"relevance_threshold": 0.1}}))
GOAL = "Which invoice format is used?"


def a_goal(client: Client, shelf: Shelf, model: GoalModel, **given: Any) -> Any:
    look = FakeTool("look", lambda arguments, context: f"found {arguments['at']}")
    return a_loop(client, model, look, agents={"default": KNOWING}, knowledge=shelf.as_store, **given)


def finds(evaluate: Reply | None = None) -> GoalModel:
    return GoalModel(
        plan=says(steps=[a_step("a", at="north"), a_step("b", at="south")]),
        evaluate=evaluate or evaluation_reply("a", "b"),
        decide=says(action="done", confidence=0.9),
        summary=answers("It is EDIFACT, see north."),
    )


async def test_known_facts_precede_the_plan_and_are_looked_up_once(client: Client) -> None:
    shelf, model = Shelf(a_fact("invoice format EDIFACT"), a_fact("about penguins")), finds()
    async with a_goal(client, shelf, model) as loop:
        pursued = await pursue(loop, GOAL)
    assert pursued.reason == "completed"
    planned, *later = [text for _, text in model.asked]
    assert "invoice format EDIFACT" in planned
    assert "penguins" not in planned
    assert later
    [recalled] = [entry.data for entry in pursued.journal if entry.event == "KnowledgeRecalled"]
    assert (recalled["terms"], len(recalled["items"])) == (["invoice", "format"], 1)


@pytest.mark.parametrize("turn", [0, 1, 3])
async def test_a_goal_that_has_recalled_something_can_be_forked(client: Client, turn: int) -> None:
    shelf, model = Shelf(a_fact("invoice format EDIFACT")), finds()
    async with a_goal(client, shelf, model) as loop:
        handle = await start(loop, GOAL)
        await wait_for_goal(handle, client)
        forked = await rewound.wait_for_rewound(client, await fork(client, handle.id, turn))
        verified = await verify(client, forked.handle.id)
    assert (forked.result.termination.reason, verified.ok) == ("completed", True)


async def test_a_plan_that_is_requested_again_has_the_known_facts(client: Client) -> None:
    """Only the goal's own words are searched, not the prompts or the plan's errors. So the block stays."""
    shelf = Shelf(a_fact("invoice format EDIFACT"))
    bad = says(steps=[a_step("a", "unknown")])
    good = says(steps=[a_step("a", at="north"), a_step("b", at="south")])
    model = GoalModel(
        plan=[bad, bad, good], evaluate=evaluation_reply("a", "b"), decide=says(action="done", confidence=0.9)
    )
    async with a_goal(client, shelf, model) as loop:
        pursued = await pursue(loop, GOAL)
    assert pursued.reason == "completed"
    plans = [text for turn, text in model.asked if turn == "goal_plan"]
    assert ["invoice format EDIFACT" in text for text in plans] == [True, True, True]
    [recalled] = [entry.data for entry in pursued.journal if entry.event == "KnowledgeRecalled"]
    assert recalled["terms"] == ["invoice", "format"]


async def test_the_answer_is_learnt_and_outputs_are_never_recalled(client: Client) -> None:
    shelf = Shelf()
    async with a_goal(client, shelf, finds()) as loop:
        pursued = await pursue(loop, GOAL)
    assert pursued.events[-4:] == [*["KnowledgeStored"] * 3, "Terminated"]
    reported = [entry.data for entry in pursued.journal if entry.event == "KnowledgeStored"]
    assert [each["kind"] for each in reported] == ["memory", "output", "output"]
    assert {each["id"] for each in reported} == set(shelf.held)
    learnt, *outputs = shelf.stored
    assert {item.confidence for item in shelf.stored} == {pursued.result.confidence}
    assert (learnt.kind, learnt.scope) == ("memory", "agent")
    assert (learnt.subject, learnt.text) == (GOAL, "It is EDIFACT, see north.")
    assert [(item.kind, item.text) for item in outputs] == [("output", "found north"), ("output", "found south")]
    assert {item.provenance.workflow_id for item in shelf.stored} == {learnt.provenance.workflow_id}

    model = finds()
    async with a_goal(client, shelf, model) as loop:
        await pursue(loop, f"{GOAL} North or south?")
    assert "It is EDIFACT, see north." in model.asked[0][1]
    assert "found south" not in model.asked[0][1]


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        pytest.param({}, "aborted", id="an abort"),
        pytest.param({"timeout_s": 5}, "timeout", id="time"),
        pytest.param({"max_iterations": 1}, "max_iterations", id="rounds"),
        pytest.param({"max_llm_calls": 4}, "max_iterations", id="calls"),
        pytest.param({"max_total_tokens": 2 * (USAGE.input_tokens + USAGE.output_tokens)}, "max_tokens", id="tokens"),
    ],
)
async def test_every_ending_with_findings_is_learnt_from(client: Client, config: dict[str, Any], reason: str) -> None:
    shelf = Shelf()

    async def look(arguments: dict[str, Any], _: ToolContext) -> str:
        if arguments["at"] == "south" and reason in {"aborted", "timeout"}:
            if reason == "aborted":
                await handle.signal("abort", "enough")
            await asyncio.sleep(60)
        return f"found {arguments['at']}"

    plan = says(steps=[a_step("a", at="north"), a_step("b", "look", "a", at="south")])
    model = GoalModel(plan=plan, evaluate=[evaluation_reply("a"), evaluation_reply("b")])
    async with a_loop(
        client, model, FakeTool("look", look), agents={"default": KNOWING}, knowledge=shelf.as_store
    ) as loop:
        handle = await start(loop, GOAL, **config)
        pursued = await wait_for_goal(handle, client)
    assert pursued.reason == reason
    learnt, found, *_ = shelf.stored
    assert (learnt.kind, found.kind, found.text) == ("memory", "output", "found north")
    assert (learnt.subject, learnt.text) == (GOAL, pursued.result.output)
    assert pursued.events.count("KnowledgeStored") == len(shelf.held)


async def test_a_goal_without_findings_stores_nothing(client: Client) -> None:
    """Otherwise the next attempt would plan with that failure, which matches its words best."""
    shelf, bad = Shelf(), says(steps=[a_step("a", "unknown")])
    async with a_goal(client, shelf, GoalModel(plan=bad, summary=answers("I found no way."))) as loop:
        pursued = await pursue(loop, GOAL)
    assert (pursued.reason, pursued.result.confidence, shelf.stored) == ("stuck", 0.0, [])


async def test_findings_of_an_early_ending_have_the_confidence_of_the_goal(client: Client) -> None:
    shelf, model = (
        Shelf(),
        finds(evaluate=evaluation_reply("a", "b", relevance=3, completeness=2, usability=3, goal_progress=2)),
    )
    async with a_goal(client, shelf, model) as loop:
        pursued = await pursue(loop, GOAL)
    assert pursued.result.confidence < 0.5
    assert {item.confidence for item in shelf.stored} == {pursued.result.confidence}


async def test_a_policy_may_forbid_a_goal_to_learn(client: Client) -> None:
    shelf = Shelf()
    async with a_goal(client, shelf, finds(), engine=Deny("store_knowledge")) as loop:
        pursued = await pursue(loop, GOAL)
    assert (pursued.reason, pursued.result.output, shelf.stored) == ("completed", "It is EDIFACT, see north.", [])
