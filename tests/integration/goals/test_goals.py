"""Goals on a real server: planning, steps, evaluation, decisions and interventions."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowUpdateFailedError

from orga.activities.ports import ToolContext
from orga.testing import FakeTool, answers, calls
from tests.support.hold import wait_until
from tests.support.model.goals import BAD, GoalModel, a_step, evaluation_reply, says
from tests.support.runs.approvals import Asks, approval_argument, wait_for_held_calls
from tests.support.runs.goals import answer_goal, goal_status, pursue, start, wait_for_goal
from tests.support.runs.loop import WORKER_FACTS, Deny, a_loop, histories_of


async def test_independent_steps_run_in_parallel_and_the_result_names_their_sources(client: Client) -> None:
    """Each step waits for the other two, so the goal ends only if all three run at once."""
    under_way, together = list[Any](), asyncio.Event()

    async def look(arguments: dict[str, Any], _: ToolContext) -> str:
        under_way.append(arguments["at"])
        if len(under_way) == 3:
            together.set()
        await asyncio.wait_for(together.wait(), 10)
        return f"seen {arguments['at']}"

    steps = [a_step("a", at=1), a_step("b", at=2), a_step("c", at=3), a_step("d", "join", "a", "b", "c")]
    model = GoalModel(plan=says(steps=steps), evaluate=[evaluation_reply("a", "b", "c"), evaluation_reply("d")])
    join = FakeTool("join")
    async with a_loop(client, model, FakeTool("look", look), join) as loop:
        pursued = await pursue(loop)
    assert pursued.reason == "completed"
    assert pursued.result.output == "the final answer"
    assert [step.status for step in pursued.result.steps] == ["done"] * 4
    assert (pursued.result.rounds, len(under_way), len(join.contexts)) == (2, 3, 1)
    assert model.turns == ["plan", "evaluate", "evaluate", "summary"]
    assert pursued.result.usage.model_calls == 4
    assert pursued.result.sources[0] == "look 1"
    assert pursued.result.confidence == pytest.approx(0.812, abs=0.001)
    reported = [
        event for event in pursued.events if event in {"PlanMade", "StepExecuted", "StepEvaluated", "DecisionMade"}
    ]
    judged = ["StepEvaluated", "DecisionMade"]
    assert reported == ["PlanMade", *["StepExecuted"] * 3, *["StepEvaluated"] * 2, *judged, "StepExecuted", *judged]


async def test_a_failed_step_makes_the_model_decide_and_change_the_plan(client: Client) -> None:
    def look(arguments: dict[str, Any], _: ToolContext) -> str:
        if arguments.get("at") == 1:
            raise ValueError("nothing there")
        return "found"

    adjusted = says(action="adjust", confidence=0.9, reason="look elsewhere", steps=[a_step("b", at=2)])
    model = GoalModel(
        plan=says(steps=[a_step("a", at=1), a_step("x", "look", "a", at=3)]),
        decide=[adjusted, says(action="done", confidence=0.9)],
        evaluate=evaluation_reply("b"),
    )
    async with a_loop(client, model, FakeTool("look", look)) as loop:
        pursued = await pursue(loop)
    assert pursued.reason == "completed"
    assert [(step.id, step.status) for step in pursued.result.steps] == [("a", "failed"), ("b", "done")]
    assert "nothing there" in pursued.result.steps[0].error
    assert "PlanAdjusted" in pursued.events
    assert model.turns == ["plan", "decide", "evaluate", "decide", "summary"]


async def test_done_needs_its_minimum_confidence_and_an_impossible_decision_is_reported(client: Client) -> None:
    model = GoalModel(
        plan=says(steps=[a_step("a")]),
        evaluate=evaluation_reply("a", relevance=3, completeness=3, usability=3, goal_progress=3),
        decide=[
            says(action="done", confidence=0.69),
            says(action="continue", confidence=1),
            says(action="done", confidence="70%"),
        ],
    )
    async with a_loop(client, model, FakeTool("look")) as loop:
        pursued = await pursue(loop)
    assert (pursued.reason, pursued.result.confidence) == ("completed", 0.5)
    texts = [text for turn, text in model.asked if turn == "goal_decide"]
    assert "done counts from a confidence of 0.7" in texts[1]
    assert "no open step can be done now" in texts[2]


async def test_a_question_waits_for_its_answer_and_the_model_reads_both(client: Client) -> None:
    model = GoalModel(
        plan=says(steps=[a_step("a")]),
        evaluate=evaluation_reply("a", **BAD),
        decide=[
            says(action="ask_user", question="Which year?", confidence=0.9),
            says(action="done", confidence=0.8),
        ],
    )
    async with a_loop(client, model, FakeTool("look")) as loop:
        handle = await start(loop)

        async def is_asked() -> bool:
            return (await goal_status(handle))["question"] == "Which year?"

        await wait_until(is_asked)
        [waiting] = (await goal_status(handle))["waiting"]
        assert waiting["question"] == "Which year?"
        for wrong in ("", {"question_id": "question-9", "text": "1999"}):
            with pytest.raises(WorkflowUpdateFailedError):
                await answer_goal(handle, wrong)
        assert await answer_goal(handle, "1999") == waiting["wait_id"]
        pursued = await wait_for_goal(handle, client)
    assert pursued.reason == "completed"
    assert "[Question to the operator] Which year?\n[Answer of the operator] 1999" in model.asked[-1][1]
    assert [event for event in pursued.events if event.startswith("Question")] == ["QuestionAsked", "QuestionAnswered"]


async def test_an_abort_cancels_the_running_step_and_returns_the_findings(client: Client) -> None:
    cancelled = asyncio.Event()

    async def hang(arguments: dict[str, Any], _: ToolContext) -> str:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "never"

    model = GoalModel(plan=says(steps=[a_step("a"), a_step("b", "hang", "a")]), evaluate=evaluation_reply("a"))
    slow = FakeTool("hang", hang)
    async with a_loop(client, model, FakeTool("look", lambda arguments, _: "the treasure"), slow) as loop:
        handle = await start(loop)

        async def hangs() -> bool:
            return bool(slow.contexts)

        await wait_until(hangs)
        await handle.signal("abort", "enough")
        pursued = await wait_for_goal(handle, client)
    assert (pursued.reason, pursued.result.termination.detail) == ("aborted", "enough")
    assert cancelled.is_set()
    assert "the treasure" in pursued.result.output
    assert "ended early: aborted (enough)" in pursued.result.output
    assert "summary" not in model.turns
    assert 0 < pursued.result.confidence < 0.5


async def test_a_pause_stops_the_goal_and_guidance_is_read_before_the_next_step(client: Client) -> None:
    """Without guidance, two steps in a row continue by rule. Guidance makes the model decide."""
    began, go = asyncio.Event(), asyncio.Event()

    async def look(arguments: dict[str, Any], _: ToolContext) -> str:
        began.set()
        await go.wait()
        return "seen"

    model = GoalModel(
        plan=says(steps=[a_step("a"), a_step("b", "look", "a")]),
        evaluate=[evaluation_reply("a"), evaluation_reply("b")],
        decide=[says(action="continue", confidence=0.9), says(action="done", confidence=0.9)],
    )
    async with a_loop(client, model, FakeTool("look", look)) as loop:
        handle = await start(loop)
        await asyncio.wait_for(began.wait(), 10)
        await handle.signal("pause")
        await handle.signal("steer", "mind the gap")
        await handle.signal("add_context", "the gap is wide")
        go.set()

        async def is_paused() -> bool:
            return (await goal_status(handle))["phase"] == "paused"

        await wait_until(is_paused)
        assert "evaluate" not in model.turns
        await handle.signal("resume")
        pursued = await wait_for_goal(handle, client)
    assert pursued.reason == "completed"
    assert model.turns == ["plan", "evaluate", "decide", "evaluate", "summary"]
    reported = dict(model.asked)["goal_evaluate"]
    assert reported.index("mind the gap") < reported.index("the gap is wide")


async def test_a_denied_step_has_no_effect_and_the_answer_passes_the_gate_too(client: Client) -> None:
    model = GoalModel(
        plan=says(steps=[a_step("a", "harm")]),
        decide=says(action="stuck", confidence=0.9, reason="not allowed"),
        summary=[answers("a secret"), answers("nothing could be done")],
    )
    harm = FakeTool("harm")
    async with a_loop(client, model, harm, engine=Deny("harm", words=["secret"])) as loop:
        pursued = await pursue(loop)
    assert (pursued.reason, pursued.result.termination.detail) == ("stuck", "not allowed")
    assert harm.contexts == []
    assert pursued.result.output == "nothing could be done"
    assert pursued.result.steps[0].error.startswith("[Policy denied]")


@pytest.mark.parametrize(
    ("config", "reason", "turns"),
    [
        pytest.param({"max_iterations": 1}, "max_iterations", ["plan", "evaluate", "decide", "summary"], id="rounds"),
        pytest.param({"max_llm_calls": 4}, "max_iterations", ["plan", "evaluate", "decide", "summary"], id="calls"),
        pytest.param({"timeout_s": 5}, "timeout", ["plan", "evaluate"], id="time"),
    ],
)
async def test_every_limit_ends_the_goal_with_its_findings(
    client: Client, config: dict[str, Any], reason: str, turns: list[str]
) -> None:
    async def look(arguments: dict[str, Any], _: ToolContext) -> str:
        is_too_long = "timeout_s" in config and arguments["at"] != 99  # all but the first
        await asyncio.sleep(60 if is_too_long else 0)
        return "the treasure"

    plans = [says(action="adjust", confidence=0.5, steps=[a_step(f"n{n}", at=n)]) for n in range(9)]
    judged = [
        evaluation_reply(each, **BAD | {"relevance": 4, "usability": 4}) for each in ("a", *(f"n{n}" for n in range(9)))
    ]
    model = GoalModel(plan=says(steps=[a_step("a", at=99)]), evaluate=judged, decide=plans)
    async with a_loop(client, model, FakeTool("look", look)) as loop:
        pursued = await pursue(loop, **config)
    assert pursued.reason == reason
    assert model.turns[: len(turns)] == turns
    assert ("summary" in model.turns) is ("summary" in turns)
    assert pursued.result.output
    assert 0 < pursued.result.confidence < 0.5


async def test_the_model_fills_in_only_arguments_that_depend_on_other_steps(client: Client) -> None:
    later = {"id": "b", "goal": "use it", "skill": "use", "arguments": None, "depends_on": ["a"]}
    model = GoalModel(
        plan=says(steps=[a_step("a"), later]),
        input=[calls("look"), calls("use", arguments={"what": "seen"})],
        evaluate=[evaluation_reply("a"), evaluation_reply("b")],
    )
    look, use = FakeTool("look", lambda arguments, _: "seen"), FakeTool("use", lambda arguments, _: arguments["what"])
    async with a_loop(client, model, look, use) as loop:
        pursued = await pursue(loop)
    assert pursued.reason == "completed"
    assert (len(look.contexts), len(use.contexts)) == (1, 1)
    assert model.turns == ["plan", "evaluate", "input", "input", "evaluate", "summary"]


async def test_a_long_goal_continues_as_new(client: Client) -> None:
    facts = WORKER_FACTS.model_copy(update={"roll_over_events": 40})
    steps = [a_step(f"s{n}", "look", *([f"s{n - 1}"] if n else []), at=n) for n in range(4)]
    model = GoalModel(plan=says(steps=steps), evaluate=[evaluation_reply(f"s{n}") for n in range(4)])
    look = FakeTool("look")
    async with a_loop(client, model, look, setup=facts) as loop:
        handle = await start(loop)
        pursued = await wait_for_goal(handle, client)
        runs = await histories_of(client, handle.id)
    assert (pursued.reason, len(look.contexts), pursued.result.rounds) == ("completed", 4, 4)
    assert len(runs) > 1


async def test_a_held_step_keeps_its_question_in_the_next_segment_even_at_a_limit(
    client: Client,
) -> None:
    """The reply is the last model call that the goal may make.

    The next segment must not end before the step is approved.
    """
    later = {"id": "b", "goal": "pay it", "skill": "pay", "arguments": None, "depends_on": ["a"]}
    model = GoalModel(
        plan=says(steps=[a_step("a"), later]),
        input=calls("pay"),
        evaluate=[evaluation_reply("a"), evaluation_reply("b")],
    )
    look, pay = FakeTool("look"), FakeTool("pay")
    facts = WORKER_FACTS.model_copy(update={"roll_over_events": 60})
    async with a_loop(client, model, look, pay, engine=Asks(), setup=facts) as loop:
        handle = await start(loop, max_llm_calls=4)
        first = (await handle.describe()).run_id
        [before] = await wait_for_held_calls(handle)
        for number in range(40):
            await handle.signal("steer", f"hint {number}")
        handle = client.get_workflow_handle(handle.id)

        async def is_another() -> bool:
            return (await handle.describe()).run_id != first

        await wait_until(is_another)
        [now] = await wait_for_held_calls(handle)
        assert now["approval_id"] == before["approval_id"]
        await handle.execute_update("approve", approval_argument(now))  # pyright: ignore[reportUnknownMemberType]
        pursued = await wait_for_goal(handle, client)
    assert (len(look.contexts), len(pay.contexts)) == (1, 1)
    assert pursued.result.steps[1].status != "open"
    assert pursued.result.output


async def test_bad_input_is_rejected_with_each_wrong_key(client: Client) -> None:
    async with a_loop(client, GoalModel(plan=answers("no")), FakeTool("look")) as loop:
        handle = await loop.client.start_workflow(
            "GoalWorkflow", {"goal": " ", "config": {"max_rounds": 3}}, id=f"goal-{uuid4()}", task_queue=loop.task_queue
        )
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
    assert "goal" in str(failed.value.cause)
    assert "max_rounds" in str(failed.value.cause)


async def test_a_reply_that_is_nearly_json_is_repaired_and_recorded(client: Client) -> None:
    """The next model call gets the plan as JSON. No turn is lost over quotes."""
    model = GoalModel(
        plan=answers(f"Here it is:\n{{'steps': [{a_step('a')!r}],}} // all"), evaluate=evaluation_reply("a")
    )
    async with a_loop(client, model, FakeTool("look")) as loop:
        pursued = await wait_for_goal(await start(loop), client)

    assert pursued.reason == "completed"
    assert model.turns.count("plan") == 1
    reported = [entry.data for entry in pursued.journal if entry.event == "ReasoningComplete"]
    assert [each["turn"] for each in reported if "repaired" in each] == ["goal_plan"]
    assert reported[0]["actions"][0]["respond"].startswith('{"steps":[{"id":"a"')
