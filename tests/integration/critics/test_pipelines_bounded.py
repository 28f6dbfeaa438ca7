"""Pipelines that are paused, aborted or stopped by a limit return what they found."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.ports import ModelRequest
from orga.client.cli.shown.status_text import step_lines
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.messages import Reply
from tests.support.hold import wait_until
from tests.support.runs.goals import goal_status, wait_for_goal
from tests.support.runs.pipelines import (
    CHAIN,
    ESSAY,
    TaskModel,
    WaitingTaskModel,
    a_pipeline,
    run_pipeline,
    start_pipeline,
)


async def test_a_pause_stops_a_pipeline_and_its_working_agent(client: Client) -> None:
    finder, writer = WaitingTaskModel(lambda _: "found"), TaskModel(lambda _: "the answer")
    async with a_pipeline(client, CHAIN, {"finder": finder, "writer": writer}) as (loop, _, _):
        handle = await start_pipeline(loop)
        await asyncio.wait_for(finder.began.wait(), 30)
        await handle.signal("pause")
        child = client.get_workflow_handle(f"{handle.id}.1.0")

        async def has_received_pause() -> bool:
            return bool((await goal_status(child))["paused"])

        async def is_paused() -> bool:
            return (await goal_status(child))["phase"] == "paused"

        await wait_until(has_received_pause)
        finder.go.set()
        await wait_until(is_paused)
        assert ((await goal_status(handle))["paused"], writer.tasks) == (True, [])
        await handle.signal("resume")
        pursued = await wait_for_goal(handle, client)
    assert (pursued.reason, pursued.result.output) == ("completed", "the answer")


async def test_an_abort_cancels_the_agents_and_returns_the_findings(client: Client) -> None:
    reader = WaitingTaskModel(lambda _: "never")
    agents = {"finder": TaskModel(lambda _: "the treasure"), "writer": reader}
    async with a_pipeline(client, CHAIN, agents) as (loop, _, model):
        handle = await start_pipeline(loop)
        await asyncio.wait_for(reader.began.wait(), 30)
        await handle.signal("abort", "enough")
        pursued = await wait_for_goal(handle, client)
    assert (pursued.reason, pursued.result.termination.detail) == ("aborted", "enough")
    assert "the treasure" in pursued.result.output
    assert "Not done: step-2" in pursued.result.output
    assert model.turns == []


async def test_an_abort_of_a_director_returns_its_best_draft(client: Client) -> None:
    class Second(WaitingTaskModel):
        async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
            if not self.tasks:
                self.tasks.append(request.messages[0].text)
                return answers("draft one")
            return await super().complete(request, on_text)

    writer = Second(lambda _: "never")
    reviewer = TaskModel(lambda _: '{"good": 0.4, "feedback": "more"}')
    async with a_pipeline(client, ESSAY, {"writer": writer, "reviewer": reviewer}) as (loop, _, _):
        handle = await start_pipeline(loop)
        await asyncio.wait_for(writer.began.wait(), 30)
        plan = (await goal_status(handle))["plan"]
        await handle.signal("abort", "enough")
        pursued = await wait_for_goal(handle, client)
    assert plan["pipeline"] == "line"
    assert [plan["steps"][0][key] for key in ("id", "score", "quality")] == ["draft-1", 0.4, "partial"]
    assert step_lines(plan)[0] == "✓ draft-1 writer: write a draft  0.40 partial"
    assert pursued.result.output.endswith("The best draft, draft-1:\n\ndraft one")
    assert pursued.result.confidence == 0.4


@pytest.mark.parametrize(
    ("config", "looks", "reason", "detail"),
    [
        pytest.param({"max_iterations": 1}, 0, "max_iterations", "", id="rounds"),
        pytest.param({"max_llm_calls": 4}, 2, "max_iterations", "model calls", id="model calls of the agents"),
        pytest.param({"max_total_tokens": 50}, 0, "max_tokens", "", id="tokens"),
    ],
)
async def test_a_limit_ends_a_pipeline_with_its_findings(
    client: Client, config: dict[str, Any], looks: int, reason: str, detail: str
) -> None:
    finder = [*[calls("look")] * looks, answers("the treasure")]
    agents = {"finder": finder, "writer": TaskModel(lambda _: "never")}
    async with a_pipeline(client, CHAIN, agents, FakeTool("look")) as (loop, _, _):
        pursued = await run_pipeline(loop, **config)
    assert pursued.reason == reason
    assert detail in pursued.result.termination.detail
    assert pursued.result.output
    assert pursued.result.steps[1].status == "open"


async def test_a_pipeline_that_finishes_at_its_limit_is_completed(client: Client) -> None:
    """Its answer needs no model call, so none has to be left for it."""
    agents = {"finder": TaskModel(lambda _: "found"), "writer": TaskModel(lambda _: "the answer")}
    async with a_pipeline(client, {**CHAIN, "steps": [*CHAIN["steps"], "finder"]}, agents) as (loop, _, model):
        pursued = await run_pipeline(loop, max_iterations=3, max_llm_calls=4)
    assert (pursued.reason, pursued.result.output, model.turns) == ("completed", "found", [])


async def test_drafts_that_do_not_improve_end_a_director(client: Client) -> None:
    writer = TaskModel(lambda task: "draft two" if "draft one" in task else "draft one")
    reviewer = TaskModel(lambda _: '{"good": 0.5, "feedback": "more"}')
    config = {**ESSAY, "adaptive_break": True, "max_rounds": 7}
    async with a_pipeline(client, config, {"writer": writer, "reviewer": reviewer}) as (loop, _, model):
        pursued = await run_pipeline(loop)
    assert (pursued.reason, len(writer.tasks), len(reviewer.tasks), model.turns) == ("stuck", 2, 2, [])
    assert pursued.result.termination.detail == "the drafts no longer improve: 0.5 after 0.5"
    assert pursued.result.output.endswith("The best draft, draft-2:\n\ndraft two")
