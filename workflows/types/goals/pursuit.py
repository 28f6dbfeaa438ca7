"""The progress of a goal: its plan, the results of its steps, its memory, and its obstacles."""

from collections.abc import Iterable
from typing import Any, Literal, Self, TypedDict, Unpack

from orga.workflows.types.control import Stop
from orga.workflows.types.goals.deliveries import Delivered
from orga.workflows.types.goals.goal_input import GoalConfig
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.record import Record, replace_fields
from orga.workflows.types.state import AgentState
from orga.workflows.types.status import AgentResult, AgentStatus
from orga.workflows.types.tool_calls.gate import ApprovalTerms

GoalPhase = Literal["plan", "execute", "evaluate", "decide", "ask", "review", "compress", "summarise"]
"""The current or next phase of a goal. A run that continues as new resumes there."""

StepState = Literal["open", "done", "failed"]

Quality = Literal["good", "partial", "failed"]

OPERATOR = "operator"
"""`PlanStep.by` of a step that a person added. No change of the plan removes such a step."""

MAX_ID_CHARS = 40
MAX_GOAL_CHARS = 500
MAX_ARGUMENTS_BYTES = 4_000
"""Bytes of JSON of one step's arguments. A document belongs in a file."""

MAX_MEMORY_CHARS = 8_000
MAX_QUESTION_CHARS = 1_000
MAX_SUMMARY_CHARS = 300
MAX_KEPT_STEPS = 60
"""Finished steps that the state keeps. Only the journal has older ones."""


class Scores(Record):
    relevance: float
    completeness: float
    usability: float
    goal_progress: float

    @property
    def mean(self) -> float:
        return (self.relevance + self.completeness + self.usability + self.goal_progress) / 4


class StepChanges(TypedDict, total=False):
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
    id: str
    goal: str
    skill: str
    arguments: dict[str, Any] | None = None
    """Arguments of the call. None if they depend on other steps, and None after the call."""
    depends_on: tuple[str, ...] = ()
    state: StepState = "open"
    attempts: int = 0
    call_id: str = ""
    """Id of the latest call. The conversation holds its result."""
    place: str = ""
    """The activity id of that call, `<iteration>.<index>`."""
    source: str = ""
    """The tool and main argument of that call, on one line: `read_file "docs/a.md"`."""
    scores: Scores | None = None
    label: str = ""
    """The quality in the model's own words. Nothing depends on it. For a draft: `good` or `partial`, by its score."""
    summary: str = ""
    error: str = ""
    by: str = ""
    """`OPERATOR` if a person added the step, else ""."""
    score: float | None = None
    """The score of a draft from 0 to 1, set by the critic of its pipeline."""

    def with_fields(self, **changes: Unpack[StepChanges]) -> Self:
        return replace_fields(self, changes)


class CourseChanges(TypedDict, total=False):
    outputs: dict[str, str]
    guidance: tuple[str, ...]
    scores: tuple[float, ...]
    remarks: str


class Course(Record):
    """The progress of a goal through its pipeline, in addition to the steps."""

    outputs: dict[str, str] = {}
    """Outputs that later steps still need, by step ids."""
    guidance: tuple[str, ...] = ()
    """Guidance from people. All later steps get it. If it is too long, the latest is kept."""
    scores: tuple[float, ...] = ()
    """Scores of the drafts, from 0 to 1, in their order."""
    remarks: str = ""
    """The critic's latest usable verdict as text: the scores of the draft, and the changes that the critic requests."""

    def with_fields(self, **changes: Unpack[CourseChanges]) -> Self:
        return replace_fields(self, changes)


class PursuitChanges(TypedDict, total=False):
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
    """The state of a goal, in addition to that of any agent's run."""

    stage: GoalPhase = "plan"
    rounds: int = 0
    steps: tuple[PlanStep, ...] = ()
    """Steps in the order of the plan. Finished ones come first."""
    due: tuple[str, ...] = ()
    """Ids of the steps of the current round, in the order of their calls, until the next round is chosen."""
    longest: int = 0
    """The number of steps of the longest plan so far. The goal's time limit depends on it."""
    memory: str = ""
    question: str = ""
    """The model's question, or the question about its plan."""
    questions: int = 0
    """Questions so far. The next question has this number."""
    is_answered: bool = False
    """True if a person has answered a question of the model. The goal may then need no steps."""
    terms: ApprovalTerms | None = None
    """Approvers and deadline of the question about the plan, if the policy requires an approval."""
    errors: int = 0
    """Rounds in a row in which every step failed."""
    bad: int = 0
    """Evaluated rounds in a row without progress."""
    unusable: int = 0
    """Replies in a row that could not be used."""
    adjusted: int = 0
    """Decisions in a row that changed the plan although the confidence was high."""
    recent: tuple[str, ...] = ()
    """The calls of the latest rounds, as `decisions/goals/progress.py` compares them, newest last."""
    trend: tuple[float, ...] = ()
    """Mean scores of the latest evaluated rounds, newest last."""
    confidence: float | None = None
    is_guided: bool = False
    """True if there is guidance from people that no decision has seen yet."""
    ending: Stop | None = None
    """The goal's ending, decided before the final answer is written."""
    course: Course | None = None

    def with_fields(self, **changes: Unpack[PursuitChanges]) -> Self:
        return self.with_changes(changes)

    def with_changes(self, changes: PursuitChanges) -> Self:
        return replace_fields(self, changes)

    def with_steps(self, changed: Iterable[PlanStep]) -> Self:
        by_id = {step.id: step for step in changed}
        return self.with_fields(steps=tuple(by_id.get(step.id, step) for step in self.steps))

    @property
    def due_steps(self) -> tuple[PlanStep, ...]:
        """The steps of this round, in the order of their calls."""
        by_id = {step.id: step for step in self.steps}
        return tuple(by_id[step_id] for step_id in self.due if step_id in by_id)

    @property
    def open_steps(self) -> tuple[PlanStep, ...]:
        return tuple(step for step in self.steps if step.state == "open")

    @property
    def open_steps_of_people(self) -> tuple[PlanStep, ...]:
        """The open steps that a person has added. No change of the plan removes them."""
        return tuple(step for step in self.open_steps if step.by == OPERATOR)


class GoalState(AgentState):
    """The whole state of a goal: an agent's run, and the pursuit that decides its next step."""

    goal_config: GoalConfig = GoalConfig()
    deliver: tuple[str, ...] | None = None
    """The channels that its starter named for the answer."""
    pipeline: str = ""
    """The name of its pipeline. Empty if the model makes the plan."""
    inputs: tuple[str, ...] | None = None
    """Inputs of its `map_reduce` pipeline. None: those of the pipeline's configuration."""
    pursuit: Pursuit = Pursuit()

    def with_aim(self, config: GoalConfig, deliver: tuple[str, ...] | None) -> Self:
        return replace_fields(self, {"goal_config": config, "deliver": deliver})

    def with_pursuit(self, **changes: Unpack[PursuitChanges]) -> Self:
        return replace_fields(self, {"pursuit": self.pursuit.with_changes(changes)})

    @property
    def config(self) -> LoopConfig:
        """The settings that apply now. Without `timeout_s`, the time limit grows with the longest plan."""
        config, own = super().config, self.goal_config
        if own.timeout_s is not None or not self.pursuit.longest:
            return config
        return config.with_raised({"timeout_s": own.step_budget_s * (self.pursuit.longest + 1)})

    @property
    def counted_iterations(self) -> int:
        """The number that `max_iterations` limits: rounds of steps, while `iterations` counts goal prompts."""
        return self.pursuit.rounds

    @property
    def step_timeout_s(self) -> float | None:
        return self.goal_config.step_timeout_s


class ShownStep(Record):
    """A step as people see it."""

    id: str
    goal: str
    skill: str
    depends_on: tuple[str, ...] = ()
    status: StepState
    attempts: int = 0
    quality: str = ""
    """Derived from the scores. Empty without scores."""
    score: float | None = None
    """The mean of `scores`, or the critic's score of a draft, from 0 to 1."""
    scores: Scores | None = None
    """Each from 1 to 5."""
    output: str = ""
    """The activity id of the call that produced it."""
    source: str = ""
    summary: str = ""
    error: str = ""


class ShownPlan(Record):
    """The plan of a live goal, as `status` shows it in `plan`."""

    stage: str
    rounds: int
    steps: tuple[ShownStep, ...]
    trend: str = ""
    average: float | None = None
    slope: float | None = None
    """The mean change per round of the latest rounds' scores."""
    memory: str = ""
    pipeline: str = ""


class GoalResult(AgentResult):
    """Result of a goal: that of an agent's run, with the plan's results. `iterations` counts goal prompts."""

    kind: Literal["goal"] = "goal"
    rounds: int
    """Executed rounds of steps. `max_iterations` limits them."""
    plan: tuple[str, ...]
    """The ids of the steps, in their order."""
    steps: tuple[ShownStep, ...]
    confidence: float
    """A number from 0 to 1, computed from scores. The model's own confidence can only lower it."""
    sources: tuple[str, ...]
    deliveries: tuple[Delivered, ...] = ()
    """The outcome of each delivery of the answer."""

    def with_deliveries(self, deliveries: tuple[Delivered, ...]) -> Self:
        return replace_fields(self, {"deliveries": deliveries})


class GoalStatus(AgentStatus):
    """Status of a goal: that of an agent's run, with `plan` and `question` filled in."""

    kind: Literal["goal"] = "goal"
    plan: Any = None
    confidence: float | None = None
