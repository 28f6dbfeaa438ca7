"""Days of waiting for a person, on the time-skipping server, use no time of the run."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from orga.activities.ports import ToolContext, ToolError
from orga.client.testing.script import Step
from orga.testing import FakeTool, answers, calls
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.hold import Hold, wait_until
from tests.support.parts.time_skipping import time_skipping
from tests.support.runs.delegates import a_cast, agent, delegates, start_lead
from tests.support.runs.long_runs import DAY, LONG, a_long_loop, seen_by, time_left, took
from tests.support.runs.questions import send_update, tool_results_in, wait_for_question
from tests.support.runs.waits import wait_until_known, wait_until_paused


@pytest.fixture(scope="module")
async def environment() -> AsyncGenerator[WorkflowEnvironment]:
    async with time_skipping() as environment:
        yield environment


def broken(arguments: dict[str, Any], context: ToolContext) -> str:
    raise ToolError("the disk is full")


def escalating() -> FakeTool:
    """Return a tool whose first call fails, so that a person is asked. A later call succeeds."""
    options = ToolOptions(recovery=Recovery(strategy="escalate", max_attempts=1))
    save = FakeTool("save", effect="idempotent", options=options)
    save.body = lambda arguments, context: broken(arguments, context) if len(save.contexts) == 1 else "saved"
    return save


async def waits_for_a_person(handle: WorkflowHandle[Any, Any]) -> bool:
    """Return whether a delegate of the run waits for a person."""
    return any(child["held"] for child in (await handle.query("status"))["children"])


@pytest.mark.parametrize(
    ("choice", "expected", "reason"),
    [
        pytest.param({"choice": "skip"}, "[Error] ToolError: the disk is full", "completed", id="skip"),
        pytest.param({"choice": "result", "result": "42"}, "[Result from the operator]\n42", "completed", id="result"),
        pytest.param({"choice": "retry"}, "saved", "completed", id="retry, the disk has room again"),
        pytest.param({"choice": "abort"}, None, "escalated", id="abort"),
    ],
)
async def test_an_escalation_waits_a_week_and_uses_no_time(
    environment: WorkflowEnvironment, choice: dict[str, Any], expected: str | None, reason: str
) -> None:
    """The run has a limit of five minutes, and the week does not count."""
    save = escalating()
    async with a_long_loop(environment, [calls("save"), answers()], save) as loop:
        handle = await loop.start()
        wait = await wait_for_question(handle)
        before = await time_left(handle)
        await environment.sleep(7 * DAY)
        assert await time_left(handle) == before
        await send_update(handle, "resolve_escalation", {"escalation_id": wait["wait_id"], **choice})
        ran = await loop.ended(handle)
    assert ran.result.termination.reason == reason
    assert ran.result.duration_s < 60
    assert expected is None or tool_results_in(loop) == [expected]
    assert took(ran) > 7 * DAY
    assert len({context.idempotency_key for context in save.contexts}) == 1


async def test_a_week_inside_a_delegate_uses_no_time_of_the_runs_above(environment: WorkflowEnvironment) -> None:
    """Three agents wait for each other, and none uses more than its five minutes."""
    agents = {"lead": agent("lead", "mate"), "mate": agent("mate", "hand"), "hand": agent("hand", tools=["save"])}
    scripts = {
        "lead": [delegates("mate"), answers("led")],
        "mate": [delegates("hand"), answers("passed on")],
        "hand": [calls("save"), answers("saved it")],
    }
    async with a_cast(environment.client, agents, scripts, escalating()) as (loop, cast):
        loop.execution_timeout = LONG
        handle = await start_lead(loop)
        hand = environment.client.get_workflow_handle(f"{handle.id}.1.0.1.0")
        await wait_until_known(hand)
        wait = await wait_for_question(hand)
        await wait_until(lambda: waits_for_a_person(handle))
        before = await time_left(handle)
        await environment.sleep(7 * DAY)
        assert await time_left(handle) == before
        await send_update(hand, "resolve_escalation", {"escalation_id": wait["wait_id"], "choice": "retry"})
        ran = await loop.ended(handle)
    assert (ran.result.output, ran.result.termination.reason) == ("led", "completed")
    assert ran.result.duration_s < 60
    assert took(ran) > 7 * DAY
    assert cast.messages_to("lead")[-1].splitlines()[1] == "passed on"


async def test_the_clock_of_the_parent_continues_after_its_waiting_delegate_is_aborted(
    environment: WorkflowEnvironment,
) -> None:
    agents = {"lead": agent("lead", "hand"), "hand": agent("hand", tools=["save"])}
    hold = Hold()
    scripts: dict[str, list[Step]] = {
        "lead": [delegates("hand"), hold.step(answers("led"))],
        "hand": [calls("save"), answers("saved it")],
    }
    async with a_cast(environment.client, agents, scripts, escalating()) as (loop, _):
        loop.execution_timeout = LONG
        handle = await start_lead(loop, timeout_s=4)
        hand = environment.client.get_workflow_handle(f"{handle.id}.1.0")
        await wait_until_known(hand)
        await wait_for_question(hand)
        await wait_until(lambda: waits_for_a_person(handle))
        await environment.sleep(DAY)
        await hand.signal("abort", "nobody knows")
        await hold.reached()
        ran = await loop.ended(handle)
        hold.go.set()
    assert ran.result.termination.reason == "timeout"


async def test_a_pause_inside_an_escalation_lasts_until_the_resume(environment: WorkflowEnvironment) -> None:
    """The decision comes after a day, the resume a day later. Neither counts, and no model call precedes the resume."""
    save = escalating()
    async with a_long_loop(environment, [calls("save"), answers("saved it")], save) as loop:
        handle = await loop.start()
        wait = await wait_for_question(handle)
        before = await time_left(handle)
        await handle.signal("pause")
        await environment.sleep(DAY)
        await send_update(handle, "resolve_escalation", {"escalation_id": wait["wait_id"], "choice": "retry"})
        await wait_until_paused(handle)
        await environment.sleep(DAY)
        assert (seen_by(loop), len(save.contexts)) == (1, 2)
        assert before - await time_left(handle) < 60
        await handle.signal("resume")
        ran = await loop.ended(handle)
    assert ran.result.output == "saved it"
    assert ran.result.duration_s < 60
    assert took(ran) > 2 * DAY


async def test_an_abort_inside_an_escalation_ends_the_run_with_its_results(environment: WorkflowEnvironment) -> None:
    async with a_long_loop(environment, [calls("save"), answers()], escalating()) as loop:
        handle = await loop.start()
        await wait_for_question(handle)
        await environment.sleep(7 * DAY)
        await handle.signal("abort", "nobody came back")
        ran = await loop.ended(handle)
    assert (ran.result.termination.reason, ran.result.termination.detail) == ("aborted", "nobody came back")
    assert (ran.result.tool_calls.failed, ran.result.duration_s < 60) == (1, True)
    assert [entry.data["choice"] for entry in ran.journal if entry.event == "ApprovalResolved"] == ["none"]


@pytest.mark.parametrize(
    ("choice", "runs", "reason"),
    [
        pytest.param("retry", 3, "completed", id="retry lets it run again"),
        pytest.param("skip", 2, "completed", id="skip does not run it again"),
        pytest.param("abort", 2, "escalated", id="abort ends the run"),
    ],
)
async def test_a_step_without_progress_waits_for_days(
    environment: WorkflowEnvironment, choice: str, runs: int, reason: str
) -> None:
    options = ToolOptions(max_attempts=1)
    save = FakeTool("save", broken, options=options)
    steps = [calls("save"), calls("save"), calls("save"), answers()]
    async with a_long_loop(environment, steps, save) as loop:
        handle = await loop.start(step_iteration={"on_limit_reached": "escalate"})
        wait = await wait_for_question(handle)
        await environment.sleep(4 * DAY)
        await send_update(handle, "resolve_escalation", {"escalation_id": wait["wait_id"], "choice": choice})
        ran = await loop.ended(handle)
    assert (ran.result.termination.reason, len(save.contexts)) == (reason, runs)
    assert ran.result.duration_s < 60
    assert took(ran) > 4 * DAY


async def test_a_question_about_a_budget_waits_for_days(environment: WorkflowEnvironment) -> None:
    async with a_long_loop(environment, [calls("look"), calls("look"), answers("done")], FakeTool("look")) as loop:
        handle = await loop.start(on_exhausted="ask", max_iterations=1)
        await wait_for_question(handle)
        before = await time_left(handle)
        await environment.sleep(3 * DAY)
        assert await time_left(handle) == before
        await send_update(handle, "extend_budget", {"max_iterations": 9})
        ran = await loop.ended(handle)
    assert (ran.result.output, ran.result.termination.reason) == ("done", "completed")
    assert ran.result.duration_s < 60
    assert took(ran) > 3 * DAY
