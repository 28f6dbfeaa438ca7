"""A worker dies in a goal: in its later states, at an answer, during a plan review, and between parallel steps."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from temporalio.client import Client, WorkflowHandle

from orga.testing import FakeTool
from tests.support.crash.model import DelegatingModel
from tests.support.crash.stage import NEVER, PATIENCE, all_tools
from tests.support.crash.worker import Backstage, Cast, CrashWorker, Fate
from tests.support.model.goals import CallingModel, SteadyModel
from tests.support.model.staged import WatchedStages
from tests.support.runs.goals import EndedGoal, answer_goal, wait_for_goal
from tests.support.runs.loop import check_replay, check_tasks, histories_of
from tests.support.runs.questions import wait_for_question

ANSWER = "asked to answer"


def looking(backstage: Backstage) -> list[FakeTool]:
    return [backstage.tool("look")]


def one_held(backstage: Backstage) -> list[FakeTool]:
    """Return tools. `note` does not end before it is released."""
    return [
        backstage.tool("look", "read_only"),
        backstage.tool("note", held=True),
        backstage.tool("send", "irreversible"),
    ]


class Killed:
    """A goal whose worker dies as planned, so that another one continues."""

    def __init__(self, client: Client, folder: Path, fate: Fate, cast: Cast, model: Any, **config: Any) -> None:
        """Let its first worker die as `fate` says. `config` holds keys of its GoalConfig."""
        self._config = config
        self._client, self._queue, self._effects = client, f"goals-{uuid4()}", folder / f"effects-{uuid4()}"
        self._effects.touch()
        address = client.service_client.config.target_host
        self._workers = [
            CrashWorker(address, self._queue, self._effects, NEVER, each, cast, model=model) for each in (fate, Fate())
        ]

    @property
    def workflow_id(self) -> str:
        """The id of the goal."""
        return f"goal-{self._queue}"

    @property
    def effects(self) -> list[list[str]]:
        """Return the tool and the idempotency key of each effect."""
        return [line.split() for line in self._effects.read_text().splitlines()]

    async def play(self, answered: Sequence[str] = ()) -> EndedGoal:
        """Pursue it to its end.

        Args:
            answered: "early" where the first worker is asked to answer, "late" where the second one is, "held" where
                the first one is killed over the question.
        """
        handle = await self._start()
        dying = self._workers[0].started()
        answer = asyncio.create_task(self._answer(handle)) if "early" in answered else None
        if "held" in answered:
            await wait_for_question(handle, PATIENCE.total_seconds())
            dying.kill()
        await asyncio.to_thread(dying.join, 90)
        assert dying.exitcode == -9
        self._effects.with_name("release").touch()
        living = self._workers[1].started()
        try:
            await (self._answer(handle) if {"late", "held"}.intersection(answered) else answer or asyncio.sleep(0))
            return await wait_for_goal(handle, self._client)
        finally:
            living.kill()
            living.join()

    async def _start(self) -> WorkflowHandle[Any, Any]:
        return await self._client.start_workflow(
            "GoalWorkflow",
            {"goal": "see to it", "config": self._config},
            id=self.workflow_id,
            task_queue=self._queue,
            execution_timeout=PATIENCE,
            task_timeout=timedelta(seconds=5),
        )

    async def _answer(self, handle: WorkflowHandle[Any, Any]) -> None:
        await wait_for_question(handle, PATIENCE.total_seconds())
        await answer_goal(handle, "yes")


async def test_a_goal_survives_its_worker_in_its_later_states_and_at_an_answer(client: Client, tmp_path: Path) -> None:
    """An answer whose worker died is taken by the next worker, once."""
    moments = {"goal_compress": "late", "goal_decide": "late", ANSWER: "early", "goal_summary": "early"}
    goals = {moment: Killed(client, tmp_path, Fate(moment), looking, WatchedStages) for moment in moments}
    ends = await asyncio.gather(*(goals[moment].play([when]) for moment, when in moments.items()))
    for goal, pursued in zip(goals.values(), ends, strict=True):
        assert (pursued.reason, pursued.result.output) == ("completed", "the final answer")
        assert (pursued.events.count("QuestionAsked"), pursued.events.count("QuestionAnswered")) == (1, 1)
        assert [step.status for step in pursued.result.steps] == ["done"] * 3
        assert len(goal.effects) == len({key for _, key in goal.effects}) == 3


async def test_a_goal_survives_its_worker_while_its_model_makes_calls(client: Client, tmp_path: Path) -> None:
    goal = Killed(client, tmp_path, Fate("goal_input"), looking, CallingModel)
    pursued = await goal.play()
    inputs = [entry.data for entry in pursued.journal if entry.data.get("turn") == "goal_input"]
    assert (pursued.reason, ["prompt" in each for each in inputs]) == ("completed", [False, True])
    assert [step.attempts for step in pursued.result.steps] == [1, 1]
    assert len(goal.effects) == len({key for _, key in goal.effects}) == 2


async def test_no_step_runs_twice_when_a_worker_dies_between_parallel_steps(client: Client, tmp_path: Path) -> None:
    """Two steps are done and one hangs. Only that one runs again, under its key."""
    goal = Killed(client, tmp_path, Fate(after_s=2.0), one_held, SteadyModel)
    pursued = await goal.play()
    keys = {tool: {key for name, key in goal.effects if name == tool} for tool in ("look", "note", "send")}
    assert {tool: len(found) for tool, found in keys.items()} == {"look": 2, "note": 1, "send": 1}
    assert [tool for tool, _ in goal.effects].count("send") == 1
    assert pursued.reason == "completed"
    assert [step.attempts for step in pursued.result.steps] == [1, 1, 1, 1]


async def test_a_plan_under_review_survives_its_worker(client: Client, tmp_path: Path) -> None:
    """The plan is made once and reviewed once, and no step runs before the approval."""
    moments = {"noting QuestionAsked": "late", "": "held", ANSWER: "early"}
    goals = {
        moment: Killed(client, tmp_path, Fate(moment), all_tools, SteadyModel, plan_review="always")
        for moment in moments
    }
    ends = await asyncio.gather(*(goals[moment].play([when]) for moment, when in moments.items()))
    for goal, pursued in zip(goals.values(), ends, strict=True):
        events = [event for event in pursued.events if event.startswith(("Plan", "Question", "StepExecuted"))]
        assert (pursued.reason, pursued.result.output) == ("completed", "the final answer")
        assert events == ["PlanMade", "QuestionAsked", "QuestionAnswered", *["StepExecuted"] * 4]
        assert len(goal.effects) == len({key for _, key in goal.effects}) == 4


async def test_an_agent_that_carries_out_a_step_survives_its_worker(client: Client, tmp_path: Path) -> None:
    """Only the interrupted call runs again, under its key. Calls that cannot be repeated do not."""
    moments = ("model call 2", "note", "send", "after send")
    goals = [Killed(client, tmp_path, Fate(moment), all_tools, DelegatingModel) for moment in moments]
    ends = await asyncio.gather(*(goal.play() for goal in goals))
    for moment, goal, pursued in zip(moments, goals, ends, strict=True):
        done = Counter(tool for tool, _ in goal.effects)
        assert done == {"look": 2, "note": 2 if moment == "note" else 1, "send": 1}
        assert len({key for _, key in goal.effects}) == 4
        assert (pursued.reason, pursued.result.tool_calls.delegated) == ("completed", 3)
        assert [(step.status, step.attempts) for step in pursued.result.steps] == [("done", 1)] * 2
        for history in await histories_of(client, f"{goal.workflow_id}.2.0"):
            check_tasks(history)
            await check_replay(history)
