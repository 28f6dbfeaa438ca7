"""The clients for AWS and Google that pydantic-ai uses. Importing them takes long, so a thread does it.

Their requests follow the rules of our own clients: nothing is repeated, a silent server is given up, and cancellation
closes the connection.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from itertools import count
from typing import Any, TypeVar, cast

import boto3
import httpx2
from anyio.to_thread import current_default_thread_limiter
from botocore import UNSIGNED
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from pydantic_ai.providers.bedrock import BedrockProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.google_cloud import GoogleCloudProvider

from orga.activities.adapters import http
from orga.activities.adapters.models.http import ProviderEndpoint
from orga.workflows.types.models.providers import PROVIDERS

T = TypeVar("T")

_MIN_THREADS = 1_000
"""The worker's limit of simultaneous calls is lower. With the usual 40 threads, all further calls would wait."""

_AWS_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


def bedrock_client(endpoint: ProviderEndpoint) -> http.AsyncClient:
    headers = {"accept-encoding": "identity"}  # boto3 decodes nothing
    headers |= {"authorization": f"Bearer {endpoint.secret}"} if endpoint.secret else {}
    return http.http_client(endpoint.base_url, headers=headers)


def bedrock_provider(endpoint: ProviderEndpoint, env: Mapping[str, str]) -> BedrockProvider:
    """Return the provider with a client that repeats nothing and sends its requests over the current exchange."""
    keys = {name: env.get(name.upper(), "").strip() or None for name in _AWS_KEYS}
    region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "us-east-1"
    session: Any = boto3.Session(region_name=region, profile_name=env.get("AWS_PROFILE") or None, **keys)
    signed: dict[str, Any] = {"signature_version": UNSIGNED} if endpoint.secret else {}
    config = Config(retries={"total_max_attempts": 1}, **signed)
    client = session.client("bedrock-runtime", endpoint_url=endpoint.base_url, config=config)
    client.meta.events.register("before-send.bedrock-runtime.ConverseStream", _send)
    client.meta.events.register("after-call.bedrock-runtime.ConverseStream", _number_blocks)
    return BedrockProvider(bedrock_client=client)


def google_provider(
    endpoint: ProviderEndpoint, env: Mapping[str, str], client: httpx2.AsyncClient
) -> GoogleProvider | GoogleCloudProvider:
    usual = PROVIDERS[endpoint.provider].default_url
    base_url = None if endpoint.base_url == usual else endpoint.base_url
    if endpoint.provider == "gemini":
        return GoogleProvider(api_key=endpoint.secret, base_url=base_url, http_client=client)
    project = env.get("GOOGLE_CLOUD_PROJECT") or None
    has_credentials = project or env.get("GOOGLE_APPLICATION_CREDENTIALS") or not endpoint.secret
    return GoogleCloudProvider(
        api_key=None if has_credentials else endpoint.secret,
        project=project,
        location=(env.get("GOOGLE_CLOUD_LOCATION") or "global") if has_credentials else None,
        base_url=base_url,
        http_client=client,
    )


def google_client(base_url: str) -> httpx2.AsyncClient:
    """Return a client of httpx2 like that of `http.http_client`. The library would wait longer for a connection."""

    async def connect_fast(sent: httpx2.Request) -> None:
        sent.extensions["timeout"]["connect"] = http.CONNECT_S

    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(http.SILENCE_S, connect=http.CONNECT_S),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
        trust_env=not http.is_loopback(base_url),
        event_hooks={"request": [connect_fast]},
    )


class _Exchange:
    """Sends a request of boto3 over our own client, so that it can be cancelled and fails if the server is silent.

    boto3 blocks a thread, which cannot be cancelled. So the event loop runs each step as a task and keeps the response,
    and `aclose` ends both.
    """

    def __init__(self, client: http.AsyncClient, silence_s: float) -> None:
        self._client, self._timeout = client, http.silence_timeout(silence_s)
        self._loop = asyncio.get_running_loop()
        self._running: asyncio.Task[Any] | None = None
        self._response: http.Response | None = None
        self._is_closed = False

    def send(self, request: Any) -> AWSResponse:
        headers = {
            name: value.decode() if isinstance(value, bytes) else value for name, value in request.headers.items()
        }
        built = self._client.build_request(
            request.method, request.url, headers=headers, content=request.body, timeout=self._timeout
        )
        response = self._wait(self._opened(built))
        return AWSResponse(request.url, response.status_code, dict(response.headers), self)

    def stream(self, *sizes: int) -> Iterator[bytes]:
        """Yield the body. boto3 calls this."""
        chunks = cast("http.Response", self._response).aiter_raw()
        while (chunk := self._wait(_next_chunk(chunks))) is not None:
            yield chunk

    def close(self) -> None:
        """Do nothing, because `aclose` closes the response. boto3 calls this."""

    async def aclose(self) -> None:
        self._is_closed = True
        if self._running is not None:
            self._running.cancel()
        if self._response is not None:
            await self._response.aclose()

    async def _opened(self, request: http.Request) -> http.Response:
        self._response = await self._client.send(request, stream=True)
        return self._response

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(self._run(coroutine), self._loop).result()

    async def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._is_closed:
            coroutine.close()
            raise http.NetworkError("closed")
        self._running = asyncio.current_task()
        return await coroutine


async def _next_chunk(chunks: AsyncIterator[bytes]) -> bytes | None:
    return await anext(chunks, None)


_EXCHANGE: ContextVar[_Exchange | None] = ContextVar("_EXCHANGE", default=None)
"""The exchange of the current call. boto3 runs in a thread with a copy of the call's context."""


@asynccontextmanager
async def exchange(client: http.AsyncClient | httpx2.AsyncClient, silence_s: float) -> AsyncGenerator[None]:
    """Make boto3 send its next request over `client`. Google's client needs no such help."""
    threads = current_default_thread_limiter()  # boto3 needs a thread for each call that waits
    threads.total_tokens = max(threads.total_tokens, _MIN_THREADS)
    if not isinstance(client, http.AsyncClient):
        yield
        return
    current = _Exchange(client, silence_s)
    _EXCHANGE.set(current)
    try:
        yield
    finally:
        await current.aclose()


def _send(request: Any, **event: Any) -> AWSResponse | None:
    current = _EXCHANGE.get()
    return None if current is None else current.send(request)


def _number_blocks(parsed: dict[str, Any], **event: Any) -> None:
    if "stream" in parsed:
        parsed["stream"] = _NumberedBlocks(parsed["stream"])


class _NumberedBlocks:
    """The events of a reply, with a different number for each block. The library merges blocks with equal numbers."""

    def __init__(self, events: Any) -> None:
        self._events = events

    def __iter__(self) -> Iterator[dict[str, Any]]:
        numbers: dict[int, int] = {}
        free = count()
        for event in self._events:
            for kind in ("contentBlockStart", "contentBlockDelta", "contentBlockStop"):
                if (block := event.get(kind)) is not None:
                    index = block.get("contentBlockIndex", 0)
                    if kind == "contentBlockStart" or index not in numbers:
                        numbers[index] = next(free)
                    block["contentBlockIndex"] = numbers[index]
                    if kind == "contentBlockStop":
                        del numbers[index]
            yield event

    def close(self) -> None:
        self._events.close()
