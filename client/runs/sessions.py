"""The Python API of sessions: start one, send a message, wait for the turn's result."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import uuid_utils
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.client import WorkflowUpdateFailedError as UpdateFailed
from temporalio.client import WorkflowUpdateRPCTimeoutOrCancelledError as UpdateUnanswered
from temporalio.common import TypedSearchAttributes
from temporalio.service import RPCError, RPCStatusCode

from orga.client.errors import (
    NoAnswer,
    NotTakenYet,
    OrgaError,
    Refused,
    RunNotFound,
    ServerLost,
    TaskFails,
    TurnUnknown,
)
from orga.client.runs.agents import AgentHandle, given_fields, new_run_id, start_run
from orga.client.runs.exchange import UNPROCESSED, is_ended_error, refusal_error, sender_fields, user_error
from orga.workflows.types.input import LoopConfig, LoopSettings
from orga.workflows.types.names import SESSION_WORKFLOW
from orga.workflows.types.record import parse_record
from orga.workflows.types.sessions.session_input import (
    MAX_MESSAGE_ATTACHMENTS,
    SessionInput,
    SessionMessage,
    WhenBusy,
    parse_session,
)
from orga.workflows.types.sessions.session_result import SessionResult, SessionStatus, TurnResult
from orga.workflows.types.text import clean_text

if TYPE_CHECKING:
    from orga.client.runs.attachments import Attachable

_POLL_S = 2.0
"""Seconds between two queries for the end of a turn, if no update can wait for it."""

_UPDATE_LIMIT_PAUSE_S = 60.0
"""Seconds without updates to a run that has used up the server's limit, until it continues as new."""

_LOST_SERVER_PAUSE_S = 1.0
"""Seconds before a lost server is asked again."""

_TURN_REQUEST_TIMEOUT = timedelta(seconds=60)
"""Limit for one request that waits for a turn. After it, the request is repeated."""

_RETRY_S = 0.2
"""Seconds between two attempts to reach a worker, or a run that has just continued as new."""

_PATIENCE_S = 5.0
"""Seconds to wait for a worker when a message is sent."""

_CONTINUED_FAILURES = {"AcceptedUpdateCompletedWorkflow", UNPROCESSED}
"""The server's errors for an update to a segment that has continued as new. The next segment is asked again."""


class SendOptions(TypedDict, total=False):
    """`SessionHandle.post` explains each key."""

    when_busy: WhenBusy
    message_id: str | None
    by: str
    attachments: "Sequence[Attachable]"


class SessionHandle(AgentHandle):
    """A session, live or ended: `SessionHandle(client, id)`. It has all methods of an `AgentHandle`."""

    async def send(self, text: str, **options: Unpack[SendOptions]) -> TurnResult:
        """Send a message and wait for the result of its turn, without a time limit.

        It raises the errors of `post` and `result_of`.

        Args:
            text: The message, at most 50 kB as JSON.
            options: `when_busy`, `message_id`, `by` and `attachments`, as for `post`.
        """
        return await self.result_of(await self.post(text, **options))

    async def post(
        self,
        text: str,
        *,
        when_busy: WhenBusy = "enqueue",
        message_id: str | None = None,
        by: str = "",
        attachments: "Sequence[Attachable]" = (),
    ) -> int:
        """Send a message and return the number of its turn without waiting for it.

        Args:
            text: The message, at most 50 kB as JSON.
            when_busy: What happens if a turn is under way: the message waits for its own turn (`enqueue`), guides the
                current turn (`steer`), cuts it short and begins the next (`interrupt`), or is refused (`refuse`).
            message_id: The message's id. If a message with this id was sent before, this one is ignored, and the number
                of the earlier one's turn is returned.
            by: The name of the person, for the journal.
            attachments: At most 10, as for `start_agent`. A message that steers has none.

        Raises:
            InvalidInput: An attachment cannot be used.
            SessionBusy: A turn is under way, and `when_busy` is `refuse`.
            QueueFull: Too many messages are waiting.
            SessionClosed: The session is ending.
            RunEnded: The session has ended.
            Refused: The text is empty or too long, or this id was used for another text.
            NoAnswer: No worker is running that can accept it.
            NotTakenYet: A `NoAnswer` after the message was sent, so it may still take effect. The error has the
                `message_id`.
        """
        message: dict[str, Any] = {
            "text": clean_text(text),
            "when_busy": when_busy,
            "message_id": message_id or str(uuid_utils.uuid7()),
            **sender_fields(by),
        }
        if attachments:
            from orga.client.runs.attachments import kept_attachments, store_of

            kept = await kept_attachments(attachments, store_of(self.client), most=MAX_MESSAGE_ATTACHMENTS)
            message["attachments"] = [each.model_dump(exclude_defaults=True) for each in kept]
        try:
            parse_record(SessionMessage, message, long=frozenset({"text"}))
        except ValueError as error:
            raise Refused(str(error)) from None
        return int(await self._send_message(message))

    async def result_of(self, turn: int) -> TurnResult:
        """Wait until a turn has ended, and return its result, also across lost connections and restarts of workers.

        Raises:
            TurnUnknown: The turn does not exist, or it is too old.
            RunNotFound: The server no longer has this session.
            RunFailed: The session failed, or an operator terminated it.
        """
        update_id = _update_id(turn)
        while True:
            try:
                answer = await self._exchange.ask_update(
                    "await_turn", {"turn": turn}, _TURN_REQUEST_TIMEOUT, update_id=update_id
                )
            except UpdateUnanswered:
                await asyncio.sleep(_LOST_SERVER_PAUSE_S)
            except UpdateFailed as error:
                refused = refusal_error(error)
                if refused.kind not in _CONTINUED_FAILURES:
                    raise refused from None
                update_id = _update_id(turn)
                await asyncio.sleep(_RETRY_S)
            except RPCError as error:
                if is_ended_error(error):
                    return await self._result_after_end(turn)
                if _has_used_up_updates(error):
                    await self._poll_until_ended(turn, _UPDATE_LIMIT_PAUSE_S)
                    continue
                if not isinstance(failure := user_error(error, self.id), ServerLost):
                    raise failure from error
                await asyncio.sleep(_LOST_SERVER_PAUSE_S)
            else:
                if found := answer.get("result"):
                    return TurnResult.model_validate(found)
                update_id = _update_id(turn)
                await self._poll_until_ended(turn, answer.get("again_in_s", 0.0))

    async def interrupt(self, why: str = "", *, turn: int | None = None, by: str = "") -> int:
        """Cut the current turn short and return its number. The session continues.

        Args:
            why: The reason, for the turn's result.
            turn: The number of the turn, so that no later turn is cut by mistake. None means the current turn.
            by: The name of the person, for the journal.

        Raises:
            Refused: No turn is under way, or a different one from `turn`.
            RunEnded: The session has ended.
            NoAnswer: No worker is running that can accept it.
        """
        wanted = {"why": clean_text(why), "turn": turn, **sender_fields(by)}
        return int(await self._exchange.update("interrupt", wanted))

    async def close(self, *, by: str = "") -> None:
        """End the session after the current turn. Waiting messages get no turn.

        Args:
            by: The name of the person, for the journal.

        Raises:
            RunNotFound: No session has this id.
            RunEnded: It has ended already.
        """
        sender = sender_fields(by)
        await self._exchange.signal("close", *([sender] if sender else []))

    async def turns(self) -> list[TurnResult]:
        """Return the results of the last turns, which the session keeps, oldest first."""
        return [TurnResult.model_validate(each) for each in await self._exchange.query("turns")]

    async def _send_message(self, message: Mapping[str, Any]) -> int:
        """Send a message, and retry for a moment, because a worker that has just started may not poll yet.

        The message id makes retries safe, even if the message had arrived before the connection was lost.
        """
        until = asyncio.get_running_loop().time() + _PATIENCE_S
        untaken: NotTakenYet | None = None
        while True:
            try:
                return await self._exchange.update("send", message)
            except TaskFails:
                raise
            except (NoAnswer, ServerLost) as error:
                if isinstance(error, NotTakenYet):
                    untaken = error.of_message(message["message_id"])
                if asyncio.get_running_loop().time() >= until:
                    raise untaken or error from None
                await asyncio.sleep(_RETRY_S)

    async def status(self) -> SessionStatus:
        """Return the session's current status.

        Raises:
            NoAnswer: No worker is running that can answer.
            NotAnAgent: The run is no session.
        """
        return await self._checked_kind(await super().status(), SessionStatus, SESSION_WORKFLOW)

    async def result(self) -> SessionResult:
        """Wait for the session to end and return its result, with the totals of all turns.

        It raises the errors of `AgentHandle.result`, and NotAnAgent if the run is no session.
        """
        return await self._checked_kind(await super().result(), SessionResult, SESSION_WORKFLOW)

    async def _poll_until_ended(self, turn: int, within_s: float) -> None:
        """Wait at most `within_s` until a turn or its session has ended. Queries add nothing to the history."""
        until = asyncio.get_running_loop().time() + within_s
        await asyncio.sleep(_RETRY_S)
        while (left := until - asyncio.get_running_loop().time()) > 0:
            try:
                is_live = (await self.describe()).status == WorkflowExecutionStatus.RUNNING
                if not is_live or any(each.turn == turn for each in await self.turns()):
                    return
            except RunNotFound:
                raise
            except OrgaError:  # ask again later
                pass
            await asyncio.sleep(min(_POLL_S, left))

    async def _result_after_end(self, turn: int) -> TurnResult:
        ended = await self.result()
        found = next((each for each in ended.latest if each.turn == turn), None)
        if found is None:
            raise TurnUnknown(f"session {self.id!r} has ended and keeps no turn {turn}; `orga journal` shows it")
        return found


def _has_used_up_updates(error: RPCError) -> bool:
    """Return whether the server accepts no more updates for the session's current segment."""
    return error.status is RPCStatusCode.FAILED_PRECONDITION and "updates" in error.message


def _update_id(turn: int) -> str:
    return f"turn-{turn}-{uuid_utils.uuid4()}"


async def start_session(
    client: Client,
    session_input: SessionInput | Mapping[str, Any] | None = None,
    *,
    agent: str = "default",
    config: LoopConfig | LoopSettings | None = None,
    model: str | None = None,
    instructions: str | None = None,
    tools: Sequence[str] | None = None,
    trusted_context: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | type | None = None,
    tenant: str | None = None,
    session_id: str | None = None,
    idle_timeout_s: float | None = None,
    task_queue: str | None = None,
    again: bool = False,
    search_attributes: TypedSearchAttributes = TypedSearchAttributes.empty,
) -> SessionHandle:
    """Start a session without a first message, and return its handle.

    Args:
        client: As for `start_agent`.
        session_input: The input of `SessionWorkflow`, or a part of it. Its keys take precedence over the arguments.
        agent: The agent's name. All arguments from here to `tenant` are as in the input of an agent's run.
        config: Limits and settings. The limits apply to each turn separately.
        model: `provider:model` or `tier:NAME`.
        instructions: Instructions that replace the agent's own.
        tools: A subset of the agent's tools and of those of its delegates.
        trusted_context: Facts that no model and no tool can write.
        output_schema: JSON Schema that the answer of each turn must match, or a type, such as a pydantic model.
        tenant: The owner of the session.
        session_id: The session's id, by default `session-<uuid7>`.
        idle_timeout_s: Seconds without a message between two turns, after which the session ends. None means never.
        task_queue: As for `start_agent`.
        again: As for `start_agent`.
        search_attributes: As for `start_agent`.

    Raises:
        InvalidInput: The input is invalid. The text names each bad key, and nothing was started.
        OrgaError: A session with this id is live, or has ended and `again` is False.
    """
    optional = {
        "config": dict(config) if isinstance(config, dict) else config,
        "model": model,
        "instructions": instructions,
        "tools": tools,
        "trusted_context": None if trusted_context is None else dict(trusted_context),
        "output_schema": output_schema,
        "tenant": tenant,
        "idle_timeout_s": idle_timeout_s,
    }
    defaults = {"agent": agent, **{name: value for name, value in optional.items() if value is not None}}
    given = given_fields({} if session_input is None else session_input, parse_session)
    checked = parse_session({**defaults, **given})
    run_id = new_run_id(session_id, "session")
    await start_run(
        client,
        SESSION_WORKFLOW,
        checked,
        f"session with {checked.agent}",
        run_id,
        task_queue=task_queue,
        again=again,
        attributes=search_attributes,
    )
    return SessionHandle(client, run_id)
