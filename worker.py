"""The worker: activities and workflows, over the parts that a config asks for."""

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.common import WorkerDeploymentVersion
from temporalio.worker import Worker

from orga.activities.adapters.repaired_json import repaired_json
from orga.activities.conversations import Conversations
from orga.activities.critique import CritiqueActivities
from orga.activities.deliver import DeliverActivities
from orga.activities.gate import GateActivities
from orga.activities.goals import GoalActivities
from orga.activities.knowledge.recall import RecallActivities
from orga.activities.model_circuits import GuardedModels
from orga.activities.notify import NotifyActivities
from orga.activities.past import PastActivities
from orga.activities.ports import Pasts
from orga.activities.prepare import PrepareActivities
from orga.activities.reason import ReasonActivities
from orga.activities.summarise import SummariseActivities
from orga.activities.tool_circuits import ToolCircuits
from orga.activities.tools import source_activity, tool_activities
from orga.activities.watchdog import NamedTasks, Watchdog
from orga.client.config.file import load_config
from orga.client.config.sections import OrgaConfig
from orga.client.config.trust.writable_rules import writable_rules
from orga.client.config.worker_order import POLLS
from orga.client.connect import Connection, connection
from orga.client.errors import OrgaError
from orga.client.history.events import WorkflowHistory
from orga.client.past.shared import RunPasts
from orga.client.runners.kinds import WORKFLOWS
from orga.client.runners.patient import PatientRunner
from orga.client.runners.sandbox import workflow_runner
from orga.client.server.endpoint import ServerUnavailable
from orga.client.server.search_attributes import are_known
from orga.client.telemetry.core_logs import forward_core_logs
from orga.client.telemetry.logs import configure_logs
from orga.client.telemetry.start import telemetry
from orga.client.workers.checked import checked
from orga.client.workers.deployment import version_in, worker_options
from orga.client.workers.engine_memory import change_of_engine, recorded_engine, remember_engine, remembered_engine
from orga.client.workers.garbage import collect_ended_runs
from orga.client.workers.held_loops import remember_hold
from orga.client.workers.parts import Parts, configured_parts, secret_names
from orga.client.workers.routing import to_make_current
from orga.own_code import keep_out, seal
from orga.start import worker as become_worker

HEARTBEAT_THROTTLE = timedelta(seconds=0.2)
"""How old the live text of a model may be, and how soon an abort is heard."""

WORKFLOW_TASKS = max(8, 2 * (os.cpu_count() or 1))
"""In flight at once; the server keeps the others. They share this process's processor: each of a hundred takes a
hundred times as long, and one that takes ten seconds is handed to somebody else and done again. Eight at least, since
one that waits for a local tool holds its place."""

SHUTDOWN_GRACE = timedelta(seconds=10)
"""What activities in flight get to end in, once the worker is told to stop."""


def build_worker(
    client: Client, parts: Parts, task_queue: str, *, version: WorkerDeploymentVersion | None = None, **options: Any
) -> Worker:
    """Return a worker for agents and their tools, of that version if any; from now on none of our files is read."""
    options = worker_options(version, PatientRunner(workflow_runner(client.data_converter))) | options
    seal()
    conversations = Conversations(WorkflowHistory(client))
    return Worker(
        client,
        task_queue=task_queue,
        workflows=WORKFLOWS,
        activities=_activities(parts, conversations, RunPasts(client)),
        interceptors=[NamedTasks(), ToolCircuits(parts.breakers, [tool.spec for tool in parts.tools], parts.source)],
        default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        max_concurrent_workflow_tasks=WORKFLOW_TASKS,
        **options,
    )


def _activities(parts: Parts, conversations: Conversations, pasts: Pasts) -> list[Callable[..., Any]]:
    models = GuardedModels(parts.models, parts.breakers, parts.model_breaker)
    return [
        PastActivities(pasts).read_past,
        PrepareActivities(parts.agents, conversations).prepare,
        ReasonActivities(models, conversations, parts.secrets).reason,
        *_goal_turns(GoalActivities(models, conversations, parts.argument_errors, repaired_json, parts.secrets)),
        SummariseActivities(models, conversations, parts.secrets).summarise,
        CritiqueActivities(models, conversations, parts.secrets).critique,
        GateActivities(parts.policy, parts.argument_errors, parts.secrets, parts.engine, parts.permits).gate,
        RecallActivities(parts.knowledge, conversations, parts.secrets).recall_context,
        *tool_activities(parts.tools, conversations, parts.secrets, parts.permits),
        DeliverActivities(parts.deliveries, parts.secrets).deliver,
        *([NotifyActivities(parts.notifier, parts.secrets).notify] if parts.notifier else []),
        *([source_activity(parts.source, conversations, parts.secrets, parts.permits)] if parts.source else []),
    ]


def _goal_turns(goal: GoalActivities) -> list[Callable[..., Any]]:
    return [goal.plan, goal.prepare_calls, goal.evaluate, goal.decide, goal.compress, goal.summarise]


async def serve(
    config: OrgaConfig, root: Path, stopping: asyncio.Event, version: WorkerDeploymentVersion | None = None
) -> None:
    """Work until `stopping`; what is in flight gets a grace to end."""
    if open_to_agents := writable_rules(config, root, os.environ):
        _say(f"worker: {open_to_agents}")
    observed = telemetry(config.telemetry)
    try:
        async with connection(config, _say, observed.plugins, root=root) as connected:
            knows_attributes = await are_known(connected.client, _say)
            link = connected.at_ui(config.notify.ui_url).link
            parts = configured_parts(
                config,
                os.environ,
                root,
                knows_attributes=knows_attributes,
                link=link,
                place=connected.workplace,
            )
            queue = connected.task_queue
            await _say_engine(config, parts, connected)
            worker = build_worker(
                connected.client, parts, queue, version=version, graceful_shutdown_timeout=SHUTDOWN_GRACE
            )
            collect_ended_runs()
            async with (
                Watchdog(report=remember_hold).watching(),
                parts.source or nullcontext(),
                observed.watch(connected.client),
                worker,
            ):
                if version is not None:
                    told = f"new runs come to it once it is current: {to_make_current(version, connected.endpoint)}"
                    _say(f"version: {version.to_canonical_string()}; {told}")
                _say(f"{POLLS} {queue!r} at {connected.endpoint.address}; Ctrl-C stops it")
                await stopping.wait()
            if parts.knowledge is not None:
                await parts.knowledge.close()
    finally:
        observed.shutdown()


async def _say_engine(config: OrgaConfig, parts: Parts, connected: Connection) -> None:
    """Say who judges.

    Raises:
        ConfigError: It would be less than who judged before, and nobody has said so.
    """
    before = remembered_engine(config)
    if not connected.endpoint.embedded:
        before = before or await recorded_engine(connected.client, connected.task_queue)
    if changed := change_of_engine(config, parts.engine, before):
        _say(changed)
    remember_engine(config, parts.engine)
    version = getattr(parts.policy, "version", "")
    _say(f"policy: {parts.engine}" + (f", version {version}" if version else ""))


async def _run(config: OrgaConfig, root: Path, version: WorkerDeploymentVersion | None) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    await serve(config, root, stopping, version)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run as `orga-worker`."""
    if not sys.flags.isolated:  # `python -m worker`
        become_worker()
    options = _options(arguments)
    code = 0
    try:
        config = _config(options)
        root = (config.tools.files.root or Path.cwd()).resolve()
        keep_out(root)
        version = version_in(options.deployment) if options.deployment is not None else None
        if options.check:
            report = checked(config, root, os.environ)
            print(json.dumps(report))
            code = 2 if report["problems"] else 0
        else:
            configure_logs(options.json_logs, secrets=secret_names(config))
            forward_core_logs()
            asyncio.run(_run(config, root, version))
    except (OrgaError, ServerUnavailable, ValueError) as error:
        _say(f"orga-worker: {error}")
        code = 7 if isinstance(error, ServerUnavailable) else 2
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a clean exit of the interpreter can abort in the SDK's threads (sdk-python issue 300)


def _config(options: argparse.Namespace) -> OrgaConfig:
    """Return the configuration; what the command line names wins."""
    config = load_config(options.config).config
    named = config.temporal.with_named(
        address=options.address, namespace=options.namespace, task_queue=options.task_queue
    )
    return config.with_temporal(named)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="orga-worker",
        description="Run agents, their models and their tools. Stops on Ctrl-C, runs go on elsewhere.",
    )
    parser.add_argument("--config", type=Path, help="orga.toml; else it is looked for upwards from here")
    parser.add_argument("--address", help="host:port of the Temporal server; else as orga.toml says")
    parser.add_argument("--namespace", help="Temporal namespace")
    parser.add_argument("--task-queue", help="task queue to poll")
    parser.add_argument(
        "--deployment", help="be a version of this deployment: it keeps its runs, another takes new ones"
    )
    parser.add_argument("--json-logs", action="store_true", help="one JSON object a line on stderr")
    parser.add_argument("--check", action="store_true", help="print as JSON what this worker could run, and exit")
    return parser.parse_args(arguments)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
