"""A reply as it streams in: visible text, finish, usage, or a refusal."""

from collections.abc import Callable
from typing import Any

from orga.activities.adapters.models.smollm import actions
from orga.activities.adapters.models.smollm.engine import Chunk
from orga.activities.ports import ModelError
from orga.workflows.types.messages import Reply
from orga.workflows.types.usage import Usage


class Streamed:
    """What has come of one reply so far."""

    def __init__(self, on_text: Callable[[str], None], *, is_action: bool) -> None:
        self._on_text = on_text
        self._is_action = is_action
        self._raw = ""
        self._text = ""
        self._cut = False
        self._usage = Usage()
        self.overflow: int | None = None
        """Tokens of a request that was refused as too long."""

    def take(self, chunk: Chunk) -> None:
        """Add one chunk, and pass its visible text on."""
        if error := chunk.get("error"):
            self.overflow = _overflow(error)
        if usage := chunk.get("usage"):
            self._usage = _usage(usage)
        for choice in chunk.get("choices", ()):
            self._cut |= choice.get("finish_reason") == "length"
            self._grow(choice["delta"].get("content") or "")

    @property
    def is_cut(self) -> bool:
        """Whether it stopped at its output limit."""
        return self._cut

    def end_with(self, text: str) -> None:
        """Put what the model did not write under an answer in words, which counts as whole then."""
        if self._text:
            self._cut = False
            self._text += text
            self._on_text(text)

    def reply(self, call_id: str) -> Reply:
        """Return the whole; call it once the stream has ended."""
        call = actions.call_in(self._raw, call_id, complete=not self._cut) if self._is_action else None
        finish = "length" if self._cut else "stop" if call is None else "tool_calls"
        calls = () if call is None else (call,)
        text = self._text or (actions.data_in(self._raw) if self._is_action and not self._cut else "")
        return Reply.of(
            text=text, calls=calls, finish=finish, usage=self._usage, model="SmolLM2-135M-Instruct", cost_usd=0.0
        )

    def _grow(self, piece: str) -> None:
        self._raw += piece
        text = actions.visible_text(self._raw) if self._is_action else self._raw
        if len(text) > len(self._text):
            self._on_text(text[len(self._text) :])
            self._text = text


def _usage(counted: dict[str, Any]) -> Usage:
    return Usage(
        input_tokens=counted["prompt_tokens"],
        output_tokens=counted["completion_tokens"],
        cached_input_tokens=counted.get("prompt_tokens_details", {}).get("cached_tokens", 0),
    )


def _overflow(error: dict[str, Any]) -> int:
    if error.get("type") == "exceed_context_size_error":
        return int(error["n_prompt_tokens"])
    raise ModelError("ServerError", f"local:smollm2: {error.get('message', error)}", retryable=True)
