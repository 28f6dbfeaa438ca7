"""Tools: what a model is offered, by which profile, how a call is carried out, what comes back."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self, cast

from pydantic import Field, model_serializer, model_validator
from pydantic_core import to_json

from orga.workflows.types.knowledge import Behalf
from orga.workflows.types.record import CheckedInput, Record, replace_fields
from orga.workflows.types.text import clean_text
from orga.workflows.types.tool_calls.breakers import BreakerOptions
from orga.workflows.types.tool_calls.recovery import Recovery

Effect = Literal["read_only", "idempotent", "irreversible"]
"""What repeating a call does: nothing, the same again, or harm. Attempts after an unknown outcome follow it."""


class ToolOptions(CheckedInput):
    """How calls of one tool are carried out: Temporal activity options, in seconds. `[tools.options.NAME]`."""

    effect: Effect | None = None
    """In place of the tool's own: you know better what a function or a program does in your hands."""
    timeout_s: float | None = Field(default=None, ge=0.001, le=86_400)
    """One attempt; None takes `tool_timeout_s` of the run."""
    heartbeat_timeout_s: float | None = Field(default=None, ge=0.1, le=3_600)
    """Silence after which an attempt counts as lost; None takes a default that our own tools keep."""
    max_attempts: int | None = Field(default=None, ge=1, le=100)
    """None follows the effect: the run's recovery setting, and 1 for an irreversible tool."""
    initial_interval_s: float | None = Field(default=None, ge=0.001, le=3_600)
    """Before the second attempt; None takes `base_delay_ms` of the run's recovery setting."""
    backoff_coefficient: float = Field(default=2.0, ge=1, le=10)
    """By which each pause between two attempts is longer than the one before."""
    max_interval_s: float = Field(default=30.0, ge=0.001, le=3_600)
    """The longest pause between two attempts."""
    non_retryable: tuple[str, ...] = ()
    """Error types that are final."""
    task_queue: str | None = Field(default=None, min_length=1)
    """Another worker's queue; None is the queue of the run."""
    execution: Literal["activity", "local"] = "activity"
    """`local` runs the call inside the workflow task: fast read-only tools only."""
    isolation: Literal["thread", "process"] | None = None
    """Where a Python function runs; a `process` can be killed when it ignores its time limit. None: as declared."""
    verified: bool = False
    """The operator vouches for this tool (`require_verified` of a tool profile). Built-in tools are verified."""
    tags: tuple[str, ...] = ()
    """Words that policies know the tool by."""
    approval: bool = False
    """A person has to say yes to each call. The default gate asks; Cedar and OPA see it as `approval` of the tool."""
    trusted_output: bool = False
    """What the tool returns is no stranger's text (a calculator, say): it leaves no taint."""
    recovery: Recovery | None = None
    """In place of the run's `recovery`."""
    breaker: BreakerOptions = BreakerOptions()
    max_result_bytes: int = Field(default=20_000, ge=200, le=500_000)
    """UTF-8 bytes of a result that reach the model; the rest is cut with a marker that says so."""

    def with_timeout(self, timeout_s: float | None) -> Self:
        """Return the options with another time limit."""
        return replace_fields(self, {"timeout_s": timeout_s})

    def with_overrides(self, above: "ToolOptions") -> Self:
        """Return the options with all that is set in others over them."""
        return replace_fields(self, {name: getattr(above, name) for name in above.model_fields_set})

    def with_recovery(self, recovery: Recovery) -> Self:
        """Return the options with a recovery of the tool's own."""
        return replace_fields(self, {"recovery": recovery})


class ToolSpec(Record):
    """A tool as it is offered: its definition for the model, its effect, its options."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    """JSON Schema (2020-12) of the arguments, an object."""
    effect: Effect = "irreversible"
    options: ToolOptions = ToolOptions()
    main_argument: str | None = None
    """The argument that tells calls apart in summaries (`read_file README.md`)."""
    digest: str = ""
    """Of the definition as its maker gave it, where that may change under a run; a call is made only while it holds."""
    pinned: bool = False
    """Whether the operator has looked at just this definition, which a stranger wrote."""

    def with_effect(self, effect: Effect) -> Self:
        """Return the tool with another effect."""
        return replace_fields(self, {"effect": effect})

    def with_options(self, options: ToolOptions) -> Self:
        """Return the tool with other options."""
        return replace_fields(self, {"options": options})

    @property
    def max_result_bytes(self) -> int:
        """UTF-8 bytes of a result that are recorded and shown."""
        most = self.options.max_result_bytes
        return min(most, MAX_LOCAL_RESULT_BYTES) if self.options.execution == "local" else most


WORKER_SHUTDOWN = "WorkerShutdown"
"""Type of the failure of a call whose worker was told to stop: its effect may or may not have happened."""

TIME_LIMIT = "TimeLimit"
"""Type of the failure of a call that its worker cut off, just before the server would have."""

PROCESS_CRASHED = "ProcessCrashed"
"""Type of the failure of a call whose process ended without a result."""

UNKNOWN_OUTCOMES = frozenset({WORKER_SHUTDOWN, TIME_LIMIT, PROCESS_CRASHED})
"""Types of failures after which the effect may or may not have happened."""

EARLIER_UNKNOWN = "earlier attempt: outcome unknown"
"""Detail of a failure, of whatever type: an attempt before the one that failed may have had its effect."""

NOT_DONE = "nothing was done"
MAYBE_DONE = "outcome unknown"
DONE = "it took effect"
"""Details of a failure, of whatever type: what it did. One without any leaves open what an irreversible call did."""

GOES_ON = "it goes on"
"""Detail of a failure: the call was cut off, and what it began may still act."""

REPORT_S = 2.0
"""Beyond its time limit, until the server gives an attempt up: for its worker to end it and to say so."""

MAX_LOCAL_TIMEOUT_S = 2.0
"""Of a call inside the workflow task: until it ends no signal is heard, an abort neither."""


MAX_LOCAL_RESULT_BYTES = 50_000
"""Of a call inside the workflow task: the results of all of a reply's calls are one message to the server, of 4 MB."""


class ToolRequest(Record):
    """Input of a tool activity, whose type is the tool's name."""

    call_id: str
    arguments: dict[str, Any] = {}
    key: str
    """Idempotency key: the same for every attempt of this call, through retry, reset and continue-as-new."""
    digest: str = ""
    """Of the tool that the run was offered; set only where its spec has one, since it costs bytes in every call."""
    permit: str = ""
    """The gate's signature and the terms that it covers; set only where workers have a key."""
    behalf: Behalf | None = None
    """On whose behalf it is made; set only for tools that recall and store."""
    left_s: float | None = None
    """Seconds on the run's clock when it was asked for; set only where the call may be tried again."""
    is_awaited: bool = False
    """Whether the run waits, where it cuts the call short, until that has ended: what it does next comes behind it."""


class ToolOutput(Record):
    """Result of a tool activity, written as the bare text.

    Another maker's worker may return any JSON: a string is the content, else its text.
    """

    content: str = ""

    @model_serializer
    def _bare(self) -> Any:
        return self.content

    def with_content(self, content: str) -> Self:
        """Return the result with another text."""
        return replace_fields(self, {"content": content})

    @model_validator(mode="before")
    @classmethod
    def _from_any_json(cls, value: Any) -> Any:
        if isinstance(value, ToolOutput):
            return value
        content = cast("dict[str, Any]", value).get("content") if isinstance(value, dict) else None
        return {"content": clean_text(content if isinstance(content, str) else _result_text(value))}


def _result_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    is_json = value is None or isinstance(value, (dict, list, int, float))
    return to_json(value).decode() if is_json else str(value)  # pyright: ignore[reportUnknownArgumentType]


MAX_GLOBS = 200

Glob = Annotated[str, Field(max_length=200)]


class ToolProfile(CheckedInput):
    """`tool_profile` of the config: include, then exclude, then verified, then the first `max_tools`.

    Globs know `*` and `?` alone, match whole names, and tell upper from lower case.
    """

    include: tuple[Glob, ...] = Field(default=(), max_length=MAX_GLOBS)
    """Tools that match any of these; empty stands for all."""
    exclude: tuple[Glob, ...] = Field(default=(), max_length=MAX_GLOBS)
    """Tools that match any of these are not offered."""
    require_verified: bool = False
    """Only tools that the operator vouches for: the built-in ones, and those whose options say `verified`."""
    max_tools: int | None = Field(default=None, ge=0, le=1_000)
    """How many are offered, the first of those that are left; null: all."""

    def visible(self, tools: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
        """Return the tools that are offered, in their order."""
        kept = [
            tool
            for tool in tools
            if (not self.include or matches_any_glob(tool.name, self.include))
            and not matches_any_glob(tool.name, self.exclude)
            and (tool.options.verified or not self.require_verified)
        ]
        return tuple(kept[: self.max_tools])


def include_only(*names: str) -> ToolProfile:
    """Return a profile of these tools alone."""
    return ToolProfile(include=names)


def exclude_only(*names: str) -> ToolProfile:
    """Return a profile of all tools but these."""
    return ToolProfile(exclude=names)


def matches_any_glob(name: str, globs: Sequence[str]) -> bool:
    """Return whether a name is one of `globs`, or fits one; in time linear in each glob times the name."""
    return any(_matches_glob(name, glob) for glob in globs)


def is_glob(name: str) -> bool:
    """Return whether it may stand for several tools; no tool has such a name."""
    return "*" in name or "?" in name


def _matches_glob(name: str, glob: str) -> bool:
    """Go through both; where they part, the last star takes one character more. No star before it has to be tried."""
    at = in_glob = 0
    star, taken = -1, 0
    while at < len(name):
        if in_glob < len(glob) and glob[in_glob] == "*":
            star, taken = in_glob, at
            in_glob += 1
        elif in_glob < len(glob) and glob[in_glob] in ("?", name[at]):
            at, in_glob = at + 1, in_glob + 1
        elif star >= 0:
            taken += 1
            at, in_glob = taken, star + 1
        else:
            return False
    return not glob[in_glob:].strip("*")
