"""A conversation that exceeds the small model's window is cut by the engine's own token count."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from orga.activities.adapters.offline import local_model as engine
from orga.activities.adapters.offline.local_model import ANSWER_MARK, LocalProvider
from orga.activities.ports import ModelError, ModelRequest
from orga.workflows.types.messages import Message

LONG = ModelRequest(
    model="smollm2",
    messages=(
        Message.of("user", "What does it say?"),
        Message.of_result(call_id="c1", tool="read_file", text="7 1 8 " * 30_000),
    ),
)


class Engine:
    """Counts `chars_per_token` and refuses requests above its window, as the real engine does."""

    def __init__(self, chars_per_token: float) -> None:
        self._chars_per_token = chars_per_token
        self.sizes: list[int] = []

    async def generate(self, body: dict[str, Any]) -> AsyncGenerator[engine.CompletionChunk, None]:
        tokens = int(sum(len(message["content"]) for message in body["messages"]) / self._chars_per_token)
        self.sizes.append(tokens)
        if tokens > engine.CONTEXT_TOKENS:
            error = {"type": "exceed_context_size_error", "n_prompt_tokens": tokens, "message": "too long"}
            yield {"error": error}
        else:
            yield {"choices": [{"delta": {"content": "Numbers."}, "finish_reason": "stop"}]}


@pytest.mark.parametrize(
    ("chars_per_token", "requests"),
    [
        pytest.param(4.0, 1, id="the first guess was safe"),
        pytest.param(2.0, 2, id="digits: cut once more"),
        pytest.param(0.7, 2, id="worst text: cut once more"),
    ],
)
async def test_a_refused_text_is_cut_until_it_fits(
    monkeypatch: pytest.MonkeyPatch, chars_per_token: float, requests: int
) -> None:
    fake = Engine(chars_per_token)
    monkeypatch.setattr(engine, "generate", fake.generate)

    reply = await LocalProvider().complete(LONG, lambda piece: None)

    assert (reply.text, len(fake.sizes)) == (f"Numbers.{ANSWER_MARK}", requests)


async def test_a_text_that_cannot_fit_is_a_context_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "generate", Engine(0.01).generate)

    with pytest.raises(ModelError) as caught:
        await LocalProvider().complete(LONG, lambda piece: None)

    assert (caught.value.kind, caught.value.retryable) == ("ContextOverflow", False)


async def test_any_other_refusal_of_the_engine_is_retryable(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(body: dict[str, Any]) -> AsyncGenerator[engine.CompletionChunk, None]:
        yield {"error": {"code": 503, "type": "unavailable_error", "message": "Loading model"}}

    monkeypatch.setattr(engine, "generate", broken)

    with pytest.raises(ModelError, match="Loading model") as caught:
        await LocalProvider().complete(LONG, lambda piece: None)

    assert (caught.value.kind, caught.value.retryable) == ("ServerError", True)
