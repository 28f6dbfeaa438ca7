"""One streamed POST to a provider: its frames as JSON objects, its failures as ModelErrors."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any, Final

from orga.activities.adapters import http
from orga.activities.adapters.decompressed import ACCEPTED_ENCODINGS, decompressed
from orga.activities.adapters.models.endpoint import Endpoint
from orga.activities.adapters.models.failures import Failures
from orga.activities.adapters.models.json_shape import as_object
from orga.activities.adapters.models.request_trace import request_trace
from orga.activities.adapters.models.sse import MAX_EVENT_BYTES, SseDecoder, SseTooLarge
from orga.workflows.types.text import clean_json

END: Final[dict[str, Any]] = {"type": "end"}
"""The frame that stands for `[DONE]`, and for the end of a reply that came as one JSON document."""

_MAX_ERROR_BYTES = 64_000
_DRAIN_S = 0.2


class StreamHttp:
    """The pooled client of one provider."""

    def __init__(self, endpoint: Endpoint, transport: http.AsyncBaseTransport | None = None) -> None:
        self.failures = Failures(endpoint.provider, endpoint.secret)
        self._base_url = endpoint.base_url
        headers = {"accept-encoding": ACCEPTED_ENCODINGS} | dict(endpoint.headers)
        self._client = http.http_client(endpoint.base_url, headers=headers, transport=transport)

    async def close(self) -> None:
        """Close every connection."""
        await self._client.aclose()

    async def frames(self, path: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Send `body` and yield each JSON frame of the answer, up to and with the one that marks its end.

        To be closed by the caller (`aclosing`), which closes the connection when the reply isn't read to its end.

        Raises:
            ModelError: For every failure of the provider and of the connection.
        """
        async with self._open(path, body) as response:
            with self._named(reading=True):
                if _is_json(response):
                    yield self._parsed((await _body(response, MAX_EVENT_BYTES)).decode(errors="replace"))
                    yield END
                    return
                async with aclosing(_events(response)) as events:
                    async for data in events:
                        frame = END if data.strip() == "[DONE]" else self._parsed(data)
                        yield frame
                        if frame is END or frame.get("type") == "message_stop":
                            await _drain(events)
                            return

    async def look(self, path: str) -> None:
        """Ask for something that costs nothing.

        Raises:
            ModelError: Nobody answers, or the key is refused. Any other answer is one.
        """
        with self._named(reading=False):
            request = self._client.build_request("GET", self._base_url + path)
            response = await self._client.send(request, stream=True)
        try:
            if response.status_code in {401, 403} or response.status_code >= 500:
                raise await self._read_refusal(response)
        finally:
            await response.aclose()

    @asynccontextmanager
    async def _open(self, path: str, body: dict[str, Any]) -> AsyncGenerator[http.Response]:
        with self._named(reading=False):
            request = self._client.build_request(
                "POST", self._base_url + path, json=clean_json(body), headers=request_trace(self._base_url)
            )
            response = await self._client.send(request, stream=True)
        try:
            if not response.is_success:
                raise await self._read_refusal(response)
            yield response
        finally:
            await response.aclose()

    async def _read_refusal(self, response: http.Response) -> Exception:
        with self._named(reading=True):
            try:
                text = (await _body(response, _MAX_ERROR_BYTES, cut=True)).decode(errors="replace")
            except http.HTTPError:  # the status says enough
                text = ""
        return self.failures.answered(response.status_code, response.headers, text or response.reason_phrase)

    def _parsed(self, data: str) -> dict[str, Any]:
        try:
            frame = as_object(json.loads(data, parse_constant=_no_constant))
        except (ValueError, RecursionError):
            frame = {}
        if not frame:
            raise self.failures.bad_stream(f"not a JSON object: {data[:80]!r}")
        return frame

    @contextmanager
    def _named(self, *, reading: bool) -> Generator[None]:
        try:
            yield
        except SseTooLarge as error:
            raise self.failures.too_large(str(error)) from error
        except (http.HTTPError, http.InvalidURL) as error:
            raise self.failures.transport(error, reading=reading) from error


def _is_json(response: http.Response) -> bool:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


async def _events(response: http.Response) -> AsyncGenerator[str]:
    decoder = SseDecoder()
    async with aclosing(decompressed(response)) as chunks:
        async for chunk in chunks:
            for data in decoder.feed(chunk):
                yield data
    for data in decoder.finish():
        yield data


async def _body(response: http.Response, limit: int, *, cut: bool = False) -> bytes:
    body = bytearray()
    async with aclosing(decompressed(response)) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > limit:
                if cut:
                    break
                raise SseTooLarge(f"more than {limit} bytes")
    return bytes(body[:limit])


async def _drain(events: AsyncIterator[str]) -> None:
    """Read to the end of an answer whose last event is in, so that its connection can be used again.

    A server that keeps it open costs a moment, then the connection.
    """
    try:
        async with asyncio.timeout(_DRAIN_S):
            async for _ in events:
                pass
    except (TimeoutError, http.HTTPError, SseTooLarge):
        return
