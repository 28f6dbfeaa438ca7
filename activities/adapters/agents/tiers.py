"""Chooses the models of a run and their order, from the models and tiers that the starter and the config name."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from orga.activities.adapters.models.model_settings import EMBEDDED_MODEL
from orga.workflows.types.agents import AgentConfig, ModelAsker
from orga.workflows.types.models.call_settings import ModelSettings
from orga.workflows.types.models.tiers import (
    LOCAL_TIER,
    RUN_TIER,
    TIER_PREFIX,
    TIERS,
    GoalTiers,
    ModelTiers,
    Tier,
    TierName,
    tier_in_model_name,
)
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.text import known_names_hint

_LOCAL = f"{TIER_PREFIX}{LOCAL_TIER}"
"""The name that asks the models of the local tier."""

NO_TIERS = ModelTiers()
NO_GOAL_TIERS = GoalTiers()
NO_TIER_SETTINGS: Mapping[TierName, ModelSettings] = MappingProxyType({})


@dataclass(frozen=True)
class ChosenModels:
    models: tuple[str, ...]
    """The run's own models, in fallback order. Without a tier there is only one."""
    askers: tuple[ModelAsker, ...] = ()
    """Other parts of the run that ask a model, such as critics."""
    tiers: Mapping[str, Tier] = field(default_factory=dict[str, Tier])
    """By RUN_TIER, by goal prompt (`goal_plan`), or by the `tier_key` of an asker."""
    local: tuple[str, ...] = ()
    """The models of the local tier, if the run is bound to it."""

    def models_for_asker(self, asker: ModelAsker) -> tuple[str, ...]:
        tier = self.tiers.get(asker.tier_key)
        if tier:
            return tier.models
        return (asker.model,) if asker.model else self.models

    def keyed_models(self) -> Iterator[tuple[str, str]]:
        """Yield each model that may be asked, with the key that names it."""
        yield from (("model", model) for model in self.models)
        for asker in self.askers:
            if asker.model:
                yield from ((f"{asker.key}.model", model) for model in self.models_for_asker(asker))
        for key, tier in self._goal_tiers():
            yield from ((key, model) for model in tier.models)

    def _goal_tiers(self) -> Iterator[tuple[str, Tier]]:
        """Yield the tiers of goal prompts, each with its key in the configuration."""
        for prompt, tier in self.tiers.items():
            if prompt.startswith("goal_"):
                yield _goal_tier_key(prompt), tier

    @property
    def unfit_model_problem(self) -> str:
        for asker in self.askers:
            if EMBEDDED_MODEL in self.models_for_asker(asker):
                return f"{asker.key}.model: {EMBEDDED_MODEL} can quote but not judge; choose another model"
        return ""

    def may_be_embedded_by(self, embedder: str) -> bool:
        """Return whether an embedder may get texts of the run. An embedder in the worker's process always may."""
        provider, colon, _ = embedder.partition(":")
        is_in_process = not colon
        return is_in_process or not self.local or provider in {model.partition(":")[0] for model in self.local}

    @property
    def conversation_models(self) -> tuple[str, ...]:
        """The models that may get the whole conversation. Critics and other askers get parts of it."""
        goal_models = (model for _, tier in self._goal_tiers() for model in tier.models)
        return tuple(dict.fromkeys((*self.models, *goal_models)))

    @property
    def all_models(self) -> tuple[str, ...]:
        """Every model that may be asked, each once."""
        return tuple(dict.fromkeys(model for _, model in self.keyed_models()))


@dataclass(frozen=True)
class ModelChoice:
    default: str
    """The model of agents that name none. It can be a tier, but only one that has models."""
    tiers: ModelTiers = NO_TIERS
    goals: GoalTiers = NO_GOAL_TIERS
    settings: Mapping[TierName, ModelSettings] = field(default_factory=dict[TierName, ModelSettings])

    def chosen_models(
        self, agent: AgentConfig, named: str | None = None, *, is_goal: bool = False, is_bound: bool = False
    ) -> ChosenModels:
        """Return the models of a run. Raise InvalidInput for a tier without models, or a model outside the local tier.

        Args:
            named: The model that the starter names. All prompts of a goal use it.
            is_goal: Let goal prompts have their own tiers.
            is_bound: The delegating run is bound to the local tier, so this run is too.
        """
        name = named or agent.model
        if not name:
            name = _LOCAL if is_bound else self.default
        models, tier = self._resolve_name("model", name)
        local: tuple[str, ...] = ()
        if is_bound or (tier is not None and tier.name == LOCAL_TIER):
            local, _ = self._resolve_name("model", _LOCAL)
            _refuse_non_local("model", name, models, local)
        tiers = {RUN_TIER: tier} if tier else {}
        if is_goal and not named and not local:
            for prompt, tier_name in self.goals.by_goal_prompt.items():
                tiers[prompt] = self._tier(_goal_tier_key(prompt), tier_name)
        for asker in agent.askers:
            if found := self._asker_tier(asker, local):
                tiers[asker.tier_key] = found
        return ChosenModels(models, agent.askers, tiers, local)

    def _asker_tier(self, asker: ModelAsker, local: tuple[str, ...]) -> Tier | None:
        if asker.model is None:
            return None
        key = f"{asker.key}.model"
        models, tier = self._resolve_name(key, asker.model)
        if local:
            _refuse_non_local(key, asker.model, models, local)
        return tier

    def _resolve_name(self, key: str, name: str) -> tuple[tuple[str, ...], Tier | None]:
        wanted = tier_in_model_name(name)
        if wanted is None:
            return (name,), None
        tier = self._tier(key, wanted)
        return tier.models, tier

    def _with_settings(self, tier: Tier) -> Tier:
        settings = self.settings.get(tier.name)
        return tier.with_settings(settings) if settings else tier

    def _tier(self, key: str, wanted: str) -> Tier:
        known: TierName | None = next((tier for tier in TIERS if tier == wanted), None)
        if known is None:
            raise InvalidInput(f"{key}: there is no tier {wanted!r}; {known_names_hint(wanted, TIERS)}")
        if not self.tiers.configured_tiers:
            return self._with_settings(Tier(name=known, models=(self.default,), is_default=True))
        if models := self.tiers.models(known):
            return self._with_settings(Tier(name=known, models=models))
        others = ", ".join(self.tiers.configured_tiers)
        raise InvalidInput(
            f"{key}: tier {known} has no models; give it some, [models.tiers] {known} = [...], or name one of {others}"
        )


def _goal_tier_key(prompt: str) -> str:
    return f"goals.tiers.{prompt.removeprefix('goal_')}"


def _refuse_non_local(key: str, name: str, models: tuple[str, ...], local: tuple[str, ...]) -> None:
    if others := [model for model in models if model not in local]:
        raise InvalidInput(
            f"{key}: {name} asks {', '.join(others)}, but a run of {_LOCAL} and all its delegates are bound to the "
            f"local tier; name {_LOCAL}, one of its models ({', '.join(local)}), or none"
        )
