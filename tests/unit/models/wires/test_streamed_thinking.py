"""Streamed thinking is reported apart from the text, whatever field the server uses."""

from typing import Any

import pytest

from orga.activities.adapters import http
from tests.support.model.providers import (
    Network,
    a_request,
    chunk,
    message_events,
    message_item,
    provider,
    response_events,
    stream_response,
    text_block,
)

SUMMARY = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Then."}],
    "encrypted_content": "gAAA",
}


class Listener:
    """Keeps the streamed pieces in order."""

    def __init__(self) -> None:
        self.text, self.thinking = "", ""

    def __call__(self, piece: str, /) -> None:
        self.text += piece

    def add_thinking(self, piece: str, /) -> None:
        self.thinking += piece


def thinking_block(*pieces: str) -> list[dict[str, Any]]:
    """Return the start and the deltas of a block of Anthropic's thinking."""
    start = {"type": "thinking", "thinking": "", "signature": ""}
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    return [start, *deltas, {"type": "signature_delta", "signature": "sig"}]


def summary_events() -> list[dict[str, Any]]:
    """Return the events of a response with a summary of its reasoning in pieces."""
    begun, added, *rest = response_events(SUMMARY, message_item("Hello"))
    kind = "response.reasoning_summary_text.delta"
    pieces = ((0, "Fir"), (0, "st."), (1, "Then."))
    at = {"type": kind, "item_id": "rs_1", "output_index": 0}
    return [begun, added, *(at | {"summary_index": part, "delta": piece} for part, piece in pieces), *rest]


CHAT_END = (chunk("stop", content="lo"), "[DONE]")
CLAUDE = message_events(thinking_block("h", "m"), text_block("Hello"))
TWO_THOUGHTS = message_events(thinking_block("one"), thinking_block("two"), text_block("Hello"))
REDACTED = message_events([{"type": "redacted_thinking", "data": "AA=="}], text_block("Hello"))
CHUNK = {"type": "thinking", "thinking": [{"type": "text", "text": "h"}, {"type": "text", "text": "m"}]}
DETAILS = [{"type": "reasoning.text", "text": "hm"}, {"type": "reasoning.encrypted", "data": "AA"}]
RAW = {"type": "response.reasoning_text.delta", "content_index": 0, "delta": "hm", "item_id": "r", "output_index": 0}


@pytest.mark.parametrize(
    ("kind", "frames", "thinking"),
    [
        pytest.param("anthropic", CLAUDE, "hm", id="thinking deltas"),
        pytest.param("anthropic", TWO_THOUGHTS, "one\n\ntwo", id="two blocks of thinking"),
        pytest.param("anthropic", REDACTED, "", id="redacted thinking"),
        pytest.param("responses", summary_events(), "First.\n\nThen.", id="a summary in pieces"),
        pytest.param(
            "responses", response_events(SUMMARY, message_item("Hello")), "First.\n\nThen.", id="a summary as a whole"
        ),
        pytest.param("responses", [RAW, *response_events(message_item("Hello"))], "hm", id="raw reasoning"),
        pytest.param(
            "openai", [chunk(reasoning_content="h"), chunk(reasoning_content="m", content="Hel")], "hm", id="DeepSeek"
        ),
        pytest.param("ollama", [chunk(reasoning="h"), chunk(reasoning="m", content="Hel")], "hm", id="Ollama and vLLM"),
        pytest.param("ollama", [chunk(thinking="hm", content="Hel")], "hm", id="a field named thinking"),
        pytest.param(
            "openrouter", [chunk(reasoning="hm", reasoning_details=DETAILS, content="Hel")], "hm", id="OpenRouter"
        ),
        pytest.param("openrouter", [chunk(reasoning_details=DETAILS, content="Hel")], "hm", id="nothing but details"),
        pytest.param("mistral", [chunk(content=[CHUNK]), chunk(content="Hel")], "hm", id="Mistral"),
        *(
            pytest.param("mistral", [chunk(content=[{"type": "thinking"} | odd]), chunk(content="Hel")], text, id=name)
            for name, odd, text in (
                ("a text as the chunk's thinking", {"thinking": "hm"}, "hm"),
                ("a text next to the thinking", {"thinking": [{"type": "text", "text": "h"}], "text": "m"}, "hm"),
                ("thinking in another field", {"text": "hm"}, "hm"),
                ("no thinking", {"thinking": None}, ""),
                ("other values as thinking", {"thinking": [None, 3, "x", {"type": "reference", "text": 1}]}, ""),
            )
        ),
        pytest.param(
            "mistral", [chunk(content=[{"type": "reasoning", "text": "x"}]), chunk(content="Hel")], "", id="reasoning"
        ),
        pytest.param(
            "openai",
            [chunk(reasoning=None, reasoning_content={"a": 1}, content="Hel")],
            "",
            id="values that are not text",
        ),
    ],
)
async def test_thinking_is_streamed_apart_from_the_text(kind: str, frames: Any, thinking: str) -> None:
    end = () if kind in {"anthropic", "responses"} else CHAT_END
    frames = [*frames, *end]
    assert await streamed(kind, stream_response(*frames)) == ("Hello", thinking)
    assert await streamed(kind, stream_response(*frames), is_plain=True) == ("Hello", "")


async def streamed(kind: str, answer: http.Response, *, is_plain: bool = False) -> tuple[str, str]:
    """Return the text and the thinking that a provider passes on. A plain function gets only the text."""
    listener, model = Listener(), provider(kind, Network([answer]))
    await model.complete(a_request(), listener.__call__ if is_plain else listener)
    await model.close()
    return listener.text, listener.thinking
