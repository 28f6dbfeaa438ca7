"""The HTTP client of a model provider. It yields a streamed answer as JSON objects, and raises `ModelError`."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from orga.activities.adapters import http
from orga.activities.adapters.http import ACCEPTED_ENCODINGS, decompressed_chunks
from orga.activities.adapters.models.errors import ProviderFailures
from orga.workflows.types import telemetry_names as names
from orga.workflows.types.json_text import as_object, as_objects, as_text, parsed_object, refuse_constant
from orga.workflows.types.models.endpoints import DEFAULT_ENDPOINT, EndpointSettings
from orga.workflows.types.models.providers import Api
from orga.workflows.types.text import clean_json


@dataclass(frozen=True)
class ProviderEndpoint:
    provider: str
    base_url: str
    """The address without a trailing slash. It may have a query."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    secret: str = field(default="", repr=False)
    """The key that `headers` contain, so that error texts can hide it."""
    settings: EndpointSettings = field(default=DEFAULT_ENDPOINT, repr=False)
    kind: str = ""
    """The provider whose protocol additions and prices apply. It differs from `provider` if an endpoint of the
    configuration leads to a known provider."""
    api: Api = "chat"

    def url(self, path: str) -> str:
        """Return the address with the protocol's path, before the query."""
        address, mark, query = self.base_url.partition("?")
        return f"{address}{path}{mark}{query}"


_DEFAULT_PORTS = {"https": 443, "http": 80}


def trace_headers(url: str) -> dict[str, str]:
    """Record the server in the current span, and return headers that continue the trace. Without telemetry, do nothing.

    Only the ids of trace and span are sent. Baggage is not meant for a model provider.
    """
    span = get_current_span()
    if not span.is_recording():
        return {}
    parts = urlsplit(url)
    span.set_attribute(names.SERVER_ADDRESS, parts.hostname or "")
    span.set_attribute(names.SERVER_PORT, parts.port or _DEFAULT_PORTS.get(parts.scheme, 0))
    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers


MAX_EVENT_BYTES = 8_000_000
MAX_STREAM_BYTES = 64_000_000
"""A stream has about 200 bytes for each token, so both limits are far above any reply that is kept."""

MAX_SILENT_LINES = 1_000_000
"""Lines without data, such as blank ones and comments. An endless stream of them would keep a processor busy."""


_BOM = b"\xef\xbb\xbf"


class SseTooLarge(Exception):
    """A line, an event or the stream is larger than a model's reply can be."""


class SseDecoder:
    """Turns chunks of an event stream into the data of its events. It ignores `event`, `id` and comments.

    Whole lines are decoded, so a character that is split between chunks stays one character.
    """

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._event_bytes = 0
        self._stream_bytes = 0
        self._silent_lines = 0
        self._after_cr = False  # true after a chunk that ends with "\r", because "\n" may begin the next chunk

    def feed(self, chunk: bytes) -> list[str]:
        """Return the data of the events that `chunk` completes. Raise SseTooLarge if a limit is exceeded."""
        self._stream_bytes += len(chunk)
        if self._stream_bytes > MAX_STREAM_BYTES:
            raise SseTooLarge(f"more than {MAX_STREAM_BYTES} bytes")
        *ended, rest = self._lines(chunk)
        events: list[str] = []
        for line in ended:
            self._line += line
            events.extend(self._end_of_line())
        self._line += rest
        if self._silent_lines > MAX_SILENT_LINES:
            raise SseTooLarge(f"more than {MAX_SILENT_LINES} lines without data")
        if len(self._line) + self._event_bytes > MAX_EVENT_BYTES:
            raise SseTooLarge(f"an event of more than {MAX_EVENT_BYTES} bytes")
        return events

    def finish(self) -> list[str]:
        """Return the last event of a server that did not send the closing blank line."""
        return [*self._end_of_line(), *self._dispatch()] if self._line else self._dispatch()

    def _lines(self, chunk: bytes) -> list[bytes]:
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        self._after_cr = self._after_cr or chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")

    def _end_of_line(self) -> list[str]:
        line = bytes(self._line).removeprefix(_BOM)
        self._line.clear()
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            self._event_bytes += len(value) + 1
            return []
        self._silent_lines += 1
        return [] if line else self._dispatch()

    def _dispatch(self) -> list[str]:
        data, self._data = self._data, []
        self._event_bytes = 0
        return [b"\n".join(data).decode(errors="replace")] if data else []


END_FRAME: Final[dict[str, Any]] = {"type": "end"}
"""The frame for `[DONE]`, and for the end of a reply that is one JSON document."""

_LAST_EVENT_TYPES = frozenset({"message_stop", "response.completed", "response.incomplete", "response.failed"})
"""Types of a protocol's last frame."""

_MAX_ERROR_BYTES = 64_000
_DRAIN_S = 0.2
"""Seconds that a server has to end its answer after the last event."""


class ProviderHttp:
    """The pooled client of one provider."""

    def __init__(self, endpoint: ProviderEndpoint, transport: http.AsyncBaseTransport | None = None) -> None:
        self.failures = ProviderFailures(endpoint.provider, endpoint.secret, endpoint.base_url)
        self._endpoint = endpoint
        headers = {"accept-encoding": ACCEPTED_ENCODINGS} | dict(endpoint.headers)
        self._client = http.http_client(endpoint.base_url, headers=headers, transport=transport)

    async def close(self) -> None:
        await self._client.aclose()

    async def frames(
        self, path: str, body: dict[str, Any], silence_s: float | None = None
    ) -> AsyncGenerator[dict[str, Any]]:
        """Send `body` and yield each JSON frame of the answer, including the one that marks its end.

        The caller has to close the generator (`aclosing`), so that the connection closes even before the reply's end.
        The answer fails if the server sends nothing, not even a comment, for `silence_s`. None: the endpoint's setting.
        """
        settings = self._endpoint.settings
        sent = clean_json(merged_fields(settings.extra_body, body))
        timeout = http.silence_timeout(settings.silence_s if silence_s is None else silence_s)
        headers = trace_headers(self._endpoint.base_url)
        async with self._answer("POST", self._endpoint.url(path), sent, headers=headers, timeout=timeout) as response:
            if not response.is_success:
                raise await self._read_refusal(response)
            with self._as_model_errors(reading=True):
                async with aclosing(_event_data(response)) as events:
                    async for data in events:
                        for frame in self._frames_in(data):
                            yield frame
                            if frame is END_FRAME or as_text(frame.get("type")) in _LAST_EVENT_TYPES:
                                await _drain(events)
                                return

    async def check_reachable(self, path: str) -> None:
        """Send a free request. Raise ModelError if the server is silent, answers with a 5xx or refuses the key."""
        async with self._answer("GET", self._endpoint.url(path)) as response:
            if response.status_code in {401, 403} or response.status_code >= 500:
                raise await self._read_refusal(response)

    async def read_object(
        self, url: str, body: dict[str, Any] | None = None, *, limit: int = MAX_EVENT_BYTES
    ) -> dict[str, Any]:
        """Get an address, or post `body` to it. Return the JSON object of the answer, or an empty one if there is none.

        Raise ModelError if the server does not answer, refuses, or answers with more than `limit` bytes.
        """
        async with self._answer("GET" if body is None else "POST", url, body) as response:
            if not response.is_success:
                raise await self._read_refusal(response)
            with self._as_model_errors(reading=True):
                async with aclosing(decompressed_chunks(response)) as chunks:
                    data = await _read_rest(chunks, limit)
        return parsed_object(data)

    @asynccontextmanager
    async def _answer(
        self, method: str, url: str, body: dict[str, Any] | None = None, **options: Any
    ) -> AsyncGenerator[http.Response]:
        with self._as_model_errors(reading=False):
            request = self._client.build_request(method, url, json=body, **options)
            response = await self._client.send(request, stream=True)
        try:
            yield response
        finally:
            await response.aclose()

    async def _read_refusal(self, response: http.Response) -> Exception:
        with self._as_model_errors(reading=True):
            try:
                async with aclosing(decompressed_chunks(response)) as chunks:
                    text = (await _read_rest(chunks, _MAX_ERROR_BYTES, cut=True)).decode(errors="replace")
            except http.HTTPError:  # the status is enough
                text = ""
        return self.failures.from_response(response.status_code, response.headers, text or response.reason_phrase)

    def _frames_in(self, data: str) -> list[dict[str, Any]]:
        """Return the objects of one event. Empty events, `null` and other single values are keep-alives."""
        text = data.strip()
        if text == "[DONE]":
            return [END_FRAME]
        if not text:
            return []
        try:
            value: object = json.loads(text, parse_constant=refuse_constant)
        except (ValueError, RecursionError):
            raise self.failures.bad_stream(f"not JSON: {text[:80]!r}") from None
        return [frame for frame in as_objects(value) or [as_object(value)] if frame]

    @contextmanager
    def _as_model_errors(self, *, reading: bool) -> Generator[None]:
        try:
            yield
        except SseTooLarge as error:
            raise self.failures.too_large(str(error)) from error
        except (http.HTTPError, http.InvalidURL) as error:
            raise self.failures.from_transport(error, reading=reading) from error


def merged_fields(extra: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """Return the body with extra fields. A field that the body has itself stays, at any depth."""
    shared = [name for name in extra.keys() & body.keys() if as_object(extra[name]) and as_object(body[name])]
    return extra | body | {name: merged_fields(as_object(extra[name]), as_object(body[name])) for name in shared}


_MAX_START_BYTES = 16_384
"""Bytes. An answer that begins with more white space is read as an event stream, which limits empty lines."""


async def _event_data(response: http.Response) -> AsyncGenerator[str]:
    """Yield the data of each event. An answer that does not stream yields its whole body and then `[DONE]`.

    The first character decides which it is, because servers send both with any content type or none.
    """
    async with aclosing(decompressed_chunks(response)) as chunks:
        start = bytearray()
        async for chunk in chunks:
            start += chunk
            if len(start) > _MAX_START_BYTES or (len(start) > len(_BOM) and start.removeprefix(_BOM).strip()):
                break
        if start.removeprefix(_BOM).lstrip().startswith((b"{", b"[")):
            yield (await _read_rest(chunks, MAX_EVENT_BYTES, bytes(start))).decode("utf-8-sig", errors="replace")
            yield "[DONE]"
            return
        decoder = SseDecoder()
        for data in decoder.feed(bytes(start)):
            yield data
        async for chunk in chunks:
            for data in decoder.feed(chunk):
                yield data
    for data in decoder.finish():
        yield data


async def _read_rest(chunks: AsyncIterator[bytes], limit: int, start: bytes = b"", *, cut: bool = False) -> bytes:
    body = bytearray(start)
    while len(body) <= limit and (chunk := await anext(chunks, None)) is not None:
        body += chunk
    if len(body) > limit and not cut:
        raise SseTooLarge(f"more than {limit:,} bytes")
    return bytes(body[:limit])


async def _drain(events: AsyncIterator[str]) -> None:
    """Read an answer to its end after the last event, so that its connection can be used again.

    If the server keeps it open, the connection is closed after a moment.
    """
    try:
        async with asyncio.timeout(_DRAIN_S):
            async for _ in events:
                pass
    except (TimeoutError, http.HTTPError, SseTooLarge):
        return
