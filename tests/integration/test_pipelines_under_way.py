"""Goals with pipelines are stopped, steered, denied and bounded like any goal."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError

from orga.activities.ports import Judgement, ModelError, ModelRequest, Proposal
from orga.client.cli.phase_rows import table
from orga.client.cli.plan_lines import step_lines
from orga.client.history.prompts import NoPrompt, prompt_of
from orga.client.journal.phases import goal_phases
from orga.client.journal.reading import read_journal
from orga.client.past.fork import fork
from orga.client.runs.goals import start_goal
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.messages import Reply
from tests.support.hold import until
from tests.support.model.goals import GoalModel, scored
from tests.support.runs import rewound
from tests.support.runs.approvals import Asks, pending, yes
from tests.support.runs.goals import ended, stands, tell
from tests.support.runs.loop import WORKER_FACTS, histories_of
from tests.support.runs.pipelines import LEAD, Told, a_pipeline, line, start_line

CHAIN: dict[str, Any] = {"kind": "chain", "steps": ["finder", "writer"]}
SURVEY: dict[str, Any] = {"kind": "map_reduce", "map": "reader", "reduce": "editor"}
ESSAY: dict[str, Any] = {
    "kind": "director_critic",
    "director": "writer",
    "critic": "reviewer",
    "rubric": {"good": {"weight": 1}},
}


class Waits(Told):
    """An agent that answers once it is let go."""

    def __init__(self, say: Callable[[str], str]) -> None:
        super().__init__(say)
        self.began, self.go = asyncio.Event(), asyncio.Event()

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Wait, then answer."""
        self.began.set()
        await self.go.wait()
        return await super().complete(request, on_text)


class DenyTask:
    """A policy engine that denies what is delegated to an agent."""

    is_embedded = True

    def __init__(self, agent: str) -> None:
        self._agent = agent

    async def judge(self, proposal: Proposal) -> Judgement:
        """Deny it."""
        call = proposal.call
        is_it = call is not None and call.name == "delegate" and call.arguments["agent"] == self._agent
        return Judgement(not is_it, "not that one")


class DenyAnswer:
    """A policy engine that denies answers of one agent which hold a word."""

    is_embedded = True

    def __init__(self, agent: str, word: str) -> None:
        self._agent, self._word = agent, word

    async def judge(self, proposal: Proposal) -> Judgement:
        """Deny them."""
        is_it = proposal.agent == self._agent and self._word in (proposal.answer or "")
        return Judgement(not is_it, "no such words")


async def test_a_denied_step_has_no_effect_and_the_goal_says_where_it_got_stuck(client: Client) -> None:
    model = GoalModel(summary=answers("only the finding: 42"))
    writer = Told(lambda _: "never")
    agents = {"finder": Told(lambda _: "found 42"), "writer": writer}
    async with a_pipeline(client, {**CHAIN, "attempts": 3}, agents, model=model, engine=DenyTask("writer")) as (
        loop,
        _,
        _,
    ):
        pursued = await line(loop)
    assert (pursued.reason, pursued.result.output) == ("stuck", "only the finding: 42")
    assert pursued.result.termination.detail.startswith("step-2 failed: [Policy denied]")
    assert (writer.tasks, model.turns) == ([], ["summary"])
    assert [(step.status, step.attempts) for step in pursued.result.steps] == [("done", 1), ("failed", 1)]


async def test_an_agent_that_does_not_finish_is_begun_again_where_that_is_allowed(client: Client) -> None:
    class FallsOnce(Told):
        async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
            said = await super().complete(request, on_text)
            if len(self.tasks) == 1:
                raise ModelError("refused", "not now", retryable=False)
            return said

    finder = FallsOnce(lambda _: "found 42")
    agents = {"finder": finder, "writer": Told(lambda _: "It is 42.")}
    async with a_pipeline(client, {**CHAIN, "attempts": 2}, agents) as (loop, _, _):
        pursued = await line(loop)
    assert (pursued.reason, pursued.result.output, len(finder.tasks)) == ("completed", "It is 42.", 2)
    assert [step.attempts for step in pursued.result.steps] == [2, 1]
    assert [each.data["status"] for each in pursued.journal if each.event == "StepExecuted"] == ["failed", "ok", "ok"]


async def test_an_answer_that_the_gate_denies_is_written_anew_by_the_model(client: Client) -> None:
    model = GoalModel(summary=answers("nothing to tell"))
    agents = {"finder": Told(lambda _: "found"), "writer": Told(lambda _: "a secret")}
    async with a_pipeline(client, CHAIN, agents, model=model, engine=DenyAnswer(LEAD, "secret")) as (loop, _, _):
        pursued = await line(loop)
    assert (pursued.reason, pursued.result.output, model.turns) == ("completed", "nothing to tell", ["summary"])
    assert "[Policy denied] no such words" in model.asked[0][1]


async def test_guidance_reaches_the_agent_at_work_and_each_step_to_come(client: Client) -> None:
    finder, writer = Waits(lambda _: "found"), Told(lambda _: "the answer")
    async with a_pipeline(client, CHAIN, {"finder": finder, "writer": writer}) as (loop, _, model):
        handle = await start_line(loop)
        await asyncio.wait_for(finder.began.wait(), 30)
        await handle.signal("steer", "mind the gap")
        child = client.get_workflow_handle(f"{handle.id}.1.0")

        async def is_told() -> bool:
            return bool((await child.query("status"))["unread_interventions"])

        await until(is_told)
        finder.go.set()
        pursued = await ended(handle, client)
    assert (pursued.reason, pursued.result.output, model.turns) == ("completed", "the answer", [])
    assert writer.tasks[0].count("mind the gap") == 1
    assert "From the operator:\nmind the gap" in writer.tasks[0]


async def test_guidance_behind_the_last_step_has_the_model_write_the_answer(client: Client) -> None:
    writer = Waits(lambda _: "the answer")
    model = GoalModel(summary=answers("the answer, in short"))
    async with a_pipeline(client, CHAIN, {"finder": Told(lambda _: "found"), "writer": writer}, model=model) as (
        loop,
        _,
        _,
    ):
        handle = await start_line(loop)
        await asyncio.wait_for(writer.began.wait(), 30)
        await handle.signal("steer", "be short")
        writer.go.set()
        pursued = await ended(handle, client)
    assert (pursued.reason, pursued.result.output) == ("completed", "the answer, in short")
    assert model.turns == ["summary"]
    assert "be short" in model.asked[0][1]
    assert "the answer" in model.asked[0][1]


async def test_a_pause_holds_a_pipeline_and_the_agent_at_work(client: Client) -> None:
    finder, writer = Waits(lambda _: "found"), Told(lambda _: "the answer")
    async with a_pipeline(client, CHAIN, {"finder": finder, "writer": writer}) as (loop, _, _):
        handle = await start_line(loop)
        await asyncio.wait_for(finder.began.wait(), 30)
        await handle.signal("pause")
        child = client.get_workflow_handle(f"{handle.id}.1.0")

        async def is_told() -> bool:
            return bool((await stands(child))["paused"])

        async def stands_still() -> bool:
            return (await stands(child))["phase"] == "paused"

        await until(is_told)
        finder.go.set()
        await until(stands_still)
        assert ((await stands(handle))["paused"], writer.tasks) == (True, [])
        await handle.signal("resume")
        pursued = await ended(handle, client)
    assert (pursued.reason, pursued.result.output) == ("completed", "the answer")


async def test_an_abort_cancels_the_agents_and_brings_what_was_found(client: Client) -> None:
    reader = Waits(lambda _: "never")
    agents = {"finder": Told(lambda _: "the treasure"), "writer": reader}
    async with a_pipeline(client, CHAIN, agents) as (loop, _, model):
        handle = await start_line(loop)
        await asyncio.wait_for(reader.began.wait(), 30)
        await handle.signal("abort", "enough")
        pursued = await ended(handle, client)
    assert (pursued.reason, pursued.result.termination.detail) == ("aborted", "enough")
    assert "the treasure" in pursued.result.output
    assert "Not done: step-2" in pursued.result.output
    assert model.turns == []


async def test_an_abort_of_a_director_brings_its_best_draft(client: Client) -> None:
    class Second(Waits):
        async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
            if not self.tasks:
                self.tasks.append(request.messages[0].text)
                return answers("draft one")
            return await super().complete(request, on_text)

    writer = Second(lambda _: "never")
    reviewer = Told(lambda _: '{"good": 0.4, "feedback": "more"}')
    async with a_pipeline(client, ESSAY, {"writer": writer, "reviewer": reviewer}) as (loop, _, _):
        handle = await start_line(loop)
        await asyncio.wait_for(writer.began.wait(), 30)
        plan = (await stands(handle))["plan"]
        await handle.signal("abort", "enough")
        pursued = await ended(handle, client)
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
async def test_a_limit_ends_a_pipeline_with_what_was_found(
    client: Client, config: dict[str, Any], looks: int, reason: str, detail: str
) -> None:
    finder = [*[calls("look")] * looks, answers("the treasure")]
    agents = {"finder": finder, "writer": Told(lambda _: "never")}
    async with a_pipeline(client, CHAIN, agents, FakeTool("look")) as (loop, _, _):
        pursued = await line(loop, **config)
    assert pursued.reason == reason
    assert detail in pursued.result.termination.detail
    assert pursued.result.output
    assert pursued.result.steps[1].status == "open"


async def test_a_pipeline_that_is_done_at_its_limit_is_done(client: Client) -> None:
    """Its answer takes no model call, so none has to be left for it."""
    agents = {"finder": Told(lambda _: "found"), "writer": Told(lambda _: "the answer")}
    async with a_pipeline(client, {**CHAIN, "steps": [*CHAIN["steps"], "finder"]}, agents) as (loop, _, model):
        pursued = await line(loop, max_iterations=3, max_llm_calls=4)
    assert (pursued.reason, pursued.result.output, model.turns) == ("completed", "found", [])


async def test_a_step_may_be_put_in_place_of_the_one_that_is_due(client: Client) -> None:
    finder, writer = Waits(lambda _: "found"), Told(lambda _: "never")
    look = FakeTool("look", lambda arguments, _: f"seen {arguments['at']}")
    async with a_pipeline(client, CHAIN, {"finder": finder, "writer": writer}, look) as (loop, _, _):
        handle = await start_line(loop)
        await asyncio.wait_for(finder.began.wait(), 30)
        await handle.signal("override_step", {"skill": "look", "input": {"at": 7}})
        finder.go.set()
        pursued = await ended(handle, client)
    assert (pursued.reason, len(look.contexts), writer.tasks) == ("completed", 1, [])
    assert [step.skill for step in pursued.result.steps] == ["finder", "look"]


async def test_drafts_that_get_no_better_break_a_director_off(client: Client) -> None:
    writer = Told(lambda task: "draft two" if "draft one" in task else "draft one")
    reviewer = Told(lambda _: '{"good": 0.5, "feedback": "more"}')
    config = {**ESSAY, "adaptive_break": True, "max_rounds": 7}
    async with a_pipeline(client, config, {"writer": writer, "reviewer": reviewer}) as (loop, _, model):
        pursued = await line(loop)
    assert (pursued.reason, len(writer.tasks), len(reviewer.tasks), model.turns) == ("stuck", 2, 2, [])
    assert pursued.result.termination.detail == "the drafts get no better: 0.5 after 0.5"
    assert pursued.result.output.endswith("The best draft, draft-2:\n\ndraft two")


async def test_steps_are_scored_by_the_goals_model_where_that_is_wanted(client: Client) -> None:
    model = GoalModel(evaluate=[scored("step-1"), scored("step-2")])
    agents = {"finder": Told(lambda _: "found"), "writer": Told(lambda _: "the answer")}
    async with a_pipeline(client, {**CHAIN, "evaluate": True}, agents, model=model) as (loop, _, _):
        pursued = await line(loop)
    assert (pursued.reason, pursued.result.output) == ("completed", "the answer")
    assert model.turns == ["evaluate", "evaluate"]
    assert pursued.result.confidence > 0.7


async def test_a_plan_that_people_review_is_held_until_their_yes(client: Client) -> None:
    finder = Told(lambda _: "found")
    async with a_pipeline(client, CHAIN, {"finder": finder, "writer": Told(lambda _: "the answer")}) as (loop, _, _):
        handle = await start_line(loop, plan_review="always")

        async def is_asked() -> bool:
            return bool((await stands(handle))["question"])

        await until(is_asked)
        assert finder.tasks == []
        await tell(handle, "yes")
        pursued = await ended(handle, client)
    assert (pursued.reason, pursued.result.output) == ("completed", "the answer")


async def test_a_step_that_people_have_to_approve_is_held_and_asked_on_by_the_next_run(client: Client) -> None:
    """All tasks of the round are in the reply that is held: the next run carries out the very same."""
    facts = WORKER_FACTS.model_copy(update={"roll_over_events": 40})
    finder = Told(lambda _: "found")
    agents = {"finder": finder, "writer": Told(lambda _: "the answer")}
    async with a_pipeline(client, CHAIN, agents, engine=Asks(("delegate",)), setup=facts) as (loop, _, _):
        handle = await start_line(loop)
        first = (await handle.describe()).run_id
        [before] = await pending(handle)
        for number in range(30):
            await handle.signal("steer", f"hint {number}")
        handle = client.get_workflow_handle(handle.id)

        async def is_another() -> bool:
            return (await handle.describe()).run_id != first

        await until(is_another)
        [now] = await pending(handle)
        assert (now["approval_id"], finder.tasks) == (before["approval_id"], [])
        await handle.execute_update("approve", yes(now))  # pyright: ignore[reportUnknownMemberType]

        async def is_next() -> bool:
            held = await pending(handle)
            return bool(held) and held[0]["approval_id"] != now["approval_id"]

        await until(is_next)
        await handle.execute_update("approve", yes((await pending(handle))[0]))  # pyright: ignore[reportUnknownMemberType]
        pursued = await ended(handle, client)
    assert pursued.reason == "completed"
    assert [step.attempts for step in pursued.result.steps] == [1, 1]


async def test_a_long_pipeline_continues_as_new_and_keeps_what_it_needs(client: Client) -> None:
    facts = WORKER_FACTS.model_copy(update={"roll_over_events": 30})
    reader = Told(lambda task: f"read {next(each for each in 'abcde' if f'{each}.md' in task)}")
    editor = Told(lambda _: "all of it")
    async with a_pipeline(client, SURVEY, {"reader": reader, "editor": editor}, setup=facts) as (loop, _, _):
        pursued_by = await start_line(loop, inputs=[f"{each}.md" for each in "abcde"], max_parallel_steps=1)
        pursued = await ended(pursued_by, client)
        runs = await histories_of(client, pursued_by.id)
    assert (pursued.reason, pursued.result.output) == ("completed", "all of it")
    assert len(runs) > 1
    assert [f"read {each}" in editor.tasks[0] for each in "abcde"] == [True] * 5


@pytest.mark.parametrize(("turn", "tasks"), [(0, (1, 1)), (1, (0, 1)), (2, (0, 0))])
async def test_a_fork_does_what_was_not_done_by_then(client: Client, turn: int, tasks: tuple[int, int]) -> None:
    finder, writer = Told(lambda _: "found"), Told(lambda _: "the answer")
    async with a_pipeline(client, CHAIN, {"finder": finder, "writer": writer}) as (loop, _, model):
        handle = await start_line(loop)
        await ended(handle, client)
        before = (len(finder.tasks), len(writer.tasks))
        run = await fork(client, handle.id, turn)
        forked = await rewound.ended(client, run)
    assert (forked.result.termination.reason, forked.result.output) == ("completed", "the answer")
    assert (len(finder.tasks) - before[0], len(writer.tasks) - before[1]) == tasks
    assert model.turns == []


async def test_orga_steps_shows_the_plan_and_the_steps_of_a_pipeline(client: Client) -> None:
    agents = {"finder": Told(lambda _: "found"), "writer": Told(lambda _: "the answer")}
    async with a_pipeline(client, CHAIN, agents) as (loop, _, _):
        handle = await start_goal(
            loop.client, {"goal": "see to it", "agent": LEAD}, task_queue=loop.task_queue, pipeline="line"
        )
        await handle.result()
        shown = await goal_phases(read_journal(client, handle.id))
        with pytest.raises(NoPrompt, match="no model was asked in turn 1"):
            await prompt_of(client, handle.id, 1)
    assert [phase.phase for phase in shown.phases] == ["plan", "execute", "execute", "summarise"]
    rows = table(shown)
    assert any("step-1 finder: do its part" in row for row in rows)
    assert any("✓ step-2 writer: do its part" in row for row in rows)
    assert any("answers: the answer" in row for row in rows)


async def test_a_goal_that_names_no_pipeline_of_its_worker_is_refused(client: Client) -> None:
    async with a_pipeline(client, CHAIN, {"finder": [], "writer": []}) as (loop, _, _):
        handle = await start_goal(
            loop.client, {"goal": "x", "agent": LEAD}, task_queue=loop.task_queue, pipeline="lime"
        )
        with pytest.raises(WorkflowFailureError) as failed:
            await client.get_workflow_handle(handle.id).result()
        other = await start_line(loop, inputs=["x"])
        with pytest.raises(WorkflowFailureError) as refused:
            await other.result()
    assert "there is no pipeline 'lime'" in str(failed.value.cause)
    assert "is a chain, which takes none" in str(refused.value.cause)
