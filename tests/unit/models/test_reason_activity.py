"""The reason activity sends the right conversation to the model and turns failures into Temporal errors."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from orga.activities.models.conversations import Conversations
from orga.activities.models.model_calls import LAST_TRY_S, TAIL_BYTES
from orga.activities.ports import ModelContext, ModelError, ModelProvider, ModelRequest, ThinkingListener
from orga.activities.reason import ReasonActivities
from orga.activities.text.secrets import NO_SECRETS, KnownSecrets
from orga.client.testing.script import ScriptedModels, Step
from orga.testing import ScriptedModel, answers
from orga.workflows.decisions.conversation import reference_and_seen, with_message
from orga.workflows.types.context import MessageRef, ReasonRequest
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.limits import SLACK_S
from orga.workflows.types.messages import Message, Reply
from orga.workflows.types.models.call_settings import ModelSettings
from tests.support.tools.activities import RUN, Beats, NoHistory
from tests.support.values.core import a_call, a_request, a_setup, conversation_of, request_for, user

SETUP = a_setup(instructions="be short")
TASK = user("task", pinned=True)
FIRST = a_request((TASK,), SETUP)


class Reasoning:
    """The activity with a scripted model."""

    def __init__(self, *steps: Step) -> None:
        self.provider = ScriptedModel(steps, repeats=True)
        self.conversations = Conversations(NoHistory())
        self.conversations.keep_setup(SETUP)
        self.activity = ReasonActivities(ScriptedModels(self.provider), self.conversations).reason

    async def reply(self, request: ReasonRequest = FIRST, **info: Any) -> Reply:
        return await Beats(**info).run(self.activity, request)

    async def failure(self, request: ReasonRequest = FIRST, **info: Any) -> ApplicationError:
        with pytest.raises(ApplicationError) as caught:
            await self.reply(request, **info)
        return caught.value


async def test_the_model_gets_the_setup_and_the_messages() -> None:
    reasoning = Reasoning(answers("42"))
    assert (await reasoning.reply()).text == "42"
    assert reasoning.provider.seen == [
        ModelRequest(
            model="scripted:model",
            system=("be short",),
            messages=(TASK,),
            tools=SETUP.tools,
            settings=ModelSettings(temperature=0.3),
            max_output_tokens=16_384,
        )
    ]


@pytest.mark.parametrize(
    ("setup", "allowance", "expected"),
    [
        pytest.param(a_setup(), 7, {"max_output_tokens": 7}, id="the allowance if it is smaller"),
        pytest.param(a_setup(instructions=""), None, {"system": ()}, id="no instructions"),
        pytest.param(
            a_setup(config=LoopConfig(temperature=0)),
            None,
            {"settings": ModelSettings(temperature=0)},
            id="temperature 0 is sent",
        ),
        pytest.param(
            a_setup(config=LoopConfig(temperature=None)), None, {"settings": ModelSettings()}, id="no temperature"
        ),
        pytest.param(a_setup(tools=()), None, {"tools": ()}, id="no tools"),
    ],
)
async def test_the_setup_determines_the_options_of_the_model_call(
    setup: Any, allowance: int | None, expected: dict[str, Any]
) -> None:
    reasoning = Reasoning(answers())
    reasoning.conversations.keep_setup(setup)
    request = a_request((TASK,), setup).model_copy(update={"max_output_tokens": allowance})
    await reasoning.reply(request)
    seen = reasoning.provider.seen[0]
    assert {key: getattr(seen, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("error", "final"),
    [
        pytest.param(ModelError("Overloaded", "anthropic: 529", retryable=True), False, id="an overloaded provider"),
        pytest.param(ModelError("ContextOverflow", "too long", retryable=False), True, id="a context that is too long"),
    ],
)
async def test_a_model_error_keeps_its_kind_and_whether_it_is_final(error: ModelError, final: bool) -> None:
    failure = await Reasoning(error).failure()
    assert (failure.type, failure.message, failure.non_retryable) == (error.kind, str(error), final)
    assert failure.next_retry_delay is None


@pytest.mark.parametrize(
    ("wish_s", "left_s", "delay_s", "final"),
    [
        pytest.param(7.0, 60.0, 7.0, False, id="the wait of the provider is kept"),
        pytest.param(7.0, None, 7.0, False, id="any wait is kept without a time limit"),
        pytest.param(90.0, 60.0, 60.0 - LAST_TRY_S, False, id="a wait past the end becomes one last attempt"),
        pytest.param(5.0, 1.0, 0.0, True, id="final if there is no time for it"),
        pytest.param(0.5, 1.0, 0.5, False, id="a short wait still fits"),
        pytest.param(5.0, -1.0, 0.0, True, id="the end has passed"),
    ],
)
async def test_a_requested_wait_is_capped_by_the_remaining_time_of_the_run(
    wish_s: float, left_s: float | None, delay_s: float, final: bool
) -> None:
    error = ModelError("RateLimited", "429", retryable=True, retry_after_s=wish_s)
    failure = await Reasoning(error).failure(left_s=None if left_s is None else left_s + SLACK_S + 1)
    assert failure.next_retry_delay is not None
    assert abs(failure.next_retry_delay - timedelta(seconds=delay_s)) < timedelta(seconds=0.4)
    assert failure.non_retryable is final


async def test_the_remaining_time_does_not_depend_on_the_clock_of_this_machine() -> None:
    """The server may use another clock. Its limit is measured by its own times."""
    there = datetime(2040, 1, 1, tzinfo=UTC)
    times: dict[str, Any] = {"scheduled_time": there, "started_time": there + timedelta(seconds=100)}
    error = ModelError("RateLimited", "429", retryable=True, retry_after_s=3_600)
    failure = await Reasoning(error).failure(left_s=306, **times)
    assert failure.next_retry_delay is not None
    assert 190 < failure.next_retry_delay.total_seconds() < 200


async def test_a_final_error_has_no_delay() -> None:
    error = ModelError("InvalidRequest", "400", retryable=False, retry_after_s=5.0)
    assert (await Reasoning(error).failure()).next_retry_delay is None


async def test_a_context_that_cannot_be_found_is_final_and_no_model_is_asked() -> None:
    reasoning = Reasoning(answers())
    context, _ = reference_and_seen(with_message(conversation_of(TASK, sent=1), user("more")))
    failure = await reasoning.failure(request_for(context, SETUP, 2))
    assert (failure.type, failure.non_retryable) == ("DigestMismatch", True)
    assert reasoning.provider.seen == []


class NoModels:
    """A worker without a key."""

    def resolve(self, name: str) -> tuple[ModelProvider, str]:
        """Raise the missing setting."""
        raise ValueError(f"{name} needs a key")


async def test_a_model_that_is_not_configured_is_final() -> None:
    conversations = Conversations(NoHistory())
    conversations.keep_setup(SETUP)
    with pytest.raises(ApplicationError, match="scripted:model needs a key") as caught:
        await Beats().run(ReasonActivities(NoModels(), conversations).reason, FIRST)
    assert (caught.value.type, caught.value.non_retryable) == ("ModelNotConfigured", True)


async def test_a_defect_of_a_provider_is_not_reported_as_a_missing_key() -> None:
    """Such an error is retried like any unexpected one."""
    with pytest.raises(ValueError, match="Expecting value"):
        await Reasoning(ValueError("Expecting value")).reply()


async def test_the_reply_is_normalised_and_the_next_call_uses_it() -> None:
    repeated = Reply.of(calls=(a_call(), a_call()), finish="tool_calls")
    reasoning = Reasoning(repeated, answers())
    reply = await reasoning.reply()
    assert [call.call_id for call in reply.calls] == ["c1", "c1_2"]
    _, conversation = reference_and_seen(conversation_of(TASK))
    conversation = with_message(conversation, reply.message(), MessageRef(reply=1))
    context, _ = reference_and_seen(with_message(conversation, user("go on")))
    await reasoning.reply(request_for(context, SETUP, 2))
    assert reasoning.provider.seen[1].messages == (TASK, reply.message(), user("go on"))


async def test_call_ids_are_unique_in_the_whole_conversation() -> None:
    earlier = Message.of("assistant", calls=(a_call(),))
    reply = await Reasoning(Reply.of(calls=(a_call(),))).reply(a_request((TASK, earlier), SETUP))
    assert reply.calls[0].call_id == "c1_2"


async def test_a_retry_sends_the_same_messages() -> None:
    reasoning = Reasoning(ModelError("Overloaded", "529", retryable=True), answers())
    await reasoning.failure()
    await reasoning.reply(attempt=2)
    assert reasoning.provider.seen[0] == reasoning.provider.seen[1]


class Streams:
    """A provider that streams pieces and then waits until the test lets it end."""

    def __init__(self, *pieces: str, thinking: Sequence[str] = ()) -> None:
        self.pieces, self.thinking = pieces, thinking
        self.may_end = asyncio.Event()

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Stream and wait."""
        assert isinstance(on_text, ThinkingListener)
        for piece in self.thinking:
            on_text.add_thinking(piece)
        for piece in self.pieces:
            on_text(piece)
        await asyncio.wait_for(self.may_end.wait(), 10)
        return Reply.of("done")


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        pytest.param(("Hel", "lo"), ("Hello", 5), id="all of a short text"),
        pytest.param(("x" * 50_000, "y"), ("x" * (TAIL_BYTES - 1) + "y", 50_001), id="the end of a long text"),
        pytest.param(("ä" * 5_000, "y"), ("ä" * (TAIL_BYTES // 2 - 1) + "y", 5_001), id="no cut within a character"),
        pytest.param(("a\ud83d",), ("a\ufffd", 2), id="a lone surrogate"),
        pytest.param(("\ud83d", "\ude00"), ("😀", 2), id="a character in two pieces"),
    ],
)
async def test_partial_text_and_thinking_are_separate_in_the_heartbeats(
    pieces: tuple[str, ...], expected: tuple[str, int]
) -> None:
    """Details that cannot be serialised would cancel the activity."""
    written, thought = await first_beat(*pieces), await first_beat(thinking=pieces)
    assert (written["text"], written["text_length"]) == (thought["thinking"], thought["thinking_length"]) == expected
    nothing = ("", 0)
    assert (written["thinking"], written["thinking_length"]) == (thought["text"], thought["text_length"]) == nothing


SECRET = "sk-live-0123456789abcdefghij"
KNOWN = KnownSecrets.from_values([SECRET])
WINDOW = "x" * (TAIL_BYTES - 4)
"""The length after which only four characters of a secret would be shown."""


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        pytest.param(("key: ", SECRET[:-1]), "key: ", id="all but its last letter"),
        pytest.param(("key: ", SECRET[:8]), "key: ", id="its beginning"),
        pytest.param(("key: ", SECRET[:9], SECRET[9:], "."), "key: [redacted].", id="whole"),
        pytest.param((SECRET, WINDOW), "ted]" + WINDOW, id="cut at the start"),
        pytest.param(("y" * 50_000, SECRET, WINDOW), "ted]" + WINDOW, id="cut at the start, after a long text"),
        pytest.param(tuple(SECRET + WINDOW), "ted]" + WINDOW, id="letter by letter"),
        pytest.param((SECRET * 1_000, "."), "[redacted]" * 1_000 + ".", id="nothing but secrets"),
        pytest.param(
            (*("z" * 1_000 for _ in range(9)), SECRET[:-1]), "z" * TAIL_BYTES, id="its beginning, after a long text"
        ),
    ],
)
async def test_partial_text_never_shows_part_of_a_secret(pieces: tuple[str, ...], shown: str) -> None:
    """People watch the partial text, and the server keeps it while the call lasts."""
    assert (await first_beat(*pieces, secrets=KNOWN))["text"] == shown[-TAIL_BYTES:]
    assert (await first_beat(thinking=pieces, secrets=KNOWN))["thinking"] == shown[-TAIL_BYTES:]


async def first_beat(*pieces: str, thinking: Sequence[str] = (), secrets: KnownSecrets = NO_SECRETS) -> dict[str, Any]:
    """Return the details of the heartbeat after these pieces."""
    provider, beats = Streams(*pieces, thinking=thinking), Beats()
    conversations = Conversations(NoHistory())
    conversations.keep_setup(SETUP)
    kept = beats.environment.on_heartbeat

    def beat(*details: Any) -> None:
        kept(*details)
        provider.may_end.set()

    beats.environment.on_heartbeat = beat
    await beats.run(ReasonActivities(ScriptedModels(provider), conversations, secrets).reason, FIRST)
    (details,) = beats.beats
    return details


async def test_a_cancellation_reaches_the_provider() -> None:
    reasoning, beats = Reasoning(answers()), Beats()
    reasoning.provider._delay_s = 60
    running = asyncio.create_task(beats.run(reasoning.activity, FIRST))
    while not reasoning.provider.seen:
        await asyncio.sleep(0)
    beats.environment.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert reasoning.provider.cancelled.is_set()


async def test_a_missing_conversation_is_rebuilt_from_the_history_of_the_run() -> None:
    asked: list[Any] = []

    class History:
        async def rebuild(self, run: Any, iteration: int) -> ModelContext:
            asked.append((run, iteration))
            return ModelContext(SETUP, (TASK,))

    provider = ScriptedModel([answers()], repeats=True)
    activity = ReasonActivities(ScriptedModels(provider), Conversations(History())).reason
    context, _ = reference_and_seen(conversation_of(TASK, sent=1))
    await Beats().run(activity, request_for(context, SETUP, 5))
    assert (asked, provider.seen[0].messages) == ([(RUN, 5)], (TASK,))
