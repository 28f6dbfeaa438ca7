"""The whole state of a run: one value, carried through continue-as-new."""

from datetime import datetime
from typing import Any

from pydantic import ValidationError

from workflows.types.approvals import Hold
from workflows.types.breaker import Breaker
from workflows.types.context import InterventionKind, MessageRef, Setup
from workflows.types.dead_letters import DeadLetter
from workflows.types.decision import Decided
from workflows.types.delegation import Ceiling
from workflows.types.fork import ForkInput
from workflows.types.input import AgentInput, LoopConfig
from workflows.types.messages import Message, Reply
from workflows.types.notes import Note
from workflows.types.record import Record
from workflows.types.result import StopReason
from workflows.types.steps import Step
from workflows.types.summary import Summary
from workflows.types.usage import ToolCallCounts, UsageTotals
from workflows.types.waits import Wait


class Intervention(Record):
    """A signal that was delivered and waits to be taken in."""

    kind: InterventionKind
    text: str = ""
    size: int = 0
    """UTF-8 bytes that were sent, where the text was cut; 0 where all of it is there."""


class Conversation(Record):
    """The messages, of which the model has seen the first `sent`; `news` says where the others come from."""

    messages: tuple[Message, ...] = ()
    sent: int = 0
    digest: str = ""
    """Digest of the first `sent` messages."""
    news: tuple[MessageRef, ...] = ()
    tokens: int = 0
    """Estimated tokens of all messages."""
    size: int = 0
    """UTF-8 bytes of all messages, near enough for the payload limit."""
    unseen: int = 0
    """Bytes that the messages which the model has not seen take in a history."""
    frame: int = 0
    """Estimated tokens of what goes with every call: instructions, tools. 0 until the first call measures it."""
    ready: Summary | None = None
    """A summary that waits for the model call that it was written for."""


class Clock(Record):
    """The run's time: seconds since the start; pauses and waits for a person are left out."""

    started_at: datetime
    stopped_at: datetime | None = None
    stopped_s: float = 0.0

    def elapsed_s(self, now: datetime) -> float:
        """Return the seconds that count."""
        end = self.stopped_at or now
        return max((end - self.started_at).total_seconds() - self.stopped_s, 0.0)


class GoodResult(Record):
    """The last good result of a call, kept for `cached_result`."""

    at: datetime
    text: str


class Child(Record):
    """A delegated run in flight, or one that waits for its turn."""

    workflow_id: str
    agent: str
    task: str
    """The beginning of it, for people."""
    ceiling: Ceiling | None = None
    """What is reserved for it; null until its turn has come."""
    held: bool = False
    """Whether a person holds it up."""


class ForkedFrom(Record):
    """The run whose past this one shares."""

    workflow_id: str
    run_id: str
    iteration: int


class AgentState(Record):
    """Everything that a run knows. Set in `@workflow.init`, before any handler can run."""

    input: AgentInput
    origin: str
    """Id of the first run of the chain, stable through reset and continue-as-new; idempotency keys build on it."""
    clock: Clock
    setup: Setup | None = None
    pending: Reply | None = None
    """A reply that people held up when the run continued as new: the next run judges it, and asks them on."""
    phase: str = "preparing"
    last: str = ""
    """What the latest reply called, for people."""
    iteration: int = 0
    usage: UsageTotals = UsageTotals()
    tool_calls: ToolCallCounts = ToolCallCounts()
    conversation: Conversation = Conversation()
    inbox: tuple[Intervention, ...] = ()
    """Guidance that the loop has not taken in yet, in order of arrival."""
    inbox_bytes: int = 0
    """UTF-8 bytes that wait in the inbox."""
    unheard: int = 0
    """Guidance that arrived while the inbox was full."""
    carried_by: str = ""
    """Id of the run that carried this state over; a starter cannot know it, so it cannot make a state up."""
    aborted: str | None = None
    """Why, once an abort arrived."""
    repairs: int = 0
    """Unusable replies in a row."""
    paused: bool = False
    waits: tuple[Wait, ...] = ()
    """What waits for a person, in order of asking."""
    announced: tuple[str, ...] = ()
    """Those of them that people outside were told of, where the setup says so."""
    holds: tuple[Hold, ...] = ()
    """Calls that wait for a person's yes."""
    taint: tuple[str, ...] = ()
    """Tools whose untrusted content has entered the conversation, in order."""
    extended: dict[str, int | float] = {}
    """Limits that were raised while the run was live; they win over its config."""
    questions: int = 0
    """About budgets, so far: the number of the next."""
    hydrated: bool = False
    """Whether the references of the task have been looked up."""
    calibration: float = 1.0
    """Tokens of the provider for one token of our estimate."""
    breakers: dict[str, Breaker] = {}
    """By tool; only circuits that have failures."""
    steps: dict[str, Step] = {}
    """By fingerprint; only steps that have failed."""
    failures: dict[str, int] = {}
    """Failed calls in a row, by tool, where `llm_recovery` counts them."""
    results: dict[str, GoodResult] = {}
    """By fingerprint, where `cached_result` may need them."""
    dead_letters: tuple[DeadLetter, ...] = ()
    under_way: int = 0
    """Calls that are being carried out, or may be yet, and that `tool_calls` does not count so far."""
    over_budget: int = 0
    """Iterations in a row in which calls went beyond `max_tool_calls`."""
    children: tuple[Child, ...] = ()
    """Delegated runs in flight, and those that wait for their turn."""
    told_held: bool = False
    """What its parent was told last: whether a person holds this run up."""
    data: Any = None
    """The final answer as JSON, where the input has an `output_schema`."""
    decided: dict[str, Decided] = {}
    """Decisions that were made, the last of each name."""
    undecided: int = 0
    """How often the model wanted to end before a required decision."""
    fork: ForkInput | None = None
    """Whose past it shares, as long as that is not read yet."""
    forked_from: ForkedFrom | None = None
    notes: tuple[Note, ...] = ()
    """Decisions that are not in the history yet."""
    critiques: dict[str, int] = {}
    """Times in a row that a critic has sent the model back, by critic."""
    invalid: dict[str, int] = {}
    """Invalid calls that were repeated without a break, with the number of iterations in a row."""
    denials: dict[str, int] = {}
    """Denials that were repeated without a break, with the number of iterations in a row."""
    output: str = ""
    """The last answer that the gate let through."""
    gathered: tuple[str, ...] = ()
    """What an ending without an answer may bring: text beside calls that were let through, words of delegates."""
    partial: str = ""
    """The answer that is being continued, after the output limit cut it."""
    stop: tuple[StopReason, str] | None = None
    """The ending, once it is decided."""

    @property
    def config(self) -> LoopConfig:
        """The settings that hold now."""
        config = self.setup.config if self.setup else self.input.config
        return config.model_copy(update=self._raised(config)) if self.extended else config

    def _raised(self, config: LoopConfig) -> dict[str, int | float]:
        """Return the limits that are higher than the config's; what is raised before the setup is known may not be."""
        limits = {name: getattr(config, name) for name in self.extended}
        return {name: value for name, value in self.extended.items() if limits[name] and limits[name] < value}


def state_in(given: object) -> AgentState | None:
    """Return the state that stands beside a run's input; None for anything else, which no run begins with."""
    try:
        return AgentState.model_validate(given)
    except ValidationError:
        return None
