"""Lines of an MCP server: messages, repairable ones, and unreadable answers."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse

from orga.activities.adapters.mcp.lenient_messages import MAX_REPAIRED_BYTES, parse_message

READ = {"jsonrpc": "2.0", "id": 7, "result": {"text": "a"}}


def message_of(sent: bytes) -> JSONRPCMessage | None:
    return parse_message(sent)[0]


def line(**fields: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **fields}).encode() + b"\n"


def test_a_message_is_read() -> None:
    assert message_of(line(id=7, result={"text": "a"})) == JSONRPCResponse.model_validate(READ)
    assert isinstance(message_of(line(id=7, method="ping")), JSONRPCRequest)


def test_a_lone_surrogate_is_replaced() -> None:
    """JavaScript may cut a text in the middle of a surrogate pair and write the half as an escape."""
    found = message_of(line(id=7, result={"text": "a\ud83d", "\ude00": 1}))
    assert isinstance(found, JSONRPCResponse)
    assert (found.id, found.result) == (7, {"text": "a\ufffd", "\ufffd": 1})


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        pytest.param("caf\xe9".encode("latin-1"), "caf\ufffd", id="in Latin-1"),
        pytest.param(b"a\xff\xfe\x00b", "a\ufffd\ufffd\ufffdb", id="binary data"),
        pytest.param(b"a\tb", "a\tb", id="with a raw tab"),
        pytest.param("é😀".encode("cp1252", "replace"), "\ufffd?", id="in a code page"),
    ],
)
def test_an_answer_that_is_not_utf_8_is_read(sent: bytes, text: str) -> None:
    found = message_of(b'{"jsonrpc":"2.0","id":"a","result":{"text":"' + sent + b'"}}\n')
    assert isinstance(found, JSONRPCResponse)
    assert (found.id, found.result) == ("a", {"text": text})


def test_a_byte_order_mark_is_ignored() -> None:
    assert message_of(b"\xef\xbb\xbf" + line(id=7, result={"text": "a"})) == JSONRPCResponse.model_validate(READ)


def test_a_line_is_changed_only_if_it_cannot_be_read() -> None:
    whole = b'{"jsonrpc": "2.0", "id": 7, "result": {"text": "a", "n": 1.50}}'
    assert parse_message(whole)[1] == whole
    assert parse_message(b"<html>") == (None, b"<html>")
    changed = parse_message(whole.replace(b"a", b"\xe9"))[1]
    assert message_of(changed) == message_of(whole.replace(b"a", "\ufffd".encode()))


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(line(id=7, result="no object"), id="an invalid result"),
        pytest.param(line(id=7, result={"a": json.loads("[" * 300 + "]" * 300)}), id="nested too deeply"),
        pytest.param(line(id=7, result={"a": "\ud83d" + "x" * MAX_REPAIRED_BYTES}), id="too large to be repaired"),
        pytest.param(line(id=7, error={"code": "x"}), id="an invalid error"),
        pytest.param(b'{"id": 7, "result": {', id="half an answer"),
        pytest.param(b'{"jsonrpc": "2.0", "id":7 ,"result":{"a": "b"c"}}\n', id="invalid JSON"),
    ],
)
def test_an_unreadable_answer_is_an_error_of_its_request(sent: bytes) -> None:
    found = message_of(sent)
    assert isinstance(found, JSONRPCError)
    assert (found.id, found.error.message) == (7, "its answer cannot be read")


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"*** Welcome ***\n", id="a banner"),
        pytest.param(b"\n", id="an empty line"),
        pytest.param(b"{}\n", id="an empty object"),
        pytest.param(b"[" * 5_000, id="brackets"),
        pytest.param(b'{"result": {"id": 7, "result": {', id="half a message without an id"),
        pytest.param(b'{"id": 7, "method": {', id="half a request"),
        pytest.param(line(id=[7], result="x"), id="an answer with an invalid id"),
        pytest.param(b'{"id": ' + b"[" * 280 + b"]" * 280 + b', "result": {}}', id="an answer with a nested id"),
        pytest.param(b"\xff\xfe", id="no text"),
    ],
)
def test_other_lines_are_ignored(sent: bytes) -> None:
    assert message_of(sent) is None


def test_extreme_nesting_ends_the_connection() -> None:
    with pytest.raises(RecursionError):
        message_of(b'{"id": 7, "result": {"a": ' + b"[" * 9_000 + b"]" * 9_000 + b"}}")


@given(st.binary(max_size=200) | st.dictionaries(st.text(), st.text()).map(lambda given: json.dumps(given).encode()))
def test_no_line_raises(sent: bytes) -> None:
    message_of(sent)
