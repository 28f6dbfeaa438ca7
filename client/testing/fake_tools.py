"""Tools that only record their calls, and answer or fail as the test specifies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orga.activities.adapters.tools.python_function import awaited_output
from orga.activities.ports import Tool, ToolContext, ToolError
from orga.workflows.types.tool_calls.tools import Effect, ToolOptions, ToolOutput, ToolSpec

NO_OPTIONS = ToolOptions()

Body = Callable[[dict[str, Any], ToolContext], Any]
"""A function of a call's arguments and its context. Its return value becomes text like that of any tool."""


def permanent(text: str) -> ToolError:
    """Return a failure that a retry cannot fix. The model reads the text."""
    return ToolError(text, retryable=False)


def transient(text: str) -> ToolError:
    """Return a failure that may not occur at the next attempt. Temporal retries it according to the tool's options."""
    return ToolError(text, retryable=True)


@dataclass
class FakeTool:
    """A tool whose calls are recorded: `FakeTool("search", "two lamps")`.

    If the worker has a tool of that name, this one replaces it and has its parameters, effect and options.
    """

    name: str
    body: str | Exception | Sequence[str | Exception] | Body = "ok"
    """A result, a failure (`permanent`, `transient`), or a function. A sequence gives one for each attempt, and then
    repeats the last."""
    effect: Effect = "read_only"
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    """JSON Schema of its arguments. By default, any arguments are accepted."""
    options: ToolOptions | Mapping[str, Any] = NO_OPTIONS
    """Options of its calls, as in `[tools.options.NAME]`. They override those of the tool that it replaces."""
    description: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The arguments of each attempt, oldest first."""
    contexts: list[ToolContext] = field(default_factory=list[ToolContext])
    """The ids, idempotency key and number of each attempt."""

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            InvalidInput: An option is unknown.
        """
        if not isinstance(self.options, ToolOptions):
            self.options = ToolOptions(**self.options)

    @property
    def spec(self) -> ToolSpec:
        """The definition of the tool."""
        assert isinstance(self.options, ToolOptions)
        return ToolSpec(
            name=self.name,
            description=self.description or f"the {self.name} tool",
            parameters=dict(self.parameters),
            effect=self.effect,
            options=self.options,
        )

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Record the call, then answer or fail as specified."""
        self.calls.append(arguments)
        self.contexts.append(context)
        value = self._result_for(arguments, context)
        if isinstance(value, Exception):
            raise value
        return await awaited_output(self.name, value)

    def in_place_of(self, spec: ToolSpec) -> Tool:
        """Return this tool under the definition of another, with its own options on top."""
        return _FakeInPlace(self, spec.with_options(spec.options.with_overrides(self.spec.options)))

    def _result_for(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        if callable(self.body):
            return self.body(arguments, context)
        if isinstance(self.body, str | Exception):
            return self.body
        return self.body[min(len(self.calls), len(self.body)) - 1]


@dataclass(frozen=True)
class _FakeInPlace:
    """A fake tool under the definition of the tool that it replaces."""

    fake: FakeTool
    spec: ToolSpec

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        return await self.fake.call(arguments, context)
