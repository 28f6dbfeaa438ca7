"""Tool activities, one for each tool: failures keep their kind, and results are bounded and valid."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from temporalio import activity
from temporalio.activity import ActivityCancellationDetails
from temporalio.exceptions import ApplicationError

from orga.activities.calls.tools import MAX_ERROR_BYTES, MAX_ERROR_CHARS, CallServices, tool_activities
from orga.activities.models.conversations import Conversations
from orga.activities.ports import ToolContext, ToolError
from orga.activities.text.sanitize import MAX_CHARS
from orga.activities.text.secrets import KnownSecrets
from orga.workflows.types.names import OWN_ACTIVITIES
from orga.workflows.types.tool_calls.tools import (
    CALL_STOPPED,
    EARLIER_UNKNOWN,
    WORKER_SHUTDOWN,
    ToolOutput,
    ToolRequest,
    ToolSpec,
)
from tests.support.tools.activities import RUN, Beats, NoHistory
from tests.support.values.core import a_spec

REQUEST = ToolRequest(call_id="c1", arguments={"path": "a"}, key="key-1")
Body = Callable[[dict[str, Any], ToolContext], Any]


class ATool:
    """A tool with a body from the test."""

    def __init__(self, body: Body, spec: ToolSpec | None = None) -> None:
        self.body = body
        self.spec = spec or a_spec("read").with_effect("idempotent")

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Run the body. Text is its content."""
        result = self.body(arguments, context)
        return ToolOutput(content=result if isinstance(result, str) else await result)


def made(body: Body, spec: ToolSpec | None = None, conversations: Conversations | None = None) -> Callable[..., Any]:
    (run,) = tool_activities([ATool(body, spec)], CallServices(conversations or Conversations(NoHistory())))
    return run


async def failure(body: Body) -> ApplicationError:
    with pytest.raises(ApplicationError) as caught:
        await Beats().run(made(body), REQUEST)
    return caught.value


def raises(error: Exception) -> Body:
    def body(arguments: dict[str, Any], context: ToolContext) -> str:
        raise error

    return body


def test_the_activity_type_is_the_name_of_the_tool() -> None:
    runs = tool_activities(
        [ATool(raises(OSError()), a_spec(name)) for name in ("read", "ls")], CallServices(Conversations(NoHistory()))
    )
    definitions = [activity._Definition.must_from_callable(run) for run in runs]  # pyright: ignore[reportUnknownMemberType]
    assert [definition.name for definition in definitions] == ["read", "ls"]


@pytest.mark.parametrize("name", [pytest.param(name, id=f"a tool named {name}") for name in sorted(OWN_ACTIVITIES)])
def test_our_own_activity_types_are_reserved(name: str) -> None:
    with pytest.raises(ValueError, match=f"a tool cannot be named '{name}'"):
        made(raises(OSError()), a_spec(name))


async def test_a_tool_gets_arguments_and_context_of_its_call() -> None:
    seen: list[tuple[dict[str, Any], ToolContext]] = []

    def body(arguments: dict[str, Any], context: ToolContext) -> str:
        seen.append((arguments, context))
        return "ok"

    assert (await Beats(attempt=3).run(made(body), REQUEST)).content == "ok"
    ((arguments, context),) = seen
    assert arguments == {"path": "a"}
    assert (context.call_id, context.idempotency_key, context.attempt) == ("c1", "key-1", 3)
    assert context.workflow_id == RUN.workflow_id


async def test_every_attempt_gets_the_same_idempotency_key() -> None:
    keys: list[str] = []

    def body(arguments: dict[str, Any], context: ToolContext) -> str:
        keys.append(context.idempotency_key)
        return "ok"

    for attempt in (1, 2, 3):
        await Beats(attempt=attempt).run(made(body), REQUEST)
    assert keys == ["key-1"] * 3


@pytest.mark.parametrize(
    ("error", "kind", "message", "final"),
    [
        pytest.param(ToolError("no such file"), "ToolError", "no such file", True, id="a tool error"),
        pytest.param(
            ToolError("not found", kind="NotFound"), "NotFound", "not found", True, id="a tool error with its own kind"
        ),
        pytest.param(
            ToolError("busy", kind="Busy", retryable=True), "Busy", "busy", False, id="a retryable tool error"
        ),
        pytest.param(OSError("disk full"), "OSError", "disk full", False, id="an unexpected error"),
        pytest.param(ToolError("a\x00\ud800"), "ToolError", "a\ufffd\ufffd", True, id="text that could not be stored"),
    ],
)
async def test_a_failure_keeps_its_kind(error: Exception, kind: str, message: str, final: bool) -> None:
    found = await failure(raises(error))
    assert (found.type, found.message, found.non_retryable) == (kind, message, final)


async def test_a_long_failure_is_cut() -> None:
    found = await failure(raises(ToolError("é" * MAX_ERROR_BYTES)))
    assert len(found.message.encode()) <= MAX_ERROR_BYTES
    assert "[cut: " in found.message


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param("ok", "ok", id="a short result"),
        pytest.param("", "", id="an empty result"),
        pytest.param("x" * 500, "x" * 500, id="exactly the limit"),
        pytest.param("a\x00\ud800", "a\ufffd\ufffd", id="text that could not be stored"),
    ],
)
async def test_a_result_within_the_limit_is_kept(content: str, expected: str) -> None:
    run = made(lambda arguments, context: content, a_spec("read", max_result_bytes=500))
    assert (await Beats().run(run, REQUEST)).content == expected


async def test_a_result_over_the_limit_of_the_tool_is_cut_with_a_mark() -> None:
    run = made(lambda arguments, context: "é" * 500, a_spec("read", max_result_bytes=500))
    content = (await Beats().run(run, REQUEST)).content
    assert len(content.encode()) <= 500
    assert content.startswith("éé")
    assert "[cut: 1000 bytes in all, over the limit of 500; ask for a smaller part]" in content


SECRET = "tz93-qwer-uiop-7890"
FILLED = "\u200b" * (MAX_CHARS - 10)
"""Sanitizing removes these characters, and with them the place at which the secret would be cut."""


async def test_a_cut_result_shows_no_part_of_a_secret() -> None:
    (run,) = tool_activities(
        [ATool(lambda arguments, context: f"{FILLED}{SECRET} more")],
        CallServices(Conversations(NoHistory()), KnownSecrets.from_values([SECRET])),
    )
    assert "tz93" not in (await Beats().run(run, REQUEST)).content


async def test_a_cut_error_shows_no_part_of_a_secret() -> None:
    error_text = f"{FILLED[: MAX_ERROR_CHARS - 10]}{SECRET} more"
    (run,) = tool_activities(
        [ATool(raises(ToolError(error_text)))],
        CallServices(Conversations(NoHistory()), KnownSecrets.from_values([SECRET])),
    )
    with pytest.raises(ApplicationError) as caught:
        await Beats().run(run, REQUEST)
    assert "tz93" not in str(caught.value)


async def test_the_next_model_call_finds_the_result_by_activity_id() -> None:
    conversations = Conversations(NoHistory())
    run = made(lambda arguments, context: "ok", conversations=conversations)
    await Beats(activity_id="3.1").run(run, REQUEST)
    assert conversations._outputs.get((RUN, "3.1")) == "ok"


@pytest.mark.parametrize(
    ("note", "expected"),
    [
        pytest.param("half done", "half done", id="the note of the tool"),
        pytest.param("a\ud800", "a\ufffd", id="an invalid note is made valid"),
    ],
)
async def test_progress_is_sent_in_the_heartbeats(note: str, expected: str) -> None:
    beats, beaten = Beats(), asyncio.Event()
    kept = beats.environment.on_heartbeat

    def beat(*details: Any) -> None:
        kept(*details)
        beaten.set()

    async def works(context: ToolContext) -> str:
        context.heartbeat(note)
        await asyncio.wait_for(beaten.wait(), 10)
        return "ok"

    beats.environment.on_heartbeat = beat
    await beats.run(made(lambda arguments, context: works(context)), REQUEST)
    assert beats.beats == [{"note": expected}]


async def test_a_local_activity_has_no_heartbeats() -> None:
    async def works() -> str:
        await asyncio.sleep(0.6)
        return "ok"

    beats = Beats(is_local=True)
    await beats.run(made(lambda arguments, context: works()), REQUEST)
    assert beats.beats == []


async def cancelled(details: ActivityCancellationDetails) -> BaseException:
    """Return the error of a call that is cancelled while it runs."""
    beats, running = Beats(), asyncio.Event()

    async def works() -> str:
        running.set()
        await asyncio.sleep(60)
        return "never"

    call = asyncio.create_task(beats.run(made(lambda arguments, context: works()), REQUEST))
    await running.wait()
    beats.environment.cancel(details)
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        await call
    return caught.value


async def test_an_abort_cancels_the_tool() -> None:
    error = await cancelled(ActivityCancellationDetails(cancel_requested=True))
    assert isinstance(error, asyncio.CancelledError)


async def test_a_stopping_worker_is_a_failure_of_its_own_kind() -> None:
    """The workflow must know that the effect is unknown. It may retry if that is harmless."""
    error = await cancelled(ActivityCancellationDetails(worker_shutdown=True))
    assert isinstance(error, ApplicationError)
    assert (error.type, error.non_retryable) == (WORKER_SHUTDOWN, False)


@pytest.mark.parametrize("stop", ["paused", "reset"])
async def test_an_activity_stopped_on_the_server_is_a_failure_of_its_own_kind(stop: str) -> None:
    error = await cancelled(ActivityCancellationDetails(**{stop: True}))
    assert isinstance(error, ApplicationError)
    assert (error.type, error.non_retryable) == (CALL_STOPPED, False)
    assert stop in error.message


@pytest.mark.parametrize(
    ("last", "is_run"),
    [
        pytest.param([], False, id="its worker was lost"),
        pytest.param([{"note": ""}], False, id="it was cut off while it worked"),
        pytest.param([{"failed": 1}], True, id="nothing was done"),
    ],
)
async def test_a_second_attempt_of_an_irreversible_call_needs_proof_that_the_first_did_nothing(
    last: list[Any], is_run: bool
) -> None:
    """The workflow allows one attempt, but the server starts a paused activity again."""
    done = list[str]()
    pay = ToolSpec(name="pay", description="", parameters={}, effect="irreversible")
    beats = Beats(attempt=2, heartbeat_details=last)
    run = made(lambda arguments, context: done.append("paid") or "paid", pay)
    if is_run:
        await beats.run(run, REQUEST)
    else:
        with pytest.raises(ApplicationError) as caught:
            await beats.run(run, REQUEST)
        assert (caught.value.type, caught.value.non_retryable) == (CALL_STOPPED, True)
        assert EARLIER_UNKNOWN in caught.value.details

    assert bool(done) is is_run


@pytest.mark.parametrize(
    ("value", "content"),
    [
        pytest.param({"content": "ok"}, "ok", id="our own shape"),
        pytest.param("ok", "ok", id="text"),
        pytest.param({"files": 3}, '{"files":3}', id="another object"),
        pytest.param({"content": 3}, '{"content":3}', id="another shape under our key"),
        pytest.param([1, "é"], '[1,"é"]', id="a list"),
        pytest.param(None, "null", id="nothing"),
    ],
)
def test_a_worker_in_another_language_may_return_any_json(value: Any, content: str) -> None:
    assert ToolOutput.model_validate(value).content == content
