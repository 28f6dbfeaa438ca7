"""A rewound run continues from the end of an earlier iteration as if nothing had happened since."""

import asyncio
from typing import Any

import pytest
from temporalio.client import Client

from orga.client.errors import OrgaError
from orga.client.history.chain import NoSuchIteration
from orga.client.journal.reading import read_journal
from orga.client.past.rewind import plan_rewind, rewind
from orga.client.runs.agents import AgentHandle
from orga.testing import FakeTool, ScriptedModel, answers, calls
from tests.support.hold import Hold
from tests.support.runs.long_runs import took
from tests.support.runs.loop import WORKER_FACTS, Loop, Ran, a_loop
from tests.support.runs.rewound import wait_for_rewound
from tests.support.values.odd_payloads import SMALL, odd, raw

EARLIER = ["[Guidance from the operator] early", '[Context from the operator]\n{"ticket":7}']
EACH_ITERATION = WORKER_FACTS.model_copy(update={"roll_over_events": 1})


def texts(provider: ScriptedModel, call: int) -> list[str]:
    """Return the messages of the model's n-th call, without the task."""
    return [message.text for message in provider.seen[call].messages[1:]]


def looks(*numbers: int) -> list[Any]:
    """Return model calls with these arguments."""
    return [calls("look", arguments={"n": n}, reply_text=f"step {n}") for n in numbers]


def a_look(**options: Any) -> FakeTool:
    return FakeTool("look", lambda arguments, context: f"result {arguments['n']}", **options)


def rewinds(ran: Ran) -> list[dict[str, Any]]:
    received = [entry.data for entry in ran.journal if entry.event == "InterventionReceived"]
    return [data for data in received if data["kind"] == "rewind"]


async def test_an_ended_run_continues_from_the_iteration_with_the_guidance(client: Client) -> None:
    provider = ScriptedModel([*looks(1, 2, 3), answers("first"), *looks(4), answers("second")], repeats=True)
    async with a_loop(client, provider, a_look()) as loop:
        first = await loop.run()
        ran = await wait_for_rewound(client, await rewind(client, first.handle.id, 1, steer="look elsewhere"))

    assert texts(provider, 4) == ["step 1", "result 1", "[Guidance from the operator] look elsewhere"]
    assert (first.result.output, first.result.iterations) == ("first", 4)
    assert (ran.result.output, ran.result.iterations, ran.result.usage.model_calls) == ("second", 3, 3)
    assert ran.result.tool_calls.run == 2
    [reported] = rewinds(ran)
    assert "look elsewhere" in str(reported)
    shared = [entry for entry in first.journal if entry.iteration <= 1]
    assert ran.journal[: len(shared)] == shared


async def test_iteration_0_is_before_the_first_model_call(client: Client) -> None:
    provider = ScriptedModel([answers("first"), answers("second")], repeats=True)
    async with a_loop(client, provider) as loop:
        first = await loop.run()
        ran = await wait_for_rewound(client, await rewind(client, first.handle.id, 0))

    assert (ran.result.output, ran.result.iterations) == ("second", 1)
    assert provider.seen[0].messages == provider.seen[1].messages


async def test_a_rewind_stops_a_live_run_and_its_followers_continue(client: Client) -> None:
    hold = Hold()
    provider = ScriptedModel([*looks(1, 2), hold.step(answers("never")), answers("done")], repeats=True)
    async with a_loop(client, provider, a_look()) as loop:
        handle = await loop.start()
        result = asyncio.create_task(AgentHandle(client, handle.id).result())
        followed = asyncio.create_task(_followed(client, handle.id))
        await hold.reached()
        await rewind(client, handle.id, 1)
        ran = await wait_for_rewound(client, AgentHandle(client, handle.id))

    assert (await result).output == "done"
    reported = await followed
    assert reported[-len(ran.journal) + 6 :] == ran.journal[6:]
    assert [entry.event for entry in reported].count("Terminated") == 1
    assert ran.result.iterations == 2


async def _followed(client: Client, workflow_id: str) -> list[Any]:
    return [entry async for entry in read_journal(client, workflow_id, follow=True)]


async def test_a_run_that_timed_out_gets_back_the_time_it_had_at_the_iteration(client: Client) -> None:
    hold = Hold()
    provider = ScriptedModel([*looks(1), hold.step(answers("too late")), answers("in time")], repeats=True)
    async with a_loop(client, provider, a_look()) as loop:
        late = await loop.run(timeout_s=4)
        assert late.result.termination.reason == "timeout"
        ran = await wait_for_rewound(client, await rewind(client, late.handle.id, 1))

    assert ran.result.termination.reason == "completed"
    assert ran.result.duration_s < 4


@pytest.mark.parametrize(
    ("iteration", "runs", "outputs"),
    [
        pytest.param(3, 4, ["step 3", "result 3"], id="in the last run of the chain"),
        pytest.param(1, 2, ["step 1", "result 1"], id="in an earlier run"),
        pytest.param(0, 1, [], id="in the first run"),
    ],
)
async def test_the_right_run_of_a_chain_is_reset(client: Client, iteration: int, runs: int, outputs: list[str]) -> None:
    provider = ScriptedModel([*looks(1, 2, 3), answers("first"), answers("second")], repeats=True)
    async with a_loop(client, provider, a_look(), setup=EACH_ITERATION) as loop:
        first = await loop.run()
        ran = await wait_for_rewound(client, await rewind(client, first.handle.id, iteration))

    assert texts(provider, 4)[-2:] == outputs
    assert (ran.result.output, ran.result.iterations, len(ran.histories)) == ("second", iteration + 1, runs)


async def test_the_same_call_gets_the_same_key_after_a_rewind_and_another_call_a_new_key(client: Client) -> None:
    pay = FakeTool("pay", effect="idempotent")
    steps = [calls("pay", arguments={"to": "a"}), answers(), calls("pay", arguments={"to": "a"}), answers()]
    provider = ScriptedModel([*steps, calls("pay", arguments={"to": "b"}), answers()], repeats=True)
    async with a_loop(client, provider, pay, setup=EACH_ITERATION) as loop:
        first = await loop.run()
        await wait_for_rewound(client, await rewind(client, first.handle.id, 0))
        await wait_for_rewound(client, await rewind(client, first.handle.id, 0))

    keys = [context.idempotency_key for context in pay.contexts]
    assert keys[0] == keys[1]
    assert keys[2] != keys[0]


async def a_run_with_interventions(loop: Loop, first_call: Hold, third_call: Hold) -> Ran:
    """Send guidance that reaches the second model call, and abort the run in the third."""
    handle = await loop.start()
    await first_call.reached()
    await handle.signal("steer", "early")
    await handle.signal("add_context", {"ticket": 7})
    first_call.go.set()
    await third_call.reached()
    await handle.signal("abort", "enough")
    return await loop.ended(handle)


@pytest.mark.parametrize(
    ("keep", "seen"),
    [
        pytest.param(True, EARLIER, id="kept"),
        pytest.param(False, [], id="left out"),
    ],
)
async def test_later_interventions_are_delivered_again_unless_left_out(
    client: Client, keep: bool, seen: list[str]
) -> None:
    """An abort is never delivered again: it would end the run at the same place."""
    first_call, stuck = Hold(), Hold()
    steps = [first_call.step(looks(1)[0]), *looks(2), stuck.step(answers("never")), answers("done")]
    provider = ScriptedModel(steps, repeats=True)
    async with a_loop(client, provider, a_look()) as loop:
        aborted = await a_run_with_interventions(loop, first_call, stuck)
        plan = await plan_rewind(client, aborted.handle.id, 0)
        run = await rewind(client, aborted.handle.id, 0, steer="anew", keep_interventions=keep)
        ran = await wait_for_rewound(client, run)

    assert aborted.result.termination.reason == "aborted"
    assert [(sent.kind, sent.text) for sent in plan.interventions] == [
        ("steer", "early"),
        ("add_context", '{"ticket":7}'),
        ("abort", "enough"),
    ]
    assert ran.result.termination.reason == "completed"
    assert texts(provider, 3) == [*seen, "[Guidance from the operator] anew"]


async def test_a_plan_shows_odd_interventions_as_the_run_has_read_them(client: Client) -> None:
    """A run reads no argument that would take too long. The plan must neither take that time nor show another text."""
    hold, large = Hold(), odd(700_001)
    async with a_loop(client, [hold.step(answers("done"))]) as loop:
        handle = await loop.start()
        await hold.reached()
        for data in (*SMALL.values(), large["numbers"], large["keys"]):
            await handle.signal("steer", raw(data))
        hold.go.set()
        ran = await loop.ended(handle)
        plan = await plan_rewind(client, handle.id, 0)
    shown = [sent.text for sent in plan.interventions]
    read = [entry.data.get("text") for entry in ran.journal if entry.event == "InterventionReceived"]
    for replaced, count in ("[not read: an argument of ", 4), ("[unreadable]", 3):
        found = [text for text in shown if text.startswith(replaced)]
        assert found == [text for text in read if str(text).startswith(replaced)]
        assert len(found) == count


async def test_a_rewind_after_a_rewind_counts_no_time_twice(client: Client) -> None:
    provider = ScriptedModel(
        [*looks(1, 2), answers("one"), *looks(2), answers("two"), *looks(2), answers("three")], repeats=True
    )
    async with a_loop(client, provider, a_look()) as loop:
        first = await loop.run()
        await asyncio.sleep(1.0)  # time that must not count
        await wait_for_rewound(client, await rewind(client, first.handle.id, 1, steer="again"))
        ran = await wait_for_rewound(client, await rewind(client, first.handle.id, 0))

    assert ran.result.output == "three"
    assert 0 <= ran.result.duration_s <= took(ran).total_seconds() - 1.0
    assert texts(provider, 5)[-1] == "[Guidance from the operator] again"


async def test_external_effects_are_reported_and_not_undone(client: Client) -> None:
    send = FakeTool("send", effect="irreversible")
    steps = [calls("send", arguments={"to": "a"}), calls("send", "look", arguments={"n": 1}), answers()]
    async with a_loop(client, steps, send, a_look()) as loop:
        ran = await loop.run()
        plan = await plan_rewind(client, ran.handle.id, 1)

    assert [(effect.iteration, effect.tool, effect.text) for effect in plan.effects] == [(2, "send", "send 1")]
    assert len(send.contexts) == 2


async def test_an_answer_can_be_rejected_with_guidance(client: Client) -> None:
    provider = ScriptedModel([answers("42"), answers("the source is line 7")], repeats=True)
    async with a_loop(client, provider) as loop:
        first = await loop.run()
        with pytest.raises(OrgaError, match="say with --steer what is wrong"):
            await rewind(client, first.handle.id, 1)
        ran = await wait_for_rewound(client, await rewind(client, first.handle.id, 1, steer="name your source"))

    assert texts(provider, 1) == ["42", "[Guidance from the operator] name your source"]
    assert (ran.result.output, ran.result.iterations) == ("the source is line 7", 2)


async def test_an_unknown_iteration_is_refused_with_the_known_ones(client: Client) -> None:
    async with a_loop(client, [*looks(1), answers()], a_look()) as loop:
        ran = await loop.run()
        with pytest.raises(NoSuchIteration, match="no end of iteration 5 to go on from; there are 0 to 1"):
            await plan_rewind(client, ran.handle.id, 5)


async def test_a_terminated_run_is_not_taken_for_a_rewound_one(client: Client) -> None:
    hold = Hold()
    async with a_loop(client, [hold.step(answers())]) as loop:
        handle = await loop.start()
        followed = asyncio.create_task(_followed(client, handle.id))
        await hold.reached()
        await handle.terminate(reason="by hand")
        assert (await followed)[-1].data["detail"] == "by hand"
        with pytest.raises(OrgaError, match="by hand"):
            await AgentHandle(client, handle.id).result()
