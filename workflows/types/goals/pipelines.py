"""Pipelines, `[pipelines.NAME]` of `orga.toml`: fixed plans, so that no model has to make one."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field, model_validator

from orga.workflows.types.critics import Critic, Dimension, DimensionName, weights_problem
from orga.workflows.types.input import Name
from orga.workflows.types.json_text import as_object
from orga.workflows.types.record import CheckedInput

PipelineKind = Literal["chain", "map_reduce", "director_critic"]

PipelineName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]

MAX_CHAIN = 15
"""Steps of a chain. Each step is one round, so this equals the default of a goal's `max_iterations`."""

MAX_ROUNDS = 7
"""Drafts. Each draft and its critique take two rounds of the goal."""

DEFAULT_ROUNDS = 3
"""Drafts if neither `max_rounds` nor `fixed_rounds` is given."""

MAX_INPUTS = 30
"""Inputs of one goal. Each is a step of its own."""

MAX_INPUT_CHARS = 1_000
"""Characters of one input. An input names a document, and its agent reads it."""

MAX_TASK_CHARS = 2_000

MAX_RUBRIC_CHARS = 8_000
"""Characters of all descriptions of a rubric together. The critic reads them with each draft."""

THE_GOAL, FROM_OPERATOR = "The goal:", "From the operator:"
"""Lines in a step's task: one before the goal, one before guidance from people."""

INPUT = "your input"
"""Begins the name of an input as a source: `your input, 2 of 5`."""

PipelineInput = Annotated[str, Field(min_length=1, max_length=MAX_INPUT_CHARS)]


class PipelineStep(CheckedInput):
    """An agent and its task. `orga.toml` has a table, or only the agent's name."""

    agent: Name
    """The agent that carries out the step."""
    task: str = Field(default="", max_length=MAX_TASK_CHARS)
    """The agent's task for the material it is given. Each step also gets the goal."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"agent": value} if isinstance(value, str) else value


class AdaptiveBreak(CheckedInput):
    """Ends the rounds once drafts no longer improve. `orga.toml` has a table, or `true` for the defaults."""

    min_rounds: int = Field(default=2, ge=2, le=MAX_ROUNDS)
    """The rounds can end from this number of drafts on."""
    min_improvement: float = Field(default=0.02, gt=0, le=1)
    """The latest draft has to score higher than the best earlier draft by at least this much."""

    @model_validator(mode="before")
    @classmethod
    def _from_truth(cls, value: Any) -> Any:
        return {} if value is True else value


def _checked_rubric(rubric: dict[str, Dimension]) -> dict[str, Dimension]:
    if problem := weights_problem(rubric):
        raise ValueError(f"the weights {problem}")
    if (size := sum(len(dimension.description) for dimension in rubric.values())) > MAX_RUBRIC_CHARS:
        raise ValueError(f"the descriptions have {size} characters, over the limit of {MAX_RUBRIC_CHARS}")
    return rubric


Rubric = Annotated[dict[DimensionName, Dimension], Field(max_length=20), AfterValidator(_checked_rubric)]


class _KindKeys(NamedTuple):
    """The keys that a kind needs and may have, in addition to those of all kinds."""

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
    """One pipeline. Its kind determines its keys."""

    kind: PipelineKind
    """The shape of the pipeline."""
    attempts: int = Field(default=1, ge=1, le=5)
    """The most attempts at a step. A failed step is repeated only if it cannot have had an effect."""
    steps: tuple[PipelineStep, ...] = Field(default=(), max_length=MAX_CHAIN)
    """`chain`: the steps in order. Each gets the previous step's output."""
    map: PipelineStep | None = None
    """`map_reduce`: carried out for each input, in parallel."""
    reduce: PipelineStep | None = None
    """`map_reduce`: gets the outputs for all inputs."""
    inputs: tuple[PipelineInput, ...] = Field(default=(), max_length=MAX_INPUTS)
    """`map_reduce`: the inputs of goals that give none."""
    max_inputs: int = Field(default=20, ge=1, le=MAX_INPUTS)
    """`map_reduce`: the most inputs that a goal may have."""
    allow_failed: int = Field(default=0, ge=0, le=MAX_INPUTS)
    """`map_reduce`: how many inputs may fail. The other outputs are then reduced."""
    director: PipelineStep | None = None
    """`director_critic`: makes each draft."""
    critic: PipelineStep | None = None
    """`director_critic`: scores each draft by the rubric, and says what has to change."""
    rubric: Rubric = {}
    """Dimensions by name. Their weights sum to 1."""
    threshold: float = Field(default=0.7, ge=0, le=1)
    """The lowest weighted score at which a draft is the answer."""
    max_rounds: int | None = Field(default=None, ge=1, le=MAX_ROUNDS)
    """The most drafts. 3 if neither this nor `fixed_rounds` is given."""
    fixed_rounds: int | None = Field(default=None, ge=1, le=MAX_ROUNDS)
    """Exactly this many drafts, whatever their scores. The best of them is the answer."""
    adaptive_break: AdaptiveBreak | None = None
    """Stop once drafts no longer improve. Null continues to the last round."""
    evaluate: bool = False
    """`chain` and `map_reduce`: the goal's model scores each round of steps, as in other goals."""

    @model_validator(mode="before")
    @classmethod
    def _without_false_break(cls, value: Any) -> Any:
        """Treat `adaptive_break = false` as its absence."""
        given = as_object(value)
        if given.get("adaptive_break") is False:
            return {key: field for key, field in given.items() if key != "adaptive_break"}
        return value

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
    def _limits_fit_together(self) -> "Pipeline":
        if self.fixed_rounds is not None:
            for key in ("max_rounds", "threshold", "adaptive_break"):
                if key in self.model_fields_set and getattr(self, key) is not None:
                    raise ValueError(f"fixed_rounds always runs all rounds; leave out fixed_rounds or {key}")
        elif self.adaptive_break is not None and self.adaptive_break.min_rounds > self.rounds:
            raise ValueError(f"adaptive_break.min_rounds is more than max_rounds, which is {self.rounds}")
        if len(self.inputs) > self.max_inputs:
            raise ValueError(f"inputs: there are {len(self.inputs)}, and max_inputs is {self.max_inputs}")
        return self

    @property
    def takes_inputs(self) -> bool:
        """True if it handles each of a goal's inputs separately."""
        return self.map is not None

    @property
    def rounds(self) -> int:
        return self.fixed_rounds or self.max_rounds or DEFAULT_ROUNDS

    @property
    def parts(self) -> dict[str, PipelineStep]:
        named = {"map": self.map, "reduce": self.reduce, "director": self.director, "critic": self.critic}
        listed = {f"steps.{index}": step for index, step in enumerate(self.steps)}
        return listed | {key: step for key, step in named.items() if step is not None}

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(step.agent for step in self.parts.values())

    @property
    def reviewer(self) -> Critic:
        return Critic(name="critic", rubric=self.rubric, threshold=self.threshold)
