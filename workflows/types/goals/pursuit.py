"""How far a goal is: its plan, what its steps brought, what the model keeps in mind, what stands in its way."""

from collections.abc import Iterable
from typing import Any, Literal, Self, TypedDict, Unpack

from orga.workflows.types.control import Stop
from orga.workflows.types.goals.input import GoalConfig
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.record import Record, replace_fields
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.gate import ApprovalTerms

GoalPhase = Literal["plan", "execute", "evaluate", "decide", "ask", "review", "compress", "summarise"]
"""What a goal is at, or will be at next: a run that continues as new goes on there."""

StepState = Literal["open", "done", "failed"]

Quality = Literal["good", "partial", "failed"]

OPERATOR = "operator"
"""Who a step is by that no change of the plan takes away."""

MAX_ID_CHARS = 40
MAX_GOAL_CHARS = 500
MAX_ARGUMENTS_BYTES = 4_000
"""Of one step, as JSON: a document belongs into a file."""

MAX_MEMORY_CHARS = 8_000
MAX_QUESTION_CHARS = 1_000
MAX_SUMMARY_CHARS = 300
MAX_KEPT_STEPS = 60
"""That are over: of a long goal the oldest are told in the journal alone."""


class Scores(Record):
    """What an evaluation says of a step, each from 1 to 5."""

    relevance: float
    completeness: float
    usability: float
    goal_progress: float

    @property
    def mean(self) -> float:
        """The score as a whole."""
        return (self.relevance + self.completeness + self.usability + self.goal_progress) / 4


class StepChanges(TypedDict, total=False):
    """What `PlanStep.with_fields` takes."""

    state: StepState
    skill: str
    goal: str
    by: str
    arguments: dict[str, Any] | None
    attempts: int
    call_id: str
    place: str
    source: str
    scores: Scores | None
    label: str
    summary: str
    error: str
    score: float | None
    depends_on: tuple[str, ...]


class PlanStep(Record):
    """A step of the plan, and what became of it."""

    id: str
    goal: str
    skill: str
    """A tool, or an agent that may be delegated to."""
    arguments: dict[str, Any] | None = None
    """Of the call; None where they depend on what other steps bring, and once it was made."""
    depends_on: tuple[str, ...] = ()
    state: StepState = "open"
    attempts: int = 0
    call_id: str = ""
    """Of the latest call: its result stands in the conversation under it."""
    place: str = ""
    """Of that call: `<turn>.<index>`, the id of its activity."""
    source: str = ""
    """What that call was about, on one line: `read_file "docs/a.md"`."""
    scores: Scores | None = None
    label: str = ""
    """The quality in the model's own words, which decides nothing; of a draft what its score stands for."""
    summary: str = ""
    error: str = ""
    by: str = ""
    """Who has put it there, where that is not the model."""
    score: float | None = None
    """From 0 to 1: of a draft, by the critic of its pipeline."""

    def with_fields(self, **changes: Unpack[StepChanges]) -> Self:
        """Return the step with these changes."""
        return replace_fields(self, changes)


class CourseChanges(TypedDict, total=False):
    """What `Course.with_fields` takes: its fields."""

    outputs: dict[str, str]
    guidance: tuple[str, ...]
    scores: tuple[float, ...]
    remarks: str


class Course(Record):
    """What a goal knows of its pipeline beside the steps."""

    outputs: dict[str, str] = {}
    """What steps brought that is needed yet, by their ids."""
    guidance: tuple[str, ...] = ()
    """What people said, which each step is told from then on; of too much the latest."""
    scores: tuple[float, ...] = ()
    """Of the drafts, from 0 to 1, in their order."""
    remarks: str = ""
    """Of the critic on the latest draft, or what was wrong with them."""

    def with_fields(self, **changes: Unpack[CourseChanges]) -> Self:
        """Return the course with these changes."""
        return replace_fields(self, changes)


class PursuitChanges(TypedDict, total=False):
    """What `Pursuit.with_fields` takes: its fields."""

    stage: GoalPhase
    rounds: int
    steps: tuple[PlanStep, ...]
    due: tuple[str, ...]
    longest: int
    memory: str
    question: str
    questions: int
    is_answered: bool
    terms: ApprovalTerms | None
    errors: int
    bad: int
    unusable: int
    adjusted: int
    recent: tuple[str, ...]
    trend: tuple[float, ...]
    confidence: float | None
    is_guided: bool
    ending: Stop | None
    course: Course | None


class Pursuit(Record):
    """What a goal knows beside what any agent's run knows."""

    stage: GoalPhase = "plan"
    rounds: int = 0
    """Rounds of steps so far: the goal's iterations."""
    steps: tuple[PlanStep, ...] = ()
    """In the order of the plan; those that are over stand first."""
    due: tuple[str, ...] = ()
    """Steps that are being executed, in the order of their calls; then those that wait to be evaluated."""
    longest: int = 0
    """Steps of the longest plan so far: what the time of the goal goes by."""
    memory: str = ""
    """What the model keeps in mind."""
    question: str = ""
    """What the model wants to ask, or what is asked of its plan."""
    questions: int = 0
    """Asked so far: the number of the next."""
    is_answered: bool = False
    """Whether a person has answered a question of the model: that may be all that the goal needs."""
    terms: ApprovalTerms | None = None
    """Who may say yes to the plan, and until when, where policy wants one."""
    errors: int = 0
    """Rounds in a row in which every step failed."""
    bad: int = 0
    """Evaluated rounds in a row that brought nothing of use."""
    unusable: int = 0
    """Replies in a row that could not be used."""
    adjusted: int = 0
    """Decisions in a row, of high confidence, that changed the plan."""
    recent: tuple[str, ...] = ()
    """The calls of the latest rounds, as `decisions/goals/progress.py` compares them; the newest last."""
    trend: tuple[float, ...] = ()
    """Mean scores of the latest rounds that were evaluated; the newest last."""
    confidence: float | None = None
    """The model's, of its last decision."""
    is_guided: bool = False
    """Whether people said something that no decision has seen yet."""
    ending: Stop | None = None
    """How the goal will end, once the final answer is written."""
    course: Course | None = None
    """Of its pipeline, where it has one."""

    def with_fields(self, **changes: Unpack[PursuitChanges]) -> Self:
        """Return the pursuit with these changes."""
        return self.with_changes(changes)

    def with_changes(self, changes: PursuitChanges) -> Self:
        """Return the pursuit with these changes, typed as those that `with_fields` takes."""
        return replace_fields(self, changes)

    def with_steps(self, changed: Iterable[PlanStep]) -> Self:
        """Return the pursuit with these in place of the steps of the same ids."""
        known = {step.id: step for step in changed}
        return self.with_fields(steps=tuple(known.get(step.id, step) for step in self.steps))

    @property
    def due_steps(self) -> tuple[PlanStep, ...]:
        """The steps of this round, in the order of their calls."""
        known = {step.id: step for step in self.steps}
        return tuple(known[step_id] for step_id in self.due if step_id in known)

    @property
    def open_steps(self) -> tuple[PlanStep, ...]:
        """The steps that are still to be done."""
        return tuple(step for step in self.steps if step.state == "open")

    @property
    def open_steps_of_people(self) -> tuple[PlanStep, ...]:
        """Those of them that a person has put there: no other plan takes them away."""
        return tuple(step for step in self.open_steps if step.by == OPERATOR)


class GoalState(AgentState):
    """All that a goal knows: an agent's run, and the pursuit that decides what it does next."""

    goal_config: GoalConfig = GoalConfig()
    deliver: tuple[str, ...] | None = None
    """The channels that its starter named for the answer."""
    pipeline: str = ""
    """The name of its pipeline; none is planned by the model."""
    inputs: tuple[str, ...] | None = None
    """Of its pipeline, where its starter gave some."""
    pursuit: Pursuit = Pursuit()

    def with_aim(self, config: GoalConfig, deliver: tuple[str, ...] | None) -> Self:
        """Return the state with other limits and settings, and other channels for the answer."""
        return replace_fields(self, {"goal_config": config, "deliver": deliver})

    def with_pursuit(self, **changes: Unpack[PursuitChanges]) -> Self:
        """Return the state with these changes of its pursuit."""
        return replace_fields(self, {"pursuit": self.pursuit.with_changes(changes)})

    @property
    def config(self) -> LoopConfig:
        """The settings that hold now; the time is proportional to the longest plan, where no other is given."""
        config, own = super().config, self.goal_config
        if own.timeout_s is not None or not self.pursuit.longest:
            return config
        return config.with_raised({"timeout_s": own.step_budget_s * (self.pursuit.longest + 1)})

    @property
    def counted_iterations(self) -> int:
        """Rounds of steps, not model calls."""
        return self.pursuit.rounds

    @property
    def step_timeout_s(self) -> float | None:
        """A step that an agent does has the time of a step."""
        return self.goal_config.step_timeout_s
