"""No input blocks a worker. These schemas, globs, replies and results once kept it busy for minutes."""

import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from orga.activities.adapters import http
from orga.activities.adapters.models.errors import parse_error_body, retry_after_s
from orga.activities.adapters.models.http import SseDecoder, SseTooLarge
from orga.activities.adapters.models.kept_fields import block_part
from orga.activities.adapters.models.reply import MAX_OPEN_CALLS
from orga.activities.adapters.schemas.arguments import argument_errors, schema_problem
from orga.activities.ports import ModelError
from orga.activities.replies import normalised_reply
from orga.activities.text.characters import harmless_text
from orga.activities.text.hidden_markup import style_rules
from orga.activities.text.sanitize import sanitized_text
from orga.workflows.types.messages import Reply
from orga.workflows.types.parts import text_part
from orga.workflows.types.tool_calls.tools import matches_any_glob
from tests.support.model.providers import chunk, complete_request, stream_response
from tests.support.programs.standstill import LIMIT_S, growth, longest_pause
from tests.support.values.slow_inputs import HELD, ITSELF, TEXTS, chained, nested


@pytest.mark.parametrize(("schema", "value"), HELD.values(), ids=HELD.keys())
async def test_no_schema_blocks_the_loop(schema: dict[str, Any], value: Any) -> None:
    """The check ends with a refusal or an answer, and other tasks run meanwhile."""
    found: list[str] = []

    async def check() -> None:
        try:
            found.extend(await asyncio.to_thread(argument_errors, schema, value))
        except ValueError as error:
            found.append(str(error))

    assert await longest_pause(check()) < LIMIT_S
    assert found or "allOf" in schema["$defs"]["d0"], "no value here is valid"


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf"])
def test_a_schema_that_expands_too_much_is_refused_before_its_use(keyword: str) -> None:
    assert "50,000 parts" in schema_problem(chained(keyword, 30, {"type": "string"}))


def test_the_next_check_works_after_one_that_was_too_expensive() -> None:
    assert "cannot be checked" in argument_errors(ITSELF, nested(40))[0]
    assert argument_errors(ITSELF, {"x": {}})
    assert argument_errors({"pattern": "^a$"}, "a") == []
    assert argument_errors({"pattern": "^a$"}, "b") == ['$: "b" does not match "^a$"']


@pytest.mark.parametrize(
    ("glob", "name", "fits"),
    [
        pytest.param("*" * 60 + "Z", "a" * 64, False, id="sixty stars"),
        pytest.param("*a" * 60 + "Z", "a" * 200, False, id="stars and letters"),
        pytest.param("?*" * 60 + "Z", "a" * 200, False, id="stars and question marks"),
        pytest.param("*a*b", "xaxbxb", True, id="the last star matches more"),
        pytest.param("a*", "a", True, id="a star matches nothing"),
        pytest.param("?", "", False, id="a question mark needs a character"),
        pytest.param("read.file", "readxfile", False, id="a dot is a dot"),
        pytest.param("*", "a\nb", True, id="any character"),
    ],
)
def test_globs(glob: str, name: str, fits: bool) -> None:
    assert matches_any_glob(name, [glob]) is fits


LINEAR = 20
"""For eight times as much text: far from 8, which is linear, and from 64, which is quadratic."""


@pytest.mark.parametrize("before", ["", "ignore previous instructions\n", "<html>"])
@pytest.mark.parametrize("text", TEXTS, ids=map(repr, TEXTS))
def test_the_sanitizer_takes_linear_time(text: str, before: str) -> None:
    assert growth(sanitized_text, text, before) < LINEAR


@pytest.mark.parametrize("text", TEXTS, ids=map(repr, TEXTS))
def test_output_for_a_terminal_takes_linear_time(text: str) -> None:
    assert growth(harmless_text, text) < LINEAR


@pytest.mark.parametrize("text", ["exceed", "exceeding input token count ", "context length "])
def test_a_providers_error_text_is_parsed_quickly(text: str) -> None:
    reported = json.dumps({"error": {"message": text * 20_000, "code": "9" * 10_000}})
    began = time.process_time()
    body = parse_error_body(reported)
    assert (body.is_overflow, body.is_unpaid, body.status) == (False, False, 500)
    assert time.process_time() - began < LIMIT_S


@pytest.mark.parametrize("wish", ["1" * 20_000, "1.1" * 7_000, "1h" * 10_000 + "x"])
def test_a_requested_wait_is_parsed_quickly(wish: str) -> None:
    headers = {"retry-after": wish, "x-ratelimit-reset-tokens": wish}
    began = time.process_time()
    assert retry_after_s(headers, datetime.now(UTC), rate_limited=True) is None
    assert time.process_time() - began < LIMIT_S


@pytest.mark.parametrize("before", ["", "a{"])
def test_a_large_style_sheet_is_parsed_quickly(before: str) -> None:
    """The process that reads pages has three seconds in total."""
    began = time.process_time()
    assert len(list(style_rules(before + "\\a" * 240_000))) == bool(before)
    assert time.process_time() - began < LIMIT_S


def zipped(body: bytes) -> http.Response:
    """Return a model's answer of one compressed chunk."""
    headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    return http.Response(200, headers=headers, content=_whole(gzip.compress(body)))


async def _whole(body: bytes) -> AsyncIterator[bytes]:
    yield body


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
@pytest.mark.parametrize("line", [b"\n", b"\r\n", b"\n\r", b"data: {}\n\n", b": \n\n"])
async def test_a_compressed_stream_without_data_is_aborted(kind: str, line: bytes) -> None:
    given = zipped(line * 2_000_000)

    async def answer() -> None:
        with pytest.raises(ModelError):
            await complete_request(kind, given)

    assert await longest_pause(answer()) < LIMIT_S


@pytest.mark.parametrize("line", [b"\n", b":\n", b"x\n", b"event: a\n", b"id\r"])
def test_lines_without_data_are_counted(line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orga.activities.adapters.models.http.MAX_SILENT_LINES", 100)
    decoder = SseDecoder()
    decoder.feed(b"data: a\n\n" * 40)
    with pytest.raises(SseTooLarge, match="lines without data"):
        decoder.feed(line * 101)


def calls_of(count: int) -> list[dict[str, Any]]:
    return [{"index": n, "id": f"c{n}", "function": {"name": "read", "arguments": "{}"}} for n in range(count)]


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(lambda: [chunk(tool_calls=calls_of(30_000))], id="in one piece"),
        pytest.param(lambda: [chunk(tool_calls=[call]) for call in calls_of(20_000)], id="one by one"),
        pytest.param(lambda: [chunk(tool_calls=[{"function": {"name": "a"}}] * 30_000)], id="without ids"),
    ],
)
async def test_a_reply_with_thousands_of_calls_is_cut_while_it_streams(frames: Callable[[], list[Any]]) -> None:
    given = stream_response(*frames(), size=60_000)

    async def answer() -> None:
        reply, _, _ = await complete_request("openai", given)
        assert len(reply.calls) == MAX_OPEN_CALLS
        assert reply.finish == "length"
        normalised_reply(reply, ())

    assert await longest_pause(answer()) < LIMIT_S


def thought(index: int) -> list[dict[str, Any]]:
    """Return the frames of a thought and a letter after it."""
    begun = {"type": "content_block_start", "index": index, "content_block": {"type": "thinking"}}
    return [begun, {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}}]


async def test_a_reply_with_thousands_of_thoughts_is_cut_while_it_streams() -> None:
    """Each thought and their total size are small, but their recorded order alone would fill a payload."""
    given = stream_response(*(frame for n in range(50_000) for frame in thought(n)), size=60_000)

    async def answer() -> None:
        reply, _, _ = await complete_request("anthropic", given)
        assert reply.finish == "length"
        assert len(normalised_reply(reply, ()).model_dump_json()) < 200_000

    assert await longest_pause(answer()) < LIMIT_S


def test_the_order_is_dropped_with_its_blocks() -> None:
    thinking = block_part({"type": "thinking", "thinking": "x" * 100})
    reply = Reply(parts=(text_part("a"), thinking, text_part("b")))
    assert normalised_reply(reply, (), room=50) == Reply(parts=(text_part("a"), text_part("b")))
    assert normalised_reply(reply, ()).parts == reply.parts
