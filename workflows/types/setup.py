"""The setup of a run: what it works with. A worker resolves it once, as the recorded result of `prepare`."""

from typing import Any, Literal, Self

from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.control import ControlTerms
from orga.workflows.types.critics import Critic
from orga.workflows.types.goals.deliveries import Channel
from orga.workflows.types.goals.pipelines import Pipeline
from orga.workflows.types.goals.requests import PromptTemplates
from orga.workflows.types.input import FORMER_TEMPERATURE, LoopConfig
from orga.workflows.types.limits import Ceiling
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.models.call_settings import NO_SETTINGS, ModelSettings
from orga.workflows.types.models.tiers import RUN_TIER, Tier
from orga.workflows.types.questions import NotifyEvent
from orga.workflows.types.record import Record, replace_fields
from orga.workflows.types.tool_calls.decision import GroundedDecision
from orga.workflows.types.tool_calls.delegation import DelegateSpec
from orga.workflows.types.tool_calls.tools import ToolSpec
from orga.workflows.types.workplace import Workplace

_TERMS = ControlTerms()


class PrepareRequest(Record):
    """Input of `prepare`: the checked parts of the run's input that determine its setup."""

    agent: str = "default"
    model: str | None = None
    instructions: str | None = None
    tools: tuple[str, ...] | None = None
    config: dict[str, Any] = {}
    """Only the keys that were given."""
    output_schema: dict[str, Any] | None = None
    ceiling: Ceiling = Ceiling()
    """The limits that the delegating run leaves to this one."""
    depth: int = 0
    workplace: Workplace | None = None
    """The workplace that the run was started for. None is any."""
    policy: str = ""
    """The policy that the run was started under, as `policy_text` returns it. "" is any."""
    pipeline: str | None = None


class Setup(Record):
    """The setup of a run, recorded once: the result of `prepare`."""

    agent: str
    model: str
    """`provider:model`."""
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    config: LoopConfig = LoopConfig(temperature=FORMER_TEMPERATURE)
    """The effective config: the input's keys override the agent's, and those override the defaults.

    `prepare` always sets it. The default only decides which config the JSON of a digest leaves out.
    """
    delegates: tuple[DelegateSpec, ...] = ()
    decisions: dict[str, GroundedDecision] = {}
    critics: tuple[Critic, ...] = ()
    output_schema: dict[str, Any] | None = None
    policy: str = "default"
    policy_place: str = ""
    """A digest of the place where the policy's rules are."""
    policy_version: str = ""
    """Version of the policy's rules at `prepare`, if it has rules. Each verdict names the version that made it."""
    build: str = ""
    loop_version: int = 0
    """Version of the loop's rules in that build. 0 for a run from before versions existed."""
    gate_execution: Literal["local", "activity"] = "local"
    """`activity`: an ordinary activity, which a policy engine on a server of its own needs."""
    search_attributes: bool = True
    """True if the server knows the search attributes, as in `ControlTerms`."""
    roll_over_events: int = _TERMS.roll_over_events
    roll_over_bytes: int = _TERMS.roll_over_bytes
    full_events: int = _TERMS.full_events
    full_bytes: int = _TERMS.full_bytes
    """`ControlTerms` explains these four limits."""
    notify: tuple[NotifyEvent, ...] = ()
    """Events that are sent to people outside. Only the worker knows the receivers."""
    workplace: Workplace | None = None
    deliveries: tuple[Channel, ...] = ()
    prompts: PromptTemplates | None = None
    tiers: dict[str, Tier] = {}
    """Tiers by key, for models that were named by a tier. A key is `run`, a goal's prompt, or `critic:NAME`. The first
    model of the tier `run` is `model`.
    """
    pipeline: Pipeline | None = None
    """The pipeline that a goal named. A running goal keeps its own."""
    settings_version: int = 0
    """Version of the settings at run time that the setup was made from. 0 if there were none."""

    def models_for(self, tier_key: str = RUN_TIER) -> tuple[str, ...]:
        """Return the models to ask, in fallback order. If there is no tier for the key, they are the run's."""
        tier = self.tiers.get(tier_key) or self.tiers.get(RUN_TIER)
        return tier.models if tier else (self.model,)

    def settings_for(self, tier_key: str = RUN_TIER) -> ModelSettings:
        """Return the settings of a model call.

        For the run itself, the config overrides the settings of its tier. For any other key that has a tier, the
        settings of the tier override the config.
        """
        if tier_key != RUN_TIER and tier_key in self.tiers:
            return self._tier_settings(tier_key).or_else(self.config)
        return self.config.or_else(self._tier_settings(RUN_TIER))

    def _tier_settings(self, tier_key: str) -> ModelSettings:
        tier = self.tiers.get(tier_key)
        return NO_SETTINGS if tier is None or tier.settings is None else tier.settings

    def with_agent(
        self, agent: str, model: str, instructions: str, tools: tuple[ToolSpec, ...], config: LoopConfig
    ) -> Self:
        return replace_fields(
            self, {"agent": agent, "model": model, "instructions": instructions, "tools": tools, "config": config}
        )

    def with_optional_parts(
        self,
        delegates: tuple[DelegateSpec, ...] | None,
        decisions: dict[str, GroundedDecision] | None,
        output_schema: dict[str, Any] | None,
        policy_version: str | None,
    ) -> Self:
        """Return the setup with the parts that only some runs have. A part that is None stays unset."""
        parts = {
            "delegates": delegates,
            "decisions": decisions,
            "output_schema": output_schema,
            "policy_version": policy_version,
        }
        return replace_fields(self, {name: value for name, value in parts.items() if value is not None})

    def with_tiers(self, tiers: dict[str, Tier]) -> Self:
        """Return the setup of a run whose models were named by tiers. If none was, the field stays unset."""
        return replace_fields(self, {"tiers": tiers}) if tiers else self

    def with_critics_of(self, agent: AgentConfig) -> Self:
        """Return the setup with the agent's critics, if any, each with the first model of its tier."""
        critics = tuple(map(self._with_tier_model, agent.critics))
        return replace_fields(self, {"critics": critics}) if critics else self

    def _with_tier_model(self, critic: Critic) -> Critic:
        tier = self.tiers.get(critic.tier_key)
        return critic if tier is None else critic.with_model(tier.models[0])

    def with_pipeline(self, pipeline: Pipeline | None) -> Self:
        return self if pipeline is None else replace_fields(self, {"pipeline": pipeline})

    def with_model(self, model: str) -> Self:
        return replace_fields(self, {"model": model})

    def with_settings_version(self, version: int) -> Self:
        return replace_fields(self, {"settings_version": version})

    def with_workplace(self, workplace: Workplace) -> Self:
        return replace_fields(self, {"workplace": workplace})

    def with_search_attributes(self, known: bool) -> Self:
        return replace_fields(self, {"search_attributes": known})

    def with_notify(self, events: tuple[NotifyEvent, ...]) -> Self:
        return replace_fields(self, {"notify": events})

    def with_deliveries(self, channels: tuple[Channel, ...]) -> Self:
        return replace_fields(self, {"deliveries": channels})

    def with_prompts(self, prompts: PromptTemplates | None) -> Self:
        return replace_fields(self, {"prompts": prompts}) if prompts else self

    def is_reviewed(self, call: ToolCall) -> bool:
        return any(critic.reviews_call(call) for critic in self.critics)

    def tool(self, name: str) -> ToolSpec | None:
        return next((tool for tool in self.tools if tool.name == name), None)
