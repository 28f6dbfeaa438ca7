"""Builds the parts of a worker from a configuration. `registrations.py` makes activities of them."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from temporalio.client import Client

from orga.activities.adapters.agents.agents import ConfiguredAgents, unknown_window
from orga.activities.adapters.mcp.mcp_settings import server_secret_variables
from orga.activities.adapters.models.registry import ModelRegistry, default_model
from orga.activities.adapters.policy.engines import engine_name, gate_execution, policy_engine, policy_version
from orga.activities.adapters.schemas.arguments import find_argument_errors
from orga.activities.adapters.tools.catalog import ToolCatalog
from orga.activities.adapters.tools.root import FileRoot
from orga.activities.adapters.webhook.post import RunLink, WebhookNotifier, no_link
from orga.activities.circuits import WorkerBreakers
from orga.activities.deliver import DeliveryChannel
from orga.activities.gate.gate import ArgumentErrors
from orga.activities.gate.permits import PermitKeys, permit_keys
from orga.activities.knowledge.ports import KnowledgeStore
from orga.activities.models.model_calls import Models
from orga.activities.ports import (
    Agents,
    BlobStore,
    CodeCritic,
    Notifier,
    PolicyEngine,
    Summarizer,
    Tool,
    ToolSource,
)
from orga.activities.prepare import SettingsCheck
from orga.activities.text.secrets import NO_SECRETS, KnownSecrets
from orga.client.config.delivery_settings import ADDRESS, delivery_channels, notify_settings, run_channels
from orga.client.config.known_input import price_check
from orga.client.config.policy import policy_location_digest, policy_settings
from orga.client.config.run_time import RunTimeRules
from orga.client.config.sections import OrgaConfig
from orga.client.config.trust.rules_in_use import rules_in_use
from orga.client.runs.attachments import blob_store
from orga.client.server.home import server_home
from orga.client.workers.deployment import build_id
from orga.client.workers.in_code import NO_OWN_PARTS, OwnParts
from orga.client.workers.knowledge_store import configured_store
from orga.client.workers.run_time import RunTimeAgents, SettingsLookup
from orga.client.workers.tool_sources import configured_servers, manifest_secrets, worker_tools
from orga.workflows.types.models.providers import CODE
from orga.workflows.types.names import LOOP_VERSION
from orga.workflows.types.setup import Setup
from orga.workflows.types.tool_calls.breakers import CircuitOptions
from orga.workflows.types.tool_calls.tools import ToolSpec
from orga.workflows.types.workplace import Workplace

_log = logging.getLogger(__name__)


class KnownModels(Models, Protocol):
    """Models by name, and the checks that need no call."""

    def check(self, name: str) -> None:
        """Raise ValueError for a model that cannot be called."""
        ...

    def is_priced(self, name: str) -> bool:
        """Return whether the cost of the model's replies will be known."""
        ...


class StandInModels(KnownModels, Protocol):
    """Models that replace all others."""

    @property
    def default(self) -> str:
        """The model of an agent that names none."""
        ...


class StandInTool(Tool, Protocol):
    """A tool that can replace another."""

    def in_place_of(self, spec: ToolSpec) -> Tool:
        """Return this tool under the definition of another."""
        ...


@dataclass(frozen=True)
class StandIns:
    """Models and tools that replace the configured ones."""

    models: StandInModels
    tools: Sequence[StandInTool] = ()

    def applied_to(self, tools: Mapping[str, Tool]) -> ToolCatalog:
        """Return the tools and the stand-ins. A stand-in replaces the tool of its name and has its definition.

        Raise ValueError if two stand-ins share a name.
        """
        stand_ins = ToolCatalog(self.tools)
        result = [tool for name, tool in tools.items() if name not in stand_ins]
        for stand_in in self.tools:
            replaced = tools.get(stand_in.spec.name)
            result.append(stand_in if replaced is None else stand_in.in_place_of(replaced.spec))
        return ToolCatalog(result)


def configured_deliveries(
    config: OrgaConfig, root: Path, env: Mapping[str, str], store: KnowledgeStore | None = None
) -> dict[str, DeliveryChannel]:
    """Return the configured channels by name. The limits of the file tools apply to files that the channels write.

    Without `store`, the configured store is opened. Raise ValueError for a channel that cannot be used.
    """
    return delivery_channels(
        config.goals.deliveries,
        lambda: FileRoot(root, rules_in_use(config, root, env)),
        lambda: store or configured_store(config, env, root),
        env,
    )


@dataclass(frozen=True)
class Parts:
    """Everything that the activities of a worker work with."""

    agents: Agents
    models: Models
    policy: PolicyEngine
    argument_errors: ArgumentErrors
    tools: Sequence[Tool]
    model_breaker: CircuitOptions = field(default_factory=CircuitOptions)
    breakers: WorkerBreakers = field(default_factory=WorkerBreakers)
    """The circuits that all runs of the worker share."""
    source: ToolSource | None = None
    """Tools that come and go. One activity serves all of them."""
    secrets: KnownSecrets = NO_SECRETS
    """Secrets that are hidden in replies, results and verdicts before they reach a history."""
    permits: PermitKeys | None = None
    """Keys that sign allowed calls. If it is None, calls run without a permit."""
    notifier: Notifier | None = None
    """Sends notifications to people. None if no notifications are configured."""
    deliveries: Mapping[str, DeliveryChannel] = field(default_factory=dict[str, DeliveryChannel])
    """Channels for the answers of goals, by name."""
    knowledge: KnowledgeStore | None = None
    """The store that runs recall from, or None."""
    critics: Mapping[str, CodeCritic] = field(default_factory=dict[str, CodeCritic])
    """The application's critics by model name, `code:NAME`."""
    summarizer: Summarizer | None = None
    """The application's summarizer, or None."""
    root: Path | None = None
    """The root of the file tools, and of the folders that stored conventions apply to."""
    engine: str = ""
    """The name of the policy engine. A run that began under a stronger engine is not judged by a weaker one."""
    check_settings: SettingsCheck | None = None
    """Checks settings that somebody wants to save at run time. None if this worker allows no such settings."""
    blobs: BlobStore | None = None
    """The store of pictures and documents. If it is None, tools and models get a text in place of each."""


def configured_tools(
    config: OrgaConfig,
    root: Path,
    env: Mapping[str, str],
    store: KnowledgeStore | None = None,
    in_code: Sequence[Tool] = (),
    *,
    stand_ins: Sequence[Tool] = (),
) -> ToolCatalog:
    """Return the worker's tools, and log the digests of their code. Raise ValueError if a tool cannot be used."""
    tools = worker_tools(config, root, env, store, in_code, stand_ins=stand_ins)
    for item in tools:
        if item.digest:
            _log.info("tool %s is %s, code %s", item.tool.spec.name, item.source, item.digest)
    return ToolCatalog(item.tool for item in tools)


def configured_parts(
    config: OrgaConfig,
    env: Mapping[str, str],
    root: Path,
    *,
    knows_attributes: bool,
    link: RunLink = no_link,
    workplace: Workplace | None = None,
    in_code: Sequence[Tool] = (),
    stand_ins: StandIns | None = None,
    client: Client | None = None,
    own: OwnParts = NO_OWN_PARTS,
) -> Parts:
    """Return the parts for a configuration. Raise ValueError if something that it needs is unavailable.

    Args:
        config: The worker's configuration.
        env: The environment.
        root: The root of the file tools.
        knows_attributes: True if the server knows our search attributes.
        link: Returns the address of a run's page.
        workplace: The only workplace whose runs the worker takes. None takes any run.
        in_code: Tools of an application.
        stand_ins: Models and tools for a worker under test.
        client: Reads the settings at run time. Without it, there are no such settings.
        own: Objects of an application that replace configured parts.
    """
    store = own.knowledge or configured_store(config, env, root)
    blobs = blob_store() if own.blobs is None else own.blobs
    models: KnownModels
    if stand_ins is None:
        tools = configured_tools(config, root, env, store, in_code)
        models, default = _registry(config, env, own, blobs), default_model(env)
    else:
        tools = stand_ins.applied_to(configured_tools(config, root, env, store, in_code, stand_ins=stand_ins.tools))
        models, default = stand_ins.models, stand_ins.models.default
    servers = configured_servers(config, tools, env)
    settings = policy_settings(config.policy, env)
    policy = own.engine or policy_engine(settings)
    base_setup = Setup(
        agent="",
        model="",
        policy=engine_name(settings),
        policy_place=policy_location_digest(config),
        build=build_id(),
        loop_version=LOOP_VERSION,
        gate_execution=gate_execution(policy),
        search_attributes=knows_attributes,
        roll_over_events=config.temporal.roll_over_events,
    )
    if workplace is not None:
        base_setup = base_setup.with_workplace(workplace)
    webhook = notify_settings(config.notify, env)
    if webhook is not None:
        base_setup = base_setup.with_notify(config.notify.events)
    is_priced = price_check(config.models, models.is_priced)
    critics = {f"{CODE}:{name}": critic for name, critic in own.critics.items()}

    def check_model(name: str) -> None:
        if name not in critics:
            models.check(name)

    def agents_of(changed: OrgaConfig) -> ConfiguredAgents:
        goals = changed.goals
        channels = run_channels(goals.deliveries)
        return ConfiguredAgents(
            changed.agents,
            {name: tool.spec for name, tool in tools.items()},
            changed.models.default or default,
            check_model,
            base_setup.with_deliveries(channels) if channels else base_setup,
            source=servers,
            is_priced=is_priced,
            policy_version=lambda: policy_version(policy),
            tiers=changed.models.tiers,
            goal_tiers=goals.tiers,
            prompts=goals.prompts.templates,
            pipelines=changed.pipelines,
            embedder=changed.knowledge.embedder,
            tier_settings=changed.models.tier_settings,
            context_window=models.context_window if isinstance(models, ModelRegistry) else unknown_window,
        )

    agents: Agents = agents_of(config)
    check_settings: SettingsCheck | None = None
    if client is not None:
        rules = RunTimeRules(config, default, check_model, is_priced)
        agents = RunTimeAgents(agents, rules, agents_of, SettingsLookup(client))
        check_settings = agents.check
    permits = permit_keys(env)
    return Parts(
        agents,
        models,
        policy,
        find_argument_errors,
        list(tools.values()),
        config.models.breaker,
        source=servers,
        secrets=KnownSecrets.from_environment(env, secret_names(config), permits.texts if permits else ()),
        permits=permits,
        notifier=WebhookNotifier(webhook, link) if webhook else None,
        deliveries=configured_deliveries(config, root, env, store),
        knowledge=store,
        critics=critics,
        summarizer=own.summarizer,
        root=root,
        engine=engine_name(settings),
        check_settings=check_settings,
        blobs=blobs,
    )


def _registry(config: OrgaConfig, env: Mapping[str, str], own: OwnParts, blobs: BlobStore) -> ModelRegistry:
    models = config.models
    return ModelRegistry(
        env,
        models.base_urls,
        prices=models.prices,
        endpoints=models.endpoints,
        in_code=own.models,
        lessons=server_home().lessons,
        blobs=blobs,
    )


def secret_names(config: OrgaConfig) -> set[str]:
    """Return the variables that hold secrets although their names do not show it."""
    deliveries = config.goals.deliveries.values()
    endpoints = config.models.endpoints.values()
    return {
        *server_secret_variables(config.mcp.servers),
        *(variable for endpoint in endpoints for variable in endpoint.secret_variables),
        *manifest_secrets(config),
        *(variable for delivery in deliveries for variable in delivery.variables),
        config.knowledge.dsn,
        ADDRESS,
    }
