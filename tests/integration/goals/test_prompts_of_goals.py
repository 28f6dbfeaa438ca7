"""Prompt templates of a goal: it keeps those it started with, and a template that yields no prompt ends it by name."""

from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from orga.client.errors import NoPrompt
from orga.client.history.steps import read_prompt
from orga.testing import FakeTool
from orga.workflows.types.goals.requests import PromptName, PromptTemplates
from orga.workflows.types.messages import Reply
from orga.workflows.types.setup import Setup
from tests.support.hold import wait_until
from tests.support.model.goals import BAD, GoalModel, a_step, evaluation_reply, says
from tests.support.programs.noted_folder import home, orga
from tests.support.programs.orga_command import Orga
from tests.support.runs.goals import EndedGoal, answer_goal, goal_status, pursue, start, wait_for_goal
from tests.support.runs.loop import WORKER_FACTS, Loop, a_loop, a_worker, histories_of

__all__ = ["home", "orga"]

GOAL = "find {{ 7*7 }} out"


def templates_of(house: str) -> PromptTemplates:
    """Return templates whose texts contain this name."""
    texts: dict[PromptName, str] = {
        "planning": f"{house} plans <{{{{ goal }}}}> by\n{{{{ skills }}}}\nas {{{{ answer_form }}}}",
        "decision": f"{house} decides on\n{{{{ this_round }}}}\n{{{{ open_steps }}}}\nas {{{{ answer_form }}}}",
        "summary": f"{house} sums up{{{{ ending }}}}\n{{{{ steps }}}}",
    }
    return of(texts)


def of(texts: dict[PromptName, str]) -> PromptTemplates:
    """Return these templates."""
    templates = PromptTemplates.of(texts)
    assert templates is not None
    return templates


def facts(templates: PromptTemplates, **fields: Any) -> Setup:
    """Return the setup of a worker with these templates."""
    return WORKER_FACTS.model_copy(update=fields).with_prompts(templates)


ASK, DONE = says(action="ask_user", question="Which year?", confidence=0.9), says(action="done", confidence=0.9)


def deciding(*decisions: Reply) -> GoalModel:
    """Return a model that plans one step, rates it badly, and makes these decisions."""
    return GoalModel(
        plan=says(steps=[a_step("a", word=GOAL)], memory=GOAL),
        evaluate=evaluation_reply("a", **BAD),
        decide=list(decisions),
    )


async def start_until_asked(loop: Loop) -> WorkflowHandle[Any, Any]:
    """Start a goal, and wait until it asks its question."""
    handle = await start(loop, GOAL)

    async def is_asked() -> bool:
        return (await goal_status(handle))["question"] == "Which year?"

    await wait_until(is_asked)
    return handle


async def answer_and_wait(handle: WorkflowHandle[Any, Any], client: Client) -> EndedGoal:
    await answer_goal(handle, "1999")
    return await wait_for_goal(handle, client)


async def prompts_in_history(client: Client, workflow_id: str) -> list[str]:
    """Return the prompts of all turns as read from the history. Reading checks their digests."""
    found = list[str]()
    for turn in range(1, 20):
        try:
            prompt = await read_prompt(client, workflow_id, turn)
        except NoPrompt:
            continue
        found.append("\n".join(message.text for message in prompt.request.messages))
    return found


@pytest.mark.parametrize("events", [pytest.param(3_500, id="in one run"), pytest.param(20, id="in several")])
async def test_a_goal_keeps_its_templates_if_its_worker_gets_others(client: Client, events: int) -> None:
    before, after, look = (
        deciding(ASK),
        deciding(DONE, ASK, DONE),
        FakeTool("look", lambda arguments, _: arguments["word"]),
    )
    old, new = templates_of("Ada"), templates_of("Bob")
    async with a_loop(client, before, look, setup=facts(old, roll_over_events=events)) as loop:
        handle = await start_until_asked(loop)
    loop.provider = after
    async with a_worker(loop, look, setup=facts(new, roll_over_events=events)):
        pursued = await answer_and_wait(handle, client)
        in_all = before.asked + after.asked
        by_the_first = len(after.asked)
        await answer_and_wait(await start_until_asked(loop), client)

    assert (pursued.reason, len(await histories_of(client, handle.id)) > 1) == ("completed", events == 20)
    [prepared] = [entry.data for entry in pursued.journal if entry.event == "Prepared"]
    assert prepared["prompts"] == {"digest": old.digest, "own": ["decision", "planning", "summary"]}
    assert (len(before.asked), [turn for turn, _ in after.asked[:by_the_first]]) == (3, ["goal_decide", "goal_summary"])
    texts = [text for _, text in in_all]
    assert f"[goal_plan] Ada plans <{GOAL}> by\n- look: the look tool\nas {{" in texts[0]
    assert "[goal_decide] Ada decides on\n- a (look" in texts[3]
    assert "[goal_summary] Ada sums up\n- a (look" in texts[4]
    assert not any("Bob" in text or "49" in text for text in texts)
    assert await prompts_in_history(client, handle.id) == texts
    another = after.asked[by_the_first][1]
    assert ("[goal_plan] Bob plans" in another, "Ada" in another) == (True, False)


LONG = "x" * 1_000
MUCH = "{{ goal }}" * 300
"""A template that becomes too large only with a long goal, so no check at load time can find it."""


@pytest.mark.parametrize(
    ("name", "rest", "brings"),
    [
        pytest.param("planning", "{{ skills }}{{ answer_form }}", "Nothing was done.", id="before there is a plan"),
        pytest.param("evaluation", "{{ steps }}{{ answer_form }}", "- a: do a", id="with a step done"),
        pytest.param("summary", "{{ steps }}{{ ending }}", "- a: do a", id="of the summary"),
    ],
)
async def test_a_template_that_yields_no_prompt_ends_the_goal_and_is_named(
    client: Client, name: PromptName, rest: str, brings: str
) -> None:
    model = GoalModel(plan=says(steps=[a_step("a")]), evaluate=evaluation_reply("a"))
    async with a_loop(client, model, FakeTool("look"), setup=facts(of({name: MUCH + rest}))) as loop:
        pursued = await pursue(loop, LONG)
    assert pursued.reason == "error"
    reported = pursued.result.termination.detail
    assert reported.startswith(f"goals.prompts.{name}: makes 303,")
    assert reported.endswith(" bytes; at most 250,000 are allowed, so fill in less")
    assert brings in (pursued.result.output or "")
    assert ("- a: do a" in (pursued.result.output or "")) is bool(pursued.result.plan)


async def test_a_limit_stays_the_ending_if_the_summary_prompt_fails(client: Client) -> None:
    model = GoalModel(plan=says(steps=[a_step("a"), a_step("b", "look", "a")]), evaluate=evaluation_reply("a"))
    setup = facts(of({"summary": MUCH + "{{ steps }}{{ ending }}"}))
    async with a_loop(client, model, FakeTool("look"), setup=setup) as loop:
        pursued = await pursue(loop, LONG, max_iterations=1)
    assert (pursued.reason, "- a: do a" in (pursued.result.output or "")) == ("max_iterations", True)


def test_templates_on_the_command_line(orga: Orga, tmp_path: Path) -> None:
    """The offline model recognises the blocks that a template fills in."""
    toml = tmp_path / "orga.toml"
    toml.write_text(
        '[goals.prompts]\nplanning = """\nBe brief, {{ goal }}\n{{ skills }}\n{{ answer_form }}\n"""\n'
        'evaluation = "{{ steps }}\\n{{ answer_form }}"\n'
    )
    done = orga("goal", "What is the retry limit?", "--id", "g")
    assert (done.code, "five attempts" in done.out) == (0, True), done.err
    shown = orga("steps", "g", "--prompt", "1")
    assert "[goal_plan] Be brief, What is the retry limit?\n  - list_files: " in shown.out, shown.out
    assert "holds" in shown.err
    assert orga("verify", "g").code == 0
    assert '"prompts": {"digest": "' in orga("journal", "g", "--json").out

    toml.write_text('[goals.prompts]\nplanning = "{{ goal }}"\n')
    for command, code in ((("doctor",), 6), (("goal", "What?"), 2), (("worker",), 2)):
        refused = orga(*command)
        assert refused.code == code
        assert (
            f"{toml}:2: goals.prompts.planning: lacks {{{{ skills }}}}, the tools and agents"
            in refused.err + refused.out
        )
