"""The `[PRE_HYDRATED_CONTEXT]` block reaches every provider's request, and the offline reader quotes from it."""

import asyncio
import json
from typing import Any

import pytest

from orga.activities.adapters.offline.reader import ExtractiveProvider
from orga.activities.ports import ModelRequest
from orga.workflows.decisions.hydration import Reference, Resolved, context_block
from orga.workflows.types.messages import Message
from orga.workflows.types.recall import LOOKUPS_HEADER
from tests.support.model.providers import (
    a_request,
    complete_request,
    text_response,
)

PAGE = "Honey\nBees make honey from nectar in summer.\nThe end"
FILE = "./hive.md (lines 1-2 of 2)\n1\t# Hive\n2\tThe hive has forty drones."


def a_source(kind: str, value: str, tool: str, content: str) -> Resolved:
    return Resolved(reference=Reference(ref_type=kind, value=value), status="resolved", tool=tool, content=content)


BLOCK = context_block(
    [
        a_source("url", "https://bees.test/honey", "fetch_url", f"Content of https://bees.test/honey\n{PAGE}"),
        a_source("file", "./hive.md", "read_file", FILE),
        Resolved(reference=Reference(ref_type="issue", value="#1"), status="failed", content="drones drones"),
    ]
)


def conversation(task: str) -> tuple[Message, ...]:
    return (Message.of("user", task, pinned=True), Message.of("user", BLOCK, pinned=True))


@pytest.mark.parametrize("kind", ["anthropic", "openai", "openrouter", "ollama"])
async def test_every_provider_gets_the_block_as_a_user_message(kind: str) -> None:
    """As system text, a page could pass for an instruction."""
    request = a_request(messages=conversation("What do bees make?"), system=("Be kind.",))
    _, _, network = await complete_request(kind, text_response(kind), request=request)

    body: dict[str, Any] = network.body()
    carriers = [message["role"] for message in body["messages"] if LOOKUPS_HEADER in json.dumps(message)]
    assert carriers == ["user"]
    assert "forty drones" in json.dumps(body["messages"])
    assert LOOKUPS_HEADER not in json.dumps(body.get("system", ""))


@pytest.mark.parametrize(
    ("task", "source"),
    [
        pytest.param("What do bees make from nectar in summer?", "https://bees.test/honey:1-3", id="a page"),
        pytest.param("How many drones does the hive have?", "hive.md:2", id="a file"),
    ],
)
def test_the_offline_reader_answers_from_the_block(task: str, source: str) -> None:
    request = ModelRequest(model="extractive", messages=conversation(task))
    reply = asyncio.run(ExtractiveProvider().complete(request, lambda text: None))
    assert f"`{source}`" in reply.text
