"""Results of MCP tools as text."""

from base64 import b64encode
from typing import Any

import pytest
from mcp_types import CallToolResult

from orga.activities.adapters.mcp.content import result_output
from tests.support.values.pdfs import a_pdf
from tests.support.values.pictures import a_png

TEXT = {"type": "text", "text": "hello"}
JSON_TEXT = {"type": "text", "text": '{"n": 1}'}


@pytest.mark.parametrize(
    ("content", "structured", "expected"),
    [
        pytest.param([TEXT, TEXT], None, "hello\nhello", id="texts, in order"),
        pytest.param([], None, "(nothing)", id="nothing"),
        pytest.param(
            [{"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}],
            None,
            "[image image/png, 5 bytes; it cannot be shown here]",
            id="an image",
        ),
        pytest.param(
            [{"type": "audio", "data": "aGVsbA==", "mimeType": "audio/wav"}],
            None,
            "[audio audio/wav, 4 bytes; it cannot be shown here]",
            id="a sound",
        ),
        pytest.param(
            [{"type": "resource_link", "uri": "file:///a.txt", "name": "a", "description": "notes"}],
            None,
            "[link to file:///a.txt (a): notes]",
            id="a link",
        ),
        pytest.param(
            [{"type": "resource", "resource": {"uri": "x://a", "mimeType": "text/plain", "text": "inside"}}],
            None,
            "[x://a, text/plain]\ninside",
            id="a resource of text",
        ),
        pytest.param(
            [{"type": "resource", "resource": {"uri": "x://a", "blob": "aGVsbG8h"}}],
            None,
            "[x://a, unknown type, 6 bytes; it cannot be shown here]",
            id="a binary resource",
        ),
        pytest.param([], {"n": 1}, '{"n":1}', id="only structured"),
        pytest.param([TEXT], {"n": 1}, 'hello\n{"n":1}', id="structured next to another text"),
        pytest.param([JSON_TEXT], {"n": 1}, '{"n": 1}', id="structured, equal to a text"),
        pytest.param([TEXT], {"result": "hello"}, "hello", id="a wrapped text, equal to a text"),
        pytest.param([TEXT, TEXT], {"result": ["hello", "hello"]}, "hello\nhello", id="a wrapped list, text by text"),
        pytest.param([], {"result": "hello"}, '{"result":"hello"}', id="a wrapped text without an equal text"),
    ],
)
def test_a_result_is_rendered_as_text(content: list[Any], structured: Any, expected: str) -> None:
    result = CallToolResult.model_validate({"content": content, "structuredContent": structured})
    assert result_output(result).content == expected


def test_pictures_and_documents_become_media_by_their_own_bytes() -> None:
    picture, paper = (b64encode(data).decode() for data in (a_png(), a_pdf("x")))
    content: list[dict[str, Any]] = [
        TEXT,
        {"type": "image", "data": picture, "mimeType": "text/plain"},
        {"type": "resource", "resource": {"uri": "x://a/b/paper.pdf", "blob": paper}},
        {"type": "resource", "resource": {"uri": "x://a", "mimeType": "image/png", "blob": "aGVsbG8h"}},
    ]
    output = result_output(CallToolResult.model_validate({"content": content}))
    assert output.content == "hello\n[x://a, image/png, 6 bytes; it cannot be shown here]"
    assert [(part.media_type, part.name) for part in output.media] == [
        *(("image/png", ""), ("application/pdf", "paper.pdf")),
    ]


def test_blocks_over_the_limit_are_counted() -> None:
    text = result_output(CallToolResult.model_validate({"content": [{"type": "text", "text": "x"}] * 1_002})).content
    assert text.endswith("x\n[2 more blocks left out]")
