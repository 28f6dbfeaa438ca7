"""A live run requeues a dead letter: the call is interrupted, paused and counted like any other."""

from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.ports import ToolContext, ToolError
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.messages import Reply
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.hold import Hold, wait_for_event
from tests.support.runs.loop import a_loop
from tests.support.runs.questions import send_update, tool_results_in, wait_until_still

LETTERS = Recovery(strategy="dead_letter", max_attempts=1)


def save(hold: Hold | None = None, failures: int = 1) -> FakeTool:
    """Return a tool that fails this many times, then saves. A failed call becomes a dead letter."""

    async def body(arguments: dict[str, Any], context: ToolContext) -> str:
        if len(tool.contexts) <= failures:
            raise ToolError("down")
        return await hold.then("saved") if hold else "saved"

    tool = FakeTool("save", body, effect="idempotent", options=ToolOptions(recovery=LETTERS, timeout_s=600))
    return tool


async def test_an_abort_cancels_a_requeued_call(client: Client) -> None:
    saving, model = Hold(), Hold()
    steps = [calls("save"), model.step(calls("look")), answers()]
    async with a_loop(client, steps, save(saving), FakeTool("look")) as loop:
        handle = await loop.start()
        await model.reached()
        await send_update(handle, "requeue", "1.0")
        model.go.set()
        await saving.reached()
        await handle.signal("abort", "enough")
        await wait_for_event(saving.cancelled)
        ran = await loop.ended(handle)
        shown = await handle.query("conversation")
    assert ran.result.termination.reason == "aborted"
    assert "[Cancelled]" in shown[-1]["text"]


async def test_a_signal_requeues_once_and_an_invalid_one_is_recorded_as_refused(client: Client) -> None:
    model, tool = Hold(), save()
    async with a_loop(client, [calls("save"), model.step(calls("look")), answers()], tool, FakeTool("look")) as loop:
        handle = await loop.start()
        await model.reached()
        wanted = {"letter_id": "1.0", "id": "web-1", "by": "ada"}
        letters: tuple[Any, ...] = ("9.9", None, {"letter_id": []}, wanted, wanted)
        for letter in letters:
            await handle.signal("requeue", letter)
        model.go.set()
        ran = await loop.ended(handle)
    assert (ran.result.termination.reason, len(tool.contexts)) == ("completed", 2)
    refused = [entry.data["reason"] for entry in ran.journal if entry.event == "InterventionRefused"]
    assert len(refused) == 3
    assert refused[0].startswith("no dead letter '9.9'")


@pytest.mark.parametrize(
    "letters",
    [pytest.param(1, id="before the next reasoning step"), pytest.param(2, id="before the next requeued call")],
)
async def test_a_pause_holds_after_a_requeued_call(client: Client, letters: int) -> None:
    saving, model = Hold(), Hold()
    tool = save(saving, failures=letters)
    provider = ScriptedModel([calls(*["save"] * letters), model.step(calls("look")), answers()], repeats=True)
    async with a_loop(client, provider, tool, FakeTool("look")) as loop:
        handle = await loop.start()
        await model.reached()
        for number in range(letters):
            await send_update(handle, "requeue", f"1.{number}")
        model.go.set()
        await saving.reached()
        await handle.signal("pause")
        await handle.query("status")  # the pause has arrived by now
        saving.go.set()
        await wait_until_still(handle)
        assert (len(tool.contexts), len(provider.seen)) == (letters + 1, 2)
        await handle.signal("resume")
        await loop.ended(handle)
    assert (len(tool.contexts), len(provider.seen)) == (2 * letters, 3)


@pytest.mark.parametrize(
    ("ending", "results_of_the_end"),
    [
        pytest.param(answers("first"), [], id="an answer"),
        pytest.param(
            calls("terminate", arguments={"reason": "done", "output": "first"}),
            ["[Not ended] The operator has calls sent again; take it into account."],
            id="terminate",
        ),
    ],
)
async def test_a_requeue_accepted_during_the_last_model_call_is_carried_out_first(
    client: Client, ending: Reply, results_of_the_end: list[str]
) -> None:
    tool, model = save(), Hold()
    agents = {"default": AgentConfig(tools=("save", "terminate"))}
    steps = [calls("save"), model.step(ending), answers("second")]
    async with a_loop(client, steps, tool, agents=agents) as loop:
        handle = await loop.start()
        await model.reached()
        await send_update(handle, "requeue", "1.0")
        model.go.set()
        ran = await loop.ended(handle)
        shown = await handle.query("conversation")
    assert (len(tool.contexts), ran.result.output) == (2, "second")
    assert "[Requeued call] save (1.0)" in shown[-2]["text"]
    assert tool_results_in(loop, 2)[1:] == results_of_the_end


async def test_requeued_calls_count_and_may_exceed_the_limit(client: Client) -> None:
    tool, model = save(failures=2), Hold()
    async with a_loop(client, [calls("save", "save"), model.step(calls("save")), answers()], tool) as loop:
        handle = await loop.start(max_tool_calls=2)
        await model.reached()
        for letter in ("1.0", "1.1"):
            await send_update(handle, "requeue", letter)
        model.go.set()
        ran = await loop.ended(handle)
    counts = ran.result.tool_calls
    assert (len(tool.contexts), counts.run, counts.requeued, counts.spent) == (4, 2, 2, 4)
