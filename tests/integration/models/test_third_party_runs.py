"""Whole runs with models of a third-party server: parallel tools, streaming, and every kind of failure."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from orga.activities.adapters.models.registry import ModelRegistry
from orga.testing import FakeTool
from tests.integration.models.test_third_party_models import calls_and_results
from tests.support.model.limiter import limited_once
from tests.support.model.named import Named
from tests.support.parts.aimock import Aimock, running_aimock
from tests.support.runs.loop import Ran, a_loop

PROTOCOLS = ("openai", "anthropic")
CITIES = [
    {"name": "get_weather", "arguments": {"city": "Oslo"}, "id": "call_oslo"},
    {"name": "get_weather", "arguments": {"city": "Rome"}, "id": "call_rome"},
]
FAILURES: dict[str, dict[str, Any]] = {
    "500": {"response": {"error": {"message": "oops", "type": "server_error"}, "status": 500}},
    "529": {"response": {"error": {"message": "busy", "type": "overloaded_error"}, "status": 529}},
    "cut stream": {"response": {"content": "a long text"}, "chunkSize": 4, "truncateAfterChunks": 2},
    "malformed": {"response": {"content": "x"}, "chaos": {"malformedRate": 1}},
    "hang-up": {"response": {"content": "x"}, "chaos": {"disconnectRate": 1}},
}


def fixtures() -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for name, failure in FAILURES.items():
        made.append(failure | {"match": {"userMessage": f"survive a {name}", "sequenceIndex": 0}})
        answer = {"match": {"userMessage": f"survive a {name}", "sequenceIndex": 1}}
        made.append(answer | {"response": {"content": "survived"}})
    compare = "compare the weather"
    made += [
        {
            "match": {"userMessage": compare, "hasToolResult": False},
            "response": {"content": "Let me look.", "toolCalls": CITIES},
        },
        {"match": {"userMessage": compare, "hasToolResult": True}, "response": {"content": "Rome is warmer."}},
        {"match": {"userMessage": "wait and answer"}, "response": {"content": "waited"}},
        {
            "match": {"userMessage": "forbidden"},
            "response": {"error": {"message": "no access", "type": "permission_error"}, "status": 403},
        },
    ]
    return made


@pytest.fixture
def server() -> Iterator[Aimock]:
    with running_aimock(fixtures()) as aimock:
        yield aimock


@asynccontextmanager
async def a_model(protocol: str, url: str) -> AsyncGenerator[Named]:
    env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"{url}/v1", "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": url}
    registry = ModelRegistry(env)
    yield Named(*registry.resolve(f"{protocol}:gpt-or-claude"))
    await registry.close()


def attempts(ran: Ran) -> int:
    """Return the number of attempts of the first model call."""
    starts = [e for e in ran.history.events if e.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED]
    return starts[1].activity_task_started_event_attributes.attempt


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_parallel_tool_calls(client: Client, server: Aimock, protocol: str) -> None:
    weather = FakeTool("get_weather", lambda arguments, context: f"sunny in {arguments['city']}")
    async with a_model(protocol, server.url) as model, a_loop(client, model, weather) as loop:
        ran = await loop.run("compare the weather")

    assert (ran.result.output, ran.result.iterations) == ("Rome is warmer.", 2)
    assert ran.result.tool_calls.run == 2
    requests = await server.requests("gpt-or-claude")
    for body in requests:
        calls, answered = calls_and_results(body)
        assert calls == answered
    assert calls_and_results(requests[-1])[0] == ["call_oslo", "call_rome"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("failure", FAILURES)
async def test_a_transient_failure_is_retried(client: Client, server: Aimock, protocol: str, failure: str) -> None:
    async with a_model(protocol, server.url) as model, a_loop(client, model) as loop:
        ran = await loop.run(f"survive a {failure}")

    assert (ran.result.output, ran.result.termination.reason) == ("survived", "completed")
    assert attempts(ran) == 2


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param(lambda: {"retry-after": "1"}, id="seconds"),
        pytest.param(lambda: {"retry-after-ms": "1200"}, id="milliseconds"),
        pytest.param(
            lambda: {"retry-after": format_datetime(datetime.now(UTC) + timedelta(seconds=3), usegmt=True)},
            id="HTTP date",
        ),
        pytest.param(lambda: {"x-ratelimit-reset-requests": "1s"}, id="rate-limit reset"),
        pytest.param(
            lambda: {"anthropic-ratelimit-requests-reset": (datetime.now(UTC) + timedelta(seconds=2)).isoformat()},
            id="RFC 3339 reset",
        ),
    ],
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_429_is_retried_after_the_requested_delay(
    client: Client, server: Aimock, protocol: str, headers: Any
) -> None:
    async with (
        limited_once(server.url, headers) as url,
        a_model(protocol, url) as model,
        a_loop(client, model) as loop,
    ):
        ran = await loop.run("wait and answer")

    assert ran.result.output == "waited"
    assert attempts(ran) == 2
    assert ran.result.duration_s > 0.9


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_permanent_failure_ends_the_run_with_the_message_of_the_provider(
    client: Client, server: Aimock, protocol: str
) -> None:
    async with a_model(protocol, server.url) as model, a_loop(client, model) as loop:
        ran = await loop.run("forbidden")

    assert ran.result.termination.reason == "error"
    assert "no access" in ran.result.termination.detail
    assert len(await server.requests("gpt-or-claude")) == 1
