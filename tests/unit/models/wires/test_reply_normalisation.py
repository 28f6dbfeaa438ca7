"""Replies are normalised so that any provider's reply can be stored in the history and read again."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from orga.activities.adapters.models.kept_fields import block_part, wire_block
from orga.activities.replies import (
    MAX_CALLS,
    MAX_CALLS_BYTES,
    MAX_DEPTH,
    MAX_NAME_CHARS,
    MAX_TEXT_BYTES,
    MIN_CALL_BYTES,
    SHARED_LIMIT_HINT,
    calls_byte_limit,
    normalised_reply,
)
from orga.client.testing.script import USAGE
from orga.workflows.types.context import canonical_json
from orga.workflows.types.messages import Message, Reply, ToolCall
from orga.workflows.types.models.usage import Usage
from tests.support.values.core import a_call
from tests.support.values.strategies import LAW, any_calls, any_replies

TOO_LARGE = f"(more than 150000 bytes{SHARED_LIMIT_HINT})"
PAYLOAD_LIMIT = 2 * 1024 * 1024
earlier_calls = st.lists(any_calls, max_size=4).map(lambda calls: (Message.of("assistant", calls=tuple(calls)),))


def read_again(reply: Reply) -> Reply:
    return Reply.model_validate_json(reply.model_dump_json(exclude_unset=True))


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


@LAW
@given(any_replies, earlier_calls)
def test_every_call_has_its_own_id(reply: Reply, earlier: tuple[Message, ...]) -> None:
    taken = [call.call_id for message in earlier for call in message.calls]
    ids = [call.call_id for call in normalised_reply(reply, earlier).calls]
    assert len(set(ids)) == len(ids)
    assert not set(ids) & set(taken)
    assert all(0 < len(call_id) <= MAX_NAME_CHARS for call_id in ids)


@LAW
@given(any_replies, earlier_calls)
def test_a_normalised_reply_is_read_back_unchanged(reply: Reply, earlier: tuple[Message, ...]) -> None:
    safe = normalised_reply(reply, earlier)
    assert read_again(safe) == safe
    assert canonical_json(read_again(safe).message()) == canonical_json(safe.message())
    json.loads(safe.model_dump_json(exclude_unset=True), parse_constant=pytest.fail)


@LAW
@given(any_replies, earlier_calls)
def test_a_normalised_reply_does_not_change_again(reply: Reply, earlier: tuple[Message, ...]) -> None:
    safe = normalised_reply(reply, earlier)
    assert normalised_reply(safe, earlier) == safe


@LAW
@given(any_replies)
def test_every_dropped_call_is_counted(reply: Reply) -> None:
    safe = normalised_reply(reply, ())
    assert len(safe.calls) + safe.left_out == len(reply.calls)
    assert len(safe.calls) <= MAX_CALLS


def test_a_plain_reply_is_not_copied() -> None:
    reply = Reply.of("né", calls=(a_call(path="a"),))
    assert normalised_reply(reply, ()) is reply


@pytest.mark.parametrize(
    ("given_ids", "earlier", "expected"),
    [
        pytest.param(["a", "b"], [], ["a", "b"], id="ids of their own stay"),
        pytest.param(["a", "a", "a"], [], ["a", "a_2", "a_3"], id="a repeated id gets a number"),
        pytest.param(["a"], ["a"], ["a_2"], id="an id that the conversation has"),
        pytest.param(["a", "a_2", "a"], [], ["a", "a_2", "a_3"], id="a number in use is skipped"),
        pytest.param(["", "  ", "\t"], [], ["call", "call_2", "call_3"], id="an empty id"),
        pytest.param(["\x00", "\ud800"], [], ["\ufffd", "\ufffd_2"], id="ids that become the same"),
        pytest.param(["x" * 201, "x" * 202], [], ["x" * 200, "x" * 198 + "_2"], id="long ids that become the same"),
        pytest.param(["x" * 200], ["x" * 200], ["x" * 198 + "_2"], id="a number fits into the longest id"),
    ],
)
def test_repeated_and_invalid_ids_are_replaced(given_ids: list[str], earlier: list[str], expected: list[str]) -> None:
    reply = Reply.of(calls=tuple(a_call(call_id=call_id) for call_id in given_ids))
    before = Message.of("assistant", calls=tuple(a_call(call_id=call_id) for call_id in earlier))
    assert [call.call_id for call in normalised_reply(reply, (before,)).calls] == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param(" read ", "read", id="white space around it"),
        pytest.param("", "unnamed", id="no name"),
        pytest.param("\n\t", "unnamed", id="a name of white space"),
        pytest.param("\x00", "\ufffd", id="NUL"),
        pytest.param("\x01\x1b[31m", "\x01\x1b[31m", id="control characters are kept"),
        pytest.param("n" * 300, "n" * 200, id="a name that is too long"),
        pytest.param("n" * 199 + " n", "n" * 199, id="a cut that ends in white space"),
    ],
)
def test_names_are_trimmed_cut_and_never_empty(name: str, expected: str) -> None:
    assert normalised_reply(Reply.of(calls=(a_call(name),)), ()).calls[0].name == expected


def test_calls_above_the_limit_are_counted_and_dropped() -> None:
    reply = Reply.of(calls=tuple(a_call(call_id="same") for _ in range(1_000)))
    safe = normalised_reply(reply, ())
    assert (len(safe.calls), safe.left_out) == (MAX_CALLS, 1_000 - MAX_CALLS)
    assert [call.call_id for call in safe.calls[:2]] == ["same", "same_2"]


@pytest.mark.parametrize(
    ("call", "arguments", "malformed"),
    [
        pytest.param(a_call(x="a\x00\ud800"), {"x": "a\ufffd\ufffd"}, None, id="text that could not be stored"),
        pytest.param(a_call(x=float("inf")), {"x": None}, None, id="a number that JSON lacks"),
        pytest.param(a_call(x="x" * MAX_CALLS_BYTES), {}, TOO_LARGE, id="arguments that are too large"),
        pytest.param(a_call(x="é" * 100_000), {}, TOO_LARGE, id="bytes count, not characters"),
        pytest.param(a_call(x="\n" * 100_000), {}, TOO_LARGE, id="the size in JSON counts"),
        pytest.param(a_call(x=10**4_200), {"x": 10**4_200}, None, id="a large number"),
        pytest.param(a_call(x=[10**6_000]), {}, "(a number out of range)", id="a number that cannot be read back"),
        pytest.param(a_call(**nested(MAX_DEPTH)), nested(MAX_DEPTH), None, id="deep arguments"),
        pytest.param(a_call(**nested(MAX_DEPTH + 1)), {}, "(nested more than 100 deep)", id="too deep arguments"),
        pytest.param(a_call(**nested(5_000)), {}, "(nested more than 100 deep)", id="far too deep arguments"),
    ],
)
def test_arguments_that_cannot_be_stored_are_marked_as_malformed(
    call: ToolCall, arguments: dict[str, Any], malformed: str | None
) -> None:
    """JSON with a depth of 199 can be parsed on its own but not inside a reply. The run could never be read again."""
    safe = normalised_reply(Reply.of(calls=(call,)), ()).calls[0]
    assert (safe.arguments, safe.malformed) == (arguments, malformed)


def test_malformed_text_is_kept_valid_and_bounded() -> None:
    call = ToolCall(call_id="a", name="read", malformed="{\ud800" + "x" * 10**6)
    malformed = normalised_reply(Reply.of(calls=(call,)), ()).calls[0].malformed or ""
    assert malformed.startswith("{\ufffdxx")
    assert len(malformed.encode()) <= MAX_CALLS_BYTES


@pytest.mark.parametrize(
    ("sizes", "room", "kept"),
    [
        pytest.param([31_000] * 31, 98_304, 3, id="31 of 31 kB: the first three"),
        pytest.param([90_000, 400, 400], 90_500, 3, id="small ones fit after a large one"),
        pytest.param([90_000, 5_000, 5_000], 90_500, 1, id="larger ones do not"),
        pytest.param([3_000] * 32, 98_304, 32, id="many of ordinary size"),
    ],
)
def test_the_total_size_of_all_arguments_is_bounded(sizes: list[int], room: int, kept: int) -> None:
    """They are sent again with every later request."""
    safe = normalised_reply(Reply.of(calls=tuple(a_call(x="x" * size) for size in sizes)), (), room)
    assert [bool(call.arguments) for call in safe.calls] == [True] * kept + [False] * (len(sizes) - kept)
    assert all("make fewer or shorter calls at once" in call.malformed for call in safe.calls if call.malformed)
    assert sum(len(to_json(call.arguments)) for call in safe.calls) <= room + MAX_CALLS * MIN_CALL_BYTES


@pytest.mark.parametrize(
    ("max_output_tokens", "expected"),
    [
        pytest.param(100, 64_000, id="a short reply still has room"),
        pytest.param(16_384, 98_304, id="the default"),
        pytest.param(10**7, 150_000, id="no more than a state can carry"),
    ],
)
def test_the_byte_limit_follows_the_output_token_limit(max_output_tokens: int, expected: int) -> None:
    assert calls_byte_limit(max_output_tokens) == expected


def test_a_long_text_is_cut_with_a_mark() -> None:
    text = normalised_reply(Reply.of("é" * MAX_TEXT_BYTES), ()).text
    assert len(text.encode()) <= MAX_TEXT_BYTES
    assert "[cut: 600000 bytes in all" in text


@pytest.mark.parametrize("letter", ["x", '"', "\n", "é", "\x01", "😀"])
def test_a_long_text_is_within_its_limit_as_json(letter: str) -> None:
    text = normalised_reply(Reply.of(letter * 100_000 + "x" * 400_000), ()).text
    assert MAX_TEXT_BYTES * 0.7 < len(to_json(text)) <= MAX_TEXT_BYTES


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({"finish": "length"}, {"finish": "length"}, id="a known finish reason"),
        pytest.param({"finish": "pause_turn"}, {"finish": "stop"}, id="an unknown finish reason"),
        pytest.param({"finish": ["stop"]}, {"finish": "stop"}, id="a finish reason that is not text"),
        pytest.param({"usage": USAGE}, {"usage": USAGE}, id="usage"),
        pytest.param(
            {"usage": Usage(input_tokens=-5, output_tokens=3)},
            {"usage": Usage(input_tokens=0, output_tokens=3)},
            id="usage below zero",
        ),
        pytest.param({"cost_usd": 0.5}, {"cost_usd": 0.5}, id="a price"),
        pytest.param({"cost_usd": 0.0}, {"cost_usd": 0.0}, id="a price of nothing"),
        pytest.param({"cost_usd": -0.5}, {"cost_usd": None}, id="a price below zero"),
        pytest.param({"cost_usd": float("nan")}, {"cost_usd": None}, id="a price that is no number"),
        pytest.param({"model": "m\x00\n"}, {"model": "m\ufffd"}, id="a model's odd name"),
    ],
)
def test_metadata_of_a_reply_is_validated(given: dict[str, Any], expected: dict[str, Any]) -> None:
    """A negative count would give a run more than its budget."""
    safe = normalised_reply(Reply.of("hm").model_copy(update=given), ())
    assert {key: getattr(safe, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        pytest.param(({"thinking": "hm", "signature": "s"},), 1, id="blocks are kept verbatim"),
        pytest.param(({"thinking": "x" * MAX_CALLS_BYTES},), 0, id="blocks that are too large"),
        pytest.param((nested(MAX_DEPTH + 1),), 0, id="blocks that are too deep"),
        pytest.param(({"a": 10**6_000},), 0, id="blocks that cannot be read back"),
    ],
)
def test_blocks_that_cannot_be_stored_are_dropped(blocks: tuple[dict[str, Any], ...], expected: int) -> None:
    safe = normalised_reply(Reply.of("a", blocks=map(block_part, blocks)), ())
    assert tuple(map(wire_block, safe.blocks)) == blocks[:expected]


def test_a_block_is_converted_to_valid_text() -> None:
    assert normalised_reply(Reply.of(blocks=(block_part({"a\ud800": "\x00"}),)), ()).blocks == (
        block_part({"a\ufffd": "\ufffd"}),
    )


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(
            Reply.of(
                text="é" * MAX_TEXT_BYTES,
                blocks=(block_part({"b": "x" * 10**6}),),
                calls=tuple(a_call(x="x" * 149_000) for _ in range(32)),
            ),
            id="all parts at their maximum size",
        ),
        pytest.param(Reply.of(calls=tuple(a_call(x="x" * 149_000) for _ in range(1_000))), id="many large calls"),
        pytest.param(
            Reply.of(calls=tuple(ToolCall(call_id="a", name="b", malformed="x" * 149_000) for _ in range(32))),
            id="many large calls that are malformed",
        ),
    ],
)
def test_a_reply_always_fits_into_one_payload(reply: Reply) -> None:
    safe = normalised_reply(reply, ())
    assert len(safe.model_dump_json(exclude_unset=True).encode()) < PAYLOAD_LIMIT
    assert len(safe.calls) == min(len(reply.calls), MAX_CALLS)
    assert safe.calls[0] == reply.calls[0].model_copy(update={"call_id": safe.calls[0].call_id})
    assert normalised_reply(safe, ()) == safe


@pytest.mark.parametrize("name", ["(answer)", " (answer) ", "\n(answer)"])
def test_no_call_can_use_the_reserved_name_of_an_answer(name: str) -> None:
    """Otherwise the run would take the call for its own answer proposal."""
    reply = Reply.of(calls=(ToolCall(call_id="c", name=name, arguments={}),), finish="tool_calls")
    assert [call.name for call in normalised_reply(reply, ()).calls] == ["unnamed"]
