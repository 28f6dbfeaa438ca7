"""Pipelines, `[pipelines.NAME]` of `orga.toml`: plans that stand there once, for goals that no model has to plan."""

from collections.abc import Mapping
from math import fsum
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field, model_validator

from orga.workflows.types.agents import WEIGHT_TOLERANCE, Critic, Dimension, DimensionName
from orga.workflows.types.input import Name
from orga.workflows.types.record import CheckedInput

PipelineKind = Literal["chain", "map_reduce", "director_critic"]

PipelineName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]

MAX_CHAIN = 15
"""Steps of a chain, each a round of its own: what `max_iterations` of a goal is without a word."""

MAX_ROUNDS = 7
"""Of a draft and its critique, which are two rounds of steps."""

ROUNDS = 3
"""Where neither `max_rounds` nor `fixed_rounds` is given."""

MAX_INPUTS = 30
"""Of one goal: each is a step of its own."""

MAX_INPUT_CHARS = 1_000
"""Of one input; a document is named, and its agent reads it."""

MAX_TASK_CHARS = 2_000
MAX_RUBRIC_CHARS = 8_000
"""Of all descriptions together: the critic is told them each time."""

THE_GOAL, FROM_OPERATOR = "The goal:", "From the operator:"
"""Lines of the task that the agent of a step is given: behind them stand the goal, and what people said meanwhile."""

INPUT = "your input"
"""How the source of the input begins that a step sees to."""

PipelineInput = Annotated[str, Field(min_length=1, max_length=MAX_INPUT_CHARS)]


class PipelineStep(CheckedInput):
    """An agent and what it is to do. In `orga.toml` its name alone, or a table."""

    agent: Name
    """Who does it."""
    task: str = Field(default="", max_length=MAX_TASK_CHARS)
    """What it is to do with what it is given; the goal is told to each."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"agent": value} if isinstance(value, str) else value


class AdaptiveBreak(CheckedInput):
    """When a director is sent back no more, since its drafts get no better. In `orga.toml` `true`, or a table."""

    min_rounds: int = Field(default=2, ge=2, le=MAX_ROUNDS)
    """Rounds before which nothing is broken off."""
    min_improvement: float = Field(default=0.02, gt=0, le=1)
    """By which the latest draft has to be better than the best before it."""

    @model_validator(mode="before")
    @classmethod
    def _from_truth(cls, value: Any) -> Any:
        return {} if value is True else value


def _checked_weights(rubric: dict[str, Dimension]) -> dict[str, Dimension]:
    total = fsum(dimension.weight for dimension in rubric.values())
    if rubric and abs(total - 1) > WEIGHT_TOLERANCE + 1e-9:
        raise ValueError(f"the weights sum to {total:g}, not to 1")
    if (size := sum(len(each.description) for each in rubric.values())) > MAX_RUBRIC_CHARS:
        raise ValueError(f"the descriptions have {size} characters, over the limit of {MAX_RUBRIC_CHARS}")
    return rubric


Rubric = Annotated[dict[DimensionName, Dimension], Field(max_length=20), AfterValidator(_checked_weights)]


class _KindKeys(NamedTuple):
    """What a kind needs, and what it may have beside that and the keys of all."""

    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()


_COMMON_KEYS = ("kind", "attempts")

_KEYS_BY_KIND: Mapping[PipelineKind, _KindKeys] = {
    "chain": _KindKeys(("steps",), ("evaluate",)),
    "map_reduce": _KindKeys(("map", "reduce"), ("inputs", "max_inputs", "allow_failed", "evaluate")),
    "director_critic": _KindKeys(
        ("director", "critic", "rubric"), ("threshold", "max_rounds", "fixed_rounds", "adaptive_break")
    ),
}


class Pipeline(CheckedInput):
    """One pipeline; which keys it has its kind says."""

    kind: PipelineKind
    """What shape it has."""
    attempts: int = Field(default=1, ge=1, le=5)
    """How often a step may be begun: one that failed, and cannot have had an effect, is done again up to this."""
    steps: tuple[PipelineStep, ...] = Field(default=(), max_length=MAX_CHAIN)
    """`chain`: in order; each is given what the one before brought."""
    map: PipelineStep | None = None
    """`map_reduce`: done for each input, side by side."""
    reduce: PipelineStep | None = None
    """`map_reduce`: given what all of them brought."""
    inputs: tuple[PipelineInput, ...] = Field(default=(), max_length=MAX_INPUTS)
    """`map_reduce`: where a goal gives none."""
    max_inputs: int = Field(default=20, ge=1, le=MAX_INPUTS)
    """`map_reduce`: inputs that a goal may have at most."""
    allow_failed: int = Field(default=0, ge=0, le=MAX_INPUTS)
    """`map_reduce`: inputs that may come to nothing; what the others brought is reduced then."""
    director: PipelineStep | None = None
    """`director_critic`: makes each draft."""
    critic: PipelineStep | None = None
    """`director_critic`: scores it by the rubric, and says what has to change."""
    rubric: Rubric = {}
    """By name; the weights sum to 1."""
    threshold: float = Field(default=0.7, ge=0, le=1)
    """The weighted score from which a draft is the answer."""
    max_rounds: int | None = Field(default=None, ge=1, le=MAX_ROUNDS)
    """Drafts at most; 3 where neither this nor `fixed_rounds` is given."""
    fixed_rounds: int | None = Field(default=None, ge=1, le=MAX_ROUNDS)
    """Just so many drafts, whatever their scores; the best of them is the answer."""
    adaptive_break: AdaptiveBreak | None = None
    """Send the director back no more once its drafts get no better; null sends it back up to the last round."""
    evaluate: bool = False
    """`chain` and `map_reduce`: have the goal's model score each round of steps, as those of other goals."""

    @model_validator(mode="before")
    @classmethod
    def _without_no(cls, value: Any) -> Any:
        """Take `adaptive_break = false` for its absence."""
        if isinstance(value, dict) and value.get("adaptive_break") is False:  # pyright: ignore[reportUnknownMemberType]
            return {key: each for key, each in value.items() if key != "adaptive_break"}  # pyright: ignore[reportUnknownVariableType]
        return value  # pyright: ignore[reportUnknownVariableType]

    @model_validator(mode="after")
    def _has_the_keys_of_its_kind(self) -> "Pipeline":
        keys, given = _KEYS_BY_KIND[self.kind], self.model_fields_set - set(_COMMON_KEYS)
        if missing := [key for key in keys.needed if not getattr(self, key)]:
            raise ValueError(f'kind "{self.kind}" needs {", ".join(missing)}')
        if extra := sorted(given - {*keys.needed, *keys.optional}):
            allowed = ", ".join((*keys.needed, *keys.optional))
            raise ValueError(f'{", ".join(extra)}: not of kind "{self.kind}"; it has {allowed}')
        return self

    @model_validator(mode="after")
    def _ends_in_one_way(self) -> "Pipeline":
        if self.fixed_rounds is not None:
            for key in ("max_rounds", "threshold", "adaptive_break"):
                if key in self.model_fields_set and getattr(self, key) is not None:
                    raise ValueError(f"fixed_rounds runs all rounds whatever comes of them; leave out it or {key}")
        elif self.adaptive_break is not None and self.adaptive_break.min_rounds > self.rounds:
            raise ValueError(f"adaptive_break.min_rounds is more than max_rounds, {self.rounds}")
        if len(self.inputs) > self.max_inputs:
            raise ValueError(f"inputs: {len(self.inputs)} of them, over max_inputs, {self.max_inputs}")
        return self

    @property
    def takes_inputs(self) -> bool:
        """Whether it does something for each of a goal's inputs."""
        return self.map is not None

    @property
    def rounds(self) -> int:
        """Drafts at most."""
        return self.fixed_rounds or self.max_rounds or ROUNDS

    @property
    def parts(self) -> dict[str, PipelineStep]:
        """Who does what, by the key that says so."""
        named = {"map": self.map, "reduce": self.reduce, "director": self.director, "critic": self.critic}
        listed = {f"steps.{index}": step for index, step in enumerate(self.steps)}
        return listed | {key: step for key, step in named.items() if step is not None}

    @property
    def agents(self) -> tuple[str, ...]:
        """All who do something."""
        return tuple(step.agent for step in self.parts.values())

    @property
    def reviewer(self) -> Critic:
        """The rubric and the threshold of a director's drafts, as any critic has them."""
        return Critic(name="critic", rubric=self.rubric, threshold=self.threshold)
