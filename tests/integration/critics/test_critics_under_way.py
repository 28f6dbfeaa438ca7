"""Events during a review: the critic fails, or the run is aborted, paused, steered or continued as new."""

from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.ports import ModelError
from orga.testing import FakeTool, ScriptedModel, answers, calls
from tests.support.hold import Hold, wait_for_event
from tests.support.runs.critics import BAD, GARBAGE, a_critic, agents_with_critics, evaluations, verdict
from tests.support.runs.loop import WORKER_FACTS, a_loop
from tests.support.runs.waits import wait_until_paused


@pytest.mark.parametrize(
    ("on_failure", "steps", "expected"),
    [
        pytest.param(
            "closed",
            [GARBAGE],
            ("error", "", "critic quality: no review: its verdict cannot be read: it is not JSON alone"),
            id="closed: no verdict, no output",
        ),
        pytest.param(
            "closed",
            [ModelError("AuthenticationFailed", "401: no key", retryable=False)],
            ("error", "", "critic quality: no review: AuthenticationFailed: 401: no key"),
            id="closed: its model cannot be called",
        ),
        pytest.param(
            "open",
            [ModelError("AuthenticationFailed", "401: no key", retryable=False)],
            ("completed", "it", "not reviewed by critic quality: AuthenticationFailed: 401: no key"),
            id="open: accepted unreviewed, with a remark",
        ),
        pytest.param("closed", [GARBAGE, verdict()], ("completed", "it", ""), id="a verdict is requested again"),
        pytest.param(
            "closed",
            [ModelError("Overloaded", "529", retryable=True, retry_after_s=0.01), verdict()],
            ("completed", "it", ""),
            id="a transient failure is retried",
        ),
    ],
)
async def test_a_failing_critic_is_handled_as_configured(
    client: Client, on_failure: str, steps: list[Any], expected: tuple[str, str, str]
) -> None:
    critic = a_critic(on_failure=on_failure)
    async with a_loop(client, [answers("it"), *steps], agents=agents_with_critics(critic)) as loop:
        ran = await loop.run()
    found = ran.result.termination
    assert (found.reason, ran.result.output) == expected[:2]
    assert found.detail.startswith(expected[2]) if expected[2] else found.detail == ""


async def test_an_exhausted_budget_leaves_no_review(client: Client) -> None:
    """The answer was not reviewed, so it is not output. The limit is the reason of the ending."""
    async with a_loop(client, [answers("it"), verdict()], agents=agents_with_critics(a_critic())) as loop:
        ran = await loop.run(max_model_calls=1)
    assert (ran.result.termination.reason, ran.result.output) == ("max_iterations", "")
    assert ran.result.termination.detail == "critic quality: no review: limit of 1 model calls"
    assert ran.result.usage.model_calls == 1


async def test_the_last_iteration_is_reviewed_like_any_other(client: Client) -> None:
    async with a_loop(client, [answers("it"), verdict()], agents=agents_with_critics(a_critic())) as loop:
        ran = await loop.run(max_iterations=1, max_total_tokens=200)
    assert (ran.result.termination.reason, ran.result.output) == ("completed", "it")


async def test_revisions_are_counted_across_continue_as_new(client: Client) -> None:
    facts = WORKER_FACTS.model_copy(update={"roll_over_events": 1})
    steps = [answers("first"), BAD, answers("second"), BAD, answers("third"), BAD]
    async with a_loop(client, steps, agents=agents_with_critics(a_critic()), setup=facts) as loop:
        ran = await loop.run()
    assert len(ran.histories) == 3
    assert evaluations(ran, "round") == [0, 1, 2]
    assert ran.result.termination.reason == "error"


async def test_another_worker_rebuilds_the_review_from_the_history(client: Client) -> None:
    hold, look = Hold(), FakeTool("look", lambda arguments, context: "17 % in report.md")
    critic = a_critic(context="conversation", instructions="Be strict.")
    agents = agents_with_critics(critic, tools=("look",))
    async with a_loop(client, [calls("look"), answers("17 %"), hold.step(verdict())], look, agents=agents) as loop:
        handle = await loop.start("how much?")
        await hold.reached()
    second = ScriptedModel([verdict()], repeats=True)
    async with a_loop(client, second, look, agents=agents, task_queue=loop.task_queue) as loop:
        ran = await loop.ended(handle)
    [asked] = second.given
    text = asked.messages[0].text
    assert "how much?" in text
    assert "17 % in report.md" in text
    assert asked.system[-1] == "Be strict."
    assert ran.result.output == "17 %"


async def test_an_abort_interrupts_a_review(client: Client) -> None:
    hold = Hold()
    async with a_loop(client, [answers("it"), hold.step(verdict())], agents=agents_with_critics(a_critic())) as loop:
        handle = await loop.start()
        await hold.reached()
        assert (await handle.query("status"))["phase"] == "reviewing"
        await handle.signal("abort", "enough")
        await wait_for_event(hold.cancelled)
        ran = await loop.ended(handle)
    assert (ran.result.termination.reason, ran.result.output) == ("aborted", "")


async def test_a_paused_run_ends_only_after_it_is_resumed(client: Client) -> None:
    hold = Hold()
    async with a_loop(
        client, [answers("it"), hold.step(BAD), answers("b"), verdict()], agents=agents_with_critics(a_critic())
    ) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("pause")
        hold.go.set()
        await wait_until_paused(handle)
        await handle.signal("resume")
        ran = await loop.ended(handle)
    assert ran.result.output == "b"


async def test_guidance_during_a_review_reaches_the_model(client: Client) -> None:
    hold = Hold()
    steps = [answers("first"), hold.step(verdict()), answers("second"), verdict()]
    async with a_loop(client, steps, agents=agents_with_critics(a_critic())) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("steer", "in French")
        hold.go.set()
        ran = await loop.ended(handle)
    assert ran.result.output == "second"
