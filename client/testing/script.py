"""Models for tests that give scripted replies and record their requests, and the replies of a script."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from pydantic_core import to_json

from orga.activities.ports import ModelError, ModelProvider, ModelRequest
from orga.client.errors import ConfigError
from orga.workflows.decisions.conversation import MIN_ESTIMATE, estimated_message_tokens, estimated_tokens
from orga.workflows.types.messages import Message, Reply, ToolCall
from orga.workflows.types.models.usage import Usage
from orga.workflows.types.text import DELIMITER_MEANING, one_line, undelimited_text

Step = Reply | Exception | Callable[[ModelRequest], Reply | Awaitable[Reply]]
"""A reply, a failure (`ModelError`), or a function of the request."""

USAGE = Usage(input_tokens=100, output_tokens=10)
"""The default usage of each reply. It counts for budgets. It never makes a run change its estimate of tokens."""

SHOWN_CHARS = 200
"""Characters of the last message in an error."""


class ScriptExhausted(AssertionError):
    """A run asked a scripted model more often than its script has steps."""


UsageLike = Usage | Mapping[str, int]
"""Tokens of one model call, as `Usage` or as its fields: `{"input_tokens": 900}`."""


def answers(text: Any = "done", *, usage: UsageLike = USAGE, **fields: Any) -> Reply:
    """Return a final answer.

    Args:
        text: The text of the answer. For a run with an output schema, it may be a value such as a pydantic model or a
            dict.
        usage: The tokens of the reply.
        fields: Other fields of `Reply`: `finish="length"`, `cost_usd=0.01`, …
    """
    given = text if isinstance(text, str) else to_json(text).decode()
    return Reply.of(given, usage=_usage(usage), **fields)


def calls(
    *tools: str,
    arguments: Mapping[str, Any] | None = None,
    reply_text: str = "",
    reply_cost_usd: float | None = None,
    reply_usage: UsageLike = USAGE,
    **named: Any,
) -> Reply:
    """Return a reply that calls tools: `calls("search", q="lamps")`.

    Args:
        tools: The names of the tools. All get the same arguments; use `together` for different ones.
        arguments: Arguments as a mapping, for names that cannot be keywords, such as `arguments`.
        reply_text: The text that the model adds to the calls.
        reply_cost_usd: The cost of the reply.
        reply_usage: The tokens of the reply.
        named: Arguments by name, including `text`.
    """
    given = {**(arguments or {}), **named}
    made = (ToolCall(call_id=f"{name}_{index}", name=name, arguments=given) for index, name in enumerate(tools))
    reply = _calls_reply(made, reply_text, _usage(reply_usage))
    return reply if reply_cost_usd is None else reply.with_cost(reply_cost_usd)


def together(*replies: Reply) -> Reply:
    """Join replies into one: `together(calls("search", q="a"), calls("search", q="b"))`.

    Tokens and costs are added up.
    """
    made = (call for reply in replies for call in reply.calls)
    numbered = (
        ToolCall(call_id=f"{call.name}_{index}", name=call.name, arguments=call.arguments)
        for index, call in enumerate(made)
    )
    text = "\n".join(reply.text for reply in replies if reply.text)
    reply = _calls_reply(numbered, text, _total_usage(replies))
    costs = [each.cost_usd for each in replies if each.cost_usd is not None]
    return reply.with_cost(sum(costs)) if costs else reply


class ScriptedModel:
    """Gives its steps in order. `given` has all requests. `seen` has them without the frames around tool results."""

    def __init__(self, steps: Sequence[Step], *, repeats: bool = False, delay_s: float = 0.0) -> None:
        """Create a model from a script.

        Args:
            steps: The replies, each used once.
            repeats: Repeat the last step for ever. Otherwise the run fails after it.
            delay_s: Real seconds before each step.

        Raises:
            ConfigError: A step is neither a reply nor an exception nor a function.
        """
        for number, step in enumerate(steps, 1):
            if not isinstance(step, (Reply, Exception)) and not callable(step):
                raise ConfigError(f"scripted: step {number} is {step!r}. Write answers(...) or calls(...) around it")
        self._steps = list(steps)
        self._repeats = repeats
        self._delay_s = delay_s
        self.given: list[ModelRequest] = []
        self.seen: list[ModelRequest] = []
        self.cancelled = asyncio.Event()
        """Set when a caller cancels a step."""
        self.exhausted = ""
        """The error about the first request after the end of the script, or ""."""

    @property
    def left(self) -> int:
        """The number of unused steps."""
        return max(0, len(self._steps) - len(self.seen))

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the next reply.

        Raises:
            ModelError: The script has ended. The text describes the request.
        """
        self.given.append(request)
        request = unframed_request(request)
        self.seen.append(request)
        step = self._next_step(request)
        try:
            await asyncio.sleep(self._delay_s)
            reply = await _step_reply(step, request)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        on_text(reply.text)
        return _without_input_count(reply, request)

    def _next_step(self, request: ModelRequest) -> Step:
        number = len(self.seen)
        if number <= len(self._steps):
            return self._steps[number - 1]
        if self._repeats and self._steps:
            return self._steps[-1]
        self.exhausted = (
            f"the script has {len(self._steps)} steps, and the model was asked once more: {_request_text(request)}"
        )
        raise ModelError("InvalidRequest", self.exhausted, retryable=False)


def scripted(*steps: Step, repeats: bool = False, delay_s: float = 0.0) -> ScriptedModel:
    """Return a model with these steps: `scripted(calls("search", q="lamps"), answers("two lamps"))`."""
    return ScriptedModel(steps, repeats=repeats, delay_s=delay_s)


class ReplyingModel(Protocol):
    """A model that replies: `ScriptedModel`, or a provider of your own."""

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the reply."""
        ...


class ScriptedModels:
    """Replaces all models by one, or the models of some names by one each."""

    def __init__(self, given: ReplyingModel | Mapping[str, ReplyingModel]) -> None:
        """Raise ConfigError for an object that cannot reply, such as a step without `scripted`."""
        for each in given.values() if isinstance(given, Mapping) else [given]:
            if not hasattr(each, "complete"):
                raise ConfigError(
                    f"model: {type(each).__name__} is no model. Write model=scripted(...) around the steps"
                )
        self._by_name: dict[str, ModelProvider] = {**given} if isinstance(given, Mapping) else {}
        self._one: ModelProvider | None = None if isinstance(given, Mapping) else given

    @property
    def default(self) -> str:
        """The model of an agent that names none."""
        return next(iter(self._by_name), "scripted:model")

    @property
    def providers(self) -> Collection[ModelProvider]:
        """The models that may be called."""
        return list(self._by_name.values()) if self._one is None else [self._one]

    def resolve(self, name: str) -> tuple[ModelProvider, str]:
        """Return the replacement for a model.

        Raises:
            ValueError: There is none.
        """
        found = self._one or self._by_name.get(name)
        if found is None:
            raise ValueError(f"no script replaces the model {name!r}; there is {', '.join(self._by_name) or 'none'}")
        return found, name

    def check(self, name: str) -> None:
        """Raise ValueError if `resolve` would."""
        self.resolve(name)

    def is_priced(self, name: str) -> bool:
        """Return True, because the steps of a script state their costs."""
        return True


def unframed_request(request: ModelRequest) -> ModelRequest:
    """Return the request without the frames around tool results, and without the text that explains the frames."""
    messages: list[Message] = []
    for message in request.messages:
        has_frame = message.role == "tool" and sum(message.ours) < len(message.text)  # not if all of it is our own text
        messages.append(message.with_text(undelimited_text(message.text)) if has_frame else message)
    system = tuple(text for text in request.system if text != DELIMITER_MEANING)
    return replace(request, messages=tuple(messages), system=system)


def _calls_reply(made: Iterable[ToolCall], text: str, usage: Usage) -> Reply:
    return Reply.of(text, calls=tuple(made), finish="tool_calls", usage=usage)


def _usage(counted: UsageLike) -> Usage:
    return counted if isinstance(counted, Usage) else Usage.model_validate(counted, extra="forbid")


def _total_usage(replies: Sequence[Reply]) -> Usage:
    stated = [reply.usage for reply in replies if reply.usage is not USAGE]
    if not stated:
        return USAGE
    return Usage(
        input_tokens=sum(each.input_tokens for each in stated),
        output_tokens=sum(each.output_tokens for each in stated),
        cached_input_tokens=sum(each.cached_input_tokens for each in stated),
        thinking_tokens=sum(each.thinking_tokens for each in stated),
        estimated=any(each.estimated for each in stated),
    )


def _without_input_count(reply: Reply, request: ModelRequest) -> Reply:
    """Return the reply without the invented count of input tokens, if a run would learn a wrong estimate from it.

    With 100 tokens for a large request, the run would conclude that its model counts half of what the run estimates.
    """
    if reply.usage is not USAGE:
        return reply
    tools = (to_json((tool.name, tool.description, tool.parameters)) for tool in request.tools)
    texts = (*(text.encode() for text in request.system), *tools)
    estimate = estimated_message_tokens(request.messages) + sum(estimated_tokens(len(text)) for text in texts)
    if estimate < MIN_ESTIMATE:
        return reply
    return reply.with_differences(usage=Usage(output_tokens=USAGE.input_tokens + USAGE.output_tokens))


def _request_text(request: ModelRequest) -> str:
    last = request.messages[-1] if request.messages else None
    last_text = "nothing" if last is None else f"{last.role}: {one_line(last.text, SHOWN_CHARS)!r}"
    offered = ", ".join(tool.name for tool in request.tools) or "none"
    return f"{len(request.messages)} messages, the last {last_text}; tools: {offered}"


async def _step_reply(step: Step, request: ModelRequest) -> Reply:
    if isinstance(step, Exception):
        raise step
    reply = step if isinstance(step, Reply) else step(request)
    return reply if isinstance(reply, Reply) else await reply
