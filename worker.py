"""The process of `orga-worker`: connects activities and workflows with the parts of a configuration."""

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import Interceptor, Worker, WorkerDeploymentConfig

from orga.client.config.file import load_config
from orga.client.config.sections import OrgaConfig
from orga.client.config.trust.rules_in_use import writable_rules
from orga.client.connect import Connection, connection
from orga.client.errors import OrgaError, ServerUnavailable
from orga.client.runners.workflows import UnpinningRunner, our_runner
from orga.client.server.pollers import marked_as_ending
from orga.client.server.search_attributes import are_usable
from orga.client.telemetry.logs import configure_logs
from orga.client.telemetry.start import forward_core_logs, telemetry
from orga.client.workers.checked import worker_report
from orga.client.workers.core_faults import work_around_core_faults
from orga.client.workers.deployment import build_id, deployment_version, make_current_command
from orga.client.workers.early_start import POLLING_MESSAGE
from orga.client.workers.ending import NO_LIMIT, WorkerEnd, end_workers
from orga.client.workers.engine_memory import (
    engine_change_text,
    recorded_engine,
    remember_engine,
    remembered_engine,
    require_own_policy,
    worker_policy,
)
from orga.client.workers.parts import Parts, configured_parts, secret_names
from orga.client.workers.registrations import HEARTBEAT_THROTTLE, WORKFLOW_TASKS, registrations, supporting_services
from orga.client.workers.script import worker as worker_of_a_script
from orga.own_code import remove_from_path, seal
from orga.start import worker as become_worker


def _version_options(version: WorkerDeploymentVersion | None) -> dict[str, Any]:
    """Return the options of a worker of this version. Without a version, the worker takes runs that have none."""
    if version is None:
        return {"build_id": build_id(), "unsandboxed_workflow_runner": our_runner()}
    pinned = VersioningBehavior.PINNED
    config = WorkerDeploymentConfig(version, use_worker_versioning=True, default_versioning_behavior=pinned)
    return {"deployment_config": config, "unsandboxed_workflow_runner": UnpinningRunner(our_runner())}


def build_worker(
    client: Client,
    parts: Parts,
    task_queue: str,
    *,
    version: WorkerDeploymentVersion | None = None,
    interceptors: Sequence[Interceptor] = (),
    **options: Any,
) -> Worker:
    """Return a worker for agents and their tools, with a deployment version if one is given.

    The interceptors come after ours. The first call seals our modules, so that later changes of their files have no
    effect on this process.
    """
    options = _version_options(version) | options
    seal()
    registered = registrations(client, parts)
    worker = Worker(
        client,
        task_queue=task_queue,
        workflows=registered.workflows,
        activities=registered.activities,
        interceptors=[*registered.interceptors, *interceptors],
        default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        max_concurrent_workflow_tasks=WORKFLOW_TASKS,
        **options,
    )
    return work_around_core_faults(worker)


async def serve(
    config: OrgaConfig,
    root: Path,
    end: WorkerEnd,
    version: WorkerDeploymentVersion | None = None,
    queues: Sequence[str] = (),
) -> None:
    """Work until `end` begins, and then until the running calls have ended or are cut off.

    Args:
        config: The worker's configuration.
        root: The root of the file tools.
        end: Begins when the worker must end.
        version: The worker's deployment version.
        queues: The queues to poll. By default, the queue of the folder and that of the shell's model settings.
    """
    if warning := writable_rules(config, root, os.environ):
        _report(f"worker: {warning}")
    observed = telemetry(config.telemetry)
    try:
        async with connection(config, _report, observed.plugins, root=root, is_worker=True) as connected:
            parts = configured_parts(
                config,
                os.environ,
                root,
                knows_attributes=await are_usable(connected.client, _report),
                link=connected.with_ui(config.notify.ui_url).link,
                workplace=connected.workplace,
                client=connected.client,
            )
            polled = tuple(dict.fromkeys(queues or (connected.task_queue, connected.folder_queue)))
            await _report_engine(config, parts, connected)
            if version is None and not connected.endpoint.embedded:
                await require_own_policy(connected.client, connected.task_queue, worker_policy(config, parts.policy))
            workers = [
                build_worker(
                    connected.client,
                    parts,
                    queue,
                    version=version,
                    interceptors=[end],
                    graceful_shutdown_timeout=NO_LIMIT,
                )
                for queue in polled
            ]
            async with supporting_services(parts), observed.watch(connected.client), AsyncExitStack() as stack:
                for worker in workers:
                    await stack.enter_async_context(worker)
                if version is not None:
                    name, command = version.to_canonical_string(), make_current_command(version, connected.endpoint)
                    _report(f"version: {name}; new runs come to it once it is current: {command}")
                names = " and ".join(map(repr, polled))
                _report(f"{POLLING_MESSAGE} {names} at {connected.endpoint.address}; Ctrl-C stops it")
                await end.wait_for_begin()
                _report(str(end))
                with marked_as_ending():
                    await end_workers(workers)
    finally:
        observed.shutdown()


async def _report_engine(config: OrgaConfig, parts: Parts, connected: Connection) -> None:
    """Report the engine. Raise ConfigError if it checks less than before and the configuration does not name it."""
    before = remembered_engine(config)
    if not connected.endpoint.embedded:
        before = before or await recorded_engine(connected.client, connected.task_queue)
    if changed := engine_change_text(config, parts.engine, before):
        _report(changed)
    remember_engine(config, parts.engine)
    version = getattr(parts.policy, "version", "")
    _report(f"policy: {parts.engine}, version {version}" if version else f"policy: {parts.engine}")


async def _run(config: OrgaConfig, root: Path, version: WorkerDeploymentVersion | None, queues: Sequence[str]) -> None:
    end = WorkerEnd()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end.stop)
    loop.add_signal_handler(signal.SIGUSR1, end.finish)
    await serve(config, root, end, version, queues)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run as `orga-worker`."""
    if not sys.flags.isolated:  # `python -m worker`
        become_worker()
    options = _parse_options(arguments)
    code = 0
    if options.json_logs:
        _log_everything()
    try:
        config = _read_config(options)
        root = (config.tools.files.root or Path.cwd()).resolve()
        remove_from_path(root)
        version = deployment_version(options.deployment) if options.deployment is not None else None
        if options.check:
            report = worker_report(config, root, os.environ)
            print(json.dumps(report))
            code = 2 if report["problems"] else 0
        else:
            configure_logs(options.json_logs, secrets=secret_names(config))
            forward_core_logs()
            asyncio.run(_run(config, root, version, options.task_queue))
    except (OrgaError, ServerUnavailable, ValueError) as error:
        _report(f"orga-worker: {error}", logging.ERROR)
        code = 7 if isinstance(error, ServerUnavailable) else 2
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a clean exit of the interpreter can abort in the SDK's threads (sdk-python issue 300)


def _read_config(options: argparse.Namespace) -> OrgaConfig:
    address = {"ORGA_TEMPORAL__ADDRESS": options.address} if options.address else {}
    config = load_config(options.config, env=os.environ | address)
    queue = next(iter(options.task_queue), None)
    named = config.temporal.with_overrides(namespace=options.namespace, task_queue=queue)
    return config.with_temporal(named)


def _parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="orga-worker",
        description="Run agents, their models and their tools. Ctrl-C stops the worker; its runs continue on others. "
        "Running calls then have 10 seconds to end. SIGUSR1 ends the worker without a limit for them.",
    )
    parser.add_argument("--config", type=Path, help="path of orga.toml; by default it is searched from here upwards")
    parser.add_argument("--address", help="host:port of the Temporal server; by default as in orga.toml")
    parser.add_argument("--namespace", help="Temporal namespace")
    parser.add_argument("--task-queue", action="append", default=[], help="task queue to poll; may be repeated")
    parser.add_argument(
        "--deployment", help="run as a version of this deployment; a version keeps its runs while others take new ones"
    )
    parser.add_argument("--json-logs", action="store_true", help="write one JSON object per line to stderr")
    parser.add_argument("--check", action="store_true", help="print as JSON what this worker could run, and exit")
    return parser.parse_args(arguments)


def _report(line: str, level: int = logging.INFO) -> None:
    if _json_logging[0]:
        _log.log(level, "%s", line)
    else:
        print(line, file=sys.stderr, flush=True)


def _log_everything() -> None:
    """Log each line of this process as a JSON record, including an error that ends the process."""
    _json_logging[0] = True
    configure_logs(json=True)
    sys.excepthook = lambda _kind, error, _trace: _log.critical("the worker ended by a defect", exc_info=error)


_json_logging = [False]
_log = logging.getLogger("orga.worker")


class _Module(ModuleType):
    """Makes this module callable, because importing it replaces the function `orga.worker` of the API."""

    def __call__(self, **options: Any) -> AbstractAsyncContextManager[Client]:
        return worker_of_a_script(**options)


sys.modules[__name__].__class__ = _Module

if __name__ == "__main__":
    main()
