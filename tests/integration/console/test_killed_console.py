"""The console is killed while it streams to front ends of other makers. They come back, and have everything once."""

import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from uuid import uuid4

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from tests.support.model.chat_server import Says
from tests.support.programs.orga_command import Running
from tests.support.scenarios.till import Till, a_till
from tests.support.web.agui import agui_client

PIECES = ["one ", "two ", "three"]


@pytest.fixture(scope="module")
def shared_till(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Till]:
    with a_till(tmp_path_factory) as found:
        yield found


@pytest.fixture
def till(shared_till: Till) -> Till:
    """Return a project whose model stops amid its reply."""
    shared_till.model.release.clear()
    shared_till.model.requests.clear()
    shared_till.model.replies = [Says(PIECES, hold=True)]
    return shared_till


class Console(NamedTuple):
    running: Running
    base: str
    port: str
    token: str


@contextmanager
def a_console(till: Till, port: str = "0") -> Generator[Console]:
    with till.orga.started("console", "--port", port, "--no-worker") as running:
        found = running.line(r"(http://127\.0\.0\.1:(\d+))/\?token=(\S+)")
        yield Console(running, *found.groups())


async def test_a_run_of_ag_ui_continues_under_its_id(till: Till) -> None:
    with a_console(till) as first:
        async with agui_client(f"{first.base}/agui/default", str(uuid4()), first.token) as client:
            killed = {"lose": "TEXT_MESSAGE_CONTENT", "kill": first.running.process.pid}
            lost = await client.run(say="Count", run="run-1", **killed)
            assert first.running.code() == -signal.SIGKILL
            till.model.release.set()
            with a_console(till, first.port):
                again = await client.run(run="run-1")
    assert lost.types[-1] == "TEXT_MESSAGE_CONTENT"
    assert again.types[-1] == "RUN_FINISHED"
    assert again.texts("assistant") == ["".join(PIECES)]
    assert len(till.model.requests) == 1


async def test_a_stream_of_responses_continues_after_its_last_event(till: Till) -> None:
    with a_console(till) as first:
        events = list[Any]()
        async with AsyncOpenAI(base_url=f"{first.base}/v1", api_key=first.token, max_retries=0) as sdk:
            stream = await sdk.responses.create(model="default", input="Count", stream=True)
            with suppress(httpx.HTTPError, openai.APIConnectionError):
                async for event in stream:
                    events.append(event)
                    if event.type == "response.output_text.delta":
                        first.running.send(signal.SIGKILL)
            assert first.running.code() == -signal.SIGKILL
            assert events[-1].type == "response.output_text.delta"
            till.model.release.set()
            with a_console(till, first.port):
                begun, last = events[0].response.id, events[-1].sequence_number
                rest = await sdk.responses.retrieve(begun, stream=True, starting_after=last)
                events += [event async for event in rest]
    numbers = [event.sequence_number for event in events]
    assert numbers == sorted(set(numbers))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "".join(PIECES)
    assert [event.type for event in events].count("response.created") == 1
    assert events[-1].type == "response.completed"
    assert len(till.model.requests) == 1
