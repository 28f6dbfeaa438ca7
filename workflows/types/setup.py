"""What a run works with: asked of a worker once, and recorded."""

from typing import Any, Literal, Self

from orga.workflows.types.agents import AgentConfig, Critic
from orga.workflows.types.goals.deliveries import Channel
from orga.workflows.types.goals.pipelines import Pipeline
from orga.workflows.types.goals.prompts import PromptTemplates
from orga.workflows.types.input import LoopConfig, Workplace
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.questions import NotifyEvent
from orga.workflows.types.record import Record, replace_fields
from orga.workflows.types.tiers import RUN_TIER, Tier
from orga.workflows.types.tool_calls.decision import GroundedDecision
from orga.workflows.types.tool_calls.delegation import Ceiling, DelegateSpec
from orga.workflows.types.tool_calls.tools import ToolSpec


class PrepareRequest(Record):
    """Input of `prepare`: the checked parts of the run's input that choose its setup."""

    agent: str = "default"
    model: str | None = None
    instructions: str | None = None
    tools: tuple[str, ...] | None = None
    config: dict[str, Any] = {}
    """Only the keys that were given."""
    output_schema: dict[str, Any] | None = None
    ceiling: Ceiling = Ceiling()
    """What the run that delegates leaves to this one."""
    depth: int = 0
    workplace: Workplace | None = None
    """What the run was started for; None is any."""
    policy: str = ""
    """What the run was started under, as `policy_text` returns it; "" is any."""
    pipeline: str | None = None
    """The name of a goal's pipeline."""

    def with_ceiling(self, ceiling: Ceiling, depth: int) -> Self:
        """Return the request of a delegated run."""
        return replace_fields(self, {"ceiling": ceiling, "depth": depth})

    def with_workplace(self, workplace: Workplace) -> Self:
        """Return the request of a run that is at home there."""
        return replace_fields(self, {"workplace": workplace})

    def with_policy(self, policy: str) -> Self:
        """Return the request of a run that was started under that policy."""
        return replace_fields(self, {"policy": policy})

    def with_pipeline(self, name: str) -> Self:
        """Return the request of a goal with that pipeline."""
        return replace_fields(self, {"pipeline": name})

    def with_output_schema(self, schema: dict[str, Any]) -> Self:
        """Return the request of a run whose answer has to fit that."""
        return replace_fields(self, {"output_schema": schema})


class Setup(Record):
    """What a run works with, recorded once: the result of `prepare`."""

    agent: str
    model: str
    """`provider:model`."""
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    config: LoopConfig = LoopConfig()
    """The effective config: the input's keys over the agent's over the defaults."""
    delegates: tuple[DelegateSpec, ...] = ()
    """Agents that it may delegate to."""
    decisions: dict[str, GroundedDecision] = {}
    """What it may decide, or has to."""
    critics: tuple[Critic, ...] = ()
    """Who reviews answers and calls."""
    output_schema: dict[str, Any] | None = None
    """What the final answer has to fit."""
    policy: str = "default"
    policy_place: str = ""
    """A digest of where its rules are."""
    policy_version: str = ""
    """Of its rules when the run was prepared, where it has any; each verdict names the one that it was made by."""
    build: str = ""
    """Of the worker that prepared the run."""
    loop_version: int = 0
    """Of the loop's rules in that build; 0 of a run from before they had one."""
    gate_execution: Literal["local", "activity"] = "local"
    """An engine that is a server of its own takes an ordinary activity."""
    search_attributes: bool = True
    """Whether the server knows the Orga* attributes; without them an upsert would fail every workflow task."""
    roll_over_events: int = 3_500
    """Events of a history after which the run continues as new; the server suggests it at 4,096."""
    roll_over_bytes: int = 3_000_000
    full_events: int = 25_000
    """Events at which a run ends that could not continue as new; the server terminates it at 51,200, and at 50 MB."""
    full_bytes: int = 25_000_000
    notify: tuple[NotifyEvent, ...] = ()
    """What people outside are told; the worker knows where."""
    workplace: Workplace | None = None
    """Of the worker that prepared the run."""
    deliveries: tuple[Channel, ...] = ()
    """Where the answers of goals may go."""
    prompts: PromptTemplates | None = None
    """Of a goal: the templates that stand in place of the default ones."""
    tiers: dict[str, Tier] = {}
    """The tiers that models were named by: of the `run`, of turns of a goal, of a `critic:NAME`; its models in
    fallback order. The first of the run's is `model`."""
    pipeline: Pipeline | None = None
    """Of a goal that named one: a running goal keeps its own."""

    def models_for(self, what: str = RUN_TIER) -> tuple[str, ...]:
        """Return the models to ask, in fallback order; `what` without a tier of its own asks the run's."""
        tier = self.tiers.get(what) or self.tiers.get(RUN_TIER)
        return tier.models if tier else (self.model,)

    def with_agent(
        self, agent: str, model: str, instructions: str, tools: tuple[ToolSpec, ...], config: LoopConfig
    ) -> Self:
        """Return the setup of a run of that agent."""
        return replace_fields(
            self, {"agent": agent, "model": model, "instructions": instructions, "tools": tools, "config": config}
        )

    def with_more(
        self,
        delegates: tuple[DelegateSpec, ...] | None,
        decisions: dict[str, GroundedDecision] | None,
        output_schema: dict[str, Any] | None,
        policy_version: str | None,
    ) -> Self:
        """Return the setup with what only some runs have; None is not written."""
        given = {
            "delegates": delegates,
            "decisions": decisions,
            "output_schema": output_schema,
            "policy_version": policy_version,
        }
        return replace_fields(self, {name: value for name, value in given.items() if value is not None})

    def with_tiers(self, tiers: dict[str, Tier]) -> Self:
        """Return the setup of a run whose models were named by their tiers; none is not written."""
        return replace_fields(self, {"tiers": tiers}) if tiers else self

    def with_reviews(self, agent: AgentConfig) -> Self:
        """Return the setup with its agent's critics, each with the first model of its tier; none is not written."""
        critics = tuple(
            each.with_model(self.tiers[each.tier_key].models[0]) if each.tier_key in self.tiers else each
            for each in agent.critics
        )
        return replace_fields(self, {"critics": critics}) if critics else self

    def with_pipeline(self, pipeline: Pipeline | None) -> Self:
        """Return the setup of a goal with that pipeline; none is not written."""
        return self if pipeline is None else replace_fields(self, {"pipeline": pipeline})

    def with_model(self, model: str) -> Self:
        """Return the setup with another model."""
        return replace_fields(self, {"model": model})

    def with_workplace(self, workplace: Workplace) -> Self:
        """Return the setup of a worker that is at home there."""
        return replace_fields(self, {"workplace": workplace})

    def with_search_attributes(self, known: bool) -> Self:
        """Return the setup of runs on a server that knows the attributes, or does not."""
        return replace_fields(self, {"search_attributes": known})

    def with_notify(self, events: tuple[NotifyEvent, ...]) -> Self:
        """Return the setup of a worker that tells people outside."""
        return replace_fields(self, {"notify": events})

    def with_deliveries(self, channels: tuple[Channel, ...]) -> Self:
        """Return the setup of a worker that has channels for the answers of goals."""
        return replace_fields(self, {"deliveries": channels})

    def with_prompts(self, prompts: PromptTemplates | None) -> Self:
        """Return the setup of a goal that is asked by these templates; None is not written."""
        return replace_fields(self, {"prompts": prompts}) if prompts else self

    def is_reviewed(self, call: ToolCall | None) -> bool:
        """Return whether somebody has a word on a call, or (None) on an answer, behind the gate."""
        return any(critic.reviews(call) for critic in self.critics)

    def tool(self, name: str) -> ToolSpec | None:
        """Return the tool that is offered under `name`."""
        return next((tool for tool in self.tools if tool.name == name), None)
