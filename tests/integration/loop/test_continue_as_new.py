"""A run that continues as new many times is the same run: nothing is lost, counted twice or done twice."""

import uuid
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from orga import AgentHandle, runs
from orga.activities.ports import ToolContext, ToolError
from orga.client.server.search_attributes import register_missing
from orga.runs import openai_messages, verify
from orga.testing import FakeTool, ScriptedModel, answers, calls
from orga.workflows.decisions.tool_calls.calls import idempotency_key
from orga.workflows.types.given_messages import GIVEN_MESSAGES
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.setup import Setup
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from tests.support.hold import Hold, wait_until
from tests.support.runs.loop import WORKER_FACTS, Deny, Loop, Ran, a_loop, a_worker

EACH_ITERATION = WORKER_FACTS.model_copy(update={"roll_over_events": 1})
ROOM: dict[str, Any] = {"max_iterations": 1_000, "max_total_tokens": 10_000_000, "context_token_budget": 1_000_000}
ITERATIONS = 12
"""Each segment takes a second, because the server delays executions of one id."""


def chain_of(ran: Ran) -> list[str]:
    """Return how the segments of the run ended."""
    return [
        EventType.Name(h.events[-1].event_type).removeprefix("EVENT_TYPE_WORKFLOW_EXECUTION_") for h in ran.histories
    ]


def story(ran: Ran) -> list[tuple[int, int, str, Any]]:
    """Return the journal without what differs between two runs: times, and hashes over them."""
    return [(e.sequence, e.iteration, e.event, {**e.data, "duration_s": None}) for e in ran.journal]


async def a_long_run(client: Client, setup: Setup) -> tuple[Ran, ScriptedModel]:
    def body(arguments: dict[str, Any], context: ToolContext) -> str:
        if arguments["n"] % 5 == 3:
            raise ToolError("no result")
        return f"result {arguments['n']}"

    steps = [
        calls("look", "forbidden", "look", arguments={"n": n}, reply_text=f"step {n}", reply_cost_usd=0.01)
        if n % 3
        else calls("look", arguments={"n": n}, reply_cost_usd=0.01)
        for n in range(ITERATIONS - 1)
    ]
    provider = ScriptedModel([*steps, answers("all done", cost_usd=0.01)], repeats=True)
    tools = (FakeTool("look", body, effect="irreversible"), FakeTool("forbidden"))
    async with a_loop(client, provider, *tools, engine=Deny("forbidden"), setup=setup) as loop:
        return await loop.run(**ROOM), provider


async def test_a_run_of_many_segments_equals_a_run_of_one(client: Client) -> None:
    """They agree in usage, counts, conversation, each request to the model, and the journal entry by entry."""
    chained, model_of_chained = await a_long_run(client, EACH_ITERATION)
    whole, model_of_whole = await a_long_run(client, WORKER_FACTS)

    assert chain_of(chained) == ["CONTINUED_AS_NEW"] * (ITERATIONS - 1) + ["COMPLETED"]
    assert chain_of(whole) == ["COMPLETED"]
    assert chained.result.model_copy(update={"duration_s": whole.result.duration_s}) == whole.result
    assert (chained.result.iterations, chained.result.usage.model_calls) == (ITERATIONS, ITERATIONS)
    assert model_of_chained.seen == model_of_whole.seen
    assert story(chained) == story(whole)


async def test_the_key_of_a_call_is_unique_in_the_run_and_derived_from_its_first_segment(client: Client) -> None:
    """The same call in every iteration is meant to be carried out in every iteration."""
    pay = FakeTool("pay", effect="irreversible")
    steps = [calls("pay", "pay", arguments={"amount": 1})] * 5
    async with a_loop(client, [*steps, answers()], pay, setup=EACH_ITERATION) as loop:
        ran = await loop.run(**ROOM)

    first_run = ran.histories[0].run_id
    expected = [
        idempotency_key(first_run, f"{iteration}.{index}", ToolCall(call_id="", name="pay", arguments={"amount": 1}))
        for iteration in range(1, 6)
        for index in range(2)
    ]
    assert sorted(context.idempotency_key for context in pay.contexts) == sorted(expected)
    assert len(set(expected)) == 10
    assert len(chain_of(ran)) == 6


@pytest.mark.parametrize(
    ("config", "reason", "iterations"),
    [
        pytest.param({"max_iterations": 5}, "max_iterations", 5, id="iterations"),
        pytest.param({"max_total_tokens": 440}, "max_tokens", 4, id="tokens"),
        pytest.param({"max_cost_usd": 1.5}, "max_cost", 6, id="cost"),
    ],
)
async def test_limits_are_counted_across_segments(
    client: Client, config: dict[str, Any], reason: str, iterations: int
) -> None:
    async with a_loop(client, [calls("look", reply_cost_usd=0.25)], FakeTool("look"), setup=EACH_ITERATION) as loop:
        ran = await loop.run(**{**ROOM, **config})

    assert (ran.result.termination.reason, ran.result.iterations) == (reason, iterations)
    assert len(chain_of(ran)) == iterations + 1


async def test_a_denial_repeated_across_segments_ends_the_run(client: Client) -> None:
    engine = Deny("look")
    async with a_loop(client, [calls("look")], FakeTool("look"), engine=engine, setup=EACH_ITERATION) as loop:
        ran = await loop.run()

    assert ran.result.termination.model_dump() == {
        "reason": "policy_denial",
        "detail": "look: look is forbidden, 3 iterations in a row",
    }
    assert ran.result.tool_calls.denied == 3
    assert len(chain_of(ran)) > 2


async def test_unusable_replies_are_counted_across_segments(client: Client) -> None:
    async with a_loop(client, [answers("")], setup=EACH_ITERATION) as loop:
        ran = await loop.run()

    async with a_loop(client, [answers("")]) as loop:
        whole = await loop.run()

    assert ran.result.termination == whole.result.termination
    assert ran.result.termination.reason == "error"
    assert (ran.result.iterations, len(chain_of(ran))) == (whole.result.iterations, whole.result.iterations)


async def test_a_truncated_answer_is_continued_in_the_next_segment(client: Client) -> None:
    steps = [answers("one, ", finish="length"), answers("two, ", finish="length"), answers("three")]
    async with a_loop(client, steps, setup=EACH_ITERATION) as loop:
        ran = await loop.run()

    assert ran.result.output == "one, two, three"
    assert chain_of(ran) == ["CONTINUED_AS_NEW", "CONTINUED_AS_NEW", "COMPLETED"]


async def test_unread_guidance_reaches_the_next_segment(client: Client) -> None:
    hold = Hold()
    provider = ScriptedModel([calls("look"), answers()], repeats=True)
    look = FakeTool("look", lambda a, c: hold.then("seen"))
    async with a_loop(client, provider, look, setup=EACH_ITERATION) as loop:
        handle = await loop.start()
        await hold.reached()
        for text in ("first", "second"):
            await handle.signal("steer", text)
        await handle.signal("add_context", "third")
        hold.go.set()
        ran = await loop.ended(handle)

    assert [m.text for m in provider.seen[1].messages[2:]] == [
        "seen",
        "[Guidance from the operator] first",
        "[Guidance from the operator] second",
        "[Context from the operator]\nthird",
    ]
    assert [e.data["kind"] for e in ran.journal if e.event == "InterventionReceived"] == [
        "steer",
        "steer",
        "add_context",
    ]
    assert len(chain_of(ran)) == 2


async def test_a_pause_survives_continue_as_new_and_an_abort_reaches_the_latest_segment(client: Client) -> None:
    provider, hold = ScriptedModel([calls("look")], repeats=True), Hold()
    look = FakeTool("look", lambda a, c: hold.then("seen") if len(look.contexts) == 3 else "seen")
    async with a_loop(client, provider, look, setup=EACH_ITERATION) as loop:
        handle = await loop.start(**ROOM)
        await hold.reached()
        await handle.signal("pause")
        hold.go.set()
        await wait_until(lambda: is_paused(handle))
        assert (await handle.query("status"))["iteration"] == len(provider.seen) == 3
        await handle.signal("resume")
        await wait_until(lambda: has_called(provider, 5))
        await handle.signal("abort", "that will do")
        ran = await loop.ended(handle)

    assert ran.result.termination.model_dump() == {"reason": "aborted", "detail": "that will do"}
    assert ran.result.iterations >= 4
    assert ran.result.usage.model_calls == ran.result.iterations


async def is_paused(handle: Any) -> bool:
    return (await handle.query("status"))["phase"] == "paused"


async def has_called(provider: ScriptedModel, times: int) -> bool:
    return len(provider.seen) >= times


async def test_another_worker_rebuilds_the_conversation_from_the_carried_state(client: Client) -> None:
    hold = Hold()
    steps = [*[calls("look", reply_text=f"step {n}") for n in range(4)], hold.step(answers("never")), answers("found")]
    provider = ScriptedModel(steps, repeats=True)
    loop = Loop(client, f"test-{uuid.uuid4()}", provider)
    async with a_worker(loop, FakeTool("look"), setup=EACH_ITERATION):
        handle = await loop.start(**ROOM)
        await hold.reached()
    async with a_worker(loop, FakeTool("look"), setup=EACH_ITERATION):
        ran = await loop.ended(handle)

    assert ran.result.output == "found"
    assert len(chain_of(ran)) == 5
    assert provider.seen[5].messages == provider.seen[4].messages
    assert [m.text for m in provider.seen[5].messages if m.role == "assistant"] == [f"step {n}" for n in range(4)]


async def test_every_segment_is_found_by_its_search_attributes(client: Client) -> None:
    await register_missing(client)
    setup = EACH_ITERATION.model_copy(update={"search_attributes": True})
    tenant = f"tenant-{uuid.uuid4()}"
    async with a_loop(client, [*[calls("look")] * 3, answers()], FakeTool("look"), setup=setup) as loop:
        ran = await loop.run({"task": "look around", "tenant": tenant, "config": ROOM})
        mine = f"OrgaAgent = 'default' AND OrgaTenant = '{tenant}'"
        await wait_until(lambda: counts(client, mine, 4))
        await wait_until(lambda: counts(client, f"{mine} AND ExecutionStatus = 'ContinuedAsNew'", 3))
        await wait_until(lambda: counts(client, f"{mine} AND OrgaTermination = 'completed' AND OrgaIteration = 4", 1))
        listed = await runs.list(client, tenant=tenant)

    assert len(chain_of(ran)) == 4
    assert [(run.id, run.task, run.state) for run in listed] == [(ran.handle.id, "look around", "completed")]


async def counts(client: Client, query: str, number: int) -> bool:
    return (await client.count_workflows(query)).count == number


class Noting(Deny):
    """An engine that denies nothing, and keeps the taint of each request."""

    taints: tuple[str, ...] = ()

    async def judge(self, proposal: GateRequest) -> Verdict:
        self.taints = (*self.taints, *proposal.taint)
        return await super().judge(proposal)


async def test_a_run_continues_a_given_conversation(client: Client) -> None:
    """This also holds across continue-as-new, and readers of the history find the same conversation."""
    talk = [
        {"role": "user", "text": "Where is ORD-7?"},
        {"role": "assistant", "calls": [{"call_id": "look_0", "name": "look", "arguments": {"n": 7}}]},
        {"role": "tool", "call_id": "look_0", "text": "sent"},
        {"role": "assistant", "text": "It was sent.", "trusted": True},
    ]
    engine = Noting()
    script = ScriptedModel([calls("look", n=1), calls("look", n=2), answers("all sent")])
    async with a_loop(client, script, FakeTool("look", "sent"), engine=engine, setup=EACH_ITERATION) as loop:
        ran = await loop.run({"task": "And ORD-8?", "messages": talk})
        verified = await verify(client, ran.handle.id)
        shown = await AgentHandle(client, ran.handle.id).conversation()
    assert (ran.result.output, ran.result.tool_calls.run, verified.ok) == ("all sent", 2, True)
    assert ran.journal[0].data["input"] == {"messages": 4}
    first, last = script.seen[0].messages, script.seen[-1].messages
    assert [(m.role, m.text) for m in first[1:]] == [
        ("assistant", ""),
        ("tool", "sent"),
        ("assistant", "It was sent."),
        ("user", "And ORD-8?"),
    ]
    assert "Where is ORD-7?" in first[0].text
    assert last[:5] == first
    assert len({call.call_id for message in last for call in message.calls}) == 3
    assert set(engine.taints) == {GIVEN_MESSAGES, "look"}
    assert openai_messages(shown)[3] == {"role": "tool", "tool_call_id": "look_0", "content": "sent"}
