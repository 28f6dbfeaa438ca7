"""The activities that run tools. Each tool has an activity type of its name, and each call has a time limit."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic_core import from_json, to_json
from temporalio import activity
from temporalio.common import RawValue

from orga.activities.calls.activity import (
    attempt_failure,
    attempt_may_have_acted,
    current_run_key,
    error_text,
    heartbeats,
    is_retry_too_late,
    log_iteration_of_call,
    stops_as_failures,
)
from orga.activities.gate.gate import ArgumentErrors
from orga.activities.gate.permits import PermitKeys, check_permit
from orga.activities.instruments import tool_span
from orga.activities.media import with_stored_media
from orga.activities.models.conversations import Conversations
from orga.activities.ports import Acted, BlobStore, InputRequired, Tool, ToolContext, ToolError, ToolSource
from orga.activities.text.sanitize import MAX_CHARS, sanitized_text
from orga.activities.text.secrets import NO_SECRETS, KnownSecrets
from orga.workflows.types.json_text import parsed_answer_json, parsed_last_line
from orga.workflows.types.names import OWN_ACTIVITIES
from orga.workflows.types.questions import Completion
from orga.workflows.types.text import clean_text, clip
from orga.workflows.types.tool_calls.tools import (
    CALL_STOPPED,
    EXPIRED,
    INVALID_RESULT,
    JOB_FAILED,
    REPORT_S,
    TIME_LIMIT,
    Caller,
    ToolOutput,
    ToolRequest,
    ToolSpec,
)

T = TypeVar("T")

ENDING_S = 4.0
"""Seconds that a cancelled call has to end. A run waits five seconds for it."""


class AbandonedCall(ToolError):
    """A call that was cut off at its time limit, and could not be stopped."""


_abandoned_calls: set[asyncio.Task[Any]] = set()
"""Tasks that nobody awaits. Without this reference Python could collect them."""


async def run_within_limit(work: Coroutine[Any, Any, T], spec: ToolSpec, *, is_awaited: bool = False) -> T:
    """Return what `work` returns. Cancel it and raise ToolError (TimeLimit) if it takes too long.

    Args:
        is_awaited: True if the run's next work must come after the call. Once cancelled, it has the rest of its time.
    """
    server_limit = activity.info().start_to_close_timeout
    # the server waits longer than the call's own limit, so that the call can report
    limit_s = max(server_limit.total_seconds() - REPORT_S, 0.0) if server_limit else float("inf")
    began, outer = time.monotonic(), asyncio.current_task()
    call = asyncio.create_task(_contain_exit(work), name=outer.get_name() if outer else None)
    try:
        done, _ = await asyncio.wait((call,), timeout=limit_s)
    except asyncio.CancelledError:
        grace_s = ENDING_S
        if is_awaited:
            await _give_rest_of_time(call, spec, limit_s - (time.monotonic() - began))
            grace_s = REPORT_S / 2  # the server gives up `REPORT_S` after the limit
        if not await _has_ended_after_cancel(call, spec.name, grace_s):
            raise
        return call.result()
    if done:
        return call.result()
    has_ended = await _has_ended_after_cancel(call, spec.name, REPORT_S / 2)
    text = f"{spec.name} took longer than its {limit_s:g} s"
    if spec.options.isolation == "thread":  # only the wait for the thread can have ended
        text += " and its thread cannot be stopped; declare it blocking: @tool(blocking=True)"
    elif has_ended:
        raise ToolError(text, kind=TIME_LIMIT, retryable=True)
    raise AbandonedCall(text, kind=TIME_LIMIT, retryable=True)


async def _contain_exit(work: Coroutine[Any, Any, T]) -> T:
    """Await the work. If it tries to exit the process, raise a failure instead, so the worker stays alive."""
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        raise ToolError(f"{type(error).__name__}: {error}", kind=type(error).__name__, acted="maybe") from None


async def _give_rest_of_time(call: asyncio.Task[Any], spec: ToolSpec, left_s: float) -> None:
    """Cancel the call and wait until it ends, its time is up, or the worker stops.

    A call in a thread is not cancelled, because that would only end the wait for the thread.
    """
    if spec.options.isolation != "thread":
        call.cancel()
    stopping = asyncio.ensure_future(activity.wait_for_worker_shutdown())
    with suppress(asyncio.CancelledError):
        await asyncio.wait((call, stopping), timeout=max(left_s, 0.0), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()


async def _has_ended_after_cancel(call: asyncio.Task[Any], name: str, grace_s: float) -> bool:
    """Cancel the call. Return False if it has not ended within `grace_s`, and is left to itself."""
    call.cancel()
    done, _ = await asyncio.wait((call,), timeout=grace_s)
    if not done:
        activity.logger.warning("%s ignored its cancellation and is still running", name)
        _abandoned_calls.add(call)
    call.add_done_callback(_release_call)
    return bool(done)


def _release_call(call: asyncio.Task[Any]) -> None:
    _abandoned_calls.discard(call)
    if not call.cancelled():
        call.exception()  # mark it as retrieved, or asyncio logs a complaint


MAX_ERROR_BYTES = 4_000
"""Bytes of an error's text, or of a note about progress."""

MAX_ERROR_CHARS = 20_000
"""Characters of an error's text that are read before it is cut."""

MAX_INLINE_SANITIZE_CHARS = 10_000
"""Characters of a result that are sanitized in the event loop. Longer texts use a thread, so other calls can go on."""


@dataclass(frozen=True)
class CallServices:
    """The services of a worker that every tool call needs."""

    conversations: Conversations
    secrets: KnownSecrets = NO_SECRETS
    permits: PermitKeys | None = None
    schema_errors: ArgumentErrors | None = None
    """Checks the results of tools with an `output_schema`. Without it, all results of these tools are refused."""
    blobs: BlobStore | None = None
    """Keeps pictures and documents of results. Without it, a line of text replaces each."""


def tool_activities(tools: Iterable[Tool], services: CallServices) -> list[Callable[..., Any]]:
    """Return one activity for each tool. Raise ValueError if a tool has a reserved name."""
    return [_tool_activity(tool, services) for tool in tools]


def _tool_activity(tool: Tool, services: CallServices) -> Callable[..., Any]:
    if tool.spec.name in OWN_ACTIVITIES:
        raise ValueError(f"a tool cannot be named {tool.spec.name!r}: that is an activity of orga itself")

    @activity.defn(name=tool.spec.name)
    async def run(request: ToolRequest) -> ToolOutput:
        return await _execute_call(tool, request, services)

    return run


def dynamic_activity(source: ToolSource | None, services: CallServices) -> Callable[..., Any]:
    """Return the activity that Temporal calls for each type that no other activity has.

    It runs the source's tools. It refuses calls of tools that this worker lacks, because its configuration or code has
    changed since the run was prepared. Without it, the SDK's failure would leave it open whether such a call has acted.
    """

    @activity.defn(dynamic=True)
    async def run(given: Sequence[RawValue]) -> ToolOutput:
        name = activity.info().activity_type
        if source is not None:
            request = activity.payload_converter().from_payload(given[0].payload, ToolRequest)
            if (tool := source.tool(name, request.digest)) is not None:
                return await _execute_call(tool, request, services)
        text = f"the worker has no tool or activity {name!r}; its orga.toml or its code may have changed"
        raise attempt_failure(text, "NotFoundError", retryable=True, acted="no")

    return run


async def _execute_call(tool: Tool, request: ToolRequest, services: CallServices) -> ToolOutput:
    check_permit(services.permits, request)
    began, info, secrets = time.monotonic(), activity.info(), services.secrets
    log_iteration_of_call(info.activity_id)
    is_repeatable = tool.spec.effect != "irreversible" or request.completion is not None
    if not is_repeatable and attempt_may_have_acted():
        text = "its activity was started again, which is not done if an earlier attempt may have had its effect"
        raise attempt_failure(text, CALL_STOPPED, retryable=False)
    progress = _Progress(secrets)
    if request.completion is None:
        context = _tool_context(request, progress)
        work = _output_of_call(tool, request.arguments, context, services.schema_errors)
    else:
        work = _completed_output(tool.spec, request.completion, services.schema_errors)
    with tool_span(tool.spec.name, request.call_id), stops_as_failures(is_repeatable=is_repeatable):
        async with heartbeats(progress.details):
            output = await _guarded_call(work, tool.spec, request, secrets, began)
            output = await with_stored_media(output, services.blobs, has_value=tool.spec.output_schema is not None)
    output = await _recordable_output(output, tool.spec.max_result_bytes, secrets)
    kept = output if output.media else output.content
    services.conversations.keep_result(current_run_key(), info.activity_id, kept)
    return output


def _tool_context(request: ToolRequest, progress: "_Progress") -> ToolContext:
    info, caller = activity.info(), request.caller or Caller()
    return ToolContext(
        call_id=request.call_id,
        idempotency_key=request.key,
        attempt=info.attempt,
        workflow_id=info.workflow_id or "",
        run_id=info.workflow_run_id or "",
        agent=caller.agent,
        tenant=caller.tenant,
        trusted_context=caller.trusted_context,
        approver=caller.approver,
        behalf=request.behalf,
        given=request.given,
        heartbeat=progress.note,
    )


async def _recordable_output(output: ToolOutput, max_bytes: int, secrets: KnownSecrets) -> ToolOutput:
    """Return the output as history may hold it: sanitized, without secrets, and of at most `max_bytes`."""
    if len(output.content) <= MAX_INLINE_SANITIZE_CHARS:
        text = _without_secrets(output.content, secrets)
    else:
        text = await asyncio.to_thread(_without_secrets, output.content, secrets)
    output = output.with_content(clip(text, max_bytes))
    if not output.media:
        return output
    return output.with_media(tuple(part.with_name(secrets.redact(part.name)) for part in output.media))


def _without_secrets(content: str, secrets: KnownSecrets) -> str:
    """Return the text sanitized and then without secrets, because an invisible character may split a secret."""
    text = sanitized_text(clean_text(content))
    return secrets.redact_at_cuts(secrets.redact(text, is_cut=len(content) > MAX_CHARS))


async def _output_of_call(
    tool: Tool, arguments: dict[str, Any], context: ToolContext, schema_errors: ArgumentErrors | None
) -> ToolOutput:
    """Return the tool's output. With an `output_schema`, the whole text or its last line is the value as JSON."""
    output = await tool.call(arguments, context)
    schema = tool.spec.output_schema  # the definition of a server's tool may be unknown before the call
    if schema is None or len(output.content) > MAX_CHARS:  # a text that will be cut has no value
        return output
    try:
        value = parsed_answer_json(output.content)
        content = to_json(value).decode()
    except ValueError as error:  # the whole text is no JSON, but its last line may be
        value, content = parsed_last_line(output.content), output.content
        if value is None:
            raise ToolError(f"result: {error}", kind=INVALID_RESULT, acted="yes") from None
    await _check_value(schema, value, schema_errors, "yes")
    return output.with_content(content)


async def _check_value(
    schema: dict[str, Any], value: Any, schema_errors: ArgumentErrors | None, acted: Acted | None = None
) -> None:
    try:
        errors = await schema_errors(schema, value) if schema_errors else ["this worker checks no schema"]
    except ValueError as error:
        errors = [str(error)]
    if errors:
        text = "result: does not fit the output schema: " + "; ".join(errors)
        raise ToolError(text, kind=INVALID_RESULT, acted=acted)


async def _completed_output(spec: ToolSpec, completion: Completion, schema_errors: ArgumentErrors | None) -> ToolOutput:
    """Return the result that arrived for a call of a deferred tool. Raise ToolError if it failed or did not arrive."""
    acted: Acted = "no" if completion.nothing_done else "maybe"
    if completion.error:
        raise ToolError(completion.error, kind=JOB_FAILED, acted=acted)
    if completion.is_expired:
        within = f"within {spec.deferred.expires_s:.15g} s" if spec.deferred else "in time"
        raise ToolError(f"no result of {spec.name} arrived {within}", kind=EXPIRED, acted=acted)
    value = from_json(completion.result)
    if spec.value_schema is not None:
        await _check_value(spec.value_schema, value, schema_errors)
        return ToolOutput(content=to_json(value).decode())  # on one line, because the last line of a text is its value
    return ToolOutput(content=value if isinstance(value, str) else completion.result)


async def _guarded_call(
    work: Coroutine[Any, Any, ToolOutput], spec: ToolSpec, request: ToolRequest, secrets: KnownSecrets, began: float
) -> ToolOutput:
    """Return the output. Every error of the tool becomes the failure of this attempt."""
    try:
        return await run_within_limit(work, spec, is_awaited=request.is_awaited)
    except ToolError as raised:
        error = raised
    except Exception as raised:
        activity.logger.exception("tool %s failed", spec.name)
        error = ToolError(error_text(raised), kind=type(raised).__name__, retryable=True)
    more = (error.asked.model_dump(mode="json", exclude_defaults=True),) if isinstance(error, InputRequired) else ()
    raise attempt_failure(
        _error_message(secrets, str(error)),
        error.kind,
        retryable=error.retryable,
        acted=error.acted,
        is_out_of_time=is_retry_too_late(request.left_s, time.monotonic() - began),
        goes_on=isinstance(error, AbandonedCall),
        more=more,
    )


def _error_message(secrets: KnownSecrets, text: str) -> str:
    cleaned = sanitized_text(clean_text(text[:MAX_ERROR_CHARS]))
    hidden = secrets.redact_at_cuts(secrets.redact(cleaned, is_cut=len(text) > MAX_ERROR_CHARS))
    return clip(hidden, MAX_ERROR_BYTES)


class _Progress:
    def __init__(self, secrets: KnownSecrets) -> None:
        self._note, self._secrets = "", secrets

    def note(self, text: str) -> None:
        self._note = clip(self._secrets.redact(clean_text(text)), MAX_ERROR_BYTES)

    def details(self) -> dict[str, object]:
        return {"note": self._note}
