"""How a goal ended, and where one stands. Users script against the keys."""

from typing import Any, Literal, Self

from orga.workflows.types.goals.deliveries import Delivered
from orga.workflows.types.goals.pursuit import Scores, StepState
from orga.workflows.types.record import Record, replace_fields
from orga.workflows.types.status import AgentResult, AgentStatus


class ShownStep(Record):
    """A step as people are shown it."""

    id: str
    goal: str
    skill: str
    depends_on: tuple[str, ...] = ()
    status: StepState
    attempts: int = 0
    quality: str = ""
    """Derived from the scores; empty where there are none."""
    score: float | None = None
    scores: Scores | None = None
    """Each from 1 to 5. `score` is their mean; of a draft it is its critic's, from 0 to 1."""
    output: str = ""
    """The id of the activity, or the place of the delegate, whose result it is."""
    source: str = ""
    summary: str = ""
    error: str = ""


class ShownPlan(Record):
    """The plan of a live goal, as `status` tells it in `plan`."""

    stage: str
    rounds: int
    steps: tuple[ShownStep, ...]
    trend: str = ""
    average: float | None = None
    slope: float | None = None
    """Of the mean scores of the latest rounds: what each round adds."""
    memory: str = ""
    pipeline: str = ""


class GoalResult(AgentResult):
    """Result of a goal: that of an agent's run, its `iterations` the turns of the model, and what came of the plan."""

    kind: Literal["goal"] = "goal"
    rounds: int
    """Rounds of steps that were executed; `max_iterations` counts these."""
    plan: tuple[str, ...]
    """The ids of the steps, in their order."""
    steps: tuple[ShownStep, ...]
    confidence: float
    """From 0 to 1, made from scores; what the model said of itself can only lower it."""
    sources: tuple[str, ...]
    deliveries: tuple[Delivered, ...] = ()
    """What became of the answer at each channel that was to get it."""

    def with_deliveries(self, deliveries: tuple[Delivered, ...]) -> Self:
        """Return the result with what became of its deliveries."""
        return replace_fields(self, {"deliveries": deliveries})


class GoalStatus(AgentStatus):
    """Where a goal stands: as an agent's run, with `plan` and `question` filled in."""

    kind: Literal["goal"] = "goal"
    plan: Any = None
    confidence: float | None = None
