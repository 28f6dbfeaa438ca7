"""A model provider over HTTP: one streamed request a call, no retries but those that learn what the model takes."""

import re
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace

from orga.activities.adapters import http
from orga.activities.adapters.models.dialect import MAX_LESSONS, Dialect, learned
from orga.activities.adapters.models.endpoint import Endpoint
from orga.activities.adapters.models.failures import Refusal
from orga.activities.adapters.models.final_answer import shaped, taken
from orga.activities.adapters.models.stream_http import StreamHttp
from orga.activities.adapters.models.thinking_memory import ThinkingMemory
from orga.activities.adapters.models.wire import Wire
from orga.activities.adapters.models.wire_tools import WireTools
from orga.activities.ports import ModelRequest
from orga.workflows.types.messages import Reply

_MAX_MODELS = 256

_NO_ROUTE = frozenset({404, 405, 501})
_DOCUMENTS = re.compile(r"https?://(?!\S*/v\d)\S+")
"""Links in a refusal; one that names an endpoint is none."""


class StreamingProvider:
    """A `ModelProvider` for one endpoint and the protocols that it may have."""

    def __init__(
        self,
        endpoint: Endpoint,
        wire: Wire,
        transport: http.AsyncBaseTransport | None = None,
        *,
        other: Wire | None = None,
    ) -> None:
        """Take the endpoint.

        Args:
            endpoint: Where it is.
            wire: The protocol to begin with.
            transport: In place of the network, for tests.
            other: The protocol to go over to where the endpoint points to it, or lacks the first one.
        """
        self._usual = wire
        self._others = {} if other is None else {wire.path: other, other.path: wire}
        self._http = StreamHttp(endpoint, transport)
        self._wires: dict[str, Wire] = {}
        self._used: set[str] = set()
        """Paths of the protocols that have returned a reply."""
        self._dialects: dict[tuple[str, str], Dialect] = {}
        self._thinking = ThinkingMemory()

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the reply, each piece of its text given to `on_text` as it comes in.

        A refusal that points to the other protocol of the endpoint is answered by asking there, and is remembered:
        for this model, and for those that were not asked before.
        """
        wire = self._wires.get(request.model, self._usual)
        try:
            reply = await self._complete(wire, request, on_text)
        except Refusal as error:
            other = self._other_meant(wire, error)
            if other is None:
                raise
            try:
                reply = await self._complete(other, request, on_text)
            except Refusal as second:
                if second.status in _NO_ROUTE:  # neither is there: the model or the address is wrong
                    raise error from None
                self._remember_wire(request.model, other)
                raise
            self._usual = wire = other
        self._remember_wire(request.model, wire)
        self._used.add(wire.path)
        return reply

    async def look(self) -> None:
        """Look whether the provider answers and takes the key; nothing is generated.

        Raises:
            ModelError: It does not.
        """
        await self._http.look("/models")

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def _complete(self, wire: Wire, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the reply by one protocol.

        A refusal that names what the model does not take (temperature, the name of the output limit, a tool) is
        answered by a request without it, and remembered. Nothing was generated before it, so nothing is paid twice.
        """
        key = (wire.path, request.model)
        known = dialect = self._dialects.get(key) or wire.dialect(request.model)
        fitting = self._thinking.fitting(request)
        lessons = 0
        while True:
            asked = shaped(fitting, dialect)
            tools = WireTools(asked.tools, dialect)
            sent = tools.sent(asked)
            try:
                reply = tools.received(await self._attempt(wire, sent, dialect, on_text))
            except Refusal as error:
                lesson = None
                if self._other_meant(wire, error) is None:
                    lesson = learned(dialect, sent, error) if lessons < MAX_LESSONS else None
                    lessons += 1
                    lesson = lesson or tools.lesson(error)
                if lesson is None or lessons > MAX_LESSONS + 2 * len(asked.tools):
                    if error.kind in {"InvalidRequest", "ContextOverflow"}:  # nothing that was learned here has helped
                        self._remember(key, known)
                    raise
                is_for_good = lesson.thinking or self._thinking.is_hopeless(request, fitting)
                if not lesson.thinking:
                    self._thinking.note_refused(fitting)
                dialect = lesson
                self._remember(key, lesson if is_for_good else replace(lesson, thinking=True))
            else:
                if dialect.thinking:
                    self._thinking.note_taken(fitting)
                return reply if request.output_schema is None else taken(reply, request.output_schema)

    async def _attempt(
        self, wire: Wire, request: ModelRequest, dialect: Dialect, on_text: Callable[[str], None]
    ) -> Reply:
        reader = wire.reader(request, on_text, self._http.failures)
        async with aclosing(self._http.frames(wire.path, wire.body(request, dialect))) as frames:
            async for frame in frames:
                if reader.feed(frame):
                    break
        return reader.reply()

    def _other_meant(self, wire: Wire, error: Refusal) -> Wire | None:
        """Return the other protocol if a refusal points to it, or shows that the endpoint does not have this one."""
        other = self._others.get(wire.path)
        if other is None or not (error.kind in {"InvalidRequest", "ModelNotFound"} or error.status in _NO_ROUTE):
            return None
        text = _DOCUMENTS.sub("", error.error.message)
        is_named = re.search(wire.name_pattern, text, re.IGNORECASE) is not None
        is_missing = error.status in _NO_ROUTE and re.search(r"\b(?:model|deployment)", text) is None
        may_be_missing = wire.may_be_missing and wire.path not in self._used
        is_meant = re.search(other.name_pattern, text, re.IGNORECASE) or (may_be_missing and (is_named or is_missing))
        return other if is_meant else None

    def _remember(self, key: tuple[str, str], dialect: Dialect) -> None:
        """Keep what holds for every conversation with a model."""
        if len(self._dialects) >= _MAX_MODELS:
            self._dialects.clear()
        self._dialects[key] = dialect

    def _remember_wire(self, model: str, wire: Wire) -> None:
        if len(self._wires) >= _MAX_MODELS:
            self._wires.clear()
        self._wires[model] = wire
