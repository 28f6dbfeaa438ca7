"""The stream of events, `GET /api/v1/events`: any number of topics over one connection."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from urllib.parse import parse_qsl

from pydantic import Field
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from orga.client.console.problems import invalid
from orga.client.console.routes import Call, Console, Routes
from orga.client.console.stream.hub import RUN, Hub, Stream
from orga.client.console.stream.sources import Sources
from orga.workflows.types.record import CheckedInput

ROUTES = Routes()

MAX_TOPICS = 100
PING_S = 15

STALLED_S = 120
"""Seconds that a viewer may take no bytes before its stream is closed. It can come back."""

RETRY_MS = 1_000
"""Milliseconds after which a browser that lost the stream opens it again."""


class EventsQuery(CheckedInput):
    """The parameters of `GET /events`."""

    topics: str = Field(min_length=1, max_length=20_000)
    """`runs`, `inbox` and `run:ID`, separated by commas."""
    after: str = Field(default="", max_length=20_000)
    """The id of the last event, if the header `Last-Event-ID` cannot have it, or `run:ID=CURSOR` of a snapshot."""


@ROUTES.get(
    "/events",
    media_type="text/event-stream",
    more_statuses=(429,),
    headers={"Last-Event-ID": "The id of the last event, so that nothing is missed."},
)
async def _open(call: Call[EventsQuery]) -> Response:
    """Stream what changes in runs, in the list of runs and in the inbox, as server-sent events."""
    topics = _topics(call.given.topics)
    if len(topics) > MAX_TOPICS:
        raise invalid([f"topics: there are {len(topics)}. At most {MAX_TOPICS} are possible"])
    given = call.request.headers.get("last-event-id") or call.given.after
    hub = hub_of(call.request.app, call.console)
    stream = Stream(hub, call.visitor, topics, dict(parse_qsl(given)))

    def is_admitted() -> bool:
        return call.console.doors.visitor(call.request) == call.visitor

    return _StreamResponse(hub, stream, call.visitor.name, is_admitted)


def _topics(text: str) -> list[str]:
    """Return the topics. A part that is no topic belongs to an id with a comma."""
    found: list[str] = []
    for part in text.split(","):
        if part in {"runs", "inbox"} or part.startswith(RUN):
            found.append(part)
        elif found and found[-1].startswith(RUN):
            found[-1] += f",{part}"
        else:
            raise invalid([f"topics: {part!r} is no topic. There are runs, inbox and run:ID"])
    if RUN in found:
        raise invalid(["topics: run: has no id. Give run:ID"])
    return list(dict.fromkeys(found))


def hub_of(app: Starlette, console: Console) -> Hub:
    """Return the hub of a console."""
    if not hasattr(app.state, "hub"):
        app.state.hub = Hub(Sources(console))
    return app.state.hub


class _StreamResponse(EventSourceResponse):
    def __init__(self, hub: Hub, stream: Stream, name: str, is_admitted: Callable[[], bool]) -> None:
        """Count the stream of this name, or raise the problem that there are too many."""
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            encoded_frames(stream, is_admitted),
            ping=PING_S,
            send_timeout=STALLED_S,
            ping_message_factory=lambda: ServerSentEvent("{}", event="ping", id=stream.id, sep="\n"),
        )
        hub.begin_stream(name)
        self._end = partial(hub.end_stream, name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()


async def encoded_frames(stream: Stream, is_admitted: Callable[[], bool]) -> AsyncGenerator[bytes]:
    """Yield the events of a stream. Once its viewer may not enter any more, it ends before the next one."""
    yield b"retry: %d\n\n" % RETRY_MS
    async with aclosing(stream.frames()) as frames:
        async for frame in frames:
            if not is_admitted():
                return
            yield b"id: %b\nevent: %b\ndata: %b\n\n" % (stream.id.encode(), frame.event.encode(), frame.data)
