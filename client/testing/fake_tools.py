"""Tools that do nothing but record their calls, and say or fail as a test wrote down."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orga.activities.adapters.tools.python_function import awaited_output
from orga.activities.ports import Tool, ToolContext, ToolError
from orga.workflows.types.tool_calls.tools import Effect, ToolOptions, ToolOutput, ToolSpec

NO_OPTIONS = ToolOptions()

Body = Callable[[dict[str, Any], ToolContext], Any]
"""A function of a call's arguments and its context; what it returns becomes text as that of any tool."""


def permanent(text: str) -> ToolError:
    """Return a failure that trying again cannot mend: the model reads the text."""
    return ToolError(text, retryable=False)


def transient(text: str) -> ToolError:
    """Return a failure that may be gone at the next attempt, which Temporal makes as the tool's options say."""
    return ToolError(text, retryable=True)


@dataclass
class FakeTool:
    """A tool whose calls are recorded: `FakeTool("search", "two lamps")`.

    In place of a tool that the worker has, it is offered to the model as that one is: same parameters, effect, options.
    """

    name: str
    body: str | Exception | Sequence[str | Exception] | Body = "ok"
    """What it says, how it fails (`permanent`, `transient`), these one attempt after another with the last again and
    again, or a function."""
    effect: Effect = "read_only"
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    """JSON Schema of its arguments; any unless given."""
    options: ToolOptions | Mapping[str, Any] = NO_OPTIONS
    """How its calls are carried out, as `[tools.options.NAME]` says it; what is set here wins."""
    description: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The arguments of each attempt, oldest first."""
    contexts: list[ToolContext] = field(default_factory=list[ToolContext])
    """Ids, idempotency key and number of each attempt."""

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            InvalidInput: There is no such option.
        """
        if not isinstance(self.options, ToolOptions):
            self.options = ToolOptions(**self.options)

    @property
    def spec(self) -> ToolSpec:
        """The definition."""
        assert isinstance(self.options, ToolOptions)
        return ToolSpec(
            name=self.name,
            description=self.description or f"the {self.name} tool",
            parameters=dict(self.parameters),
            effect=self.effect,
            options=self.options,
        )

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Record the call and do what was written down."""
        self.calls.append(arguments)
        self.contexts.append(context)
        value = self._result_for(arguments, context)
        if isinstance(value, Exception):
            raise value
        return await awaited_output(self.name, value)

    def in_place_of(self, spec: ToolSpec) -> Tool:
        """Return it as a tool of another definition, under its own options."""
        return _FakeInPlace(self, spec.with_options(spec.options.with_overrides(self.spec.options)))

    def _result_for(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        if callable(self.body):
            return self.body(arguments, context)
        if isinstance(self.body, str | Exception):
            return self.body
        return self.body[min(len(self.calls), len(self.body)) - 1]


@dataclass(frozen=True)
class _FakeInPlace:
    """A fake tool, offered as the one that it stands in for."""

    fake: FakeTool
    spec: ToolSpec

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        return await self.fake.call(arguments, context)
