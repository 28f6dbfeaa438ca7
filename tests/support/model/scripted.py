"""A model that says what a test wrote down, and what it was asked."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from orga.activities.ports import ModelProvider, ModelRequest
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.text import MEANING, undelimited
from orga.workflows.types.usage import Usage

Step = Reply | Exception | Callable[[ModelRequest], Reply | Awaitable[Reply]]

USAGE = Usage(input_tokens=100, output_tokens=10)


def answers(text: str = "done", **fields: Any) -> Reply:
    """Return a final answer."""
    return Reply.of(text, usage=USAGE, **fields)


def calls(*names: str, arguments: dict[str, Any] | None = None, text: str = "", **fields: Any) -> Reply:
    """Return a reply that calls these tools."""
    made = tuple(ToolCall(call_id=f"{name}_{i}", name=name, arguments=arguments or {}) for i, name in enumerate(names))
    return Reply.of(text, calls=made, finish="tool_calls", usage=USAGE, **fields)


class ScriptedProvider:
    """Replies in order; the last step is repeated. `given` is what it was sent, `seen` the same with results bare."""

    def __init__(self, steps: Sequence[Step], delay_s: float = 0.0) -> None:
        self._steps = list(steps)
        self._delay_s = delay_s
        self.given: list[ModelRequest] = []
        self.seen: list[ModelRequest] = []
        self.cancelled = asyncio.Event()

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the next reply."""
        self.given.append(request)
        request = bare(request)
        self.seen.append(request)
        step = self._steps[min(len(self.seen), len(self._steps)) - 1]
        try:
            await asyncio.sleep(self._delay_s)
            reply = await _said(step, request)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        on_text(reply.text)
        return reply


def bare(request: ModelRequest) -> ModelRequest:
    """Return the request without what stands around tool results, and without the line that explains it."""
    messages = (
        m.with_text(undelimited(m.text)) if m.role == "tool" and sum(m.ours) < len(m.text) else m
        for m in request.messages
    )
    return replace(request, messages=tuple(messages), system=tuple(s for s in request.system if s != MEANING))


async def _said(step: Step, request: ModelRequest) -> Reply:
    if isinstance(step, Exception):
        raise step
    reply = step if isinstance(step, Reply) else step(request)
    return reply if isinstance(reply, Reply) else await reply


class ScriptedModels:
    """Resolves every name to one provider."""

    def __init__(self, provider: ModelProvider) -> None:
        self.provider = provider

    def resolve(self, name: str) -> tuple[ModelProvider, str]:
        """Return the provider."""
        return self.provider, name
