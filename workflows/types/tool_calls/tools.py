"""Tools: their definitions, their options, the input and result of a call, and profiles."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_serializer, model_validator
from pydantic_core import to_json

from orga.workflows.types.json_text import as_object, as_objects, parsed_last_line
from orga.workflows.types.knowledge import Behalf
from orga.workflows.types.messages import Message
from orga.workflows.types.parts import MediaPart, ToolCall
from orga.workflows.types.questions import Completion, GivenInputs
from orga.workflows.types.record import CheckedInput, Record, replace_differing_fields, replace_fields
from orga.workflows.types.text import clean_text, clip
from orga.workflows.types.tool_calls.breakers import BreakerOptions
from orga.workflows.types.tool_calls.recovery import Recovery, tool_message

Effect = Literal["read_only", "idempotent", "irreversible"]
"""The effect of repeating a call: none, the same again, or more harm. It decides if a call with an unknown outcome may
be repeated.
"""


class ToolOptions(CheckedInput):
    """Settings for the calls of one tool, mostly Temporal activity options in seconds. `[tools.options.NAME]`."""

    effect: Effect | None = None
    """Overrides the effect that the tool declares, if you know better what it does."""
    timeout_s: float | None = Field(default=None, ge=0.001, le=86_400)
    """Seconds for one attempt. None takes `tool_timeout_s` of the run."""
    heartbeat_timeout_s: float | None = Field(default=None, ge=0.1, le=3_600)
    """Seconds of silence after which an attempt counts as lost. None takes 10."""
    max_attempts: int | None = Field(default=None, ge=1, le=100)
    """Attempts of one call. None takes the run's recovery setting, and 1 for an irreversible tool."""
    initial_interval_s: float | None = Field(default=None, ge=0.001, le=3_600)
    """Seconds before the second attempt. None takes `base_delay_ms` of the run's recovery setting."""
    backoff_coefficient: float = Field(default=2.0, ge=1, le=10)
    """Each delay is longer than the previous one by this factor."""
    max_interval_s: float = Field(default=30.0, ge=0.001, le=3_600)
    """The longest delay between two attempts, in seconds."""
    non_retryable: tuple[str, ...] = ()
    """Error types that are final."""
    task_queue: str | None = Field(default=None, min_length=1)
    """The queue of another worker. None is the queue of the run."""
    execution: Literal["activity", "local"] = "activity"
    """`local` runs the call inside the workflow task. Use it only for fast read-only tools."""
    isolation: Literal["thread", "process"] | None = None
    """The isolation of a Python function. A `process` can be killed if it ignores its time limit. None: as declared."""
    verified: bool = False
    """True if the operator vouches for this tool, for `require_verified` of a tool profile. True for built-in tools."""
    tags: tuple[str, ...] = ()
    """Tags of the tool for policies."""
    approval: bool = False
    """True if a person has to approve each call. The default gate asks. Cedar and OPA see it as `approval`."""
    trusted_output: bool = False
    """True if the tool's output is trusted, such as that of a calculator. It then leaves no taint."""
    recovery: Recovery | None = None
    """Overrides the run's `recovery`."""
    breaker: BreakerOptions = BreakerOptions()
    max_result_bytes: int = Field(default=20_000, ge=200, le=500_000)
    """UTF-8 bytes of a result that reach the model. The rest is cut off, and a line says so."""

    def with_timeout(self, timeout_s: float | None) -> Self:
        return replace_fields(self, {"timeout_s": timeout_s})

    def with_overrides(self, overrides: "ToolOptions") -> Self:
        """Return these options, overridden by those that are set in `overrides`."""
        return replace_fields(self, {name: getattr(overrides, name) for name in overrides.model_fields_set})

    def with_recovery(self, recovery: Recovery) -> Self:
        return replace_fields(self, {"recovery": recovery})


class Deferral(Record):
    """The terms of a deferred tool, whose results come later, by the update `complete_tool_call`."""

    expires_s: float
    """Seconds without a result, after which a call has failed."""
    has_start: bool = False
    """True if an activity starts the work of each call."""
    output_schema: dict[str, Any] | None = None
    """JSON Schema (2020-12) of a result. None: any JSON."""

    def with_output_schema(self, schema: dict[str, Any]) -> Self:
        return replace_fields(self, {"output_schema": schema})


class ToolSpec(Record):
    """A tool as a run offers it to the model: its definition, its effect, its options."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    """JSON Schema (2020-12) of the arguments, an object."""
    effect: Effect = "irreversible"
    options: ToolOptions = ToolOptions()
    main_argument: str | None = None
    """The argument that distinguishes calls in summaries (`read_file README.md`)."""
    digest: str = ""
    """Digest of the definition of an MCP server's tool, which may change during a run. A call is made only if the
    server's current definition has it.
    """
    pinned: bool = False
    """True if the operator has pinned the definition of this MCP server's tool."""
    deferred: Deferral | None = None
    """Set if its results come later."""
    takes_caller: bool = False
    """True if each call gets its `Caller`. Calls of other tools lack it, to save history."""
    output_schema: dict[str, Any] | None = None
    """JSON Schema of the value that a call returns. The last line of its text is this value as JSON."""

    def with_effect(self, effect: Effect) -> Self:
        return replace_fields(self, {"effect": effect})

    def with_options(self, options: ToolOptions) -> Self:
        return replace_fields(self, {"options": options})

    def with_takes_caller(self, takes: bool) -> Self:
        return replace_differing_fields(self, {"takes_caller": takes})

    def with_output_schema(self, schema: dict[str, Any] | None) -> Self:
        return replace_differing_fields(self, {"output_schema": schema})

    @property
    def value_schema(self) -> dict[str, Any] | None:
        """The schema of the values that it returns, now or later. None: only texts."""
        return self.output_schema if self.deferred is None else self.deferred.output_schema

    def value_in(self, text: str) -> Any:
        """Return the value in the text of a successful call, or None if there is none or it was cut."""
        return parsed_last_line(text) if self.value_schema is not None else None

    @property
    def max_result_bytes(self) -> int:
        """UTF-8 bytes of a result that are recorded and shown."""
        most = self.options.max_result_bytes
        return min(most, MAX_LOCAL_RESULT_BYTES) if self.options.execution == "local" else most


WORKER_SHUTDOWN = "WorkerShutdown"
"""Failure type of a call whose worker was stopping. Its effect may or may not have happened."""

CALL_STOPPED = "CallStopped"
"""Failure type of a call whose activity somebody paused or reset, for example in the Temporal UI."""

OUTSIDE_STOPS = frozenset({WORKER_SHUTDOWN, CALL_STOPPED})
"""Failure types that show nothing about the tool's health."""

TIME_LIMIT = "TimeLimit"
"""Failure type of a call that its worker cut off, just before the server would have."""

PROCESS_CRASHED = "ProcessCrashed"
"""Failure type of a call whose process ended without a result."""

UNKNOWN_OUTCOMES = frozenset({*OUTSIDE_STOPS, TIME_LIMIT, PROCESS_CRASHED})
"""Failure types after which the effect may or may not have happened."""

EARLIER_UNKNOWN = "earlier attempt: outcome unknown"
"""Detail of a failure, of any type: an earlier attempt may have had its effect."""

JOB_FAILED, EXPIRED, INVALID_RESULT = "JobFailed", "Expired", "InvalidResult"
"""Failure types of a call of a deferred tool. An invalid result is refused, and the call continues to wait."""

NOT_DONE = "nothing was done"
MAYBE_DONE = "outcome unknown"
DONE = "it took effect"
"""Details of a failure, of any type, about the effect. Without any, the effect of an irreversible call is unknown."""

GOES_ON = "it goes on"
"""Detail of a failure: the call was cut off, and the work that it began may still act."""

REPORT_S = 2.0
"""Seconds from a call's time limit until the server gives up the attempt. The worker has this time to end the call and
report it.
"""

MAX_LOCAL_TIMEOUT_S = 2.0
"""Seconds for a call inside the workflow task. The run handles no signal, not even an abort, until the call ends."""

MAX_LOCAL_RESULT_BYTES = 50_000
"""Bytes of the result of a call inside the workflow task. The results of all calls of a reply are one message to the
server, which accepts 4 MB.
"""

NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
"""JSON Schema of the arguments of a tool that has none."""


def object_schema(properties: dict[str, Any], required: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the schema of an object with exactly these properties. All are required, or else those in `required`."""
    names = list(properties if required is None else required)
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


class Caller(Record):
    """The run that makes a call, and the people for whom it works. The run sets it, never the model."""

    agent: str = ""
    tenant: str = ""
    trusted_context: dict[str, Any] = {}
    """Facts from whoever started the run."""
    approver: str = ""
    """The person who approved the call. Empty if nobody had to."""

    @classmethod
    def from_facts(
        cls, agent: str, tenant: str | None, trusted_context: dict[str, Any], approver: str = ""
    ) -> "Caller":
        """Return the caller. Empty facts stay unset, to save history."""
        given = {"agent": agent, "tenant": tenant, "trusted_context": trusted_context, "approver": approver}
        return cls.model_validate({name: value for name, value in given.items() if value})


class ToolRequest(Record):
    """Input of a tool activity. The activity's type is the tool's name."""

    call_id: str
    arguments: dict[str, Any] = {}
    key: str
    """Idempotency key: the same for every attempt of this call, through retry, reset and continue-as-new."""
    digest: str = ""
    """Digest of the offered tool. Set only if its spec has one, since it costs bytes in every call."""
    permit: str = ""
    """The gate's signature and the terms that it covers. Set only if workers have a key."""
    behalf: Behalf | None = None
    """On whose behalf the call is made. Set only for tools that recall and store."""
    caller: Caller | None = None
    left_s: float | None = None
    """Seconds left on the run's clock when the call was scheduled. Set only if the call may be retried."""
    is_awaited: bool = False
    """True if the run waits for the end of this call even after it has cut the call short."""
    given: GivenInputs | None = None
    """Input from people that the tool has asked for."""
    completion: Completion | None = None
    """The end of a call of a deferred tool. If it is set, the tool itself is not called."""

    def with_completion(self, completion: Completion) -> Self:
        return replace_fields(self, {"completion": completion})


class ActivityCall(CheckedInput):
    """Input of `ActivityCallWorkflow`: one call of a tool that is another worker's activity."""

    activity: str = Field(min_length=1, max_length=200)
    """The activity's type."""
    task_queue: str = Field(min_length=1, max_length=200)
    """The queue of the worker that has it."""
    arguments: dict[str, Any] = {}
    """The activity's first argument."""
    context: dict[str, Any] | None = None
    """The activity's second argument. None: it takes only one."""
    timeout_s: float = Field(gt=0, le=86_400)
    """Seconds from the start of the activity to its end."""
    pickup_s: float = Field(gt=0, le=86_400)
    """Seconds until a worker has to take it."""
    heartbeat_timeout_s: float | None = Field(default=None, gt=0, le=86_400)
    """Seconds without a heartbeat, after which it counts as lost. None: it need not send any."""


class ToolOutput(Record):
    """Result of a tool activity, written as the bare text unless it has pictures or documents.

    Another maker's worker may return any JSON: a string is the content, other values become text.
    """

    content: str = ""
    media: tuple[MediaPart, ...] = ()
    """Pictures and documents for the model, by reference. The content has a line for each."""

    @model_serializer
    def _written_output(self) -> Any:
        if not self.media:
            return self.content
        return {"content": self.content, "media": [part.model_dump(exclude_defaults=True) for part in self.media]}

    def with_content(self, content: str) -> Self:
        return replace_fields(self, {"content": content})

    def with_media(self, media: tuple[MediaPart, ...]) -> Self:
        return replace_fields(self, {"media": media})

    @model_validator(mode="before")
    @classmethod
    def _from_any_json(cls, value: Any) -> Any:
        if isinstance(value, ToolOutput):
            return value
        content, media = as_object(value).get("content"), as_objects(as_object(value).get("media"))
        text = clean_text(content if isinstance(content, str) else _result_text(value))
        return {"content": text, "media": _valid_media(media)} if media else {"content": text}


def _valid_media(media: list[dict[str, Any]]) -> tuple[MediaPart, ...]:
    """Return the references, or () if they are invalid: another maker's worker may use `media` for something else."""
    try:
        return tuple(map(MediaPart.model_validate, media[:MAX_RESULT_MEDIA]))
    except ValidationError:
        return ()


MAX_RESULT_MEDIA = 10


def result_message(call: ToolCall, output: ToolOutput, spec: ToolSpec | None) -> Message:
    text = clip(output.content, spec.max_result_bytes) if spec else output.content
    return tool_message(call, text, is_error=False).with_media(output.media)


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

    Globs know only `*` and `?`, match whole names, and are case-sensitive.
    """

    include: tuple[Glob, ...] = Field(default=(), max_length=MAX_GLOBS)
    """Tools that match any of these are offered. Empty means all."""
    exclude: tuple[Glob, ...] = Field(default=(), max_length=MAX_GLOBS)
    """Tools that match any of these are not offered."""
    require_verified: bool = False
    """True if only tools that the operator vouches for are offered: built-in ones, and `verified` ones."""
    max_tools: int | None = Field(default=None, ge=0, le=1_000)
    """The most tools to offer. If more remain, the first ones are offered. Null: all."""

    def offered_tools(self, tools: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
        offered = [tool for tool in tools if not matches_any_glob(tool.name, self.exclude)]
        if self.include:
            offered = [tool for tool in offered if matches_any_glob(tool.name, self.include)]
        if self.require_verified:
            offered = [tool for tool in offered if tool.options.verified]
        return tuple(offered[: self.max_tools])


def include_only(*names: str) -> ToolProfile:
    return ToolProfile(include=names)


def exclude_only(*names: str) -> ToolProfile:
    return ToolProfile(exclude=names)


def matches_any_glob(name: str, globs: Sequence[str]) -> bool:
    """Return True if a name matches one of `globs`. The time is at most the product of both lengths."""
    return any(_matches_glob(name, glob) for glob in globs)


def is_glob(name: str) -> bool:
    """Return True if it may match several tools. No tool has such a name."""
    return "*" in name or "?" in name


def _matches_glob(name: str, glob: str) -> bool:
    """Match from the left. On a mismatch, the last star takes one more character. Earlier stars never have to."""
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
