"""The whole state of a run: one value, carried through continue-as-new."""

from typing import Any, Self, TypedDict, Unpack

from pydantic import model_validator

from orga.workflows.types.control import Control, ControlTerms
from orga.workflows.types.conversation import Conversation
from orga.workflows.types.input import AgentInput, LoopConfig
from orga.workflows.types.messages import Reply
from orga.workflows.types.past import ForkedFrom, ForkInput, GoalForkInput
from orga.workflows.types.questions import NotifyEvent, QuestionKind
from orga.workflows.types.recall import Recollection
from orga.workflows.types.record import Record, replace_fields
from orga.workflows.types.setup import Setup
from orga.workflows.types.tool_calls.breakers import Breaker
from orga.workflows.types.tool_calls.decision import Decided, GroundedDecision
from orga.workflows.types.tool_calls.delegation import Child
from orga.workflows.types.tool_calls.recovery import DeadLetter, GoodResult, Step
from orga.workflows.types.usage import ToolCallCounts, UsageTotals


class TaskChanges(TypedDict, total=False):
    """What `with_task` takes: the fields of `Task`."""

    input: AgentInput
    setup: Setup | None
    hydrated: bool
    decided: dict[str, Decided]
    undecided: int
    output: str
    data: Any
    gathered: tuple[str, ...]


class Task(Record):
    """What the run is to do and with what, and what has come of it so far."""

    input: AgentInput
    setup: Setup | None = None
    hydrated: bool = False
    """Whether the references of the task have been looked up."""
    decided: dict[str, Decided] = {}
    """Decisions that were made, the last of each name."""
    undecided: int = 0
    """How often the model wanted to end before a required decision."""
    output: str = ""
    """The last answer that the gate let through."""
    data: Any = None
    """The final answer as JSON, where the input has an `output_schema`."""
    gathered: tuple[str, ...] = ()
    """What an ending without an answer may bring: text beside calls that were let through, words of delegates."""

    @property
    def declared_decisions(self) -> dict[str, GroundedDecision]:
        """The decisions of its setup, by name; none before that is known."""
        return self.setup.decisions if self.setup else {}

    @property
    def due_decisions(self) -> tuple[str, ...]:
        """The required decisions that are not made."""
        return tuple(
            name for name, each in self.declared_decisions.items() if each.required and name not in self.decided
        )

    def with_task(self, **changes: Unpack[TaskChanges]) -> Self:
        """Return the state with these changes."""
        return replace_fields(self, changes, _TASK)


class DialogueChanges(TypedDict, total=False):
    """What `with_dialogue` takes: the fields of `Dialogue`."""

    conversation: Conversation
    calibration: float
    pending: Reply | None
    last: str
    refused: str
    partial: str
    repairs: int
    critiques: dict[str, int]
    taint: tuple[str, ...]
    recollection: Recollection


class Dialogue(Record):
    """What was said between the model and the run, and what is still open about it."""

    conversation: Conversation = Conversation()
    calibration: float = 1.0
    """Tokens of the provider for one token of our estimate."""
    pending: Reply | None = None
    """A reply that people held up when the run continued as new: the next run judges it, and asks them on."""
    last: str = ""
    """What the latest reply called, for people."""
    refused: str = ""
    """What of it the gate refused, for people: until the model has answered to that."""
    partial: str = ""
    """The answer that is being continued, after the output limit cut it."""
    repairs: int = 0
    """Unusable replies in a row."""
    critiques: dict[str, int] = {}
    """Times in a row that a critic has sent the model back, by critic."""
    taint: tuple[str, ...] = ()
    """Tools whose untrusted content has entered the conversation, in order."""
    recollection: Recollection = Recollection()
    """What was recalled last."""

    def with_dialogue(self, **changes: Unpack[DialogueChanges]) -> Self:
        """Return the state with these changes."""
        return replace_fields(self, changes, _DIALOGUE)

    def with_rounds_of(self, other: "Dialogue") -> Self:
        """Return the state with the replies in a row that `other` counts: unusable ones, and those sent back."""
        return self.with_dialogue(repairs=other.repairs, critiques=other.critiques)


class BudgetChanges(TypedDict, total=False):
    """What `with_budget` takes: the fields of `Budget`."""

    usage: UsageTotals
    tool_calls: ToolCallCounts
    under_way: int
    over_budget: int
    extended: dict[str, int | float]
    budget_questions: int


class Budget(Record):
    """What was spent, and what limits were raised."""

    usage: UsageTotals = UsageTotals()
    tool_calls: ToolCallCounts = ToolCallCounts()
    under_way: int = 0
    """Calls that are being carried out, or may be yet, and that `tool_calls` does not count so far."""
    over_budget: int = 0
    """Iterations in a row in which calls went beyond `max_tool_calls`."""
    extended: dict[str, int | float] = {}
    """Limits that were raised while the run was live; they win over its config."""
    budget_questions: int = 0
    """So far: the number of the next."""

    def with_budget(self, **changes: Unpack[BudgetChanges]) -> Self:
        """Return the state with these changes."""
        return replace_fields(self, changes, _BUDGET)


class FailuresChanges(TypedDict, total=False):
    """What `with_failures` takes: the fields of `Failures`."""

    breakers: dict[str, Breaker]
    steps: dict[str, Step]
    failures: dict[str, int]
    results: dict[str, GoodResult]
    dead_letters: tuple[DeadLetter, ...]
    denials: dict[str, int]
    invalid: dict[str, int]


class Failures(Record):
    """What has failed or was turned down, and what may stand in for it."""

    breakers: dict[str, Breaker] = {}
    """By tool; only circuits that have failures."""
    steps: dict[str, Step] = {}
    """By fingerprint; only steps that have failed."""
    failures: dict[str, int] = {}
    """Failed calls in a row, by tool, where `llm_recovery` counts them."""
    results: dict[str, GoodResult] = {}
    """By fingerprint, where `cached_result` may need them."""
    dead_letters: tuple[DeadLetter, ...] = ()
    denials: dict[str, int] = {}
    """Denials that were repeated without a break, with the number of iterations in a row."""
    invalid: dict[str, int] = {}
    """Invalid calls that were repeated without a break, with the number of iterations in a row."""

    @property
    def waiting_letters(self) -> tuple[DeadLetter, ...]:
        """The letters that an operator wants to be sent again."""
        return tuple(letter for letter in self.dead_letters if letter.requeued)

    def with_failures(self, **changes: Unpack[FailuresChanges]) -> Self:
        """Return the state with these changes."""
        return replace_fields(self, changes, _FAILURES)


class FamilyChanges(TypedDict, total=False):
    """What `with_family` takes: the fields of `Family`."""

    children: tuple[Child, ...]
    told_held: bool
    fork: ForkInput | GoalForkInput | None
    forked_from: ForkedFrom | None


class Family(Record):
    """The runs that this one has to do with: its delegates, its parent, the one whose past it shares."""

    children: tuple[Child, ...] = ()
    """Delegated runs in flight, and those that wait for their turn."""
    told_held: bool = False
    """What its parent was told last: whether a person holds this run up."""
    fork: ForkInput | GoalForkInput | None = None
    """Whose past it shares, as long as that is not read yet."""
    forked_from: ForkedFrom | None = None

    def with_family(self, **changes: Unpack[FamilyChanges]) -> Self:
        """Return the state with these changes."""
        return replace_fields(self, changes, _FAMILY)


_TASK, _DIALOGUE = frozenset(Task.model_fields), frozenset(Dialogue.model_fields)
_BUDGET, _FAILURES = frozenset(Budget.model_fields), frozenset(Failures.model_fields)
_FAMILY = frozenset(Family.model_fields)


class AgentState(Family, Failures, Budget, Dialogue, Task, Control):
    """All that a run knows; each field changes by its owner's method alone. Pydantic writes the last base first."""

    @model_validator(mode="before")
    @classmethod
    def _with_task_restored(cls, value: Any) -> Any:
        """Where room was short the task is carried in the input alone, and the first message without its text."""
        match value:
            case {
                "input": {"task": str(task)},
                "conversation": {"messages": [{"role": "user", "parts": []} as first, *rest]},
            }:
                messages = [{**first, "parts": [{"kind": "text", "text": task}]}, *rest]
                return {**value, "conversation": {**value["conversation"], "messages": messages}}
            case _:
                return value

    @property
    def name(self) -> str:
        """The agent."""
        return self.input.agent

    @property
    def counted_iterations(self) -> int:
        """What `max_iterations` counts."""
        return self.iteration

    @property
    def step_timeout_s(self) -> float | None:
        """Seconds of a delegate's clock, where its run is the step of a plan: its iterations are its own then."""
        return None

    @property
    def timeout_s(self) -> float:
        """The seconds of its config, or of an extension."""
        return self.config.timeout_s

    @property
    def terms(self) -> ControlTerms:
        """What its setup says. Of its end a delegated run tells its parent, nobody else; a fork has no parent."""
        if (setup := self.setup) is None:
            return ControlTerms()
        is_delegated = bool(self.input.lineage.chain) and self.forked_from is None
        notify: tuple[NotifyEvent, ...] = setup.notify
        if is_delegated:
            notify = tuple(event for event in notify if event != "ended")
        lengths = setup.roll_over_events, setup.roll_over_bytes, setup.full_events, setup.full_bytes
        return ControlTerms(notify, setup.search_attributes, *lengths)

    @property
    def is_held_elsewhere(self) -> bool:
        """Whether a person holds up one of its delegates."""
        return any(child.held for child in self.children)

    @property
    def under_way_elsewhere(self) -> str:
        """Delegates take back what they did behind an interrupted call: the next run would not hear of their end."""
        return "its delegates were at work" if self.children else ""

    @property
    def why_it_stayed(self) -> str:
        """Why a run that waited could not continue as new."""
        return self.under_way_elsewhere or "it waited in the middle of its calls"

    def other_way(self, kind: QuestionKind) -> str:
        """Of a question about its budget, too."""
        raised = "a budget is raised by extend_budget; or choose skip (end at the limit) or abort"
        return raised if kind == "budget" else super().other_way(kind)

    @property
    def room_for_tasks(self) -> int:
        """Bytes of JSON of what a run is told later, and carries."""
        return 0

    @property
    def config(self) -> LoopConfig:
        """The settings that hold now."""
        config = self.setup.config if self.setup else self.input.config
        return config.with_raised(self.extended) if self.extended else config
