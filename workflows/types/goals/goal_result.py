"""The result and the status of a goal. Users write scripts against the keys."""

from typing import Any, Literal, Self

from orga.workflows.types.goals.deliveries import Delivered
from orga.workflows.types.goals.pursuit import Scores, StepState
from orga.workflows.types.record import Record, replace_fields
from orga.workflows.types.status import AgentResult, AgentStatus


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
    scores: Scores | None = None
    """Each from 1 to 5. `score` is their mean. The score of a draft is its critic's, from 0 to 1."""
    output: str = ""
    """The id of the activity, or the place of the delegate, that produced it."""
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
    """Slope of the latest rounds' mean scores: the change per round."""
    memory: str = ""
    pipeline: str = ""


class GoalResult(AgentResult):
    """Result of a goal: that of an agent's run, with the plan's results. `iterations` counts turns of the model."""

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
    """The outcome at each channel that should get the answer."""

    def with_deliveries(self, deliveries: tuple[Delivered, ...]) -> Self:
        return replace_fields(self, {"deliveries": deliveries})


class GoalStatus(AgentStatus):
    """Status of a goal: that of an agent's run, with `plan` and `question` filled in."""

    kind: Literal["goal"] = "goal"
    plan: Any = None
    confidence: float | None = None
