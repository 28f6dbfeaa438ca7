"""Whole runs with Bedrock and Gemini over the extra `providers`: parallel tools, broken replies, signatures."""

import json
from typing import Any

import pytest
from temporalio.client import Client

from orga.activities.adapters.models.registry import ModelRegistry
from orga.testing import FakeTool
from tests.support.model.cloud_server import (
    BEDROCK_HEADERS,
    GEMINI_HEADERS,
    Scripted,
    bedrock,
    bedrock_events,
    call_block,
    cloud_server,
    gemini,
    gemini_chunk,
    text_block,
    thought_block,
)
from tests.support.model.named import Named
from tests.support.runs.loop import a_loop
from tests.support.runs.notified import history_bytes

MODELS = {"bedrock": "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "gemini": "gemini-3-pro-preview"}
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "AKIATEST",
    "AWS_SECRET_ACCESS_KEY": "a-secret-that-nobody-may-read",
    "AWS_REGION": "eu-west-1",
    "GEMINI_API_KEY": "a-key-that-nobody-may-read",
}


def city_part(city: str) -> dict[str, Any]:
    return {"functionCall": {"id": city, "name": "get_weather", "args": {"city": city}}}


def answers(provider: str) -> list[Scripted]:
    """Return a reply that breaks off, one with two calls, and the answer."""
    if provider == "bedrock":
        calls = [call_block(city, "get_weather", json.dumps({"city": city})) for city in ("Oslo", "Rome")]
        return [
            Scripted(bedrock_events(text_block("Let"))[:2], headers=BEDROCK_HEADERS, cut=True),
            bedrock(thought_block("hm", "c2ln"), *calls, stop="tool_use"),
            bedrock(text_block("Rome ", "is warmer.")),
        ]
    return [
        Scripted([gemini_chunk({"text": "Let"})], headers=GEMINI_HEADERS, cut=True),
        gemini(gemini_chunk(city_part("Oslo") | {"thoughtSignature": "c2ln"}, city_part("Rome"), finish="STOP")),
        gemini(gemini_chunk({"text": "Rome "}), gemini_chunk({"text": "is warmer."}, finish="STOP")),
    ]


@pytest.mark.parametrize("provider", MODELS)
async def test_a_run_survives_a_broken_reply_and_calls_tools_in_parallel(client: Client, provider: str) -> None:
    weather = FakeTool("get_weather", lambda arguments, context: f"sunny in {arguments['city']}")
    async with cloud_server(*answers(provider)) as served:
        registry = ModelRegistry(ENVIRONMENT, {provider: served.url})
        model = Named(*registry.resolve(f"{provider}:{MODELS[provider]}"))
        async with a_loop(client, model, weather) as loop:
            ran = await loop.run("compare the weather")
        await registry.close()
    assert (ran.result.output, ran.result.termination.reason) == ("Rome is warmer.", "completed")
    assert ran.result.tool_calls.run == 2
    assert len(served.bodies) == 3
    sent = json.dumps(served.bodies[2])
    assert "sunny in Oslo" in sent
    assert "sunny in Rome" in sent
    assert "c2ln" in sent
    kept = history_bytes(ran)
    assert b"c2ln" in kept
    assert b"nobody-may-read" not in kept
    assert b"AKIATEST" not in kept
