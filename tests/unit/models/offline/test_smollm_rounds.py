"""The small local model is stopped when it makes no progress."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from orga.activities.adapters.offline import local_model as engine
from orga.activities.adapters.offline.local_model import (
    ANSWER_MARK,
    MAX_CALLS,
    STOPPED_MARK,
    LocalProvider,
    is_stuck,
    next_call_id,
)
from orga.activities.ports import ModelRequest
from orga.workflows.types.messages import Message, Reply, ToolCall
from orga.workflows.types.tool_calls.tools import ToolSpec

TASK = Message.of("user", "What did the printer cost?", pinned=True)
READ = ToolSpec(name="read_file", parameters={"properties": {"path": {"type": "string"}}, "required": ["path"]})
SAID = '{"action": "call_tool", "tool": "read_file", "arguments": {"path": "a.md"}}'
"""The output of the looping model under a schema of actions, whatever its prompt."""


def turn(number: int, path: str, result: str, *, is_error: bool = False) -> list[Message]:
    call = ToolCall(call_id=f"local-{number}", name="read_file", arguments={"path": path})
    return [
        Message.of("assistant", calls=(call,)),
        Message.of_result(call_id=call.call_id, tool="read_file", text=result, is_error=is_error),
    ]


def conversation(*turns: tuple[str, str]) -> list[Message]:
    return [TASK, *(message for n, (path, result) in enumerate(turns, 1) for message in turn(n, path, result))]


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        pytest.param([], False, id="nothing called"),
        pytest.param([("a.md", "one"), ("b.md", "two"), ("c.md", "three")], False, id="each turn has a new result"),
        pytest.param([("a.md", "one"), ("a.md", "one")], False, id="one repetition is no loop"),
        pytest.param([("a.md", "one"), ("a.md", "one"), ("a.md", "one")], True, id="the same call"),
        pytest.param([("a.md", "one"), (" ./A.md ", "one"), ("a.MD", "one")], True, id="spaces and case"),
        pytest.param([("a.md", "one"), ("b.md", "two"), ("a.md", "one"), ("b.md", "two")], True, id="to and fro"),
        pytest.param([("a.md", "x"), ("b.md", "x"), ("c.md", "x")], True, id="other calls, the same text"),
        pytest.param([("a", "[Error] none"), ("b", "[Error] no b")], True, id="nothing but failures"),
        pytest.param([("a", "[Step limit] a"), ("a", "[Step limit] a")], True, id="calls that the tracker stopped"),
        pytest.param(
            [("a", "1"), ("a", "1"), ("b", "2"), ("b", "2"), ("c", "3"), ("c", "3")],
            True,
            id="every second call is a repetition",
        ),
        pytest.param([(f"{n}.md", f"text {n}") for n in range(MAX_CALLS)], True, id="too many different calls"),
    ],
)
def test_a_model_that_makes_no_progress_is_stuck(turns: list[tuple[str, str]], expected: bool) -> None:
    assert is_stuck(conversation(*turns)) is expected


def test_guidance_starts_a_new_task_and_feedback_does_not() -> None:
    looped = conversation(("a.md", "one"), ("a.md", "one"), ("a.md", "one"))
    feedback = Message.of("user", "[Reply not usable] Your reply was empty.")
    before, after = looped[:3], looped[3:]

    assert is_stuck([*before, feedback, *after])
    assert not is_stuck([*looped, Message.of("user", "[Guidance from the operator] Read b.md.")])


def test_call_ids_stay_unique_after_older_messages_were_dropped() -> None:
    assert next_call_id([TASK]) == "local-1"
    assert next_call_id([TASK, *turn(7, "a.md", "one")]) == "local-8"


class Engine:
    """Repeats one call if calls are allowed, and answers in text if not."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []

    async def generate(self, body: dict[str, Any]) -> AsyncGenerator[engine.CompletionChunk, None]:
        self.bodies.append(body)
        text = SAID if "response_format" in body else "It cost much."
        yield {"choices": [{"delta": {"content": text}, "finish_reason": "stop"}]}


async def test_a_looping_model_must_answer_and_its_answer_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its turns takes half a minute, so fourteen useless turns would take several minutes."""
    parrot, messages, pieces = Engine(), [TASK], list[str]()
    monkeypatch.setattr(engine, "generate", parrot.generate)

    async def ask() -> Reply:
        request = ModelRequest(model="smollm2", messages=tuple(messages), tools=(READ,))
        return await LocalProvider().complete(request, pieces.append)

    while (reply := await ask()).calls and len(parrot.bodies) < MAX_CALLS:
        result = Message.of_result(call_id=reply.calls[0].call_id, tool="read_file", text="a text")
        messages += [reply.message(), result]

    assert (reply.text, reply.finish) == (f"It cost much.{ANSWER_MARK}{STOPPED_MARK}", "stop")
    assert "".join(pieces) == reply.text
    assert len(parrot.bodies) == 4
    assert "no tools any more" in parrot.bodies[-1]["messages"][0]["content"]


async def test_the_model_does_not_read_its_own_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    speaker = Engine()
    monkeypatch.setattr(engine, "generate", speaker.generate)
    answer = Message.of("assistant", f"It cost much.{ANSWER_MARK}")

    request = ModelRequest(model="smollm2", messages=(TASK, answer, Message.of("user", "How much?")))
    reply = await LocalProvider().complete(request, lambda piece: None)

    assert reply.text == f"It cost much.{ANSWER_MARK}"
    assert [message["content"] for message in speaker.bodies[0]["messages"]][2] == "It cost much."


@pytest.mark.parametrize(
    "request_of",
    [
        pytest.param({"output_schema": {"type": "string"}}, id="data"),
        pytest.param({"reply_schema": {"type": "object"}}, id="a turn of a goal"),
        pytest.param({"tool_choice": "none"}, id="a summary"),
    ],
)
async def test_a_reply_that_is_not_a_text_answer_has_no_mark(
    monkeypatch: pytest.MonkeyPatch, request_of: dict[str, Any]
) -> None:
    monkeypatch.setattr(engine, "generate", Engine().generate)

    reply = await LocalProvider().complete(
        ModelRequest(model="smollm2", messages=(TASK,), **request_of), lambda piece: None
    )

    assert ANSWER_MARK not in reply.text
