"""Fake tools, which record their calls and answer as specified, and functions that make other values for a test."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from orga.activities.adapters.tools.python_function import awaited_output, checked_output_schema
from orga.activities.ports import Tool, ToolContext, ToolError
from orga.client.config.sections import OrgaConfig
from orga.client.errors import ConfigError
from orga.workflows.types.input import AgentInput, parse_input
from orga.workflows.types.record import validation_problems
from orga.workflows.types.tool_calls.tools import Effect, ToolOptions, ToolOutput, ToolSpec

NO_OPTIONS = ToolOptions()


Body = Callable[[dict[str, Any], ToolContext], Any]
"""A function of a call's arguments and its context. It returns what any tool function may return."""


def permanent(text: str) -> ToolError:
    """Return a failure that a retry cannot fix. The model reads the text."""
    return ToolError(text, retryable=False)


def transient(text: str) -> ToolError:
    """Return a failure that may not occur at the next attempt. Temporal retries it according to the tool's options."""
    return ToolError(text, retryable=True)


@dataclass
class FakeTool:
    """A tool whose calls are recorded: `FakeTool("search", "two lamps")`.

    If the worker has a tool of that name, the fake replaces it, and keeps that tool's parameters, effect, output schema
    and options. A fake for a deferred tool replaces its `start`, and the call waits for its result.
    """

    name: str
    body: Body | object = "ok"
    """A result, a failure (`permanent`, `transient`), or a function. A list or a tuple has one of these for each
    attempt, and the last is repeated. A result is a text, or a value that a tool function may return, such as a dict.
    """
    effect: Effect = "read_only"
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    """JSON Schema of its arguments. By default, any arguments are accepted."""
    options: ToolOptions | Mapping[str, Any] = NO_OPTIONS
    """Options of its calls, as in `[tools.options.NAME]`. They override the options of the tool that it replaces."""
    description: str = ""
    output_schema: Any = None
    """The type of the value that it returns, such as a pydantic model, or a JSON Schema. None allows any JSON."""
    calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The arguments of each attempt, oldest first."""
    contexts: list[ToolContext] = field(default_factory=list[ToolContext])
    """The context of each attempt: its ids, idempotency key and number."""

    def __post_init__(self) -> None:
        """Check the options, the output schema and the results.

        Raises:
            InvalidInput: An option is unknown.
            ValueError: The output schema cannot be used, or there is no result.
        """
        if type(self.body) in (list, tuple) and not self.body:
            raise ValueError(f"FakeTool({self.name!r}): an empty list has no result; write [[]] to return one")
        if self.output_schema is not None:
            self.output_schema = checked_output_schema(self.output_schema)
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
            output_schema=self.output_schema,
        )

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Record the call, then answer or fail as specified."""
        self.calls.append(arguments)
        self.contexts.append(context)
        result: Any = self.body
        if isinstance(result, (list, tuple)):
            results = cast("Sequence[Any]", result)
            result = results[min(len(self.calls), len(results)) - 1]
        if callable(result):
            result = result(arguments, context)
        if isinstance(result, Exception):
            raise result
        return await awaited_output(self.name, result)

    def in_place_of(self, spec: ToolSpec) -> Tool:
        """Return this tool with the definition of the tool that it replaces. Its own options override that tool's."""
        return _FakeInPlace(self, spec.with_options(spec.options.with_overrides(self.spec.options)))


@dataclass(frozen=True)
class _FakeInPlace:
    fake: FakeTool
    spec: ToolSpec

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        return await self.fake.call(arguments, context)


def agent_input(task: str = "do it", **given: Any) -> AgentInput:
    """Return the input of a run: `agent_input("tidy up", agent="clerk", config={"max_iterations": 3})`.

    Raises:
        InvalidInput: The text names each bad key.
    """
    return parse_input({"task": task, **given})


def orga_config(text: str = "", **sections: Any) -> OrgaConfig:
    """Return a configuration from the content of an `orga.toml`, without a file that needs trust.

    Args:
        text: The content as TOML.
        sections: Sections as values: `orga_config(models={"default": "openai:gpt-5"})`. They override the text.

    Raises:
        ConfigError: The text names each bad key.
    """
    try:
        return OrgaConfig.model_validate({**tomllib.loads(text), **sections}, extra="forbid")
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"orga_config: this is no TOML: {error}") from None
    except ValidationError as error:
        raise ConfigError(
            "\n".join(f"orga_config: {each}" for each in validation_problems(error, OrgaConfig))
        ) from None


def permits(*tools: str, rule: str = "permitted") -> str:
    """Return a Cedar policy that allows calls of these tools (of all tools, if none is named) and all answers."""
    named = f" when {{ {_any_of(tools)} }}" if tools else ""
    answering = (
        f'@id("{rule}-answers") permit (principal, action in [Action::"respond", Action::"terminate"], resource);'
    )
    return f'@id("{rule}") permit (principal, action == Action::"tool_call", resource){named};\n{answering}\n'


def forbids(*tools: str, rule: str = "forbidden") -> str:
    """Return a Cedar policy that denies calls of these tools."""
    return f'@id("{rule}") forbid (principal, action == Action::"tool_call", resource) when {{ {_any_of(tools)} }};\n'


def policy_folder(folder: Path, *policies: str) -> Path:
    """Write policies into a new folder `policies` below `folder`, and return the new folder.

    Use it as `policy=policy_folder(tmp_path, permits(), ...)`.

    Args:
        folder: For instance pytest's `tmp_path`.
        policies: Cedar policies.
    """
    place = folder / "policies"
    place.mkdir(parents=True, exist_ok=True)
    (place / "test.cedar").write_text("\n".join(policies), encoding="utf-8")
    return place


def _any_of(tools: tuple[str, ...]) -> str:
    return " || ".join(f'resource.name == "{tool}"' for tool in tools)
