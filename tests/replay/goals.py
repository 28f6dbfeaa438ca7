"""Goals whose histories are recorded: plans, scores, a question, an answer, prompt templates, drafts and critiques."""

from typing import Any
from uuid import uuid4

from temporalio.client import Client

from orga.activities.ports import ToolContext
from orga.testing import FakeTool, answers, calls
from orga.workflows.decisions.goals.prompts import DEFAULT_PROMPTS
from orga.workflows.types.goals.requests import PromptName, PromptTemplates
from tests.replay.plain import a_stage
from tests.support.hold import Hold, wait_until
from tests.support.model.goals import BAD, GoalModel, a_step, evaluation_reply, says
from tests.support.runs.delegates import Cast, agent
from tests.support.runs.goals import start
from tests.support.runs.loop import EXECUTION_TIMEOUT, WORKER_FACTS, Ran
from tests.support.runs.pipelines import TaskModel, a_pipeline, start_pipeline


def _look(arguments: dict[str, Any], _: ToolContext) -> str:
    if arguments.get("at") == 0:
        raise ValueError("nothing there")
    return "seen " * 20


async def pursued(client: Client) -> Ran:
    kept = "the year is not known; " * 30
    model = GoalModel(
        plan=[says(steps=[a_step("a", "fly")]), says(steps=[a_step(each, at=n) for n, each in enumerate("abc")])],
        evaluate=[
            says(steps=[{"id": each, **BAD} for each in "bc"], memory=kept),
            evaluation_reply("d"),
            says(steps=[{"id": "e", **BAD}], memory=kept),
            evaluation_reply("f"),
        ],
        decide=[
            says(action="adjust", confidence=0.9, steps=[a_step("d", at=4), a_step("e", "look", "d", at=5)]),
            says(action="ask_user", confidence=0.9, question="Which year?"),
            says(action="adjust", confidence=0.5, steps=[a_step("f", at=6)]),
            says(action="done", confidence=0.8),
        ],
        compress=says(memory="year unknown"),
    )
    async with a_stage(client, model, FakeTool("look", _look)) as loop:
        handle = await client.start_workflow(
            "GoalWorkflow",
            {"goal": "find the year"},
            id=f"goal-{uuid4()}",
            task_queue=loop.task_queue,
            execution_timeout=EXECUTION_TIMEOUT,
        )

        async def is_asked() -> bool:
            return bool((await handle.query("status"))["waiting"])

        await wait_until(is_asked)
        await handle.execute_update("answer", {"text": "1999", "by": "ada"})  # pyright: ignore[reportUnknownMemberType]
        return await loop.ended(handle)


async def piped(client: Client) -> Ran:
    """Make a draft, an invalid and a valid critique, send guidance, and make a better draft."""
    verdicts = iter(["fine!", '{"good": 0.4, "feedback": "more"}', '{"good": 0.9}'])
    config = {
        "kind": "director_critic",
        "director": "writer",
        "critic": "reviewer",
        "rubric": {"good": {"weight": 1}},
        "threshold": 0.8,
    }
    agents = {
        "writer": TaskModel(lambda task: "draft two" if "draft one" in task else "draft one"),
        "reviewer": TaskModel(lambda _: next(verdicts)),
    }
    async with a_pipeline(client, config, agents, task_queue="recorded") as (loop, _, __):
        handle = await start_pipeline(loop)
        await handle.signal("steer", "mind the gap")
        return await loop.ended(handle)


async def asked_by_templates(client: Client) -> Ran:
    """Pursue a goal whose text looks like a template, with a template for every prompt."""
    own: dict[PromptName, str] = {
        name: f"Mine {{# ours #}}of {{{{ goal }}}}.\n{text}" for name, text in DEFAULT_PROMPTS.items()
    }
    kept = "the year is not known; " * 30
    planned = [a_step("a", at=1), {**a_step("b", "look", "a"), "arguments": None}, a_step("c", "look", "b", at=3)]
    model = GoalModel(
        plan=says(steps=planned, memory="{{ goal }}"),
        input=calls("look", arguments={"at": 2}),
        evaluate=[evaluation_reply("a"), evaluation_reply("b"), says(steps=[{"id": "c", **BAD}], memory=kept)],
        compress=says(memory="year unknown"),
        decide=says(action="done", confidence=0.9),
    )
    setup = WORKER_FACTS.with_prompts(PromptTemplates.of(own))
    async with a_stage(client, model, FakeTool("look", _look), setup=setup) as loop:
        return await loop.ended(await start(loop, "find {{ 7*7 }} out"))


async def overridden(client: Client) -> Ran:
    """A person overrides a step while an agent works on another one, which must not learn of it."""
    hold = Hold()
    model = GoalModel(
        plan=says(steps=[{"id": "a", "goal": "first", "skill": "scout"}, a_step("b", "look", "a", at=1)]),
        evaluate=[evaluation_reply("a"), evaluation_reply("b")],
        decide=[says(action="continue", confidence=0.9), says(action="done", confidence=0.9)],
    )
    agents = {"lead": agent("lead", "scout", tools=["look"]), "scout": agent("scout")}
    cast = Cast({"lead": model, "scout": [hold.step(answers("seen")), answers("seen anew")]})
    async with a_stage(client, cast, FakeTool("look", _look), agents=agents) as loop:
        handle = await start(loop, agent="lead")
        await hold.reached()
        await handle.signal("override_step", {"skill": "look", "input": {"at": 7}})

        async def has_unread_override() -> bool:
            return bool((await handle.query("status"))["unread_interventions"])

        await wait_until(has_unread_override)
        hold.go.set()
        return await loop.ended(handle)
