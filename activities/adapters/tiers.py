"""Which models a run asks, and in which order: those that its starter and its config name, tiers made out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from orga.activities.adapters.models.settings import EMBEDDED_MODEL
from orga.workflows.types.agents import AgentConfig, Critic
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.tiers import (
    LOCAL,
    PREFIX,
    RUN,
    TIERS,
    GoalTiers,
    ModelTiers,
    Tier,
    TierName,
    tier_in,
)

NO_TIERS = ModelTiers()
NO_GOAL_TIERS = GoalTiers()


@dataclass(frozen=True)
class ChosenModels:
    """The models of one run."""

    models: tuple[str, ...]
    """Its own, in fallback order; without a tier just one."""
    critics: tuple[Critic, ...] = ()
    """Its critics, the first model of its tier in place of each tier."""
    tiers: Mapping[str, Tier] = field(default_factory=dict[str, Tier])
    """As a setup records them."""

    def of_critic(self, critic: Critic) -> tuple[str, ...]:
        """Return the models that a critic asks, in fallback order."""
        tier = self.tiers.get(critic.tier_key)
        return tier.models if tier else (critic.model,) if critic.model else self.models

    def named(self) -> Iterator[tuple[str, str]]:
        """Yield each model that may be asked, behind the key that named it."""
        yield from (("model", model) for model in self.models)
        for critic in self.critics:
            if critic.rubric and critic.model:
                yield from ((f"critics.{critic.name}.model", model) for model in self.of_critic(critic))
        for what, tier in self.tiers.items():
            if what.startswith("goal_"):
                yield from ((f"goals.tiers.{what.removeprefix('goal_')}", model) for model in tier.models)

    @property
    def misfit(self) -> str:
        """Which of them cannot do what it is there for, or ""."""
        for critic in self.critics:
            if critic.rubric and EMBEDDED_MODEL in self.of_critic(critic):
                return f"critics.{critic.name}.model: {EMBEDDED_MODEL} can quote but not judge; choose another model"
        return ""

    @property
    def all(self) -> tuple[str, ...]:
        """Every model that may be asked, once."""
        return tuple(dict.fromkeys(model for _, model in self.named()))


@dataclass(frozen=True)
class ModelChoice:
    """What a worker's config says of models."""

    default: str
    """Of agents that name none; a tier only where that has models."""
    tiers: ModelTiers = NO_TIERS
    goals: GoalTiers = NO_GOAL_TIERS

    def chosen(
        self, agent: AgentConfig, named: str | None = None, *, is_goal: bool = False, is_bound: bool = False
    ) -> ChosenModels:
        """Return the models of a run.

        Args:
            agent: Whose run it is.
            named: By whoever starts it; all turns of a goal ask that.
            is_goal: Whether the turns of a goal may have tiers of their own.
            is_bound: Whether the run that delegates is bound to the local tier, so that this one is, too.

        Raises:
            InvalidInput: A tier that there is not, or that has no models; a model outside of the tier that binds.
        """
        own = named or agent.model or (f"{PREFIX}{LOCAL}" if is_bound else self.default)
        models, tier = self._made_out("model", own)
        local: tuple[str, ...] = ()
        if is_bound or (tier is not None and tier.name == LOCAL):
            local, _ = self._made_out("model", f"{PREFIX}{LOCAL}")
            _refuse_others("model", own, models, local)
        tiers = {RUN: tier} if tier else {}
        if is_goal and not named and not local:
            tiers |= {turn: self._tier(f"goals.tiers.{turn}", name) for turn, name in self.goals.by_turn.items()}
        critics: list[Critic] = []
        for critic in agent.critics:
            resolved, of_critic = self._critic(critic, local)
            critics.append(resolved)
            tiers |= {critic.tier_key: of_critic} if of_critic else {}
        return ChosenModels(models, tuple(critics), tiers)

    def _critic(self, critic: Critic, local: tuple[str, ...]) -> tuple[Critic, Tier | None]:
        if critic.model is None or not critic.rubric:
            return critic, None
        key = f"critics.{critic.name}.model"
        models, tier = self._made_out(key, critic.model)
        if local:
            _refuse_others(key, critic.model, models, local)
        return (critic.with_model(models[0]), tier) if tier else (critic, None)

    def _made_out(self, key: str, name: str) -> tuple[tuple[str, ...], Tier | None]:
        """Return the models that a name stands for, and the tier that it is, if it is one."""
        wanted = tier_in(name)
        if wanted is None:
            return (name,), None
        tier = self._tier(key, wanted)
        return tier.models, tier

    def _tier(self, key: str, wanted: str) -> Tier:
        known: TierName | None = next((tier for tier in TIERS if tier == wanted), None)
        if known is None:
            raise InvalidInput(f"{key}: there is no tier {wanted!r}; there are: {', '.join(TIERS)}")
        if not self.tiers.configured:
            return Tier(name=known, models=(self.default,), is_default=True)
        if models := self.tiers.models(known):
            return Tier(name=known, models=models)
        others = ", ".join(self.tiers.configured)
        raise InvalidInput(
            f"{key}: tier {known} has no models; give it some, [models.tiers] {known} = [...], or name one of {others}"
        )


def _refuse_others(key: str, name: str, models: tuple[str, ...], local: tuple[str, ...]) -> None:
    if others := [model for model in models if model not in local]:
        raise InvalidInput(
            f"{key}: {name} asks {', '.join(others)}, and this run is bound to the local tier, as all that happens"
            f" under a run of {PREFIX}{LOCAL} is; name {PREFIX}{LOCAL}, one of its models ({', '.join(local)}), or none"
        )
