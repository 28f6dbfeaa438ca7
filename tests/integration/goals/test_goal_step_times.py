"""The time limit of a step: it bounds each attempt and replaces the limit of the agent that carries out the step."""

import pytest
from temporalio.client import Client

from orga.testing import FakeTool, answers
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.tool_calls.tools import REPORT_S, ToolOptions
from tests.support.model.goals import GoalModel, a_step, evaluation_reply, says
from tests.support.runs.delegates import a_cast, agent, delegates
from tests.support.runs.goals import start, wait_for_goal
from tests.support.runs.loop import a_loop, histories_of

AGENTS = {"lead": agent("lead", "mate"), "mate": agent("mate", "hand"), "hand": agent("hand", tools=["pay"])}
PLAN = says(steps=[{"id": "a", "goal": "have it paid", "skill": "mate", "arguments": {"task": "pay it"}}])


@pytest.mark.parametrize(
    ("own_s", "limit_s"),
    [
        pytest.param(200.0, 50.0, id="the tool allows more time"),
        pytest.param(5.0, 5.0, id="the tool allows less time"),
        pytest.param(None, 50.0, id="the tool has no limit"),
    ],
)
async def test_the_step_limit_bounds_each_attempt(client: Client, own_s: float | None, limit_s: float) -> None:
    model = GoalModel(plan=says(steps=[a_step("a", at=1)]), evaluate=evaluation_reply("a"))
    async with a_loop(client, model, FakeTool("look", options=ToolOptions(timeout_s=own_s))) as loop:
        handle = await start(loop, step_timeout_s=50)
        await wait_for_goal(handle, client)
        [history] = await histories_of(client, handle.id)
    begun = [event.activity_task_scheduled_event_attributes for event in history.events]
    [look] = [each for each in begun if each.activity_type.name == "look"]
    assert look.start_to_close_timeout.ToTimedelta().total_seconds() == limit_s + REPORT_S


@pytest.mark.parametrize("own_s", [20, 300, 900])
async def test_an_agent_gets_the_time_limit_of_its_step_instead_of_its_own(client: Client, own_s: int) -> None:
    """The agent's own limit may be shorter or longer.

    A delegate below it keeps its own limit within that of the step.
    """
    model = GoalModel(plan=PLAN, evaluate=evaluation_reply("a"), decide=says(action="done", confidence=0.9))
    scripts = {"lead": model, "mate": [delegates("hand"), answers("done")], "hand": [answers("paid")]}
    agents = AGENTS | {name: _with_time(AGENTS[name], own_s) for name in ("mate", "hand")}
    async with a_cast(client, agents, scripts, FakeTool("pay")) as (loop, _):
        handle = await start(loop, agent="lead", step_timeout_s=400, timeout_s=5_000)
        pursued = await wait_for_goal(handle, client)
    assert pursued.reason == "completed"
    prepared = [entry.data["config"]["timeout_s"] for entry in pursued.journal if entry.event == "Prepared"]
    whole, mate, hand = prepared
    assert (whole, mate) == (5_000, 400)
    assert hand == pytest.approx(min(own_s, 400), abs=90), "the rest of the step's time"


def _with_time(config: AgentConfig, timeout_s: float) -> AgentConfig:
    return config.model_copy(update={"config": LoopConfig(timeout_s=timeout_s)})
