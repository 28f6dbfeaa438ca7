"""What the activities need from outside, as protocols; `worker.py` brings the adapters."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Protocol

from orga.workflows.types.knowledge import Behalf
from orga.workflows.types.messages import Message, Reply, ToolCall
from orga.workflows.types.past import ForkInput, GoalForkInput
from orga.workflows.types.questions import Notification
from orga.workflows.types.setup import PrepareRequest, Setup
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.delegation import DelegateSpec
from orga.workflows.types.tool_calls.gate import ApprovalTerms, ProposedStep, Purpose
from orga.workflows.types.tool_calls.tools import ToolOptions, ToolOutput, ToolSpec

Acted = Literal["no", "maybe", "yes"]
"""Whether a call that failed had its effect."""

ToolChoice = Literal["auto", "any", "none"]
"""`any`: the model has to call some tool; `none`: it must not."""


@dataclass(frozen=True)
class ModelRequest:
    """One model call, provider-neutral."""

    model: str
    """The model's name at its provider, without the `provider:` prefix."""
    system: tuple[str, ...] = ()
    """Instructions, in order. System messages among `messages` follow them, in place or merged as the provider can."""
    messages: tuple[Message, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    temperature: float | None = None
    """Sent whenever it is not None, 0.0 too."""
    max_output_tokens: int = 4096
    stop: tuple[str, ...] = ()
    output_schema: dict[str, Any] | None = None
    """JSON Schema of a final answer: a reply without calls is one JSON value. Who can, enforces it; the gate checks."""
    reply_schema: dict[str, Any] | None = None
    """JSON Schema of a reply in which nothing is called: for who can enforce it, the messages tell all others."""


class ModelProvider(Protocol):
    """A source of replies. Its own retries are off: Temporal retries."""

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the reply; give `on_text` each piece of visible text as it streams in.

        Cancellation closes the connection at once.

        Raises:
            ModelError: With its kind, whether it may be retried, and the delay that the provider asked for.
        """
        ...


class ModelError(Exception):
    """A model call that failed. Its text reaches the run's result: no key, no header may stand in it."""

    def __init__(self, kind: str, message: str, *, retryable: bool, retry_after_s: float | None = None) -> None:
        """Describe the failure.

        Args:
            kind: RateLimited, Overloaded, ServerError, Timeout, ConnectionFailed, BadStream (retryable);
                InvalidRequest, AuthenticationFailed, PermissionDenied, OutOfQuota, ModelNotFound, RequestTooLarge,
                ContextOverflow, ContentRefused, ReplyTooLarge (final).
            message: One line for people, provider and cause named.
            retryable: Whether the same request may succeed later.
            retry_after_s: The provider's own wish, in seconds.
        """
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class ToolContext:
    """What a tool may know of its call."""

    call_id: str
    idempotency_key: str
    attempt: int = 1
    workflow_id: str = ""
    behalf: Behalf | None = None
    """On whose behalf a tool that recalls or stores is called, as the run says; None of a call outside of runs."""
    heartbeat: Callable[[str], None] = field(default=lambda note: None)
    """Report progress (one short line); the same channel delivers an abort as cancellation."""


class Tool(Protocol):
    """A tool: its definition and the function behind it."""

    @property
    def spec(self) -> ToolSpec:
        """The definition that a model is offered."""
        ...

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Carry out one call; `arguments` fit `spec.parameters`.

        Raises:
            ToolError: With a text that tells the model what went wrong and what to do instead.
        """
        ...


@dataclass(frozen=True)
class AbsentTool:
    """Why a tool that somebody names is not there."""

    why: str
    for_now: bool
    """Its source cannot be reached; it may have the tool."""


class ToolSource(Protocol):
    """Tools that come and go while the worker runs, whose definitions are not ours. Entered where the worker runs."""

    async def __aenter__(self) -> object:
        """Begin to look for them."""
        ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        """Let go of all that was opened."""
        ...

    async def specs(self, wanted: Collection[str]) -> Mapping[str, ToolSpec]:
        """Return the tools that there are now, by name; those that names or globs in `wanted` mean are up to date."""
        ...

    def absent(self, name: str) -> AbsentTool | None:
        """Return why there is no tool of that name now, or None when the source would not have it anyway."""
        ...

    def tool(self, name: str, digest: str) -> Tool | None:
        """Return the tool with the definition that a run was offered, or None when the source would not have it.

        Whether it is still so defined, and can be reached, shows when it is called.
        """
        ...

    def options(self, name: str) -> ToolOptions | None:
        """Return the options that its calls have on this worker."""
        ...


class ToolError(Exception):
    """A tool call that failed in a way worth telling the model."""

    def __init__(
        self, message: str, *, kind: str = "ToolError", retryable: bool = False, acted: Acted | None = None
    ) -> None:
        """Describe the failure.

        Args:
            message: For the model.
            kind: Becomes the failure's type, which `non_retryable` can name.
            retryable: Whether the same call may succeed later.
            acted: Whether the call had its effect all the same. None: no, where it is final; where it may pass,
                nobody knows what an irreversible call did.
        """
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable
        self.acted: Acted | None = acted or (None if retryable else "no")


@dataclass(frozen=True)
class Proposal:
    """One action that waits for a verdict: a tool call; else a plan, where it has steps; else the answer."""

    agent: str
    iteration: int
    call: ToolCall | None = None
    spec: ToolSpec | None = None
    answer: str | None = None
    plan: Sequence[ProposedStep] = ()
    plan_specs: Mapping[str, ToolSpec] = field(default_factory=dict[str, ToolSpec])
    """The tools that are skills of the plan, by name; other skills are agents."""
    tenant: str | None = None
    trusted_context: dict[str, Any] = field(default_factory=dict[str, Any])
    listed: Sequence[str] = ()
    """Tools that the agent's config lists."""
    purpose: Purpose = "reply"
    depth: int = 0
    """Delegations that lead to this run."""
    taint: Sequence[str] = ()
    """Tools whose untrusted content has entered the conversation."""
    left: Mapping[str, float] = field(default_factory=dict[str, float])
    """What is left of each budget that is limited."""
    approved_by: str = ""
    """Who has approved this call already."""
    approved_version: str = ""
    """The version of the policy set that asked for the approval."""
    delegates: Sequence[DelegateSpec] = ()
    """Agents that a `delegate` call may name, with the tools that the config leaves them."""


@dataclass(frozen=True)
class EngineVerdict:
    """A policy engine's answer. `reason` reaches the model when it is a denial."""

    allowed: bool
    reason: str = ""
    tools: tuple[str, ...] | None = None
    """Of a delegation: the most that the other agent may use. It narrows what the config leaves it, never widens it."""
    arguments: dict[str, Any] | None = None
    """Of a call that is allowed otherwise than proposed: the arguments to use, which are checked and judged again."""
    approval: ApprovalTerms | None = None
    """Of a call that is allowed once a person has said yes."""
    policies: tuple[str, ...] = ()
    """Ids of the policies that decided."""
    version: str = ""
    """Of the policy set."""


class PolicyEngine(Protocol):
    """Decides on proposals. Any exception counts as a denial."""

    @property
    def is_embedded(self) -> bool:
        """Whether it decides in this process. One that asks a server is asked about several proposals at once."""
        ...

    async def judge(self, proposal: Proposal) -> EngineVerdict:
        """Return the decision for exactly this proposal."""
        ...


@dataclass(frozen=True)
class RunKey:
    """A run, as an activity knows it."""

    workflow_id: str
    run_id: str


class Notifier(Protocol):
    """Tells people outside, one attempt a call."""

    async def deliver(self, notification: Notification, run: RunKey) -> None:
        """Hand it over.

        Raises:
            NotifyError: It was not taken.
        """
        ...


class NotifyError(Exception):
    """A notification that was not taken. Its text reaches the history: no address and no secret may stand in it."""

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        retryable: bool,
        retry_after_s: float | None = None,
        may_have_arrived: bool = False,
    ) -> None:
        """Describe the failure; `retry_after_s` is the receiver's own wish."""
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        self.may_have_arrived = may_have_arrived


@dataclass(frozen=True)
class ModelContext:
    """What a run's history says that a model call is about."""

    setup: Setup
    messages: tuple[Message, ...]
    sent: tuple[Message, ...] = field(default=(), compare=False, repr=False)
    """The messages as a model gets them, where whoever found them has them ready."""


class HistorySource(Protocol):
    """Reads a run's own history, for what this process does not hold."""

    async def rebuild(self, run: RunKey, iteration: int) -> ModelContext:
        """Return the setup and the messages of the model call of that iteration, digests checked.

        Raises:
            DigestMismatch: The history does not hold what the workflow meant.
        """
        ...


class OtherPlace(Exception):
    """The run is at home in another folder, or under another configuration, than this worker."""


class PastSource(Protocol):
    """Reads, from the history of another run, what a fork of it shares."""

    async def shared(self, wish: ForkInput | GoalForkInput) -> AgentState:
        """Return the state of that run at the end of the iteration, as its fork takes it over; a goal's of a goal.

        Raises:
            InvalidInput: There is no such run or iteration, or not any more; or what the fork wants does not fit it.
        """
        ...


class Agents(Protocol):
    """Agents by name, from the worker's configuration."""

    async def setup(self, request: PrepareRequest, *, is_goal: bool = False) -> Setup:
        """Return what a run of the agent works with, or a goal of it.

        Raises:
            InvalidInput: Unknown agent, tool or model, naming those that are known.
            OtherPlace: The run is for another worker.
        """
        ...
