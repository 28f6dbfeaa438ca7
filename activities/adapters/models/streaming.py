"""A model provider over HTTP: one streamed request a call, no retries but those that learn the model's dialect."""

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace

from orga.activities.adapters import http
from orga.activities.adapters.models.dialect import MAX_LESSONS, Dialect, learned
from orga.activities.adapters.models.endpoint import Endpoint
from orga.activities.adapters.models.final_answer import shaped, taken
from orga.activities.adapters.models.stream_http import StreamHttp
from orga.activities.adapters.models.thinking_memory import ThinkingMemory
from orga.activities.adapters.models.wire import Wire
from orga.activities.ports import ModelError, ModelRequest
from orga.workflows.types.messages import Reply

_MAX_MODELS = 256


class StreamingProvider:
    """A `ModelProvider` for one endpoint and its protocol."""

    def __init__(self, endpoint: Endpoint, wire: Wire, transport: http.AsyncBaseTransport | None = None) -> None:
        self._wire = wire
        self._http = StreamHttp(endpoint, transport)
        self._dialects: dict[str, Dialect] = {}
        self._thinking = ThinkingMemory()

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the reply, each piece of its text given to `on_text` as it comes in.

        A 400 that says which part the model doesn't take (temperature, the name of the output limit) is answered
        by a request without it, and remembered. Nothing was generated before it, so nothing is paid twice.
        """
        dialect = self._dialects.get(request.model) or self._wire.dialect(request.model)
        fitting = self._thinking.fitting(request)
        for _ in range(MAX_LESSONS):
            sent = shaped(fitting, dialect)
            try:
                reply = await self._attempt(sent, dialect, on_text)
            except ModelError as error:
                lesson = learned(dialect, sent, str(error)) if error.kind == "InvalidRequest" else None
                if lesson is None:
                    raise
                is_for_good = lesson.thinking or self._thinking.is_hopeless(request, fitting)
                if not lesson.thinking:
                    self._thinking.note_refused(fitting)
                dialect = lesson
                self._remember(request.model, lesson if is_for_good else replace(lesson, thinking=True))
            else:
                if dialect.thinking:
                    self._thinking.note_taken(fitting)
                return _received(request, reply)
        return _received(request, await self._attempt(shaped(fitting, dialect), dialect, on_text))

    async def look(self) -> None:
        """Look whether the provider answers and takes the key; nothing is generated.

        Raises:
            ModelError: It does not.
        """
        await self._http.look("/models")

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def _attempt(self, request: ModelRequest, dialect: Dialect, on_text: Callable[[str], None]) -> Reply:
        reader = self._wire.reader(request, on_text, self._http.failures)
        async with aclosing(self._http.frames(self._wire.path, self._wire.body(request, dialect))) as frames:
            async for frame in frames:
                if reader.feed(frame):
                    break
        return reader.reply()

    def _remember(self, model: str, dialect: Dialect) -> None:
        """Keep what holds for every conversation with `model`."""
        if len(self._dialects) >= _MAX_MODELS:
            self._dialects.clear()
        self._dialects[model] = dialect


def _received(request: ModelRequest, reply: Reply) -> Reply:
    return reply if request.output_schema is None else taken(reply, request.output_schema)
