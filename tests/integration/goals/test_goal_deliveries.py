"""Delivery of a goal's answer from a real server: once, however the goal ends, and without delaying it."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError

from orga.activities.deliver import DeliveryChannel
from orga.activities.ports import RunKey
from orga.client.journal.reading import read_journal
from orga.testing import FakeTool, answers
from orga.workflows.types.goals.deliveries import DeliveryRequest
from orga.workflows.types.setup import Setup
from tests.support.hold import Hold
from tests.support.model.goals import GoalModel, says
from tests.support.runs.delivered import a_hook, a_room, delivery_activity_ids, delivery_setup, one_step_model, outcomes
from tests.support.runs.loop import Loop, a_loop, check_journal, check_replay, check_tasks, histories_of
from tests.support.web.webhook_receiver import Says, webhook_receiver

Handle = WorkflowHandle[Any, Any]


class Taking:
    """A channel that blocks in each delivery until it is released."""

    is_repeatable = True

    def __init__(self) -> None:
        self.taken: list[DeliveryRequest] = []
        self.hold = Hold()

    async def deliver(self, request: DeliveryRequest, run: RunKey) -> None:
        """Keep the request."""
        self.taken.append(request)
        await self.hold.then(None)


@asynccontextmanager
async def delivering(
    client: Client, setup: Setup, channels: Mapping[str, DeliveryChannel], model: GoalModel | None = None
) -> AsyncGenerator[Loop]:
    async with a_loop(client, model or one_step_model(), FakeTool("look"), setup=setup, deliveries=channels) as loop:
        yield loop


async def start(loop: Loop, **given: Any) -> Handle:
    return await loop.client.start_workflow(
        "GoalWorkflow",
        {"goal": "find out", **given},
        id=f"goal-{uuid4()}",
        task_queue=loop.task_queue,
        execution_timeout=timedelta(seconds=90),
    )


async def ended(handle: Handle, client: Client) -> tuple[dict[str, Any], list[str], list[str]]:
    """Return the result, the delivery events of the journal, and the delivery activities. Replay the history."""
    result = await handle.result()
    [history] = await histories_of(client, handle.id)
    check_tasks(history)
    await check_replay(history)
    journal = [entry async for entry in read_journal(client, handle.id)]
    check_journal(journal)
    noted = [f"{entry.event} {entry.data['name']}" for entry in journal if entry.event.startswith("Deliver")]
    return result, noted, delivery_activity_ids(history)


async def test_an_answer_is_delivered_once_to_each_channel(client: Client) -> None:
    with webhook_receiver() as receiver, webhook_receiver() as chat:
        channels = {"hook": a_hook(receiver), "room": a_room(chat)}
        async with delivering(client, delivery_setup(hook="webhook", room="discord"), channels) as loop:
            handle = await start(loop)
            result, noted, activities = await ended(handle, client)
    assert result["termination"]["reason"] == "completed"
    assert outcomes(result) == {"hook": ("delivered", 1), "room": ("delivered", 1)}
    assert sorted(noted) == ["Delivered hook", "Delivered room"]
    assert sorted(activities) == ["deliver-hook", "deliver-room"]
    [got], [shown] = receiver.received, chat.received
    assert (got.message["answer"], got.message["reason"], got.message["goal_id"]) == (
        "the final answer",
        "completed",
        handle.id,
    )
    assert shown.message["content"].endswith("\n\nthe final answer")


async def test_the_history_has_no_trace_if_nothing_is_delivered(client: Client) -> None:
    cases: list[tuple[Setup, dict[str, Any]]] = [
        (delivery_setup(), {}),
        (delivery_setup(default=False, hook="webhook"), {}),
        (delivery_setup(hook="webhook"), {"deliver": []}),
    ]
    for setup, given in cases:
        async with delivering(client, setup, {}) as loop:
            result, noted, activities = await ended(await start(loop, **given), client)
        assert (result["deliveries"], noted, activities) == ([], [], [])


async def test_a_starter_can_name_only_configured_channels(client: Client) -> None:
    setup = delivery_setup(default=False, hook="webhook", other="webhook")
    with webhook_receiver() as receiver:
        async with delivering(client, setup, {"hook": a_hook(receiver)}) as loop:
            result, _, activities = await ended(await start(loop, deliver=["hook"]), client)
            assert outcomes(result) == {"hook": ("delivered", 1)}
            assert activities == ["deliver-hook"]
            for wrong, expected in (
                (
                    ["other", "hoook"],
                    "deliver: there is no delivery 'hoook'; did you mean 'hook'? there are: hook, other",
                ),
                (["https://evil.test"], "deliver.0: String should match"),
                (["../../etc"], "deliver.0: String should match"),
            ):
                with pytest.raises(WorkflowFailureError) as failed:
                    await (await start(loop, deliver=wrong)).result()
                cause = failed.value.cause
                assert isinstance(cause, ApplicationError)
                assert (cause.type, expected in str(cause)) == ("InvalidInput", True)
    assert len(receiver.received) == 1


async def test_a_failed_delivery_is_repeated_with_the_same_key(client: Client) -> None:
    with webhook_receiver(*(Says(status, {"retry-after": "1"}) for status in (500, 503)), Says(200)) as receiver:
        async with delivering(client, delivery_setup(hook="webhook"), {"hook": a_hook(receiver)}) as loop:
            result, noted, _ = await ended(await start(loop), client)
    assert outcomes(result) == {"hook": ("delivered", 3)}
    assert noted == ["Delivered hook"]
    assert len({received.headers["idempotency-key"] for received in receiver.received}) == 1


async def test_a_failed_delivery_changes_neither_the_ending_nor_other_channels(client: Client) -> None:
    with webhook_receiver(Says(403)) as refuses, webhook_receiver() as takes:
        channels = {"bad": a_hook(refuses), "good": a_room(takes)}
        async with delivering(client, delivery_setup(bad="webhook", good="discord"), channels) as loop:
            result, noted, _ = await ended(await start(loop), client)
    assert (result["termination"], result["output"]) == (
        {"reason": "completed", "detail": ""},
        "the final answer",
    )
    assert outcomes(result) == {"bad": ("failed", 1), "good": ("delivered", 1)}
    assert result["deliveries"][0]["error"] == "ReceiverRefused: the webhook answered 403"
    assert sorted(noted) == ["Delivered good", "DeliveryFailed bad"]


async def test_a_delivery_is_given_up_after_five_failed_attempts(client: Client) -> None:
    with webhook_receiver(Says(500, {"retry-after": "0"})) as receiver:
        async with delivering(client, delivery_setup(hook="webhook"), {"hook": a_hook(receiver)}) as loop:
            result, _, _ = await ended(await start(loop), client)
    assert outcomes(result) == {"hook": ("failed", 5)}
    assert len(receiver.received) == 5


async def test_a_stuck_goal_delivers_why_it_ended(client: Client) -> None:
    with webhook_receiver() as receiver:
        model = GoalModel(plan=answers("no"), summary=answers(""))
        async with delivering(client, delivery_setup(hook="webhook"), {"hook": a_hook(receiver)}, model) as loop:
            result, _, _ = await ended(await start(loop), client)
    [received] = receiver.received
    assert result["termination"]["reason"] == received.message["reason"] == "stuck"
    problem = "3 replies in a row could not be used; the last one: give one JSON object: it is not JSON alone"
    assert received.message["answer"] == result["output"]
    assert result["output"].startswith(f"The goal ended early: stuck ({problem}")


async def test_an_aborted_goal_delivers_what_its_steps_found(client: Client) -> None:
    hold = Hold()
    with webhook_receiver() as receiver:

        async def waits(arguments: dict[str, Any], _: Any) -> str:
            return await hold.then("seen")

        async with a_loop(
            client,
            one_step_model(),
            FakeTool("look", waits),
            setup=delivery_setup(hook="webhook"),
            deliveries={"hook": a_hook(receiver)},
        ) as loop:
            handle = await start(loop)
            await hold.entered.wait()
            await handle.signal("abort", "enough")
            result, noted, _ = await ended(handle, client)
    assert result["termination"] == {"reason": "aborted", "detail": "enough"}
    assert noted == ["Delivered hook"]
    assert receiver.received[0].message["detail"] == "enough"


async def test_guidance_before_the_end_is_final_delays_the_delivery_to_the_next_end(client: Client) -> None:
    """The answer that guidance replaced is never delivered."""
    summary_hold = Hold()
    taking = Taking()
    taking.hold.go.set()

    class Speaks(GoalModel):
        async def complete(self, request: Any, on_text: Any) -> Any:
            reply = await super().complete(request, on_text)
            return (
                await summary_hold.then(reply)
                if self.turns.count("summary") == 1 and self.turns[-1] == "summary"
                else reply
            )

    model = Speaks(
        plan=one_step_model()._turns["goal_plan"],
        evaluate=one_step_model()._turns["goal_evaluate"],
        decide=says(action="done", confidence=0.9),
        summary=[answers("first"), answers("second")],
    )
    async with delivering(client, delivery_setup(hook="webhook"), {"hook": taking}, model) as loop:
        handle = await start(loop)
        await summary_hold.entered.wait()
        await handle.signal("steer", "one more thing")
        summary_hold.go.set()
        result, _, activities = await ended(handle, client)
    assert (result["output"], [request.text for request in taking.taken]) == ("second", ["second"])
    assert activities == ["deliver-hook"]


@pytest.mark.parametrize("how", ["abort", "cancel"])
async def test_an_abort_interrupts_a_delivery_and_keeps_the_ending(client: Client, how: str) -> None:
    taking = Taking()
    async with delivering(client, delivery_setup(hook="webhook"), {"hook": taking}) as loop:
        handle = await start(loop)
        await taking.hold.entered.wait()
        if how == "abort":
            await handle.signal("abort", "too late")
        else:
            await handle.cancel()
        result, noted, _ = await ended(handle, client)
    assert (result["termination"]["reason"], result["output"]) == ("completed", "the final answer")
    assert (outcomes(result), noted) == ({"hook": ("failed", 0)}, ["DeliveryFailed hook"])
    assert result["deliveries"][0]["error"] == "the goal was aborted while it was delivered"


async def test_a_channel_that_no_worker_has_is_reported(client: Client) -> None:
    async with delivering(client, delivery_setup(gone="webhook"), {}) as loop:
        result, _, _ = await ended(await start(loop), client)
    assert outcomes(result) == {"gone": ("failed", 5)}
    assert result["deliveries"][0]["error"] == "UnknownDelivery: this worker has no delivery 'gone'"


async def test_guidance_during_the_delivery_is_refused_in_the_journal(client: Client) -> None:
    taking = Taking()
    async with delivering(client, delivery_setup(hook="webhook"), {"hook": taking}) as loop:
        handle = await start(loop)
        await taking.hold.entered.wait()
        await handle.signal("steer", "look at 2")
        taking.hold.go.set()
        result, noted, _ = await ended(handle, client)
        refused = [e.data async for e in read_journal(client, handle.id) if e.event == "InterventionRefused"]
    assert (result["output"], noted) == ("the final answer", ["Delivered hook"])
    assert [(each["kind"], "rewind or fork the run" in each["reason"]) for each in refused] == [("steer", True)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({"deliver": ["hook"]}, {"hook": ("failed", 0)}, id="the starter named a channel"),
        pytest.param({}, {}, id="the starter named none"),
    ],
)
async def test_a_goal_that_ends_before_its_setup_reports_what_it_did_not_deliver(
    client: Client, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    """The goal is aborted before a worker takes it, so it has no channels from a worker."""
    handle = await client.start_workflow(
        "GoalWorkflow", {"goal": "find out", **given}, id=f"goal-{uuid4()}", task_queue=f"late-{uuid4()}"
    )
    await handle.signal("abort", "never mind")
    queue = (await handle.describe()).task_queue
    taking = Taking()
    setup, channels = delivery_setup(hook="webhook"), {"hook": taking}
    async with a_loop(client, one_step_model(), FakeTool("look"), setup=setup, deliveries=channels, task_queue=queue):
        result, noted, activities = await ended(handle, client)
    assert (result["termination"]["reason"], outcomes(result)) == ("aborted", expected)
    assert (noted, activities, taking.taken) == ([f"DeliveryFailed {name}" for name in expected], [], [])
    assert all("before its worker had reported" in each["error"] for each in result["deliveries"])
