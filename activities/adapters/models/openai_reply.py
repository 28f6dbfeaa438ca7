"""A reply read from chat-completion chunks, or from a whole completion where a server doesn't stream."""

from collections.abc import Callable
from typing import Any

from orga.activities.adapters.models.assembly import Assembly, frugal_usage
from orga.activities.adapters.models.failures import Failures
from orga.activities.adapters.models.json_shape import as_count, as_object, as_objects, as_text
from orga.activities.adapters.models.kept_fields import EXTRA, THOUGHT, Thought, extra_block
from orga.activities.adapters.models.openai_calls import add_call_delta
from orga.activities.adapters.models.openai_finish import ending
from orga.activities.adapters.models.pricing import reply_cost_usd
from orga.activities.adapters.models.reasoning_details import ReasoningDetails
from orga.activities.adapters.models.stream_http import END
from orga.activities.ports import ModelRequest
from orga.workflows.types.messages import FinishReason, Reply
from orga.workflows.types.usage import Usage


class ChatReader:
    """Reads the chunks of one chat completion."""

    def __init__(
        self, provider: str, request: ModelRequest, on_text: Callable[[str], None], failures: Failures
    ) -> None:
        self._provider = provider
        self._request = request
        self._failures = failures
        self._assembly = Assembly(request, on_text)
        self._reasoning = ReasoningDetails()
        self._thought = Thought()
        self._finish = ""
        self._ended = False
        self._refused = False
        self._answered = False
        self._model = request.model
        self._usage: dict[str, Any] = {}

    def feed(self, frame: dict[str, Any]) -> bool:
        """Take one chunk; see `StreamReader`."""
        if frame is END:
            self._ended = True
            return False
        if frame.get("error"):
            raise self._failures.in_stream(frame)
        self._model = as_text(frame.get("model")) or self._model
        choices = as_objects(frame.get("choices"))
        for holder in (*choices[:1], as_object(frame.get("x_groq")), frame):
            self._usage = as_object(holder.get("usage")) or self._usage
        for choice in choices:
            self._answered = True
            if not choice.get("index"):
                self._choice(choice)
        return self._assembly.full

    def reply(self) -> Reply:
        """Return the reply; see `StreamReader`."""
        if not (self._finish or (self._ended and self._answered) or self._assembly.full):
            raise self._failures.bad_stream("cut off before its end")
        finish = self._reason()
        self._reasoning.close()
        self._thought.close(is_wanted=bool(self._assembly.calls))
        return self._assembly.reply(finish, _chat_usage(self._usage), self._model, self._cost)

    def _reason(self) -> FinishReason:
        """Return why the reply ended. Without a reason that is known, calls count only when they are written out.

        Some servers never send one, or make one up; a call that was cut behind its name would run without arguments.
        """
        found = ending(self._finish)
        if found == "failed":
            raise self._failures.in_stream({"message": "the model failed"})
        if found == "broken_off":
            raise self._failures.bad_stream(f"broken off, {self._finish[:100]}")
        if self._refused:
            return "refusal"
        if found != "unknown":
            return found
        if self._assembly.full or all(call.is_whole() for call in self._assembly.calls):
            return "stop"
        if not self._finish:
            raise self._failures.bad_stream("cut off within a call")
        return "length"

    def _cost(self, usage: Usage) -> float | None:
        details = as_object(self._usage.get("prompt_tokens_details"))
        written = as_count(details.get("cache_write_tokens"))
        return reply_cost_usd(
            self._provider, self._request.model, usage, billed=self._usage.get("cost"), cache_write_tokens=written
        )

    def _choice(self, choice: dict[str, Any]) -> None:
        if choice.get("error"):
            raise self._failures.in_stream(choice)
        streamed = as_object(choice.get("delta"))
        delta = streamed or as_object(choice.get("message"))
        self._finish = as_text(choice.get("finish_reason")) or self._finish
        if refusal := as_text(delta.get("refusal")):
            self._refused = True
            self._assembly.add_text(refusal)
        if self._provider != "openrouter" and (thought := self._thought.add(as_text(delta.get(THOUGHT)))) is not None:
            self._assembly.add_block(thought)
        self._assembly.add_text(_content(delta.get("content")))
        for detail in as_objects(delta.get("reasoning_details")):
            if (begun := self._reasoning.add(detail)) is not None:
                self._assembly.add_block(begun)
        for call in as_objects(delta.get("tool_calls")):
            if self._assembly.full:
                break
            opened = add_call_delta(self._assembly, call, is_streamed=bool(streamed))
            if opened is not None and (extra := as_object(call.get(EXTRA))):
                self._assembly.add_block(extra_block(extra), before=opened)


def _content(content: object) -> str:
    """Return visible text: a string, or the text parts of a list."""
    return as_text(content) or "".join(as_text(part.get("text")) for part in as_objects(content))


def _chat_usage(counts: dict[str, Any]) -> Usage:
    """Return the counts; Gemini and xAI leave thinking out of `completion_tokens` and count it in the total alone."""
    details = as_object(counts.get("prompt_tokens_details"))
    sent = as_count(counts.get("prompt_tokens"))
    written = max(as_count(counts.get("completion_tokens")), as_count(counts.get("total_tokens")) - sent)
    cached = as_count(details.get("cached_tokens")) or as_count(counts.get("prompt_cache_hit_tokens"))  # DeepSeek
    return frugal_usage(sent, written if sent else as_count(counts.get("completion_tokens")), cached)
