"""What starts a run: the input of `AgentWorkflow`, checked once, at the border; and where the run is at home."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypedDict, cast

from pydantic import AfterValidator, Field, ValidationError, model_validator
from pydantic_core import to_json

from orga.workflows.types.given_messages import GivenMessage, GivenMessages
from orga.workflows.types.hydration import PreHydration
from orga.workflows.types.record import CheckedInput, InvalidInput, Record, check_input, replace_fields
from orga.workflows.types.tool_calls.delegation import Ceiling
from orga.workflows.types.tool_calls.recovery import Recovery, StepIteration
from orga.workflows.types.tool_calls.tools import ToolProfile

if TYPE_CHECKING:
    pass

WORKPLACE_MEMO = "orga_folder"
"""The memo key of the folder, for the embedded server. Only the client knows it, and visibility shows the memo."""

POLICY_MEMO = "orga_policy"
"""The memo key of the folder's policy, as `policy_text` returns it. A worker leaves runs of another policy alone."""


class Workplace(Record):
    """A folder with its configuration."""

    folder: str
    """Where the command was given."""
    root: str
    """What file tools stay under, without links."""
    config: str | None = None
    """The file, where there is one."""
    digest: str = ""
    """Of that file's content."""
    mark: str = ""
    """Of the root, short: the folder's task queue on the embedded server is named by it."""
    models: str = ""
    """Of what the environment says about models, short; "" if it says nothing, and any worker of the folder will do."""
    variables: tuple[str, ...] = ()
    """The variables that say it."""

    def with_models(self, digest: str, variables: tuple[str, ...]) -> Self:
        """Return the place of a shell whose environment says which models are asked."""
        return replace_fields(self, {"models": digest, "variables": variables})


MAX_POLICY_CHARS = 100


def workplace_of(value: Any) -> Workplace | None:
    """Return what a memo holds, None where it holds nothing of the kind: whoever starts a run writes its memo."""
    try:
        return None if value is None else Workplace.model_validate(value)
    except ValidationError:
        return None


def workplace_in_memo(memo: Callable[[str, Any], Any]) -> Workplace | None:
    """Return where a run was started for, as its memo says; None where no place was named, or none that can be read.

    Args:
        memo: `workflow.memo_value`.
    """
    try:
        return workplace_of(memo(WORKPLACE_MEMO, None))
    except Exception:  # a payload of any kind may stand there; an error here would hold up the run for ever
        return None


def inherited_memo(memo: Callable[[str, Any], Any]) -> dict[str, Any] | None:
    """Return the memo of a run that one with this memo starts, so that people find it under the same folder."""
    return run_memo(workplace_in_memo(memo), policy_in_memo(memo)) or None


def run_memo(place: Workplace | None, policy: str) -> dict[str, Any]:
    """Return the memo of a run that is started for a place and under a policy; "" is any."""
    home = {} if place is None else {WORKPLACE_MEMO: place.model_dump(mode="json")}
    return {**home, POLICY_MEMO: policy} if policy else home


def policy_in_memo(memo: Callable[[str, Any], Any]) -> str:
    """Return the policy that a run was started under, "" where its memo names none that can be read.

    Args:
        memo: `workflow.memo_value`.
    """
    try:
        named = memo(POLICY_MEMO, "")
    except Exception:  # as in `started_for`
        return ""
    return named if isinstance(named, str) and len(named) <= MAX_POLICY_CHARS else ""


class Lineage(CheckedInput):
    """Where a delegated run comes from."""

    parent: str = ""
    """Workflow id of the run that delegated."""
    chain: tuple[str, ...] = ()
    """Agents from the first run down to the parent of this one."""
    key: str = Field(default="", max_length=200)
    """Idempotency key of the call that delegated: a run that carries it out anew has the keys of the one before."""
    ceiling: Ceiling = Ceiling()
    taint: tuple[str, ...] = ()
    """Tools whose untrusted content may stand behind the task: what the parent has read goes with its words."""
    is_awaited: bool = False
    """Whether its calls that are cut short are waited for: it works for a turn of a session, which others follow."""

    @property
    def depth(self) -> int:
        """How many delegations lead here."""
        return len(self.chain)


MAX_TRUSTED_BYTES = 100_000

MAX_SCHEMA_BYTES = 50_000
"""A provider gets it with each call."""

MAX_REST_BYTES = 50_000
"""Of lists of tools, profiles, patterns and the like: a state that is carried on holds them, too."""

MAX_TASK_BYTES = 200_000
"""Longer tasks belong into a file that the agent reads; a payload must stay far below 2 MB."""


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text


def _not_huge(text: str | None) -> str | None:
    if text is not None and (size := len(to_json(text, inf_nan_mode="null")) - 2) > MAX_TASK_BYTES:
        raise ValueError(
            f"must not be longer than {MAX_TASK_BYTES} bytes of JSON, it has {size}; "
            "put it into a file that the agent reads"
        )
    return text


SLACK_S = 5
"""The server gives up on what is in flight this long after `timeout_s`, or up to a second later (whole seconds)."""

LAST_TRY_S = 3.0
"""A retry of a model call that would come after the run's clock has stopped comes this long before it."""

OUT_OF_TIME = "out of time"
"""Detail of the failure of a model call that could be tried again, had the run more time."""


def _checked_context_size(context: dict[str, Any]) -> dict[str, Any]:
    if (size := len(to_json(context))) > MAX_TRUSTED_BYTES:
        raise ValueError(
            f"must not be larger than {MAX_TRUSTED_BYTES} bytes of JSON, it has {size}; "
            "give what policies and decisions ask for, and the rest in a file that the agent reads"
        )
    return context


def _checked_schema_size(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    if schema is not None and (size := len(to_json(schema))) > MAX_SCHEMA_BYTES:
        raise ValueError(
            f"must not be larger than {MAX_SCHEMA_BYTES} bytes of JSON, it has {size}; "
            "shorten its descriptions, or describe a part of the answer in the task"
        )
    return schema


Name = Annotated[str, Field(min_length=1, max_length=200)]
Task = Annotated[str, AfterValidator(_not_blank), AfterValidator(_not_huge)]
Instructions = Annotated[str | None, AfterValidator(_not_huge)]
OutputSchema = Annotated[dict[str, Any] | None, AfterValidator(_checked_schema_size)]
TrustedContext = Annotated[dict[str, Any], AfterValidator(_checked_context_size)]
ContextStrategy = Literal["sliding_window", "observation_masking", "anchored_summary", "none"]


class RunKnowledge(CheckedInput):
    """`knowledge` of the config: what a run recalls and learns."""

    enabled: bool = True
    """Whether knowledge is recalled ahead of each step and offered by tools."""
    max_context_items: int = Field(default=5, ge=1, le=20)
    """Items that the context shows at a time."""
    relevance_threshold: float = Field(default=0.3, ge=0, le=1)
    """Of the score, below which nothing is shown."""
    auto_persist: bool = True
    """Whether what the model has said is stored when the run ends, or a turn of a session does."""


class LoopConfig(CheckedInput):
    """Limits and settings of one run. A limit is reached at `>=` and checked before each reasoning step."""

    max_iterations: int = Field(default=25, ge=1, le=1_000_000)
    """Reasoning steps, counted over all continue-as-new runs."""
    max_total_tokens: int = Field(default=100_000, ge=1, le=10**12)
    """Input and output tokens of all model calls, as the provider counts them."""
    timeout_s: float = Field(default=300.0, ge=0.001, le=31_536_000)
    """Seconds of workflow time since the start; pauses are left out. Interrupts a phase in flight."""
    tool_timeout_s: float = Field(default=30.0, ge=0.001, le=86_400)
    """One attempt of a tool call, unless the tool's options say otherwise."""
    max_concurrent_tools: int = Field(default=5, ge=1, le=100)
    """Tool calls of a reply that run at the same time."""
    context_token_budget: int = Field(default=32_000, ge=500, le=10**8)
    """Estimated tokens of the conversation above which older messages are dropped."""
    temperature: float | None = Field(default=0.3, ge=0, le=2)
    """0 is sent; null leaves it to the provider."""
    max_output_tokens: int = Field(default=16_384, ge=1, le=10**7)
    """One reply; also cut to what is left of `max_total_tokens`."""
    max_delegation_depth: int = Field(default=3, ge=0, le=10)
    """How many delegations may stand one below the other."""
    max_cost_usd: float | None = Field(default=None, gt=0)
    """What all model calls may cost, those of delegates too; null: no limit."""
    max_model_calls: int | None = Field(default=None, ge=1, le=10**9)
    """Model calls that were answered, those of delegates too."""
    max_tool_calls: int | None = Field(default=None, ge=0, le=10**9)
    """Tool calls that were run, those of delegates too; calls beyond it are answered without being run."""
    on_exhausted: Literal["stop", "ask"] = "stop"
    """At a limit: end with what there is, or wait for a person who may `extend_budget`."""
    context_strategy: ContextStrategy = "sliding_window"
    """What is left out of a context that has outgrown its budget."""
    recovery: Recovery = Recovery()
    """Of tools that have none of their own."""
    tool_profile: ToolProfile | None = None
    """Null offers all tools of the agent."""
    step_iteration: StepIteration | None = None
    """Null takes the defaults of `StepIteration`."""
    pre_hydration: PreHydration | None = None
    """Null takes the defaults of `PreHydration`."""
    knowledge: RunKnowledge | None = None
    """Null is off."""

    @property
    def uses_knowledge(self) -> bool:
        """Whether the run recalls and learns."""
        return self.knowledge is not None and self.knowledge.enabled

    def with_raised(self, limits: Mapping[str, int | float]) -> Self:
        """Return the config with those of the limits that are higher than its own; a limit that it has not stays none.

        What is raised before the setup is known may not be higher.
        """
        own = {name: getattr(self, name) for name in limits}
        return replace_fields(self, {name: value for name, value in limits.items() if own[name] and own[name] < value})


class AgentInput(CheckedInput):
    """Input of `AgentWorkflow`. Only `task` is required; null takes the agent's own setting."""

    task: Task
    agent: Name = "default"
    model: Name | None = None
    """`provider:model` or `tier:NAME`."""
    instructions: Instructions = None
    tools: tuple[Name, ...] | None = None
    """A part of the agent's tools, and of those of its delegates; a tool that none of them lists is refused."""
    config: LoopConfig = LoopConfig()
    """Keys that are given here win over the agent's config."""
    trusted_context: TrustedContext = {}
    """Facts from whoever starts the run; no model and no tool can write them."""
    output_schema: OutputSchema = None
    """JSON Schema (2020-12) that the final answer has to fit; it is in the result as `data`."""
    messages: GivenMessages = ()
    """What was said before the task, oldest first: the run goes on from there."""
    tenant: Name | None = None
    lineage: Lineage = Lineage()
    """Set by the run that delegates; it can only narrow what this run may do."""

    if TYPE_CHECKING:  # what pydantic takes, for type checkers: a plain dict of settings, too

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
            tenant: str | None = None,
            lineage: Lineage = ...,
        ) -> None: ...

    def with_task(self, task: str) -> Self:
        """Return the input with another task."""
        return replace_fields(self, {"task": task})

    def without_messages(self) -> Self:
        """Return the input without what its conversation begins with."""
        return replace_fields(self, {"messages": ()}) if self.messages else self

    def without_schema(self) -> Self:
        """Return the input without the schema that its setup repeats."""
        return replace_fields(self, {"output_schema": None})

    def without_instructions(self) -> Self:
        """Return the input without what its setup repeats."""
        return replace_fields(self, {"instructions": None})

    @model_validator(mode="after")
    def _rest_is_small(self) -> "AgentInput":
        apart = {"task", "instructions", "trusted_context", "output_schema", "messages"}
        size = len(self.model_dump_json(exclude=apart).encode())
        if size > MAX_REST_BYTES:
            raise ValueError(
                f"the lists of tools (of a goal: skills), globs and patterns have, with the other settings, {size} "
                f"bytes of JSON, over the limit of {MAX_REST_BYTES}; shorten them"
            )
        return self


def parse_input(raw: object) -> AgentInput:
    """Check what a client sent.

    Raises:
        InvalidInput: With every problem, each naming its key.
    """
    if not isinstance(raw, (dict, AgentInput)):
        raise InvalidInput('input: give an object such as {"task": "..."}, not ' + type(raw).__name__)
    return check_input(AgentInput, cast("object", raw))


Table = Mapping[str, Any]


class LoopSettings(TypedDict, total=False):
    """Each key is explained in `LoopConfig`; what is left out is the agent's own setting."""

    max_iterations: int
    max_total_tokens: int
    timeout_s: float
    tool_timeout_s: float
    max_concurrent_tools: int
    context_token_budget: int
    temperature: float | None
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
