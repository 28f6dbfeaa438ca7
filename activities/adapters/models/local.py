"""`local:smollm2`: a true small language model in this process, driven by a JSON action protocol."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from pydantic_core import to_json

from orga.activities.adapters.models.smollm import actions, engine
from orga.activities.adapters.models.smollm.bounds import bounded
from orga.activities.adapters.models.smollm.mark import marked, unmarked
from orga.activities.adapters.models.smollm.rounds import is_going_round, next_id
from orga.activities.adapters.models.smollm.streamed import Streamed
from orga.activities.adapters.models.smollm.window import Line, fit
from orga.activities.ports import ModelError, ModelRequest
from orga.workflows.types.messages import Message, Reply

_CHARS_PER_TOKEN = 3.0
"""A first guess on the safe side; a refused request is cut again by the engine's own count."""
_MARGIN_TOKENS = 128
"""The chat template's own tokens."""
_ATTEMPTS = 4
_OPENING = "You are a helpful AI assistant named SmolLM."
"""The instruction that the model was trained under: without it greedy replies go astray."""
_ANSWER_NOW = "Your calls get nowhere, so there are no tools any more. Answer now with what you know."
_CUT = " […]"
_PLAIN = {"repeat_penalty": 1.1}
"""Against loops in plain text; an action has to repeat names and paths."""


class LocalProvider:
    """SmolLM2 135M by llama.cpp. It writes well-formed actions; how wise they are is a matter of its size."""

    def __init__(self, model: str = "smollm2", max_output_tokens: int = 256) -> None:
        """Take the model's name and a cap on each reply, above which so small a model only repeats itself."""
        self._model = model
        self._cap = max_output_tokens

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the reply; cancellation stops the model within a batch of tokens, about half a second.

        Raises:
            ModelError: ModelNotFound without the optional extra, ContextOverflow when even the cut text is too long.
        """
        if (name := request.model or self._model) != "smollm2":
            raise ModelError("ModelNotFound", f"local: has only smollm2, not {name!r}", retryable=False)
        was_stopped = request.tool_choice == "auto" and bool(request.tools) and is_going_round(request.messages)
        if was_stopped:
            request = replace(request, tools=(), system=(*request.system, _ANSWER_NOW))
        limit = min(self._cap, request.max_output_tokens)
        schema = actions.action_schema(request.tools, request.tool_choice, 2 * limit, request.output_schema)
        form = bounded(request.output_schema or request.reply_schema) if schema is None else schema
        body = _options(request, limit) | (_PLAIN if form is None else _response_format(form))
        lines = _lines(request, with_tools=schema is not None)
        is_answer = request.tool_choice == "auto" and request.reply_schema is None and request.output_schema is None
        room = engine.CONTEXT_TOKENS - limit - _MARGIN_TOKENS
        budget = int(room * _CHARS_PER_TOKEN)
        for _ in range(_ATTEMPTS):
            streamed = Streamed(on_text, is_action=schema is not None)
            async with aclosing(_chunks(body, fit(lines, budget))) as chunks:
                async for chunk in chunks:
                    streamed.take(chunk)
            if streamed.overflow is None:
                if is_answer and (limit == self._cap or not streamed.is_cut):
                    streamed.end_with((_CUT if streamed.is_cut else "") + marked(was_stopped=was_stopped))
                return streamed.reply(next_id(request.messages))
            budget = int(budget * room / streamed.overflow * 0.95)
        raise ModelError("ContextOverflow", "local:smollm2: the text does not fit its window", retryable=False)


async def _chunks(body: dict[str, Any], lines: tuple[Line, ...]) -> AsyncGenerator[engine.Chunk, None]:
    messages = [{"role": line.role, "content": line.content} for line in lines]
    try:
        async with aclosing(engine.generate({**body, "messages": messages})) as chunks:
            async for chunk in chunks:
                yield chunk
    except ValueError as error:  # a schema that the engine cannot compile
        raise ModelError("InvalidRequest", f"local:smollm2: {error}", retryable=False) from error


def _options(request: ModelRequest, limit: int) -> dict[str, Any]:
    temperature = 0.0 if request.temperature is None else request.temperature
    stop = {"stop": list(request.stop)} if request.stop else {}
    return {
        "max_tokens": limit,
        "temperature": temperature,
        "seed": 0,
        "stream_options": {"include_usage": True},
    } | stop


def _response_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "action", "schema": schema}}}


def _lines(request: ModelRequest, *, with_tools: bool) -> tuple[Line, ...]:
    protocol = (actions.describe(request.tools, request.output_schema),) if with_tools else _told(request.output_schema)
    system = "\n\n".join([_OPENING, *request.system, *protocol])
    return (Line("system", system), *(_line(message) for message in request.messages))


def _told(schema: dict[str, Any] | None) -> tuple[str, ...]:
    return () if schema is None else (f"Reply with JSON that fits this schema: {to_json(schema).decode()}",)


def _line(message: Message) -> Line:
    if message.role == "tool":
        return Line("user", f"Result of {message.tool or 'the tool'}:\n{message.text}", is_tool_result=True)
    if message.calls:
        return Line("assistant", "\n".join(actions.written(call) for call in message.calls))
    return Line(message.role, unmarked(message.text) if message.role == "assistant" else message.text)
