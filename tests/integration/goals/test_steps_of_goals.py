"""`orga steps` shows the phases of a goal and the prompts sent to its model, from the history alone."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.ports import ModelRequest, ToolContext, ToolError
from orga.client.cli.inspect.steps import COLUMNS, phase_table
from orga.client.errors import NoPrompt
from orga.client.history.steps import NoOutput, read_prompt, step_output
from orga.client.journal.phases import GoalPhases, Phase, goal_phases
from orga.client.journal.reading import read_journal
from orga.client.past.fork import fork
from orga.client.runs.goals import GoalHandle
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.messages import Reply
from orga.workflows.types.status import JournalEntry
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.hold import wait_until
from tests.support.model.goals import BAD, GOOD, GoalModel, a_step, evaluation_reply, says
from tests.support.programs.noted_folder import home, orga
from tests.support.programs.orga_command import Orga
from tests.support.runs import rewound
from tests.support.runs.delegates import a_cast, agent
from tests.support.runs.goals import answer_goal, goal_status, pursue, start, wait_for_goal
from tests.support.runs.loop import WORKER_FACTS, a_loop

__all__ = ["home", "orga"]


class RecordingModel(GoalModel):
    """A model that keeps the requests it received."""

    def __init__(self, **turns: Reply | list[Reply]) -> None:
        super().__init__(**turns)
        self.given: list[ModelRequest] = []

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        self.given.append(request)
        return await super().complete(request, on_text)


async def phases_of(client: Client, workflow_id: str) -> GoalPhases:
    return await goal_phases(read_journal(client, workflow_id))


def named(shown: GoalPhases, name: str) -> list[Phase]:
    return [phase for phase in shown.phases if phase.phase == name]


async def test_the_phases_show_replies_results_scores_questions_and_guidance(client: Client) -> None:
    """The goal has an unusable reply, a failed step, a question, and guidance that arrives during a step."""
    under_way, goes_on = asyncio.Event(), asyncio.Event()

    async def look(arguments: dict[str, Any], _: ToolContext) -> str:
        under_way.set()
        await goes_on.wait()
        return "seen"

    def fall(arguments: dict[str, Any], _: ToolContext) -> str:
        raise ValueError("fell down")

    plan = says(memory="reports are in a/", steps=[a_step("a", "look"), a_step("b", "fall")])
    asks = says(action="ask_user", question="Which year?", confidence=0.9)
    model = GoalModel(
        plan=[answers("I would look."), plan],
        evaluate=evaluation_reply("a"),
        decide=[asks, says(action="done", confidence=0.9)],
    )
    async with a_loop(client, model, FakeTool("look", look), FakeTool("fall", fall)) as loop:
        handle = await start(loop, "compare the reports")
        await under_way.wait()
        await handle.signal("steer", "mind the old ones")
        goes_on.set()

        async def is_asked() -> bool:
            return (await goal_status(handle))["question"] == "Which year?"

        await wait_until(is_asked)
        while_it_asks = await phases_of(client, handle.id)
        await answer_goal(handle, "1999")
        await wait_for_goal(handle, client)
    shown = await phases_of(client, handle.id)

    assert while_it_asks.run.ending is None
    assert (while_it_asks.phases[-1].phase, while_it_asks.phases[-1].answer) == ("ask", None)
    assert shown.run.task == "compare the reports"
    assert shown.run.ending is not None
    assert (shown.run.ending.reason, shown.run.ending.detail) == ("completed", "")
    first, second = named(shown, "plan")
    assert first.errors == ["the reply was not used, and was asked for again"]
    assert (second.errors, second.memory, [step.id for step in second.plan]) == ([], "reports are in a/", ["a", "b"])
    assert [phase.kept for phase in shown.phases] == ["", *["reports are in a/"] * (len(shown.phases) - 1)]
    asked = [phase for phase in shown.phases if phase.phase not in {"execute", "ask"}]
    assert [phase.prompt for phase in asked] == [
        (await read_prompt(client, handle.id, each.turn)).digest for each in asked
    ]
    assert [phase.prompt for phase in shown.phases if phase not in asked] == [""] * 2
    [executed] = named(shown, "execute")
    assert [(step.step, step.status == "ok") for step in executed.executed] == [("a", True), ("b", False)]
    assert "fell down" in executed.executed[1].error
    [evaluated] = named(shown, "evaluate")
    assert [(step.step, step.score, step.quality) for step in evaluated.evaluated] == [("a", 4.25, "good")]
    applied = [(phase.phase, item.text) for phase in shown.phases for item in phase.guidance]
    assert applied == [("evaluate", "mind the old ones")]
    decided = named(shown, "decide")[0].decision
    assert decided is not None
    assert (decided.action, decided.by, decided.confidence) == ("ask_user", "model", 0.9)
    [ask] = named(shown, "ask")
    assert ask.answer is not None
    assert ask.answer.answer == "1999"
    assert shown.phases[-1].phase == "summarise"
    assert sum(phase.duration_s for phase in shown.phases) < 60

    lines = phase_table(shown)
    assert max(map(len, lines)) <= COLUMNS
    for text in ("✗ b fall: ", "received steer: mind the old ones", "ask_user (model, confidence 0.9)", "! 1999"):
        assert any(text in line for line in lines), text


async def test_the_phases_show_an_override_and_the_memory_before_it_was_shortened(client: Client) -> None:
    """The override arrives during the first step. The model is asked to shorten its memory in the third round."""
    under_way, goes_on = asyncio.Event(), asyncio.Event()

    async def look(arguments: dict[str, Any], _: ToolContext) -> str:
        under_way.set()
        await goes_on.wait()
        return "seen"

    kept = f"the report is reports/1999.md {'and so on ' * 60}"
    steps = [a_step("a"), a_step("b", "look", "a"), a_step("c", "look", "b")]
    evaluations = [evaluation_reply("a"), evaluation_reply("b"), says(memory=kept, steps=[{"id": "c", **GOOD}])]
    model = GoalModel(
        plan=says(steps=steps),
        evaluate=evaluations,
        compress=says(memory="a report"),
        decide=[says(action="continue", confidence=0.9), says(action="done", confidence=0.9)],
    )
    async with a_loop(client, model, FakeTool("look", look), FakeTool("new")) as loop:
        handle = await start(loop)
        await under_way.wait()
        await GoalHandle(client, handle.id).override_step("fly", "away")
        await GoalHandle(client, handle.id).override_step("new", {"at": 3})
        goes_on.set()
        await wait_for_goal(handle, client)
    shown = await phases_of(client, handle.id)
    assert [item.step for phase in shown.phases for item in phase.overridden] == ["b"]
    assert [phase.kept for phase in named(shown, "compress")] == [kept.strip()]
    lines = "\n".join(phase_table(shown))
    assert 'received override_step: {"skill":"new"' in lines
    assert "refused override_step: skill 'fly' is none" in lines
    guidances = [item for phase in shown.phases for item in phase.guidance]
    assert [(item.refused is not None, item.text["skill"]) for item in guidances] == [(True, "fly"), (False, "new")]
    assert "b is now new, by the operator" in lines
    assert "it would lose reports/1999.md" in lines


async def test_the_shown_prompt_equals_what_the_model_received(client: Client) -> None:
    given = a_step("b", "look", "a") | {"arguments": None}
    model = RecordingModel(
        plan=says(steps=[a_step("a", at=1), given]),
        input=calls("look", arguments={"at": 2}),
        evaluate=[evaluation_reply("a"), evaluation_reply("b", **BAD)],
        decide=says(action="done", confidence=0.9),
    )
    async with a_loop(client, model, FakeTool("look")) as loop:
        handle = await start(loop)
        await wait_for_goal(handle, client)
    turns = {phase.turn for phase in (await phases_of(client, handle.id)).phases}
    found, without = list[ModelRequest](), list[str]()
    for turn in sorted(turns):
        try:
            found.append((await read_prompt(client, handle.id, turn)).request)
        except NoPrompt as error:
            without.append(str(error))
    assert [replace(each, model="") for each in found] == [replace(each, model="") for each in model.given]
    assert len(without) == 1  # the first round, whose plan already had all arguments
    assert "no model was asked in iteration 2" in without[0]
    with pytest.raises(NoPrompt, match=rf"has no iteration 99; there are 1 to {max(turns)}"):
        await read_prompt(client, handle.id, 99)


async def test_the_shown_prompt_of_an_agent_equals_what_its_model_received(client: Client) -> None:
    provider = ScriptedModel([calls("look"), answers("done")], repeats=True)
    async with a_loop(client, provider, FakeTool("look")) as loop:
        ran = await loop.run("look there")
    found = [await read_prompt(client, ran.handle.id, turn) for turn in (1, 2)]
    assert [prompt.turn for prompt in found] == ["reason"] * 2
    assert [replace(each.request, model="") for each in found] == [replace(each, model="") for each in provider.given]


async def test_the_phases_of_a_goal_exclude_those_of_its_delegates(client: Client) -> None:
    async with a_loop(
        client, GoalModel(plan=says(steps=[a_step("a")]), evaluate=evaluation_reply("a")), FakeTool("look")
    ) as loop:
        pursued = await pursue(loop)

    async def with_a_delegate() -> AsyncGenerator[JournalEntry]:
        for entry in pursued.journal:
            yield entry
            yield entry.with_sequence(entry.sequence, {"run": "child", **entry.data})

    async def alone() -> AsyncGenerator[JournalEntry]:
        for entry in pursued.journal:
            yield entry

    assert (await goal_phases(with_a_delegate())).phases == (await goal_phases(alone())).phases


def test_steps_on_the_command_line(orga: Orga) -> None:
    done = orga("goal", "What is the retry limit?", "--id", "g")
    assert done.code == 0
    assert re.search(r"^completed: .* s; confidence 0\.\d\d, \d of \d steps done$", done.err, re.MULTILINE)
    assert re.search(r"^confidence 0\.\d\d$", orga("status", "g").out, re.MULTILINE)
    shown = orga("steps", "g")
    step = json.loads(done_json := orga("status", "g", "--json").out)["plan"]["steps"][0]["id"]
    brought = orga("steps", "g", "--output", step)
    assert (brought.code, brought.out.strip() != "", f"{step} ok, call " in brought.err) == (0, True, True), done_json
    assert json.loads(orga("steps", "g", "--output", step, "--json").out)["output"].strip() == brought.out.strip()
    assert shown.code == 0
    assert shown.out.startswith("g  completed\n  What is the retry limit?\nITERATION  PHASE")
    assert max(map(len, shown.out.splitlines())) <= COLUMNS
    report = json.loads(orga("steps", "g", "--json").out)
    assert {"plan", "execute", "evaluate", "summarise"} <= {phase["phase"] for phase in report["phases"]}
    prompt = orga("steps", "g", "--prompt", "1")
    assert prompt.code == 0
    assert "── user\n  [goal_plan] Plan how the goal above is reached." in prompt.out
    assert "digest" in prompt.err
    assert json.loads(orga("steps", "g", "--prompt", "1", "--json").out)["messages"][-1]["role"] == "user"

    orga("run", "What is the retry limit?", "--id", "a")
    for arguments, expected in (
        (("a",), "is an agent's run, which has no plan. `orga journal` shows what it did"),
        (("g", "--prompt", "99"), "run 'g' has no iteration 99; there are 1 to "),
        (("g", "--prompt", "0"), "Invalid value for '--prompt'"),
        (("nobody",), "there is no run 'nobody'; `orga list` shows the ids"),
    ):
        done = orga("steps", *arguments)
        assert (done.code, expected in done.err) == (2, True), done.err
    assert "What is the retry limit?" in orga("steps", "a", "--prompt", "1").out


EACH_TURN = WORKER_FACTS.model_copy(update={"roll_over_events": 1})
LONG = "line\n" * 3_000


@pytest.mark.parametrize("setup", [WORKER_FACTS, EACH_TURN], ids=["one run", "a chain of runs"])
async def test_the_whole_output_of_a_step_is_read_from_the_history(client: Client, setup: Any) -> None:
    """The step is named by its id or by its place in the journal, also in a fork.

    The model saw only a part of the output.
    """

    def fails(arguments: dict[str, Any], _: ToolContext) -> str:
        raise ToolError("the disk is full")

    recovery = Recovery(strategy="fallback", alternatives=("look",), max_attempts=1)
    tools = [
        FakeTool("look", lambda arguments, _: arguments.get("text", LONG), effect="idempotent"),
        FakeTool("broken", fails, effect="idempotent"),
        FakeTool("replaced", fails, effect="idempotent", options=ToolOptions(recovery=recovery)),
    ]
    plan = [
        a_step("long"),
        a_step("short", text="brief"),
        a_step("bad", "broken"),
        a_step("again", "replaced", text="by look"),
        a_step("later", "look", "bad"),
    ]
    model = GoalModel(
        plan=says(steps=plan),
        evaluate=evaluation_reply("long", "short", "again"),
        decide=says(action="done", confidence=0.9),
    )
    async with a_loop(client, model, *tools, setup=setup) as loop:
        handle = await start(loop, max_parallel_steps=8, context_token_budget=3_000)
        pursued = await wait_for_goal(handle, client)
        run = await fork(client, handle.id, pursued.result.iterations, task="once more")
        await rewound.wait_for_rewound(client, run)
    assert LONG not in model.asked[-1][1]
    places = {entry.data["step"]: entry.data["place"] for entry in pursued.journal if entry.event == "StepExecuted"}
    for named in ("long", places["long"]):
        found = await step_output(client, handle.id, named)
        assert (found.step, found.place, found.status, found.output) == ("long", places["long"], "ok", LONG)
    assert (await step_output(client, handle.id, "short")).output == "brief"
    assert (await step_output(client, handle.id, "again")).output == "by look"
    failed = await step_output(client, handle.id, "bad")
    assert (failed.status, "the disk is full" in failed.output) == ("failed", True)
    assert (await step_output(client, run.id, "short")).output == "brief"
    with pytest.raises(NoOutput, match=r"step 'later' of goal .* has not been carried out yet"):
        await step_output(client, handle.id, "later")
    with pytest.raises(NoOutput, match=r"has no step 'lng'; .*long"):
        await step_output(client, handle.id, "lng")


async def test_the_output_of_an_agent_step_is_read_from_the_history_of_the_goal(client: Client) -> None:
    agents = {"lead": agent("lead", "scout"), "scout": agent("scout")}
    plan = says(steps=[{"id": "a", "goal": "look around", "skill": "scout"}])
    scripts = {"lead": GoalModel(plan=plan, evaluate=evaluation_reply("a")), "scout": [answers("a tower")]}
    async with a_cast(client, agents, scripts) as (loop, _):
        handle = await start(loop, agent="lead")
        await wait_for_goal(handle, client)
    assert (await step_output(client, handle.id, "a")).output == "a tower"
