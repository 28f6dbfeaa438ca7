"""Shared parts of the front ends over HTTP (AG-UI, Responses, MCP): who is admitted, open streams, and threads.

A thread is a conversation that a client names. It is a session, or the run of a goal.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, Literal, TypeVar, Unpack, cast

from sse_starlette import EventSourceResponse
from starlette.requests import Request
from starlette.types import Receive, Scope, Send
from temporalio.service import RPCError

from orga.activities.media import Media
from orga.client.console.doors import Role, Visitor, visitor_of
from orga.client.console.problems import Problem
from orga.client.console.routes import Console, console_of, derived_id, visible_run
from orga.client.console.start_runs import START_KINDS, begin_run, checked_input
from orga.client.errors import IdTaken, NotAnAgent, OrgaError, RunEnded, RunNotFound
from orga.client.frontends.reach import handle_of
from orga.client.frontends.turns import read_past
from orga.client.journal.run_view import RunView
from orga.client.runs.agents import AgentHandle
from orga.client.runs.attachments import inline_media
from orga.client.runs.ids import MAX_ID_BYTES
from orga.client.runs.sessions import SendOptions, SessionHandle
from orga.workflows.types.json_text import as_object, as_text
from orga.workflows.types.names import AGENT
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.status import JournalEntry

E = TypeVar("E")

PING_S = 15  # seconds between two pings of a stream
SEND_TIMEOUT_S = 60.0
"""Seconds until a client that reads nothing is disconnected. Its run goes on."""

MAX_STREAMS = 50
"""Open streams of one visitor. A front end may be one visitor and serve many people."""


def console_address(request: Request) -> str:
    """Return the address of the console's pages, as browsers see it."""
    return f"{console_of(request).doors.scheme}://{request.headers['host']}/"


def admit(request: Request, role: Role, *, is_write: bool) -> tuple[Console, Visitor]:
    """Return the console and the visitor of a request, and count a write. Raise Problem if it is not allowed."""
    console, visitor = console_of(request), visitor_of(request)
    console.doors.require(visitor, role, is_write=is_write)
    if is_write:
        console.doors.count_write(visitor)
    return console, visitor


def require_room(console: Console, visitor: Visitor) -> None:
    """Raise Problem if the visitor has too many streams open."""
    if console.adapter_streams[visitor.name] >= MAX_STREAMS:
        raise Problem(429, f"{visitor.name} has {MAX_STREAMS} streams open. Close one", retry_after_s=5)


@contextmanager
def open_stream(console: Console, visitor: Visitor) -> Generator[None]:
    """Count an open stream until the block ends."""
    console.adapter_streams[visitor.name] += 1
    try:
        yield
    finally:
        console.adapter_streams[visitor.name] -= 1


class TurnStream(EventSourceResponse):
    """The events of a turn for a front end."""

    def __init__(
        self,
        events: AsyncGenerator[E],
        failed: Callable[[str, str], E],
        fields: Callable[[E], dict[str, str]],
        request: Request,
    ) -> None:
        """Serve the events until there are no more, or the token of the request is no longer valid.

        Args:
            failed: Returns the event for a failure, from its message and its code.
            fields: Returns the SSE fields of an event.

        Raises:
            Problem: The visitor has too many streams open.
        """
        self._console, self._visitor = console_of(request), visitor_of(request)
        require_room(self._console, self._visitor)

        async def encoded_events() -> AsyncGenerator[dict[str, str]]:
            """Yield the events. A failure is the last event, because the status of the response is already sent."""
            try:
                async with aclosing(events):
                    async for event in events:
                        if self._console.doors.visitor(request) != self._visitor:
                            return
                        yield fields(event)
            except (OrgaError, InvalidInput, Problem, RPCError) as error:
                yield fields(failed(str(error), type(error).__name__))
            except Exception:
                logging.getLogger(__name__).exception("a stream failed")
                yield fields(failed("the console has a defect; its log has the cause", "Defect"))

        super().__init__(encoded_events(), ping=PING_S, sep="\n", send_timeout=SEND_TIMEOUT_S)  # pyright: ignore[reportUnknownMemberType]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with open_stream(self._console, self._visitor):
            await super().__call__(scope, receive, send)


def own_id(kind: str, visitor: Visitor, *parts: str) -> str:
    """Return the id of a run that a client names. It also depends on the visitor's name and tenants."""
    return f"{kind}-{derived_id(*visitor.identity, *parts)}"


async def find_run(console: Console, visitor: Visitor, run_id: str, agent: str | None = None) -> AgentHandle | None:
    """Return a run that the visitor may see, or None. With `agent`, a run of another agent is not found."""
    if not 0 < len(run_id.encode()) <= MAX_ID_BYTES:
        return None
    try:
        found = await visible_run(console.client, visitor, run_id)
    except (RunNotFound, NotAnAgent):
        return None
    if agent is not None and found.typed_search_attributes.get(AGENT) not in {agent, None}:
        return None
    return handle_of(console.client, found)


async def start_thread(
    console: Console, visitor: Visitor, kind: Literal["session", "goal"], run_id: str, given: Mapping[str, Any]
) -> AgentHandle:
    """Start a session or a goal. If a run has this id already, as after a repeated request, return that."""
    start_kind = START_KINDS[kind]
    console.doors.count_start(visitor)
    try:
        await begin_run(console, visitor, start_kind, checked_input(console, visitor, start_kind, given), run_id)
    except OrgaError as error:  # also if only the server's answer was lost
        if found := await find_run(console, visitor, run_id):
            return found
        if isinstance(error, IdTaken):  # its text is about a run that the visitor may not see
            raise Problem(409, "the id of this thread is taken. Take another one") from None
        raise
    return (SessionHandle if kind == "session" else AgentHandle)(console.client, run_id)


async def post_message(session: SessionHandle, text: str, **options: Unpack[SendOptions]) -> int:
    """Send a message and return its turn. If the session could not begin, raise InvalidInput with the reason."""
    try:
        return await session.post(text, **options)
    except RunEnded:
        last = (await read_past(session))[-1]
        if last.event == "Terminated" and last.data.get("reason") == "error":
            raise InvalidInput(as_text(last.data.get("detail")).removeprefix("InvalidInput: ")) from None
        raise


def message_parts(content: Any, where: str) -> tuple[str, list[Media]]:
    """Return the text of a message, and its pictures and documents."""
    if content is None or isinstance(content, str):
        return content or "", []
    texts, media = list[str](), list[Media]()
    parts = cast("list[object]", content) if isinstance(content, list) else [content]
    for part in map(as_object, parts):
        text = part.get("text", part.get("refusal"))
        if (encoded := _media_of_part(part)) is not None:
            name = part.get("filename") or as_object(part.get("metadata")).get("filename")
            media.append(inline_media(encoded, as_text(name)))
        elif isinstance(text, str):
            texts.append(text)
        else:
            raise Problem(422, f"{where}: has parts that are no text, picture or document with bytes. Send only these")
    return "\n".join(texts), media


def _media_of_part(part: Mapping[str, Any]) -> str | None:
    """Return the base64 or the URL of a picture or a document, as OpenAI's Responses and AG-UI write them."""
    match part:
        case (
            {"type": "input_image", "image_url": str(encoded)}
            | {"type": "input_file", "file_data": str(encoded)}
            | {"type": "image" | "document", "source": {"type": "data" | "url", "value": str(encoded)}}
        ):
            return encoded
        case _:
            return None


def turn_that_asked(past: Sequence[JournalEntry], run_id: str, interrupts: Collection[str]) -> int | None:
    """Return the latest turn in which the run or a delegate asked one of these questions, or None.

    Args:
        interrupts: Ids of questions: `RUN/QUESTION`.
    """
    view, found = RunView(), None
    for entry in past:
        view.take(entry)
        if entry.event == "DelegationStarted":
            child = entry.data.get("workflow_id")  # its delegates have ids that begin with `CHILD.`
            asks = any(each.startswith((f"{child}/", f"{child}.")) for each in interrupts)
        else:
            asks = not entry.run and f"{run_id}/{entry.data.get('id')}" in interrupts
        if asks:
            found = view.turn.number if view.turn else None
    return found


def current_turn(past: Sequence[JournalEntry]) -> int:
    """Return the turn that has begun and has not ended, or 0."""
    view = RunView()
    for entry in past:
        view.take(entry)
    return view.turn.number if view.turn and not view.turn.reason and not view.ending else 0


def turn_of_message(past: Sequence[JournalEntry], message_id: str) -> int | None:
    """Return the turn that began with the message of this id, or None."""
    text = None  # the start of a turn records the message's text, not its id
    for entry in past:
        sent = as_object(entry.data.get("text"))
        if entry.event == "InterventionReceived" and sent.get("message_id") == message_id:
            text = as_text(sent.get("text"))
        elif entry.event == "TurnStarted" and text is not None and entry.data.get("message") == text:
            return int(entry.data["turn"])
    return None
