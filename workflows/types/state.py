"""The whole state of a run: one value, carried through continue-as-new."""

from typing import Any, Self, TypedDict, Unpack

from pydantic import model_validator

from orga.workflows.types.control import Control, ControlTerms
from orga.workflows.types.conversation import Conversation
from orga.workflows.types.input import AgentInput, LoopConfig
from orga.workflows.types.messages import Reply
from orga.workflows.types.models.usage import ToolCallCounts, UsageTotals
from orga.workflows.types.past import ForkedFrom, ForkInput, GoalForkInput
from orga.workflows.types.questions import QuestionKind
from orga.workflows.types.recall import Recollection
from orga.workflows.types.record import Record, replace_fields
from orga.workflows.types.setup import Setup
from orga.workflows.types.tool_calls.breakers import Breaker
from orga.workflows.types.tool_calls.decision import Decided, GroundedDecision
from orga.workflows.types.tool_calls.delegation import Child
from orga.workflows.types.tool_calls.recovery import DeadLetter, GoodResult, RepeatedCall
from orga.workflows.types.tool_calls.tools import ToolSpec


class TaskChanges(TypedDict, total=False):
    input: AgentInput
    setup: Setup | None
    hydrated: bool
    decided: dict[str, Decided]
    undecided: int
    output: str
    data: Any
    gathered: tuple[str, ...]


class Task(Record):
    """The input and the setup of the run, and what it has achieved so far."""

    input: AgentInput
    setup: Setup | None = None
    hydrated: bool = False
    """True after the lookups of the task's references."""
    decided: dict[str, Decided] = {}
    """The last decision of each name."""
    undecided: int = 0
    """The number of times that the model tried to end before a required decision."""
    output: str = ""
    data: Any = None
    """The final answer as JSON, if the input has an `output_schema`."""
    gathered: tuple[str, ...] = ()
    """Texts for an ending without an answer: what the model wrote next to allowed calls, and answers of delegates."""

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools of its setup, which the model may call. Empty before the setup is known."""
        return self.setup.tools if self.setup else ()

    def tool(self, name: str) -> ToolSpec | None:
        return self.setup.tool(name) if self.setup else None

    @property
    def agent(self) -> str:
        """The agent's name in the setup, or the one that the starter gave before the setup is known."""
        return self.setup.agent if self.setup else self.input.agent

    @property
    def declared_decisions(self) -> dict[str, GroundedDecision]:
        """The decisions of its setup, by name. Empty before the setup is known."""
        return self.setup.decisions if self.setup else {}

    @property
    def due_decisions(self) -> tuple[str, ...]:
        """The required decisions that are not made yet."""
        declared = self.declared_decisions.items()
        return tuple(name for name, decision in declared if decision.required and name not in self.decided)

    def with_task(self, **changes: Unpack[TaskChanges]) -> Self:
        return replace_fields(self, changes, Task.model_fields.keys())


class DialogueChanges(TypedDict, total=False):
    conversation: Conversation
    calibration: float
    pending: Reply | None
    last: str
    refused: str
    partial: str
    repairs: int
    thinking_cuts: int
    critiques: dict[str, int]
    taint: tuple[str, ...]
    recollection: Recollection


class Dialogue(Record):
    """The exchange between the model and the run, and what is still open about it."""

    conversation: Conversation = Conversation()
    calibration: float = 1.0
    """The provider's number of tokens, divided by our estimate."""
    pending: Reply | None = None
    """A reply that waited for people when the run continued as new. The next segment judges it and asks them again."""
    last: str = ""
    """The calls of the latest reply, for people."""
    refused: str = ""
    """The calls that the gate refused, for people. Empty after the model's next reply."""
    partial: str = ""
    """The answer that is being continued after the output limit cut it."""
    repairs: int = 0
    """Unusable replies in a row."""
    thinking_cuts: int = 0
    """Replies in a row that were only thinking. After 1, the next reply may have twice the tokens. After 2, it may have
    four times the tokens, with low effort. After 3, the same without thinking.
    """
    critiques: dict[str, int] = {}
    """By critic: the number of times in a row that it has sent the model back."""
    taint: tuple[str, ...] = ()
    """Tools whose untrusted content has entered the conversation, in order."""
    recollection: Recollection = Recollection()

    def with_dialogue(self, **changes: Unpack[DialogueChanges]) -> Self:
        return replace_fields(self, changes, Dialogue.model_fields.keys())

    def with_reply_counts_of(self, other: "Dialogue") -> Self:
        """Return the state with the counts `repairs` and `critiques` of `other`."""
        return self.with_dialogue(repairs=other.repairs, critiques=other.critiques)


class BudgetChanges(TypedDict, total=False):
    usage: UsageTotals
    tool_calls: ToolCallCounts
    under_way: int
    over_budget: int
    extended: dict[str, int | float]
    budget_questions: int


class Budget(Record):
    """The run's spending so far, and limits that were raised."""

    usage: UsageTotals = UsageTotals()
    tool_calls: ToolCallCounts = ToolCallCounts()
    under_way: int = 0
    """Calls that are running, or may still run, and are not in `tool_calls` yet."""
    over_budget: int = 0
    """Iterations in a row in which calls exceeded `max_tool_calls`."""
    extended: dict[str, int | float] = {}
    """Limits that were raised during the run. They override its config."""
    budget_questions: int = 0
    """Questions about a limit so far. The next question has this number."""

    def with_budget(self, **changes: Unpack[BudgetChanges]) -> Self:
        return replace_fields(self, changes, Budget.model_fields.keys())

    def with_usage_of(self, reply: Reply) -> Self:
        return self.with_budget(usage=self.usage.plus(reply.usage, reply.cost_usd))


class FailuresChanges(TypedDict, total=False):
    breakers: dict[str, Breaker]
    steps: dict[str, RepeatedCall]
    failures: dict[str, int]
    results: dict[str, GoodResult]
    values: dict[str, Any]
    dead_letters: tuple[DeadLetter, ...]
    denials: dict[str, int]
    invalid: dict[str, int]


class Failures(Record):
    """Failures and denials, and results that may replace failed calls."""

    breakers: dict[str, Breaker] = {}
    """Circuits by tool. Only those with failures are kept."""
    steps: dict[str, RepeatedCall] = {}
    """Repeated calls by fingerprint. Only those that have failed are kept."""
    failures: dict[str, int] = {}
    """Failed calls in a row, by tool, if `llm_recovery` counts them."""
    results: dict[str, GoodResult] = {}
    """Results by fingerprint, if `cached_result` may need them."""
    values: dict[str, Any] = {}
    """The latest value of each tool with an output schema, for policies. The oldest is first."""
    dead_letters: tuple[DeadLetter, ...] = ()
    denials: dict[str, int] = {}
    """The number of iterations in a row with the same denial, by its text."""
    invalid: dict[str, int] = {}
    """The number of iterations in a row with the same invalid call, by its text."""

    @property
    def waiting_letters(self) -> tuple[DeadLetter, ...]:
        """The dead letters that an operator has requeued."""
        return tuple(letter for letter in self.dead_letters if letter.requeued)

    def with_failures(self, **changes: Unpack[FailuresChanges]) -> Self:
        return replace_fields(self, changes, Failures.model_fields.keys())


class FamilyChanges(TypedDict, total=False):
    children: tuple[Child, ...]
    told_held: bool
    fork: ForkInput | GoalForkInput | None
    forked_from: ForkedFrom | None


class Family(Record):
    """The runs that are related to this one: its delegates, its parent, the run whose past it shares."""

    children: tuple[Child, ...] = ()
    """Delegated runs that are running or wait for their turn."""
    told_held: bool = False
    """The latest report to its parent: whether a person holds this run up."""
    fork: ForkInput | GoalForkInput | None = None
    """The fork's input, until the shared past is read."""
    forked_from: ForkedFrom | None = None

    def with_family(self, **changes: Unpack[FamilyChanges]) -> Self:
        return replace_fields(self, changes, Family.model_fields.keys())


class AgentState(Family, Failures, Budget, Dialogue, Task, Control):
    """The whole state of a run. A field changes only by a method of the base that declares it.

    Pydantic writes the fields of the last base first.
    """

    @model_validator(mode="before")
    @classmethod
    def _with_task_restored(cls, value: Any) -> Any:
        """Restore the task's text in the first message. A state is carried without it, because the input has it."""
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
        return self.input.agent

    @property
    def counted_iterations(self) -> int:
        """The number that `max_iterations` limits."""
        return self.iteration

    @property
    def step_timeout_s(self) -> float | None:
        """Seconds for each call and delegate of a goal. A delegate then counts its own iterations. None: no goal."""
        return None

    @property
    def timeout_s(self) -> float:
        return self.config.timeout_s

    @property
    def terms(self) -> ControlTerms:
        """The terms of its setup, without a notification at the end of a delegated run. A fork has no parent."""
        if (setup := self.setup) is None:
            return ControlTerms()
        is_delegated = bool(self.input.lineage.chain) and self.forked_from is None
        return ControlTerms(
            notify=tuple(event for event in setup.notify if not (is_delegated and event == "ended")),
            search_attributes=setup.search_attributes,
            roll_over_events=setup.roll_over_events,
            roll_over_bytes=setup.roll_over_bytes,
            full_events=setup.full_events,
            full_bytes=setup.full_bytes,
        )

    @property
    def is_paused_elsewhere(self) -> bool:
        return any(child.held for child in self.children)

    @property
    def work_elsewhere_text(self) -> str:
        """A note on running delegates, or "". Their results would not reach the next segment."""
        return "its delegates were at work" if self.children else ""

    @property
    def not_continued_reason(self) -> str:
        return self.work_elsewhere_text or "it waited in the middle of its calls"

    def unavailable_choice_text(self, kind: QuestionKind) -> str:
        if kind == "budget":
            return "a budget is raised by extend_budget; or choose skip (end at the limit) or abort"
        return super().unavailable_choice_text(kind)

    @property
    def task_bytes(self) -> int:
        """Bytes of JSON that the state needs for tasks that arrive later."""
        return 0

    @property
    def config(self) -> LoopConfig:
        config = self.setup.config if self.setup else self.input.config
        return config.with_raised(self.extended) if self.extended else config
