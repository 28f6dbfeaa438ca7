"""Tiers of models: a name for a strength, and the models of that strength, which replace each other."""

from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Field

from orga.workflows.types.models.call_settings import ModelSettings
from orga.workflows.types.models.providers import model_form_problem
from orga.workflows.types.names import GoalPromptName
from orga.workflows.types.record import CheckedInput, Record, replace_fields

TierName = Literal["local", "light", "medium", "heavy"]

TIERS: tuple[TierName, ...] = get_args(TierName)

LOCAL_TIER: TierName = "local"
"""Binds the whole run: no delegate, critic or turn may leave this tier."""

TIER_PREFIX = "tier:"

MAX_MODELS = 8

RUN_TIER = "run"
"""The key of the tier of a run's own model in `Setup.tiers`."""


def tier_in_model_name(model: str) -> str | None:
    """Return the tier in a model name such as `tier:heavy`, or None for the name of a model."""
    name = model.strip()
    return name.removeprefix(TIER_PREFIX).strip() if name.startswith(TIER_PREFIX) else None


def _normalized_model(name: str) -> str:
    if problem := model_form_problem(name):
        raise ValueError(problem)
    provider, _, model = name.strip().partition(":")
    return f"{provider}:{model.strip()}"


def _checked_models(models: tuple[str, ...]) -> tuple[str, ...]:
    if twice := next((name for index, name in enumerate(models) if name in models[:index]), None):
        raise ValueError(f"{twice!r} is listed twice; name each model once")
    return models


ModelName = Annotated[str, Field(max_length=200), AfterValidator(_normalized_model)]
"""`provider:model`, or `NAME:model` of an endpoint. The configuration decides which endpoints there are."""

TierModels = Annotated[tuple[ModelName, ...], Field(max_length=MAX_MODELS), AfterValidator(_checked_models)]


class ModelTiers(CheckedInput):
    """`[models.tiers]`: models by tier, in fallback order. If no tier is set, each means the default model."""

    local: TierModels = ()
    """Models that may see data which must not leave the house."""
    light: TierModels = ()
    """Models for easy work."""
    medium: TierModels = ()
    """Models for work of medium difficulty."""
    heavy: TierModels = ()
    """Models for hard work."""

    def models(self, tier: TierName) -> tuple[str, ...]:
        """Return the models of a tier in fallback order. Empty if the tier is not configured."""
        return getattr(self, tier)

    @property
    def configured_tiers(self) -> tuple[TierName, ...]:
        return tuple(tier for tier in TIERS if self.models(tier))


class GoalTiers(CheckedInput):
    """`[goals.tiers]`: the tier for each of a goal's prompts. Null asks the goal's own model."""

    plan: TierName | None = None
    """Makes the plan."""
    input: TierName | None = None
    """Writes the arguments of a step."""
    evaluate: TierName | None = None
    """Scores the results of steps."""
    decide: TierName | None = None
    """Decides what to do next."""
    compress: TierName | None = None
    """Shortens the goal's memory."""
    summary: TierName | None = None
    """Writes the final answer."""

    @property
    def by_goal_prompt(self) -> dict[GoalPromptName, TierName]:
        """The tiers of the prompts that have one."""
        tiers = {prompt: getattr(self, prompt.removeprefix("goal_")) for prompt in get_args(GoalPromptName)}
        return {prompt: tier for prompt, tier in tiers.items() if tier is not None}


class FailedOver(Record):
    """A model that failed, and the next model of its tier, which was asked instead."""

    before: str
    after: str
    why: str
    """The kind of failure and the provider's text, on one line."""

    def describe(self) -> dict[str, str]:
        return {"from": self.before, "to": self.after, "why": self.why}


class Tier(Record):
    """A tier as a run's setup records it."""

    name: TierName
    models: tuple[str, ...]
    """`provider:model`, in fallback order."""
    is_default: bool = False
    """True if it is the default model, because no tier is configured."""
    settings: ModelSettings | None = None

    def with_settings(self, settings: ModelSettings) -> Self:
        return replace_fields(self, {"settings": settings})
