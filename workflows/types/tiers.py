"""Tiers of models: a name for how strong a model has to be, and the models that stand in for each other under it."""

from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field

from orga.workflows.types.names import GoalPromptName
from orga.workflows.types.record import CheckedInput, Record

PROVIDERS = ("openrouter", "openai", "anthropic", "ollama", "openai-compatible", "local", "offline")
"""What the name of a model begins with, before the colon."""

TierName = Literal["local", "light", "medium", "heavy"]

TIERS: tuple[TierName, ...] = get_args(TierName)

LOCAL_TIER: TierName = "local"
"""Binds all that happens under a run: no delegate, critic or turn may leave it."""

TIER_PREFIX = "tier:"

MAX_MODELS = 8
"""Of one tier."""

RUN_TIER = "run"
"""The key of a run's own model among the tiers of its setup."""


def tier_in_model_name(model: str) -> str | None:
    """Return the tier that stands where a model is named, as in `tier:heavy`; None of a model's own name."""
    name = model.strip()
    return name.removeprefix(TIER_PREFIX).strip() if name.startswith(TIER_PREFIX) else None


def _model(name: str) -> str:
    provider, colon, model = name.strip().partition(":")
    if not colon or not model.strip() or provider not in PROVIDERS:
        raise ValueError(f"{name!r} names no model: write provider:model, with provider one of {', '.join(PROVIDERS)}")
    return f"{provider}:{model.strip()}"


def _without_duplicates(models: tuple[str, ...]) -> tuple[str, ...]:
    if twice := next((name for index, name in enumerate(models) if name in models[:index]), None):
        raise ValueError(f"{twice!r} stands there twice; name each model once")
    return models


ModelName = Annotated[str, Field(max_length=200), AfterValidator(_model)]
"""`provider:model`, of a provider that there is."""

TierModels = Annotated[tuple[ModelName, ...], Field(max_length=MAX_MODELS), AfterValidator(_without_duplicates)]


class ModelTiers(CheckedInput):
    """`[models.tiers]`: by tier, models in fallback order. Where none is given, each stands for the default model."""

    local: TierModels = ()
    """Models that data may be shown to which must not leave the house."""
    light: TierModels = ()
    """Models for what is easy."""
    medium: TierModels = ()
    """Models for what is not easy."""
    heavy: TierModels = ()
    """Models for what is hard."""

    def models(self, tier: TierName) -> tuple[str, ...]:
        """Return the models of a tier, in fallback order; none where it is not configured."""
        return getattr(self, tier)

    @property
    def configured(self) -> tuple[TierName, ...]:
        """The tiers that have models."""
        return tuple(tier for tier in TIERS if self.models(tier))


class GoalTiers(CheckedInput):
    """`[goals.tiers]`: which tier each turn of a goal asks; null asks the goal's own model."""

    plan: TierName | None = None
    """Makes the plan."""
    input: TierName | None = None
    """Writes the arguments of a step."""
    evaluate: TierName | None = None
    """Scores what a step brought."""
    decide: TierName | None = None
    """Decides what is done next."""
    compress: TierName | None = None
    """Makes shorter what the goal keeps in mind."""
    summary: TierName | None = None
    """Writes the final answer."""

    @property
    def by_turn(self) -> dict[GoalPromptName, TierName]:
        """The turns that have a tier of their own."""
        given = {turn: getattr(self, turn.removeprefix("goal_")) for turn in get_args(GoalPromptName)}
        return {turn: tier for turn, tier in given.items() if tier is not None}


class FailedOver(Record):
    """A model that gave way to the next of its tier."""

    before: str
    after: str
    why: str
    """The kind of failure and what the provider said, on one line."""

    def describe(self) -> dict[str, str]:
        """Return what the journal says of it."""
        return {"from": self.before, "to": self.after, "why": self.why}


class Tier(Record):
    """A tier as a run knows it: recorded in its setup."""

    name: TierName
    models: tuple[str, ...]
    """`provider:model`, in fallback order."""
    is_default: bool = False
    """Whether it stands for the default model, since no tier is configured."""
