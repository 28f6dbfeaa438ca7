"""`orga doctor` checks server, worker, models and tools, and names the remedy for each problem. Also `orga setup`."""

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer
from pydantic import ValidationError
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client
from temporalio.common import WorkerDeploymentVersion as Version
from temporalio.service import RPCError

from orga.activities.adapters.blob_folder import BlobFolder
from orga.client.cli.connection import CliContext, cli_context
from orga.client.cli.exit_codes import ExitCode
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.shown.text import count_text, hanging_lines, terminal_line, write_json, write_note, write_result
from orga.client.config.file import NO_FILE, load_config
from orga.client.config.run_time import RunTimeRules
from orga.client.config.sections import OrgaConfig
from orga.client.config.trust.check import Untrusted
from orga.client.connect import Connection, connection
from orga.client.errors import ConfigError, OrgaError, ServerUnavailable
from orga.client.runs.agents import start_agent
from orga.client.runs.failing_tasks import failing_tasks
from orga.client.runs.listing import RunFilter
from orga.client.runs.newest import visibility_literal
from orga.client.runs.settings import read_settings
from orga.client.server.endpoint import Endpoint, given_up_cause
from orga.client.server.home import prepare_home, server_home
from orga.client.server.pollers import (
    NO_CONFIG,
    WorkerIdentity,
    describe_queue,
    live_pollers,
    longest_block_text,
    poller_identities,
    short_config,
)
from orga.client.server.search_attributes import (
    NoSearchAttributes,
    SearchAttributesRefused,
    missing_names,
    register_missing,
)
from orga.client.server.server_errors import error_reason, is_unsupported
from orga.client.server.versions import Routing, pinned_version, routing
from orga.client.telemetry.start import forward_core_logs
from orga.client.workers.deployment import make_current_command, no_workers_text
from orga.client.workers.process import keep_worker
from orga.start import module_command
from orga.workflows.decisions.settings import problems_text
from orga.workflows.types.input import AgentInput, LoopConfig
from orga.workflows.types.names import KEYS
from orga.workflows.types.parts import size_text
from orga.workflows.types.record import Record
from orga.workflows.types.settings import settings_id

TIMEOUT_S = 60.0
"""Seconds for the report of a worker process."""


class CheckedAgent(Record):
    model: str | None = None
    tools: tuple[str, ...] = ()


class WorkerProblem(Record):
    """A problem of the configuration that would make runs fail, or a warning."""

    place: str
    problem: str
    remedy: str = ""


class WorkerReport(Record):
    """The agents, tools, models and policy of a worker, with their problems."""

    agents: dict[str, CheckedAgent] = {}
    tools: tuple[str, ...] = ()
    models: dict[str, str] = {}
    """Models by name, each with the reason why it cannot be used now, or "" if its provider answers."""
    policy: str = ""
    problems: tuple[WorkerProblem, ...] = ()
    warnings: tuple[WorkerProblem, ...] = ()
    """Things that work, but that the operator should know."""


async def doctor_worker_report(config: Path) -> WorkerReport:
    """Return the report of a worker process that is started here for the check."""
    options = ["--check", "--config", str(config)]
    command = module_command("orga.client.workers.child", *options)
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    output, errors = await _read_output(process)
    try:
        return WorkerReport.model_validate_json(output)
    except ValidationError:
        lines = [line.strip() for line in errors.decode(errors="replace").splitlines() if line.strip()]
        last = lines[-1][:300] if lines else "it wrote nothing"
        return WorkerReport(problems=(WorkerProblem(place="worker", problem=f"it does not start: {last}"),))


async def _read_output(process: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    """Read both streams. Standard input stays open meanwhile, because its end would end the worker."""
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(TIMEOUT_S):
            output, errors = await asyncio.gather(process.stdout.read(), process.stderr.read())
            await process.wait()
            return output, errors
    except TimeoutError:
        process.kill()
        await process.wait()
        return b"", f"no answer within {TIMEOUT_S:g} s".encode()
    finally:
        if process.stdin is not None:
            process.stdin.close()


_MODEL_REMEDY = "check its name, key and address: [models] and [agents] of orga.toml, and the provider's variables"

_OTHER_SERVER_REMEDY = (
    "this server is only for tests; for other work, use: temporal server start-dev, or configure no address"
)

LATEST_RUNS = 200
"""The number of live runs that are checked, newest first."""

DEEP_TASK = "Answer with the single word OK."


@dataclass(frozen=True)
class DoctorCheck:
    name: str
    ok: bool
    detail: str
    remedy: str = ""
    warning: bool = False
    """True if what was checked works, but the operator should know the detail."""


async def all_checks(config: Path | None, *, deep: bool) -> AsyncGenerator[DoctorCheck]:
    yield _folder_check()
    for check in blob_checks(server_home().blobs):
        yield check
    try:
        settings = load_config(config)
    except Untrusted as error:  # the other checks continue with the defaults
        *lines, remedy = str(error).splitlines()
        detail = "\n".join([*lines, "it was not read further"])
        yield DoctorCheck("config", ok=False, detail=detail, remedy=remedy)
        settings = OrgaConfig()
    except ConfigError as error:
        yield DoctorCheck("config", ok=False, detail=str(error), remedy="correct the named file or variable")
        return
    else:
        yield DoctorCheck("config", ok=True, detail=str(settings.file or "no orga.toml: the defaults apply"))
        for check in (
            *_worker_report_checks(await doctor_worker_report(settings.file or NO_FILE)),
            *(idle_address_checks(os.environ) if settings.models.default is None else ()),
        ):
            yield check
    try:
        forward_core_logs(with_retries=False)
        async with connection(settings, write_note) as connected:
            async for check in _server_checks(CliContext(settings, connected), deep=deep):
                yield check
    except ServerUnavailable as error:
        yield DoctorCheck("server", ok=False, detail=error.cause, remedy=error.remedy)
    except ConfigError as error:
        cause, _, remedy = str(error).partition("; ")
        yield DoctorCheck("server", ok=False, detail=cause, remedy=remedy)


def idle_address_checks(env: Mapping[str, str]) -> list[DoctorCheck]:
    """Return warnings about model servers in the environment that are not used, as a key or a model is missing."""
    from orga.activities.adapters.models.model_settings import idle_addresses

    return [
        DoctorCheck("models", ok=True, detail=text, remedy="orga models", warning=True) for text in idle_addresses(env)
    ]


def _folder_check() -> DoctorCheck:
    try:
        return DoctorCheck("folder", ok=True, detail=f"{prepare_home().folder} can be written")
    except ServerUnavailable as error:
        return DoctorCheck("folder", ok=False, detail=error.cause, remedy=error.remedy)


LARGE_STORE_BYTES = 1_000_000_000
"""Bytes. The doctor warns if the pictures and documents need as many, because nothing removes them automatically."""


def blob_checks(folder: Path) -> list[DoctorCheck]:
    """Return the size of the folder of pictures and documents, or nothing if it is empty."""
    try:
        sizes = BlobFolder(folder).file_sizes()
    except OSError as error:
        detail = f"{folder} cannot be read: {error.strerror}. Runs have no pictures and documents"
        return [DoctorCheck("blobs", ok=False, detail=detail, remedy="make it a folder that you can read and write")]
    if not sizes:
        return []
    count = count_text(len(sizes), "picture or document", "pictures and documents")
    detail = f"{count}, {size_text(sum(sizes))}, in {folder}"
    remedy = f"remove those that no model got in 90 days: find {quote(f'{folder}/')} -type f -mtime +90 -delete"
    is_large = sum(sizes) >= LARGE_STORE_BYTES
    return [DoctorCheck("blobs", ok=True, detail=detail, remedy=remedy, warning=is_large)]


def _worker_report_checks(report: WorkerReport) -> list[DoctorCheck]:
    checks = [
        DoctorCheck(problem.place, ok=False, detail=problem.problem, remedy=problem.remedy)
        for problem in report.problems
    ]
    if report.agents:
        agents = "; ".join(
            f"{name} ({agent.model}, {count_text(len(agent.tools), 'tool')})" for name, agent in report.agents.items()
        )
        checks.append(DoctorCheck("agents", ok=True, detail=agents))
    for model, problem in report.models.items():
        detail = problem or "its provider answers; --deep lets it generate an answer"
        checks.append(DoctorCheck(f"model {model}", ok=not problem, detail=detail, remedy=_MODEL_REMEDY))
    if report.tools:
        checks.append(DoctorCheck("tools", ok=True, detail=", ".join(report.tools)))
    if report.policy:
        checks.append(DoctorCheck("policy", ok=True, detail=report.policy))
    checks += [
        DoctorCheck(warning.place, ok=True, detail=warning.problem, remedy=warning.remedy, warning=True)
        for warning in report.warnings
    ]
    return checks


async def _server_checks(context: CliContext, *, deep: bool) -> AsyncGenerator[DoctorCheck]:
    yield await _connection_check(context.connection)
    if context.connection.endpoint.embedded:
        for check in given_up_checks(server_home().previous_log):
            yield check
    yield await _search_attribute_check(context)
    identities = await poller_identities(context.client, context.task_queue)
    yield _poller_check(context, identities)
    yield await settings_check(context.client, context.task_queue, context.config)
    if (versions := await routing(context.client, context.task_queue)) is not None:
        for check in version_checks(versions, context.task_queue, context.connection.endpoint):
            yield check
        for check in await pinned_run_checks(context.client, context.task_queue, versions):
            yield check
    for check in await activity_queue_checks(context.client, context.config):
        yield check
    for check in blocked_loop_checks(identities or []):
        yield check
    for check in await _stuck_run_checks(context.client):
        yield check
    if deep:
        yield await _model_check(context)


def given_up_checks(previous_log: Path) -> list[DoctorCheck]:
    """Return a warning if the embedded server before this one could not be kept running."""
    if (cause := given_up_cause(previous_log)) is None:
        return []
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(previous_log.stat().st_mtime))
    detail = f"the one before it could not be kept running, until {at}: {cause}"
    remedy = f"look for the cause in {previous_log} and in the log of the system"
    return [DoctorCheck("server", ok=True, detail=detail, remedy=remedy, warning=True)]


def _poller_check(context: CliContext, identities: list[str] | None) -> DoctorCheck:
    """Return which workers poll for this folder, and whether they have its current configuration.

    Another configuration is a problem on an embedded server. On a configured server it is only shown.
    """
    own_digest = short_config(context.connection.workplace)
    queue = f"task queue {context.task_queue!r}"
    if context.connection.endpoint.embedded:
        queue = f"{queue} of {context.connection.workplace.root}"
    if identities is None:
        detail = f"the server does not report who polls {queue}; orga run and orga attach start their own worker"
        return DoctorCheck("worker", ok=True, detail=detail, remedy=_OTHER_SERVER_REMEDY, warning=True)
    if not identities:
        return DoctorCheck("worker", ok=True, detail=f"none polls {queue}; orga run and orga attach start their own")
    workers = [_worker_text(identity) for identity in identities]
    detail = f"{', '.join(workers)} on {queue}"
    if {WorkerIdentity.parse(identity).config for identity in identities} <= {None, own_digest}:
        return DoctorCheck("worker", ok=True, detail=detail)
    own_config = "this orga.toml" if context.config.file else "no orga.toml"
    detail = f"{detail}; this command has {own_config}, {own_digest}"
    is_problem = context.connection.endpoint.embedded
    return DoctorCheck("worker", ok=not is_problem, detail=detail, remedy="start the worker again")


async def activity_queue_checks(client: Client, config: OrgaConfig) -> list[DoctorCheck]:
    """Return the queues of `[tools.activities]` that no worker polls. Calls of their tools wait there."""
    tools: dict[str, list[str]] = {}
    for name, tool in config.tools.activities.items():
        tools.setdefault(tool.task_queue, []).append(name)
    checks: list[DoctorCheck] = []
    for queue, names in tools.items():
        answer = await describe_queue(client, queue, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)
        if answer is not None and not live_pollers(answer):
            detail = f"no worker polls task queue {queue!r}, where calls of {', '.join(names)} wait"
            remedy = "start the worker that has these activities"
            checks.append(DoctorCheck("activities", ok=True, detail=detail, remedy=remedy, warning=True))
    return checks


async def settings_check(client: Client, task_queue: str, config: OrgaConfig) -> DoctorCheck:
    """Return whether runs get settings that people have saved at run time."""
    settings = await read_settings(client, task_queue)
    problem = settings.detail
    if settings.current and (flaws := RunTimeRules.for_display(config, os.environ).problems(settings.values)):
        problem = f"version {settings.version} does not fit the configuration: {problems_text(flaws)}"
    if problem:
        detail = f"settings at run time do not count, runs start without them: {terminal_line(problem, 1_000)}"
        remedy = f"save a set that fits, or: temporal workflow terminate --workflow-id {quote(settings_id(task_queue))}"
        return DoctorCheck("settings", ok=True, detail=detail, remedy=remedy, warning=True)
    if not settings.current:
        return DoctorCheck("settings", ok=True, detail="nothing is set at run time")
    keys = count_text(len(settings.values), "key")
    return DoctorCheck("settings", ok=True, detail=f"version {settings.version} of the settings at run time, {keys}")


def version_checks(queue_routing: Routing, task_queue: str, server: Endpoint) -> list[DoctorCheck]:
    """Return which deployment version takes new runs, and whether a worker of it polls. Empty without versions."""
    if queue_routing.current is None and not queue_routing.waiting_versions:
        return []
    names = ", ".join(version.to_canonical_string() for version in queue_routing.waiting_versions)
    polling = f"; workers of {names} poll" if names else ""
    if queue_routing.current is not None:
        name = queue_routing.current.to_canonical_string()
        if queue_routing.is_served:
            others = f"{polling}, too" if polling else ""
            return [DoctorCheck("version", ok=True, detail=f"new runs go to {name}{others}")]
        detail = f"{no_workers_text(queue_routing.current, task_queue)}{polling}"
        remedy = "start such a worker"
        if queue_routing.waiting_versions:
            remedy = make_current_command(queue_routing.waiting_versions[-1], server)
        return [DoctorCheck("version", ok=False, detail=detail, remedy=remedy)]
    remedy = f"let new runs go there: {make_current_command(queue_routing.waiting_versions[-1], server)}"
    if queue_routing.is_served:
        detail = f"new runs go to workers without a version{polling}, too"
        return [DoctorCheck("version", ok=True, detail=detail, remedy=remedy, warning=True)]
    return [DoctorCheck("version", ok=False, detail=f"no worker takes new runs{polling}", remedy=remedy)]


async def pinned_run_checks(client: Client, task_queue: str, queue_routing: Routing) -> list[DoctorCheck]:
    """Return a problem for each version of which no worker polls, although live runs are pinned to it."""
    if not queue_routing.has_versions:
        return []
    query = f"{RunFilter(running=True).visibility()} AND TaskQueue = {visibility_literal(task_queue)}"
    waiting: dict[Version, list[str]] = {}
    async for run in client.list_workflows(query, limit=LATEST_RUNS):
        with suppress(RPCError):  # the run was deleted meanwhile
            version = pinned_version(await client.get_workflow_handle(run.id).describe())
            if version is not None and version not in queue_routing.polled:
                waiting.setdefault(version, []).append(run.id)
    return [
        DoctorCheck(
            f"version {terminal_line(version.to_canonical_string())}",
            ok=False,
            detail=f"{count_text(len(runs), 'live run')} of it, such as {terminal_line(runs[0], 60)}, and no worker",
            remedy=f"start a worker of that build with: orga worker --deployment {quote(version.deployment_name)}; or "
            "check a run with `orga verify ID` and move it to the current version: temporal workflow update-options "
            "--workflow-id ID --versioning-override-behavior auto_upgrade",
        )
        for version, runs in waiting.items()
    ]


def blocked_loop_checks(identities: list[str]) -> list[DoctorCheck]:
    """Return warnings about workers of this machine whose event loop was blocked.

    Workers of other machines show it only in their logs and metrics.
    """
    processes = [WorkerIdentity.parse(identity).process for identity in identities]
    blocks = {process: longest_block_text(process) for process in processes}
    return [
        DoctorCheck(
            f"worker {terminal_line(process)}",
            ok=True,
            detail=f"its event loop was {terminal_line(text)}: all its runs waited that long",
            remedy="its log has each time; declare tools that compute or block with @tool(blocking=True). If the whole "
            "process was stopped, look for a machine that slept or had no processor time left",
            warning=True,
        )
        for process, text in blocks.items()
        if text
    ]


def _worker_text(identity: str) -> str:
    worker = WorkerIdentity.parse(identity)
    process, digest = terminal_line(worker.process), worker.config
    if digest is None:
        return process
    config = "no orga.toml" if digest == NO_CONFIG else f"orga.toml {terminal_line(digest)}"
    return f"{process} ({config})"


async def _connection_check(connected: Connection) -> DoctorCheck:
    info = await connected.client.workflow_service.get_system_info(GetSystemInfoRequest(), retry=True)
    endpoint = connected.endpoint
    kind = "embedded" if endpoint.embedded else "configured"
    where = f"{endpoint.address}, namespace {endpoint.namespace!r}"
    return DoctorCheck("server", ok=True, detail=f"{kind}, {where}, version {info.server_version or 'unknown'}")


async def _search_attribute_check(context: CliContext) -> DoctorCheck:
    try:
        lacking = await missing_names(context.client)
    except NoSearchAttributes as error:
        return DoctorCheck("search attributes", ok=True, detail=str(error), remedy=_OTHER_SERVER_REMEDY, warning=True)
    except SearchAttributesRefused as error:
        return DoctorCheck("search attributes", ok=False, detail=str(error), remedy="ask an administrator to do that")
    if lacking:
        return DoctorCheck("search attributes", ok=False, detail=f"missing: {', '.join(lacking)}", remedy="orga setup")
    return DoctorCheck("search attributes", ok=True, detail="all are registered")


async def _stuck_run_checks(client: Client) -> list[DoctorCheck]:
    """Return the results for live runs. A run is stuck if its workflow task fails, as no worker can continue it."""
    try:
        live = [run.id async for run in client.list_workflows(RunFilter(running=True).visibility(), limit=LATEST_RUNS)]
    except RPCError as error:
        if not is_unsupported(error):
            raise
        detail = f"the server does not list them: {error_reason(error)}"
        return [DoctorCheck("runs", ok=True, detail=detail, remedy=_OTHER_SERVER_REMEDY, warning=True)]
    failing = await failing_tasks(client, live)
    if not failing:
        return [DoctorCheck("runs", ok=True, detail=f"{len(live)} live, none is stuck")]
    return [
        DoctorCheck(f"run {task.workflow_id}", ok=False, detail=task.problem_line, remedy=task.remedy)
        for task in failing.values()
    ]


async def _model_check(context: CliContext) -> DoctorCheck:
    """Start a run in which the default agent's model answers once."""
    config = LoopConfig(max_iterations=2, timeout_s=60, max_output_tokens=200)
    task = AgentInput(task=DEEP_TASK, tools=(), config=config)
    try:
        async with keep_worker(context.client, context.worker_order(), write_note, context.require_usable):
            run = await start_agent(context.client, task)
            result = await run.result()
    except OrgaError as error:
        return DoctorCheck("model", ok=False, detail=str(error), remedy=_MODEL_REMEDY)
    ok = bool(result.usage.model_calls)
    detail = f"{result.termination.reason} {result.termination.detail}".strip()
    return DoctorCheck("model", ok=ok, detail=detail, remedy=_MODEL_REMEDY)


async def doctor(
    deep: Annotated[bool, typer.Option("--deep", help="Also let the default agent's model answer once.")] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Each model's provider is asked for its list of models, which costs nothing and shows whether address and key are
    right. --deep lets the default agent's model answer. Exit code 6 means that something has to be fixed.

    Example: orga doctor --deep
    """
    checks: list[DoctorCheck] = []
    async for check in all_checks(config, deep=deep):
        checks.append(check)
        if not json:
            write_result(*check_lines(check))
    if json:
        write_json([asdict(check) for check in checks])
    return ExitCode.COMPLETED if all(check.ok for check in checks) else ExitCode.FAILED


def check_lines(check: DoctorCheck) -> list[str]:
    mark = "✓" if check.ok else "✗"
    lines = hanging_lines(f"{'!' if check.warning else mark} {check.name}: ", check.detail)
    if check.remedy and (check.warning or not check.ok):
        lines.append(f"    → {check.remedy}")
    return lines


async def setup(json: Json = False, config: ConfigFile = None) -> int:
    """Example: TEMPORAL_ADDRESS=temporal.example:7233 orga setup"""
    async with cli_context(config) as context:
        try:
            added = await register_missing(context.client)
        except SearchAttributesRefused as error:
            write_note(*hanging_lines("orga: ", str(error)))
            return ExitCode.FAILED
    if json:
        write_json({"registered": added, "all": [key.name for key in KEYS]})
    else:
        write_result(f"registered {', '.join(added)}" if added else f"all {len(KEYS)} search attributes are there")
    return 0
