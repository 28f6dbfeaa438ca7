"""Results of servers that violate the protocol are repaired so that the SDK can read them."""

from typing import Any

import pytest
from hypothesis import given
from mcp_types import CallToolResult
from mcp_types import methods as protocol
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION
from pydantic import ValidationError

from orga.activities.adapters.mcp.content import MAX_BLOCKS, result_output
from orga.activities.adapters.mcp.lenient_messages import OMITTED_META, repaired_result
from tests.support.mcp.sources import a_definition
from tests.support.values.strategies import LAW, json_values

TEXT = {"type": "text", "text": "hello"}
MODERN = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
VERSIONS = [LATEST_HANDSHAKE_VERSION, "2024-11-05", LATEST_MODERN_VERSION]


def read(method: str, result: dict[str, Any], version: str = LATEST_HANDSHAKE_VERSION) -> dict[str, Any]:
    """Return the repaired result after checking that the SDK reads it."""
    found = repaired_result(method, version, {**result, **(MODERN if version == LATEST_MODERN_VERSION else {})})
    protocol.validate_server_result(method, version, found)
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("result", "expected"),
    [
        pytest.param({"content": [{"type": "video", "data": "x"}, TEXT]},
                     "[a block of type video; it cannot be shown here]\nhello", id="an unknown block"),
        pytest.param({"content": [TEXT, {"type": "markdown", "text": "# a"}]}, "hello\n# a", id="a block with a text"),
        pytest.param({"content": [{"type": "resource", "resource": {"text": "inside"}}]}, "inside",
                     id="a resource without a URI"),
        pytest.param({"content": [{"type": "image", "data": "x"}, TEXT]},
                     "[a block of type image; it cannot be shown here]\nhello", id="an image without a type"),
        pytest.param({"content": [{"type": "text", "text": None}, TEXT, None, 7]},
                     "[a block of type text; it cannot be shown here]\nhello\nnull\n7", id="invalid blocks"),
        pytest.param({"content": ["a", "b"]}, "a\nb", id="bare texts"),
        pytest.param({"content": "a"}, "a", id="one bare text"),
        pytest.param({"content": TEXT}, "hello", id="one block"),
        pytest.param({"content": None, "structuredContent": {"n": 1}}, '{"n":1}', id="only structured content"),
        pytest.param({"structuredContent": {"n": 1}, "isError": None}, '{"n":1}', id="without any blocks"),
        pytest.param({"content": [TEXT], "_meta": [], "isError": "false"}, "hello", id="odd fields next to the text"),
        pytest.param({"content": [{**TEXT, "annotations": 7}]}, "hello", id="odd annotations"),
    ],
)  # fmt: skip
def test_an_odd_result_keeps_its_text(result: dict[str, Any], expected: str, version: str) -> None:
    found = CallToolResult.model_validate(read("tools/call", result, version), by_name=False)
    assert (result_output(found).content, found.is_error) == (expected, False)


@pytest.mark.parametrize("structured", [[1, 2], "text", 7])
def test_structured_content_of_any_type_is_read(structured: Any) -> None:
    found = CallToolResult.model_validate(read("tools/call", {"content": [TEXT], "structuredContent": structured}))
    assert result_output(found).content.startswith("hello\n")


def test_a_failure_stays_a_failure() -> None:
    assert read("tools/call", {"content": [{"type": "x"}], "isError": True})["isError"] is True
    assert read("tools/call", {"content": [TEXT], "isError": {"code": 1}})["isError"] is True


@pytest.mark.parametrize("result", [{}, {"content": None}, {"result": "text"}, {"resultType": "input_required"}])
def test_an_invalid_result_stays_invalid(result: dict[str, Any]) -> None:
    assert repaired_result("tools/call", LATEST_HANDSHAKE_VERSION, result) == result


def test_only_shown_blocks_are_processed() -> None:
    found = read("tools/call", {"content": [{"type": "x"}] * (MAX_BLOCKS + 7)})
    text = result_output(CallToolResult.model_validate(found, by_name=False)).content
    assert text.endswith("\n[7 more blocks left out]")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("schema", [{}, None, {"type": None}, {"type": "object", "required": None}])
def test_a_tool_without_a_schema_of_arguments_is_listed(schema: Any, version: str) -> None:
    found = read("tools/list", {"tools": [a_definition("a", inputSchema=schema), a_definition("b")]}, version)
    assert [tool["name"] for tool in found["tools"]] == ["a", "b"]
    assert found["tools"][0]["inputSchema"]["type"] == "object"


def test_a_server_cannot_set_the_omitted_tools_itself() -> None:
    assert read("tools/list", {"tools": [], "_meta": {OMITTED_META: {"a": "b"}, "own": 1}})["_meta"] == {
        OMITTED_META: {},
        "own": 1,
    }


def test_null_instead_of_tools_is_an_empty_list() -> None:
    assert read("tools/list", {"tools": None})["tools"] == []


def test_a_reason_is_plain_and_bounded() -> None:
    found = read("tools/list", {"tools": [a_definition("a\u202eb" * 500, inputSchema={"properties": {"\u200b": 7}})]})
    ((name, why),) = found["_meta"][OMITTED_META].items()
    assert "\u202e" not in name
    assert "\u200b" not in why
    assert max(len(name.encode()), len(why.encode())) <= 400


@LAW
@given(json_values, json_values)
def test_no_result_of_a_server_raises_an_unexpected_error(tools: Any, content: Any) -> None:
    for version in VERSIONS:
        listed = repaired_result("tools/list", version, {"tools": tools, **MODERN})
        if isinstance(tools, list):
            protocol.validate_server_result("tools/list", version, listed)
        given_content = {"content": content, "structuredContent": content, **MODERN}
        try:
            protocol.validate_server_result(
                "tools/call", version, repaired_result("tools/call", version, given_content)
            )
        except ValidationError:
            assert not content
