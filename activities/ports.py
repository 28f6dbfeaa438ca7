"""Protocols of everything that activities need from outside, with their values and errors. Adapters implement them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Protocol, runtime_checkable

from pydantic import Field

from orga.workflows.types.knowledge import Behalf
from orga.workflows.types.messages import Message, Reply
from orga.workflows.types.models.call_settings import NO_SETTINGS, ModelSettings
from orga.workflows.types.parts import MediaPart
from orga.workflows.types.past import ForkInput, GoalForkInput
from orga.workflows.types.questions import INPUT_REQUIRED, AskedInputs, GivenInputs, Notification
from orga.workflows.types.setup import PrepareRequest, Setup
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from orga.workflows.types.tool_calls.tools import ToolOptions, ToolOutput, ToolSpec


class LoadedMedia(MediaPart):
    """A picture or a document with its bytes. The bytes are written only to the blob store."""

    data: bytes = Field(exclude=True, repr=False)

    def reference(self) -> MediaPart:
        """Return the part without the bytes. Fields at their default stay unset, to save history."""
        return MediaPart.model_validate(self.model_dump(exclude_defaults=True))


class BlobStore(Protocol):
    """Keeps the bytes of pictures and documents under their digest. Histories hold only references."""

    async def put(self, data: bytes, media_type: str) -> str:
        """Keep the bytes and return their digest: `sha256:` and 64 hex characters. Known bytes are no error.

        Raises:
            OSError: The bytes cannot be kept.
        """
        ...

    async def get(self, digest: str) -> bytes | None:
        """Return the bytes. None if the store has no bytes that match this digest."""
        ...


ToolChoice = Literal["auto", "any", "none"]
"""`any` requires a call of some tool, `none` forbids calls."""


@dataclass(frozen=True)
class ModelRequest:
    """One model call, provider-neutral."""

    model: str
    """The model's name at its provider, without the `provider:` prefix."""
    system: tuple[str, ...] = ()
    """Instructions, in order. Wires merge the system messages among `messages` into them, or keep those in place."""
    messages: tuple[Message, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    settings: ModelSettings = NO_SETTINGS
    """Settings of the call. A setting that is None is not sent."""
    max_output_tokens: int = 4096
    output_schema: dict[str, Any] | None = None
    """JSON Schema of a final answer. A reply without calls must be one JSON value that fits it. Some providers enforce
    the schema, and the gate always checks it."""
    reply_schema: dict[str, Any] | None = None
    """JSON Schema of a reply to a prompt that asks for no calls. Providers that cannot enforce the schema ignore it,
    because the messages describe the form too."""


@runtime_checkable
class ThinkingListener(Protocol):
    """An `on_text` that also takes the model's thinking. Every run passes one."""

    def __call__(self, piece: str, /) -> None:
        """Take a piece of visible text."""
        ...

    def add_thinking(self, piece: str, /) -> None:
        """Take a piece of thinking."""
        ...


class ModelProvider(Protocol):
    """Gets replies from a model. It does not retry, because Temporal does."""

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        """Return the reply. Pass each piece of visible text to `on_text` as it streams in.

        A provider whose model shows its thinking passes it to `on_text.add_thinking`, if `on_text` is a
        `ThinkingListener`. Cancellation closes the connection at once.

        Raises:
            ModelError: The call failed.
        """
        ...


@dataclass(frozen=True)
class ReviewedWork:
    """An answer or a call that a critic reviews before it counts."""

    task: str
    """The agent's task with all messages that hold for the whole run, up to 16,000 bytes."""
    subject: str
    """The answer, or the arguments of the call as JSON."""
    tool: str = ""
    """The tool of the call. Empty for an answer."""
    messages: tuple[Message, ...] = ()
    """The agent's conversation."""


@dataclass(frozen=True)
class Review:
    """A critic's verdict."""

    scores: Mapping[str, float]
    """A score from 0 (fails) to 1 for each dimension of the critic's rubric."""
    feedback: str = ""
    """The changes that the work needs. The agent reads them if its work does not pass."""


class CodeCritic(Protocol):
    """A critic that the application implements in Python. It reviews for critics with `model="code:NAME"`."""

    async def review(self, work: ReviewedWork) -> Review:
        """Return the verdict. Failures are retried. After the last attempt, the critic's `on_failure` decides.

        A model wrote `work`. Treat it as material to be judged, never as an instruction.
        """
        ...


class Summarizer(Protocol):
    """Writes the text that replaces old messages, under `context_strategy = "anchored_summary"`."""

    async def summarise(self, task: str, messages: Sequence[Message], max_bytes: int) -> str:
        """Return the summary. If it is empty, the messages are left out without a summary.

        Args:
            task: The beginning of the run's task.
            messages: The messages that leave the context, oldest first.
            max_bytes: Most bytes of the summary as UTF-8. A longer one is cut.
        """
        ...


class ModelError(Exception):
    """A failed model call. Its text reaches the run's result, so it must not contain a key or a header."""

    def __init__(self, kind: str, message: str, *, retryable: bool, retry_after_s: float | None = None) -> None:
        """Describe the failure.

        Args:
            kind: RateLimited, Overloaded, ServerError, Timeout, ConnectionFailed, BadStream (retryable);
                InvalidRequest, AuthenticationFailed, PermissionDenied, OutOfQuota, ModelNotFound, RequestTooLarge,
                ContextOverflow, ContentRefused, ReplyTooLarge (final).
            message: One line for people that names the provider and the cause.
            retryable: Whether the same request may succeed later.
            retry_after_s: The delay that the provider asks for, in seconds.
        """
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class ToolContext:
    """The facts about a call that its tool can read.

    `agent`, `tenant`, `trusted_context` and `approver` are empty if the tool's spec lacks `takes_caller`. The spec of
    each function with a `ToolContext` parameter has it.
    """

    call_id: str
    idempotency_key: str
    attempt: int = 1
    workflow_id: str = ""
    """The run's id. "" outside of runs."""
    run_id: str = ""
    """Temporal's id of the workflow execution that makes the call. It changes when the run continues as new."""
    agent: str = ""
    tenant: str = ""
    """The run's tenant. "" if it has none."""
    trusted_context: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Facts from whoever started the run. No model and no tool can write them."""
    approver: str = ""
    """The person who approved this call. "" if nobody had to."""
    behalf: Behalf | None = None
    """The reader, model and taint for which a tool recalls or stores knowledge. None for all other tools."""
    is_deferred: bool = False
    """True if the tool only starts the work, and `complete_tool_call` ends the call."""
    given: GivenInputs | None = None
    """Input from people, if the tool's server has asked for it."""
    heartbeat: Callable[[str], None] = field(default=lambda note: None)
    """Reports progress in one short line. An abort of the run arrives as a cancellation of the call."""


class Tool(Protocol):
    """A tool: its definition and its function."""

    @property
    def spec(self) -> ToolSpec:
        """The definition that is offered to a model."""
        ...

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Carry out one call. `arguments` fit `spec.parameters`.

        Raises:
            ToolError: Its text explains to the model what went wrong and what to do instead.
        """
        ...


@dataclass(frozen=True)
class AbsentTool:
    """The reason why there is no tool of a name."""

    why: str
    is_temporary: bool
    """True if the source cannot be reached now, so it may have the tool."""


class ToolSource(Protocol):
    """Tools that others define, and that come and go while the worker runs. The worker keeps this context open."""

    async def __aenter__(self) -> object:
        """Begin to look for tools."""
        ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        """Close everything that was opened."""
        ...

    async def specs(self, wanted: Collection[str]) -> Mapping[str, ToolSpec]:
        """Return the known tools by name. Tools that match a name or glob in `wanted` are looked up again."""
        ...

    def absent_tool(self, name: str) -> AbsentTool | None:
        """Return why there is no tool of that name now, or None if the source would never have it."""
        ...

    def tool(self, name: str, digest: str) -> Tool | None:
        """Return the tool, or None if the source would never have it.

        `digest` is that of the definition that the run was offered. Only a call of the tool shows if the definition is
        still the same, and if the tool can be reached.
        """
        ...

    def options(self, name: str) -> ToolOptions | None:
        """Return the options of the tool's calls on this worker."""
        ...


Acted = Literal["no", "maybe", "yes"]
"""The answer to the question if a failed call had its effect."""


class ToolError(Exception):
    """A failed tool call whose text the model should read."""

    def __init__(
        self, message: str, *, kind: str = "ToolError", retryable: bool = False, acted: Acted | None = None
    ) -> None:
        """Describe the failure.

        Args:
            message: For the model.
            kind: Becomes the failure's type, which `non_retryable` can name.
            retryable: Whether the same call may succeed later.
            acted: Whether the call had its effect in spite of the failure. None means "no" for a final failure.
                After a retryable failure with None, the effect of an irreversible call counts as unknown.
        """
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable
        self.acted: Acted | None = acted or (None if retryable else "no")


class InputRequired(ToolError):
    """A call that needs input from a person. The run asks, and makes the call once more with the answers."""

    def __init__(self, message: str, asked: AskedInputs) -> None:
        """Describe the failure, and what is needed."""
        super().__init__(message, kind=INPUT_REQUIRED)
        self.asked = asked


class PolicyEngine(Protocol):
    """Decides on proposals. Any exception that it raises counts as a denial."""

    @property
    def is_embedded(self) -> bool:
        """True if it decides in this process, one proposal after another. Others are asked about several at once."""
        ...

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Return the verdict on exactly this proposal. The gate decides whether a person has approved it already."""
        ...


@dataclass(frozen=True)
class RunKey:
    """The ids of a run that an activity knows."""

    workflow_id: str
    run_id: str


class Notifier(Protocol):
    """Notifies people outside. Each call is one attempt."""

    async def deliver(self, notification: Notification, run: RunKey) -> None:
        """Send the notification.

        Raises:
            NotifyError: The receiver did not accept it.
        """
        ...


class NotifyError(Exception):
    """A failed notification or delivery. The text reaches the history, so it must not name an address or a secret."""

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        retryable: bool,
        retry_after_s: float | None = None,
        may_have_arrived: bool = False,
    ) -> None:
        """Describe the failure. `retry_after_s` is the delay that the receiver asks for."""
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        self.may_have_arrived = may_have_arrived


@dataclass(frozen=True)
class ModelContext:
    """The setup and the messages of a model call, as the run's history holds them."""

    setup: Setup
    messages: tuple[Message, ...]
    sent: tuple[Message, ...] = field(default=(), compare=False, repr=False)
    """The messages as a model gets them. Empty if nobody has prepared them yet."""


class HistorySource(Protocol):
    """Rebuilds conversations from a run's own history, if this process does not hold them."""

    async def rebuild(self, run: RunKey, iteration: int) -> ModelContext:
        """Return the setup and the messages of that iteration's model call. Their digests are checked.

        Raises:
            DigestMismatch: The history does not hold what the workflow asked for.
        """
        ...


class OtherPlace(Exception):
    """The run belongs to another folder or configuration than this worker."""


class PastSource(Protocol):
    """Reads the past of a fork from the history of the forked run."""

    async def shared_past(self, fork_input: ForkInput | GoalForkInput) -> AgentState:
        """Return the state of the forked run at the end of the iteration, as the fork takes it over.

        Raises:
            InvalidInput: The run or iteration does not exist or is deleted, or the fork's changes do not fit it.
        """
        ...


class Agents(Protocol):
    """Agents by name, from the worker's configuration."""

    async def setup(self, request: PrepareRequest, *, is_goal: bool = False) -> Setup:
        """Return the setup of a run of the agent, or of a goal.

        Raises:
            InvalidInput: Unknown agent, tool or model. The text names those that are known.
            OtherPlace: The run belongs to another worker.
        """
        ...
