"""Pipeline steps that are denied, or do not finish."""

from collections.abc import Callable

from temporalio.client import Client

from orga.activities.ports import ModelError, ModelRequest
from orga.testing import answers
from orga.workflows.types.messages import Reply
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from tests.support.model.goals import GoalModel
from tests.support.runs.pipelines import CHAIN, LEAD, TaskModel, a_pipeline, run_pipeline
from tests.support.values.policies import a_verdict


class DenyTask:
    """A policy engine that denies delegation to one agent."""

    is_embedded = True

    def __init__(self, agent: str) -> None:
        self._agent = agent

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Deny the delegation."""
        call = proposal.call
        is_it = call is not None and call.name == "delegate" and call.arguments["agent"] == self._agent
        return a_verdict(not is_it, "not that one")


class DenyAnswer:
    """A policy engine that denies answers of one agent that contain a word."""

    is_embedded = True

    def __init__(self, agent: str, word: str) -> None:
        self._agent, self._word = agent, word

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Deny such an answer."""
        is_it = proposal.agent == self._agent and self._word in (proposal.answer or "")
        return a_verdict(not is_it, "no such words")


async def test_a_denied_step_has_no_effect_and_the_goal_names_the_stuck_step(client: Client) -> None:
    model = GoalModel(summary=answers("only the finding: 42"))
    writer = TaskModel(lambda _: "never")
    agents = {"finder": TaskModel(lambda _: "found 42"), "writer": writer}
    async with a_pipeline(client, {**CHAIN, "attempts": 3}, agents, model=model, engine=DenyTask("writer")) as (
        loop,
        _,
        _,
    ):
        pursued = await run_pipeline(loop)
    assert (pursued.reason, pursued.result.output) == ("stuck", "only the finding: 42")
    assert pursued.result.termination.detail.startswith("step-2 failed: [Policy denied]")
    assert (writer.tasks, model.turns) == ([], ["summary"])
    assert [(step.status, step.attempts) for step in pursued.result.steps] == [("done", 1), ("failed", 1)]


async def test_an_unfinished_agent_is_started_again_if_allowed(client: Client) -> None:
    class FallsOnce(TaskModel):
        async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
            reply = await super().complete(request, on_text)
            if len(self.tasks) == 1:
                raise ModelError("refused", "not now", retryable=False)
            return reply

    finder = FallsOnce(lambda _: "found 42")
    agents = {"finder": finder, "writer": TaskModel(lambda _: "It is 42.")}
    async with a_pipeline(client, {**CHAIN, "attempts": 2}, agents) as (loop, _, _):
        pursued = await run_pipeline(loop)
    assert (pursued.reason, pursued.result.output, len(finder.tasks)) == ("completed", "It is 42.", 2)
    assert [step.attempts for step in pursued.result.steps] == [2, 1]
    assert [each.data["status"] for each in pursued.journal if each.event == "StepExecuted"] == ["failed", "ok", "ok"]


async def test_a_denied_pipeline_answer_is_rewritten_by_the_model(client: Client) -> None:
    model = GoalModel(summary=answers("nothing to tell"))
    agents = {"finder": TaskModel(lambda _: "found"), "writer": TaskModel(lambda _: "a secret")}
    async with a_pipeline(client, CHAIN, agents, model=model, engine=DenyAnswer(LEAD, "secret")) as (loop, _, _):
        pursued = await run_pipeline(loop)
    assert (pursued.reason, pursued.result.output, model.turns) == ("completed", "nothing to tell", ["summary"])
    assert "[Policy denied] no such words" in model.asked[0][1]
