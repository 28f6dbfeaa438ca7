"""The input of `AgentWorkflow`, checked once when a run starts."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypedDict, cast, get_origin

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PydanticUserError,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    model_serializer,
    model_validator,
)
from pydantic_core import to_json

from orga.workflows.types import limits
from orga.workflows.types.given_messages import GivenMessage, GivenMessages
from orga.workflows.types.knowledge import DEFAULT_RECALLED, DEFAULT_THRESHOLD
from orga.workflows.types.models.call_settings import Effort, ModelSettings
from orga.workflows.types.parts import MAX_MEDIA_NAME_CHARS, MEDIA_DIGEST, MediaPart, MediaType
from orga.workflows.types.record import CheckedInput, check_input, not_an_object, replace_fields
from orga.workflows.types.text import LinearPattern
from orga.workflows.types.tool_calls.recovery import Recovery, StepIteration
from orga.workflows.types.tool_calls.tools import ToolProfile


class Lineage(CheckedInput):
    """The origin of a delegated run."""

    parent: str = ""
    """Workflow id of the run that delegated."""
    chain: tuple[str, ...] = ()
    """Agents from the first run to this run's parent."""
    key: str = Field(default="", max_length=200)
    """Idempotency key of the delegating call. A run that repeats the call uses the same keys again."""
    ceiling: limits.Ceiling = limits.Ceiling()
    taint: tuple[str, ...] = ()
    """The parent's taint: tools whose untrusted content may have shaped the task."""
    is_awaited: bool = False
    """True if an interrupted run waits until its cut-short calls have ended, because its parent's next work must come
    after them. True for the delegates of a session's turn, and for their delegates.
    """

    @property
    def depth(self) -> int:
        """The number of delegations that lead to this run."""
        return len(self.chain)


MAX_TRUSTED_BYTES = 100_000

MAX_SCHEMA_BYTES = 50_000
"""Bytes of JSON. A provider gets the schema with each call."""

MAX_REST_BYTES = 50_000
"""Bytes of JSON for lists of tools, profiles, patterns and similar settings. The carried state holds them too."""

MAX_TASK_BYTES = 200_000
"""Bytes. Longer tasks belong in a file that the agent reads, because a payload must stay far below 2 MB."""


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text


NOT_BLANK = AfterValidator(_not_blank)


def max_json_bytes(most: int, remedy: str) -> AfterValidator:
    """Return the check that the JSON of a value has at most `most` bytes. The quotes of a text do not count."""

    def check(value: Any) -> Any:
        size = len(to_json(value, inf_nan_mode="null"))
        if isinstance(value, str):
            size, adjective = size - len('""'), "longer"
        else:
            adjective = "larger"
        if size > most:
            raise ValueError(f"must not be {adjective} than {most} bytes of JSON, it has {size}; {remedy}")
        return value

    return AfterValidator(check)


def _schema_of_type(given: Any) -> object:
    """Return the JSON Schema of a type, such as a pydantic model, and anything else unchanged."""
    if given is None or isinstance(given, Mapping):
        return cast("object", given)
    if not isinstance(given, type) and get_origin(given) is None:
        raise ValueError("must be a JSON Schema, which is an object, or in Python a type such as a pydantic model")
    try:
        return TypeAdapter[Any](given).json_schema()
    except PydanticUserError:
        raise ValueError(f"{given} has no JSON Schema; give a schema, or a type such as a pydantic model") from None


PUT_INTO_FILE = "put it into a file that the agent reads"

Name = Annotated[str, Field(min_length=1, max_length=200)]
Task = Annotated[str, NOT_BLANK, max_json_bytes(MAX_TASK_BYTES, PUT_INTO_FILE)]
Instructions = Annotated[str | None, max_json_bytes(MAX_TASK_BYTES, PUT_INTO_FILE)]
OutputSchema = Annotated[
    dict[str, Any] | None,
    BeforeValidator(_schema_of_type),
    max_json_bytes(MAX_SCHEMA_BYTES, "shorten its descriptions, or describe a part of the answer in the task"),
]
TrustedContext = Annotated[
    dict[str, Any],
    max_json_bytes(
        MAX_TRUSTED_BYTES, "give what policies and decisions ask for, and the rest in a file that the agent reads"
    ),
]
ContextStrategy = Literal["sliding_window", "observation_masking", "anchored_summary", "none"]


class RunKnowledge(CheckedInput):
    """`knowledge` of the config: what a run recalls and learns."""

    enabled: bool = True
    """True if knowledge is recalled before each step and offered through tools."""
    max_context_items: int = Field(default=DEFAULT_RECALLED, ge=1, le=20)
    """Items that the context shows at a time."""
    relevance_threshold: float = Field(default=DEFAULT_THRESHOLD, ge=0, le=1)
    """The lowest score of an item that is shown."""
    auto_persist: bool = True
    """True if the model's findings are stored when the run, or a turn of a session, ends."""


def _checked_pattern(pattern: str) -> str:
    LinearPattern(pattern)
    return pattern


class CustomPattern(CheckedInput):
    """A further kind of reference, such as tickets: a type and a regular expression."""

    ref_type: str = Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")
    """Its name, which `resolution_tools` uses as a key."""
    pattern: Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_checked_pattern)]
    """Regular expression (RE2) that finds it in the task."""


class PreHydration(CheckedInput):
    """`pre_hydration` of the config. Null takes these defaults."""

    enabled: bool = True
    """True if references in the task are looked up before the first step."""
    custom_patterns: tuple[CustomPattern, ...] = Field(default=(), max_length=20)
    resolution_tools: dict[str, str] = {}
    """Tools by reference type, in addition to the defaults `url`: `fetch_url`, `file`: `read_file`, `issue`:
    `read_issue`, `pr`: `read_pull_request`. A tool is used only if it is read-only and the run is offered it.
    """
    timeout_s: float = Field(default=15.0, ge=0.001, le=3_600)
    """Seconds for all references together. Content that has arrived by then is used."""
    max_references: int = Field(default=10, ge=1, le=100)
    """References of one task. Further ones are not looked up."""
    max_context_tokens: int = Field(default=4_000, ge=1, le=100_000)
    """Tokens of all resolved content, at 4 bytes a token."""


FORMER_TEMPERATURE = 0.3
"""The temperature of runs that set none, in older histories."""

_BEFORE_TEMPERATURE = frozenset(
    {
        "max_iterations",
        "max_total_tokens",
        "timeout_s",
        "tool_timeout_s",
        "max_concurrent_tools",
        "context_token_budget",
    }
)
"""The fields that precede the temperature in the JSON of a digest."""


class LoopConfig(ModelSettings):
    """Limits and settings of one run. A limit is checked before each step, and is reached when the value equals it."""

    max_iterations: limits.IterationLimit = 25
    """Reasoning steps, counted across continue-as-new."""
    max_total_tokens: limits.TokenLimit = 100_000
    """Input and output tokens of all model calls, as the provider counts them."""
    timeout_s: limits.SecondsLimit = 300.0
    """Seconds of workflow time since the start. Pauses do not count. At the limit, the current phase is interrupted."""
    tool_timeout_s: float = Field(default=30.0, ge=0.001, le=86_400)
    """Seconds for one attempt of a tool call, unless the tool's options set `timeout_s`."""
    max_concurrent_tools: int = Field(default=5, ge=1, le=100)
    """Tool calls of a reply that run at the same time."""
    context_token_budget: int = Field(default=32_000, ge=500, le=10**8)
    """Estimated tokens of the conversation. Older messages are dropped above this. If it is not set, it is a
    quarter of `max_total_tokens`, at least 32,000, and at most what the model's context leaves next to a reply.
    """
    max_output_tokens: int = Field(default=16_384, ge=1, le=10**7)
    """Tokens of one reply. A reply never gets more than what is left of `max_total_tokens`."""
    max_delegation_depth: int = Field(default=3, ge=0, le=10)
    """The depth of nested delegations."""
    max_cost_usd: limits.CostLimit | None = None
    """Cost of all model calls, including those of delegates. Null: no limit."""
    max_model_calls: limits.ModelCallLimit | None = None
    """Answered model calls, including those of delegates."""
    max_tool_calls: limits.ToolCallLimit | None = None
    """Tool calls that were run, including those of delegates. Further calls are answered without being run."""
    on_exhausted: Literal["stop", "ask"] = "stop"
    """The reaction to a limit: end with the results so far, or wait for a person who may `extend_budget`."""
    context_strategy: ContextStrategy = "sliding_window"
    """The way to shorten a conversation that exceeds its budget."""
    recovery: Recovery = Recovery()
    """Recovery of failed calls of tools that have no recovery of their own."""
    tool_profile: ToolProfile | None = None
    """Null offers all tools of the agent."""
    step_iteration: StepIteration | None = None
    """Null takes the defaults of `StepIteration`."""
    pre_hydration: PreHydration | None = None
    """Null takes the defaults of `PreHydration`."""
    knowledge: RunKnowledge | None = None
    """Null turns knowledge off."""

    @model_serializer(mode="wrap")
    def _with_lasting_digest(self, serialize: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """Write the JSON of a digest as when 0.3 was the default temperature, so that recorded digests still match."""
        fields: dict[str, Any] = serialize(self)
        if not info.exclude_defaults:  # digests are of `canonical_json`, which excludes them
            return fields
        temperature = {} if self.temperature == FORMER_TEMPERATURE else {"temperature": self.temperature}
        before = {name: fields[name] for name in fields if name in _BEFORE_TEMPERATURE}
        rest = {name: fields[name] for name in fields if name not in before and name != "temperature"}
        return before | temperature | rest

    @property
    def uses_knowledge(self) -> bool:
        """True if the run recalls and learns."""
        return self.knowledge is not None and self.knowledge.enabled

    def with_context_budget(self, tokens: int) -> Self:
        return replace_fields(self, {"context_token_budget": tokens})

    def with_raised(self, raised: Mapping[str, int | float]) -> Self:
        """Return the config with those of the raised limits that are higher than its own. Unset limits stay unset.

        A raised limit can be lower than the config's own, if it was raised before the agent's config was known.
        """
        own = {name: getattr(self, name) for name in raised}
        higher = {name: value for name, value in raised.items() if own[name] and own[name] < value}
        return replace_fields(self, higher)


MAX_ATTACHMENTS = 20


class Attachment(CheckedInput):
    """A picture or a document of a task, by reference: the worker's store of blobs holds the bytes.

    `start_agent(attachments=...)` and `orga run --attach` put files into the store and write the references.
    """

    digest: str = Field(pattern=MEDIA_DIGEST)
    """`sha256:` and 64 hex characters: the digest of the bytes."""
    media_type: MediaType
    """The type of the bytes."""
    size: int = Field(ge=1, le=10**8)
    """Bytes."""
    name: str = Field(default="", max_length=MAX_MEDIA_NAME_CHARS)
    """The file's name, without its folder."""
    width: int = Field(default=0, ge=0, le=10**6)
    """Pixels of a picture. 0: unknown."""
    height: int = Field(default=0, ge=0, le=10**6)
    """Pixels of a picture. 0: unknown."""
    pages: int = Field(default=0, ge=0, le=10**6)
    """Pages of a document. 0: unknown."""

    @classmethod
    def of(cls, part: MediaPart) -> "Attachment":
        """Return the attachment for a stored picture or document."""
        return cls.model_validate(part.model_dump(exclude={"kind"}, exclude_defaults=True))

    def part(self) -> MediaPart:
        """Return the part of the task's message."""
        kind = "document" if self.media_type == "application/pdf" else "image"
        return MediaPart(kind=kind, **self.model_dump(exclude_defaults=True))


class AgentInput(CheckedInput):
    """Input of `AgentWorkflow`. Only `task` is required. Null takes the agent's own setting."""

    task: Task
    agent: Name = "default"
    model: Name | None = None
    """`provider:model` or `tier:NAME`."""
    instructions: Instructions = None
    tools: tuple[Name, ...] | None = None
    """A subset of the tools of the agent and its delegates. A tool that none of them lists is refused."""
    config: LoopConfig = LoopConfig()
    """Keys that are given here override the agent's config."""
    trusted_context: TrustedContext = {}
    """Facts from whoever starts the run. No model and no tool can write them."""
    output_schema: OutputSchema = None
    """JSON Schema (2020-12) for the final answer. The result holds the answer as `data`."""
    messages: GivenMessages = ()
    """Messages from before the task, oldest first. The run continues from there."""
    attachments: tuple[Attachment, ...] = Field(default=(), max_length=MAX_ATTACHMENTS)
    """Pictures and documents that belong to the task, by reference."""
    tenant: Name | None = None
    lineage: Lineage = Lineage()
    """Set by the run that delegates. It can only narrow what this run may do."""

    if TYPE_CHECKING:  # so that type checkers accept a plain dict of settings too, as pydantic does

        def __init__(
            self,
            *,
            task: str,
            agent: str = "default",
            model: str | None = None,
            instructions: str | None = None,
            tools: Sequence[str] | None = None,
            config: "LoopConfig | LoopSettings" = ...,
            trusted_context: Mapping[str, Any] = ...,
            output_schema: Mapping[str, Any] | None = None,
            messages: Sequence[GivenMessage | Mapping[str, Any]] = (),
            attachments: Sequence[Attachment | Mapping[str, Any]] = (),
            tenant: str | None = None,
            lineage: Lineage = ...,
        ) -> None: ...

    def with_task(self, task: str) -> Self:
        return replace_fields(self, {"task": task})

    def with_attachments(self, attachments: tuple[Attachment, ...]) -> Self:
        return replace_fields(self, {"attachments": attachments}) if attachments else self

    def without_messages(self) -> Self:
        return replace_fields(self, {"messages": ()}) if self.messages else self

    def without_schema(self) -> Self:
        """Return the input without the schema, which its setup also holds."""
        return replace_fields(self, {"output_schema": None})

    def without_instructions(self) -> Self:
        """Return the input without the instructions, which its setup also holds."""
        return replace_fields(self, {"instructions": None})

    @model_validator(mode="after")
    def _rest_is_small(self) -> "AgentInput":
        fields_with_own_limit = {"task", "instructions", "trusted_context", "output_schema", "messages"}
        size = len(self.model_dump_json(exclude=fields_with_own_limit).encode())
        if size > MAX_REST_BYTES:
            raise ValueError(
                f"the lists of tools and skills, of globs and of patterns have, together with the other settings, "
                f"{size} bytes of JSON, over the limit of {MAX_REST_BYTES}; shorten them"
            )
        return self


def parse_input(raw: object) -> AgentInput:
    """Raise InvalidInput, which lists every problem with its key."""
    if not isinstance(raw, (dict, AgentInput)):
        raise not_an_object(raw, '{"task": "..."}')
    return check_input(AgentInput, cast("object", raw))


Table = Mapping[str, Any]


class LoopSettings(TypedDict, total=False):
    """`LoopConfig` explains each key. A key that is left out takes the agent's own setting."""

    max_iterations: int
    max_total_tokens: int
    timeout_s: float
    tool_timeout_s: float
    max_concurrent_tools: int
    context_token_budget: int
    temperature: float | None
    effort: Effort | None
    thinking_tokens: int | None
    top_p: float | None
    seed: int | None
    stop: Sequence[str] | None
    service_tier: str | None
    parallel_tool_calls: bool | None
    cache_ttl: Literal["5m", "1h"] | None
    silence_s: float | None
    max_output_tokens: int
    max_delegation_depth: int
    max_cost_usd: float | None
    max_model_calls: int | None
    max_tool_calls: int | None
    on_exhausted: Literal["stop", "ask"]
    context_strategy: ContextStrategy
    recovery: Recovery | Table
    tool_profile: ToolProfile | Table | None
    step_iteration: StepIteration | Table | None
    pre_hydration: PreHydration | Table | None
    knowledge: RunKnowledge | Table | None
