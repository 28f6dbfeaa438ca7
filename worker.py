"""The worker: the one place where adapters, activities and workflows meet."""

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker

from activities.adapters.agents import ConfiguredAgents
from activities.adapters.arguments import argument_errors
from activities.adapters.mcp.settings import secret_variables
from activities.adapters.models.registry import ModelRegistry, default_model
from activities.adapters.policy.ladder import engine_name, gate_execution, policy_engine
from activities.adapters.tools.catalog import ToolCatalog
from activities.adapters.webhook.sender import Link, Webhook, no_link
from activities.breakers import WorkerBreakers
from activities.conversations import Conversations
from activities.critique import CritiqueActivities
from activities.gate import ArgumentErrors, GateActivities
from activities.known_secrets import NO_SECRETS, KnownSecrets
from activities.model_calls import Models
from activities.model_circuits import GuardedModels
from activities.notify import NotifyActivities
from activities.ports import Agents, Notifier, PolicyEngine, Tool, ToolSource
from activities.prepare import PrepareActivities
from activities.reason import ReasonActivities
from activities.summarise import SummariseActivities
from activities.tool_circuits import ToolCircuits
from activities.tools import source_activity, tool_activities
from client.checked_worker import checked
from client.config import OrgaConfig
from client.config_file import load_config
from client.connect import connection
from client.errors import OrgaError
from client.garbage import collect_ended_runs
from client.history import WorkflowHistory
from client.logs import configure_logs
from client.mcp_servers import configured_servers
from client.notify_settings import ADDRESS, notify_settings
from client.policy_settings import policy_settings
from client.sandbox import workflow_runner
from client.server.endpoint import ServerUnavailable
from client.server.search_attributes import missing
from client.telemetry.start import telemetry
from client.worker_tools import manifest_secrets, worker_tools
from workflows.agent import AgentWorkflow
from workflows.types.breaker import CircuitOptions
from workflows.types.context import Setup

BUILD_ID = "0.1.0"
"""Stands in three events of every workflow and activity task, so it is short."""

HEARTBEAT_THROTTLE = timedelta(seconds=0.2)
"""How old the live text of a model may be, and how soon an abort is heard."""

SHUTDOWN_GRACE = timedelta(seconds=10)
"""What activities in flight get to end in, once the worker is told to stop."""


@dataclass(frozen=True)
class Parts:
    """What a worker is made of."""

    agents: Agents
    models: Models
    policy: PolicyEngine
    argument_errors: ArgumentErrors
    tools: Sequence[Tool]
    model_breaker: CircuitOptions = field(default_factory=CircuitOptions)
    breakers: WorkerBreakers = field(default_factory=WorkerBreakers)
    """The circuits that all runs of the worker share."""
    source: ToolSource | None = None
    """Tools that come and go: no activity is registered for them, one stands for all."""
    secrets: KnownSecrets = NO_SECRETS
    """What no reply, no result and no verdict may bring into a history."""
    notifier: Notifier | None = None
    """Who tells people outside; None where nobody is to be told."""


def build_worker(client: Client, parts: Parts, task_queue: str, **options: Any) -> Worker:
    """Return a worker for agents and their tools."""
    conversations = Conversations(WorkflowHistory(client))
    return Worker(
        client,
        task_queue=task_queue,
        workflows=[AgentWorkflow],
        activities=_activities(parts, conversations),
        workflow_runner=workflow_runner(client.data_converter),
        interceptors=[ToolCircuits(parts.breakers, [tool.spec for tool in parts.tools], parts.source)],
        build_id=BUILD_ID,
        default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        **options,
    )


def _activities(parts: Parts, conversations: Conversations) -> list[Callable[..., Any]]:
    models = GuardedModels(parts.models, parts.breakers, parts.model_breaker)
    return [
        PrepareActivities(parts.agents, conversations).prepare,
        ReasonActivities(models, conversations, parts.secrets).reason,
        SummariseActivities(models, conversations, parts.secrets).summarise,
        CritiqueActivities(models, conversations, parts.secrets).critique,
        GateActivities(parts.policy, parts.argument_errors, parts.secrets).gate,
        *tool_activities(parts.tools, conversations, parts.secrets),
        *([NotifyActivities(parts.notifier, parts.secrets).notify] if parts.notifier else []),
        *([source_activity(parts.source, conversations, parts.secrets)] if parts.source else []),
    ]


def configured_tools(config: OrgaConfig, root: Path, env: Mapping[str, str]) -> ToolCatalog:
    """Return the built-in tools, the functions and the manifests that the config names, with their options.

    Raises:
        ValueError: A function or a manifest that cannot be used, two tools of one name, options for no tool.
    """
    return ToolCatalog(each.tool for each in worker_tools(config, root, env))


def configured_parts(
    config: OrgaConfig, env: Mapping[str, str], root: Path, knows_attributes: bool, link: Link = no_link
) -> Parts:
    """Return the parts that a config asks for; `link` knows the page of a run.

    Raises:
        ValueError: Something in the config cannot be had; the text names it.
    """
    tools = configured_tools(config, root, env)
    servers = configured_servers(config, tools, env)
    models = ModelRegistry(env, config.models.base_urls)
    settings = policy_settings(config.policy, env)
    policy = policy_engine(settings)
    facts = Setup(
        agent="",
        model="",
        policy=engine_name(settings),
        gate_execution=gate_execution(policy),
        search_attributes=knows_attributes,
        roll_over_events=config.temporal.roll_over_events,
    )
    webhook = notify_settings(config.notify, env)
    if webhook is not None:
        facts = facts.model_copy(update={"notify": config.notify.events})
    agents = ConfiguredAgents(
        config.agents,
        {name: tool.spec for name, tool in tools.items()},
        config.models.default or default_model(env),
        models.check,
        facts,
        source=servers,
    )
    return Parts(
        agents,
        models,
        policy,
        argument_errors,
        list(tools.values()),
        config.models.breaker,
        source=servers,
        secrets=KnownSecrets.of_environment(env, _secret_variables(config)),
        notifier=Webhook(webhook, link) if webhook else None,
    )


def _secret_variables(config: OrgaConfig) -> set[str]:
    """Return the variables that hold secrets although their names do not say so."""
    return {*secret_variables(config.mcp.servers), *manifest_secrets(config), ADDRESS}


async def serve(config: OrgaConfig, root: Path, stopping: asyncio.Event) -> None:
    """Work until `stopping`; what is in flight gets a grace to end."""
    observed = telemetry(config.telemetry)
    try:
        async with connection(config, _say, observed.plugins) as connected:
            knows_attributes = not await missing(connected.client)
            link = connected.at_ui(config.notify.ui_url).link
            parts = configured_parts(config, os.environ, root, knows_attributes, link)
            queue = config.temporal.task_queue
            worker = build_worker(connected.client, parts, queue, graceful_shutdown_timeout=SHUTDOWN_GRACE)
            collect_ended_runs()
            async with parts.source or nullcontext(), worker:
                _say(f"worker polls task queue {queue!r} at {connected.endpoint.address}; Ctrl-C stops it")
                await stopping.wait()
    finally:
        observed.shutdown()


async def _run(config: OrgaConfig, root: Path) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    await serve(config, root, stopping)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run as `orga-worker` or `python -m worker`."""
    options = _options(arguments)
    code = 0
    try:
        config = _config(options)
        root = (config.tools.files.root or Path.cwd()).resolve()
        sys.path.insert(0, str(Path.cwd()))
        if options.check:
            report = checked(config, root, os.environ)
            print(json.dumps(report))
            code = 2 if report["problems"] else 0
        else:
            configure_logs(options.json_logs, secrets=_secret_variables(config))
            asyncio.run(_run(config, root))
    except (OrgaError, ServerUnavailable, ValueError) as error:
        _say(f"orga-worker: {error}")
        code = 7 if isinstance(error, ServerUnavailable) else 2
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a clean exit of the interpreter can abort in the SDK's threads (sdk-python issue 300)


def _config(options: argparse.Namespace) -> OrgaConfig:
    """Return the configuration; what the command line names wins."""
    config = load_config(options.config).config
    named = {"address": options.address, "namespace": options.namespace, "task_queue": options.task_queue}
    given = {key: value for key, value in named.items() if value}
    return config.model_copy(update={"temporal": config.temporal.model_copy(update=given)})


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="orga-worker",
        description="Run agents, their models and their tools. Stops on Ctrl-C, runs go on elsewhere.",
    )
    parser.add_argument("--config", type=Path, help="orga.toml; else it is looked for upwards from here")
    parser.add_argument("--address", help="host:port of the Temporal server; else as orga.toml says")
    parser.add_argument("--namespace", help="Temporal namespace")
    parser.add_argument("--task-queue", help="task queue to poll")
    parser.add_argument("--json-logs", action="store_true", help="one JSON object a line on stderr")
    parser.add_argument("--check", action="store_true", help="print as JSON what this worker could run, and exit")
    return parser.parse_args(arguments)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
