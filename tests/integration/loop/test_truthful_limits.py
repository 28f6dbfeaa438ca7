"""A run reports its limits truthfully: time, counts, repeated mistakes, and text that was cut or left out."""

import time
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.ports import ToolContext, ToolError
from orga.client.errors import TooLong
from orga.client.runs.agents import AgentHandle
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.decisions.control.interventions import MAX_SIGNAL_BYTES
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.models.usage import Usage
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.hold import Hold, wait_until
from tests.support.runs.delegates import a_cast, agent, delegates, run_lead
from tests.support.runs.loop import Deny, a_loop
from tests.support.runs.questions import send_update, tool_results_in

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}}


async def test_a_call_has_its_full_time(client: Client) -> None:
    """A call must not be reported as longer than 2 s when it has taken 1.75 s."""
    took: list[float] = []

    async def sleeps(arguments: dict[str, Any], context: ToolContext) -> str:
        start = time.monotonic()
        try:
            return await Hold().then("never")
        finally:
            took.append(time.monotonic() - start)

    async with a_loop(client, [calls("slow"), answers()], FakeTool("slow", sleeps, "irreversible")) as loop:
        await loop.run(tool_timeout_s=2)
    assert took[0] > 1.9  # its own clock starts a moment after that of the limit
    assert "TimeLimit: slow took longer than its 2 s" in tool_results_in(loop)[0]


async def test_only_denials_count_as_denied(client: Client) -> None:
    """Denials come from a policy or a person. An unknown, invalid, stopped or unaffordable call is not denied."""
    tools = [FakeTool("look", parameters=NUMBER), FakeTool("rm"), FakeTool("pay", effect="irreversible")]
    bad = ToolCall(call_id="bad", name="look", arguments={"n": "one"})
    made = calls("look", "rm", "nope", "look", arguments={"n": 1})
    script = [made.model_copy(update={"parts": (*made.parts, bad)}), answers()]
    async with a_loop(client, script, *tools, engine=Deny("rm")) as loop:
        ran = await loop.run(max_tool_calls=1)
    assert ran.result.tool_calls.model_dump() == {
        "proposed": 5, "run": 1, "denied": 1, "failed": 0, "invalid": 2, "not_run": 1
    }  # fmt: skip


@pytest.mark.parametrize(
    ("replies", "detail"),
    [
        pytest.param([calls("nope")], "nope: there is no tool 'nope'", id="an unknown tool"),
        pytest.param([calls("look", arguments={"n": "x"})], "look: the arguments of look do not fit", id="arguments"),
        pytest.param(
            [calls("nope", "look", arguments={"n": 1})], "nope: there is no tool 'nope'", id="next to a call that runs"
        ),
        pytest.param(
            [calls("a"), calls("look", arguments={"n": []}), calls("b")],
            "no call of the reply was valid",
            id="another mistake each time",
        ),
    ],
)
async def test_the_same_invalid_call_several_times_in_a_row_ends_the_run(
    client: Client, replies: list[Reply], detail: str
) -> None:
    async with a_loop(client, replies, FakeTool("look", parameters=NUMBER)) as loop:
        ran = await loop.run(max_iterations=20)
    assert (ran.result.termination.reason, ran.result.iterations) == ("error", 3)
    assert detail in ran.result.termination.detail


async def test_a_corrected_mistake_does_not_end_the_run(client: Client) -> None:
    mistake, right = calls("look", arguments={"n": "x"}), calls("look", arguments={"n": 1})
    script = [mistake, mistake, right, mistake, mistake, answers("done")]
    async with a_loop(client, script, FakeTool("look", parameters=NUMBER)) as loop:
        ran = await loop.run()
    assert ran.result.output == "done"


async def test_status_shows_the_time_that_passes_in_a_model_call(client: Client) -> None:
    hold = Hold()
    async with a_loop(client, [hold.step(answers())]) as loop:
        handle = await loop.start(timeout_s=300)
        await hold.reached()

        async def left_s() -> float:
            return (await handle.query("status"))["budgets"]["time_s"]

        first = await left_s()

        async def passes() -> bool:
            return await left_s() < first

        await wait_until(passes)
        hold.go.set()
        await loop.ended(handle)
        assert await left_s() == await left_s()


async def test_guidance_that_would_be_cut_is_not_sent(client: Client) -> None:
    hold = Hold()
    async with a_loop(client, [hold.step(answers())]) as loop:
        handle = await loop.start()
        await hold.reached()
        run = AgentHandle(client, handle.id)
        for send in (run.steer, run.add_context, run.abort):
            with pytest.raises(TooLong, match="not sent: it has 50,002 bytes"):
                await send("é" * (MAX_SIGNAL_BYTES // 2 + 1))
        hold.go.set()
        ran = await loop.ended(handle)
    assert "InterventionReceived" not in ran.events


async def test_overlong_guidance_of_another_client_is_reported_as_cut(client: Client) -> None:
    hold = Hold()
    async with a_loop(client, [hold.step(calls("look")), answers()], FakeTool("look")) as loop:
        handle = await loop.start()
        await hold.reached()
        await handle.signal("steer", "x" * 60_000)
        unread: list[dict[str, str]] = []

        async def arrived() -> bool:
            unread[:] = (await handle.query("status"))["unread_interventions"]
            return bool(unread)

        await wait_until(arrived)
        hold.go.set()
        ran = await loop.ended(handle)
    assert unread[0]["cut"].endswith("of 60000 bytes are left")
    cut = [entry.data for entry in ran.journal if entry.data.get("kind") == "cut"]
    assert [(each["of"], each["bytes"], each["kept"] <= MAX_SIGNAL_BYTES) for each in cut] == [("steer", 60_000, True)]


async def test_calls_beyond_the_limit_of_a_reply_are_in_the_journal(client: Client) -> None:
    names = ["look"] * 32 + ["pay", "look", "pay"]
    made = tuple(ToolCall(call_id=f"c{n}", name=name) for n, name in enumerate(names))
    provider = ScriptedModel([Reply.of(calls=made, finish="tool_calls"), answers()], repeats=True)
    async with a_loop(client, provider, FakeTool("look"), FakeTool("pay")) as loop:
        ran = await loop.run()
    [first, _] = [entry.data for entry in ran.journal if entry.event == "ReasoningComplete"]
    assert first["left_out"] == {"calls": 3, "tools": {"pay": 2, "look": 1}}
    text = "[Not run] 3 more calls of your reply (pay 2, look 1): a reply has at most 32 calls."
    assert provider.seen[1].messages[-1].text == text
    assert ran.result.tool_calls.model_dump() == {"proposed": 35, "run": 32, "denied": 0, "failed": 0, "not_run": 3}


@pytest.mark.parametrize("works", [True, False])
async def test_the_outcome_of_a_requeued_call_is_counted(client: Client, works: bool) -> None:
    def saves(arguments: dict[str, Any], context: ToolContext) -> str:
        if not works or len(save.contexts) == 1:
            raise ToolError("down")
        return "saved"

    save = FakeTool("save", saves, "idempotent")
    save.options = ToolOptions(recovery=Recovery(strategy="dead_letter", max_attempts=1))
    hold = Hold()
    async with a_loop(client, [calls("save"), hold.step(calls("look")), answers()], save, FakeTool("look")) as loop:
        handle = await loop.start()
        await hold.reached()
        await send_update(handle, "requeue", "1.0")
        hold.go.set()
        ran = await loop.ended(handle)
    [found] = [entry.data for entry in ran.journal if entry.data.get("strategy") == "requeue"]
    assert (found["letter_id"], found["outcome"]) == ("1.0", "ok" if works else "failed")
    counts = ran.result.tool_calls
    assert (counts.run, counts.requeued, counts.failed) == (2, 1, 1 if works else 2)


async def test_a_delegate_leaves_its_parent_enough_tokens_to_read_the_answer(client: Client) -> None:
    """The delegate spends all that it may, and its parent still reads the result and answers."""
    much = Usage(input_tokens=4_000, output_tokens=100)
    endless = calls("look", reply_text="half of it").model_copy(update={"usage": much})
    agents = {"lead": agent("lead", "helper"), "helper": agent("helper", tools=["look"])}
    scripts = {"lead": [delegates("helper"), answers("read it")], "helper": [endless]}
    async with a_cast(client, agents, scripts, FakeTool("look")) as (loop, cast):
        ran = await run_lead(loop, max_total_tokens=50_000)
    assert (ran.result.termination.reason, ran.result.output) == ("completed", "read it")
    assert "half of it" in cast.messages_to("lead")[-1]
    assert ran.result.usage.total_tokens < 50_000
