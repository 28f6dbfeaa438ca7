"""`orga doctor`: checks server, worker, models and tools, and names the remedy for each problem."""

import asyncio
import os
import subprocess
from collections.abc import AsyncGenerator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client
from temporalio.service import RPCError

from orga.client.cli.exit_codes import ExitCode
from orga.client.cli.interrupts import completed
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.session import Session, session
from orga.client.cli.shown.text import behind, counted, json_result, note, on_one_line, result
from orga.client.config.file import NO_FILE, LoadedConfig, load_config
from orga.client.config.sections import OrgaConfig
from orga.client.config.trust.check import Untrusted
from orga.client.connect import Connection, connection
from orga.client.errors import ConfigError, OrgaError
from orga.client.runs.agents import start_agent
from orga.client.runs.failing_tasks import failing_tasks
from orga.client.runs.listing import Filter
from orga.client.server.endpoint import Endpoint, ServerUnavailable
from orga.client.server.home import prepared_home
from orga.client.server.pollers import MARK, NO_CONFIG, config_digest, identity_suffix, pollers
from orga.client.server.search_attributes import NoSearchAttributes, SearchAttributesRefused, missing, register
from orga.client.server.server_errors import is_lacking, reason_of
from orga.client.telemetry.core_logs import forward_core_logs
from orga.client.workers.at_hand import kept_worker
from orga.client.workers.held_loops import hold_of
from orga.client.workers.routing import Routing, nobody_serves, routing, to_make_current
from orga.start import module_command
from orga.workflows.types.input import AgentInput, LoopConfig
from orga.workflows.types.names import KEYS
from orga.workflows.types.record import Record

TIMEOUT_S = 60.0


class CheckedAgent(Record):
    """An agent as a run would get it."""

    model: str | None = None
    tools: tuple[str, ...] = ()


class Problem(Record):
    """Something that a run would trip over."""

    place: str
    problem: str
    remedy: str = ""


class WorkerReport(Record):
    """The parts of a worker."""

    agents: dict[str, CheckedAgent] = {}
    tools: tuple[str, ...] = ()
    models: dict[str, str] = {}
    """By name, why its provider cannot be asked now; "" where it answers."""
    policy: str = ""
    """Who decides what may run."""
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    """What works, and is better known."""


async def worker_report(config: Path) -> WorkerReport:
    """Return the report of a worker that would start here and now."""
    options = ["--check", "--config", str(config)]
    command = module_command("orga.client.workers.child", *options)
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    output, errors = await _output(process)
    try:
        return WorkerReport.model_validate_json(output)
    except ValidationError:
        lines = [line.strip() for line in errors.decode(errors="replace").splitlines() if line.strip()]
        said = lines[-1][:300] if lines else "it said nothing"
        return WorkerReport(problems=(Problem(place="worker", problem=f"it does not start: {said}"),))


async def _output(process: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    """Read both streams; standard input stays open meanwhile, since its end would end the worker."""
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

_ANOTHER_SERVER = "fit for tests; for all else: temporal server start-dev, or no address at all"

LATEST_RUNS = 200
"""That are looked at."""

DEEP_TASK = "Answer with the single word OK."


@dataclass(frozen=True)
class Check:
    """One finding."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    warning: bool = False
    """It works, and is better known."""


async def all_checks(config: Path | None, *, deep: bool) -> AsyncGenerator[Check]:
    """Yield the findings in order."""
    yield _folder()
    try:
        loaded = load_config(config)
    except Untrusted as error:
        yield _untrusted(error)
        loaded = LoadedConfig(OrgaConfig())
    except ConfigError as error:
        yield Check("config", ok=False, detail=str(error), remedy="correct the file or the variable that is named")
        return
    else:
        yield Check("config", ok=True, detail=str(loaded.path or "no orga.toml: the defaults hold"))
        for check in (*_parts(await worker_report(loaded.path or NO_FILE)), *idle_models(os.environ)):
            yield check
    try:
        forward_core_logs(with_retries=False)
        async with connection(loaded.config, note) as connected:
            async for check in _server(Session(loaded, connected), deep=deep):
                yield check
    except ServerUnavailable as error:
        yield Check("server", ok=False, detail=error.cause, remedy=error.remedy)
    except ConfigError as error:
        cause, _, remedy = str(error).partition("; ")
        yield Check("server", ok=False, detail=cause, remedy=remedy)


def idle_models(env: Mapping[str, str]) -> list[Check]:
    """Tell which addresses of the environment are not asked, for want of a key."""
    from orga.activities.adapters.models.settings import idle_addresses

    return [Check("models", ok=True, detail=told, remedy="orga models", warning=True) for told in idle_addresses(env)]


def _untrusted(error: Untrusted) -> Check:
    """Return what a configuration asks for that is left alone, so that all else is looked at without it."""
    *lines, remedy = str(error).splitlines()
    return Check("config", ok=False, detail="\n".join([*lines, "it was not read further"]), remedy=remedy)


def _folder() -> Check:
    try:
        return Check("folder", ok=True, detail=f"{prepared_home().folder} can be written")
    except ServerUnavailable as error:
        return Check("folder", ok=False, detail=error.cause, remedy=error.remedy)


def _parts(report: WorkerReport) -> list[Check]:
    """Return what a worker with this configuration says of its agents, tools and models."""
    found = [
        Check(problem.place, ok=False, detail=problem.problem, remedy=problem.remedy) for problem in report.problems
    ]
    if report.agents:
        agents = "; ".join(
            f"{name} ({agent.model}, {counted(len(agent.tools), 'tool')})" for name, agent in report.agents.items()
        )
        found.append(Check("agents", ok=True, detail=agents))
    for model, problem in report.models.items():
        told = problem or "it can be asked; --deep lets it answer"
        found.append(Check(f"model {model}", ok=not problem, detail=told, remedy=_MODEL_REMEDY))
    if report.tools:
        found.append(Check("tools", ok=True, detail=", ".join(report.tools)))
    if report.policy:
        found.append(Check("policy", ok=True, detail=report.policy))
    found += [
        Check(each.place, ok=True, detail=each.problem, remedy=each.remedy, warning=True) for each in report.warnings
    ]
    return found


async def _server(here: Session, *, deep: bool) -> AsyncGenerator[Check]:
    yield await _answers(here.connection)
    yield await _attributes(here)
    there = await pollers(here.client, here.task_queue)
    yield _workers(here, there)
    for check in await _versions(here):
        yield check
    for check in held_workers(there or []):
        yield check
    for check in await _runs(here.client):
        yield check
    if deep:
        yield await _model(here)


def _workers(here: Session, there: list[str] | None) -> Check:
    """Tell who works for this folder, and whether under the configuration that stands there now."""
    own = identity_suffix(here.connection.workplace)
    queue = f"task queue {here.task_queue!r}"
    if here.connection.endpoint.embedded:
        queue = f"{queue} of {here.connection.workplace.root}"
    if there is None:
        detail = f"the server does not tell who polls {queue}; orga run and orga attach bring a worker of their own"
        return Check("worker", ok=True, detail=detail, remedy=_ANOTHER_SERVER, warning=True)
    if not there:
        return Check("worker", ok=True, detail=f"none polls {queue}; orga run and orga attach bring their own")
    told = [_worker(each) for each in there]
    others = [each for each in there if config_digest(each) not in (None, own.removeprefix(MARK))]
    detail = f"{', '.join(told)} on {queue}"
    if not others:
        return Check("worker", ok=True, detail=detail)
    mine = "this orga.toml" if here.loaded.path else "no orga.toml"
    problem = f"{detail}; here it is {mine}, {own.removeprefix(MARK)}"
    return Check("worker", ok=not here.connection.endpoint.embedded, detail=problem, remedy="start the worker again")


async def _versions(here: Session) -> list[Check]:
    there = await routing(here.client, here.task_queue)
    return [] if there is None else version_checks(there, here.task_queue, here.connection.endpoint)


def version_checks(there: Routing, task_queue: str, server: Endpoint) -> list[Check]:
    """Tell which deployment version takes new runs, where there are any, and whether a worker of it polls."""
    if there.current is None and not there.waiting:
        return []
    names = ", ".join(version.to_canonical_string() for version in there.waiting)
    polling = f"; workers of {names} poll, too" if names else ""
    if there.current is not None:
        name = there.current.to_canonical_string()
        if there.is_served:
            return [Check("version", ok=True, detail=f"new runs go to {name}{polling}")]
        lacking = f"{nobody_serves(there.current, task_queue)}{polling}"
        other = to_make_current(there.waiting[-1], server) if there.waiting else ""
        return [Check("version", ok=False, detail=lacking, remedy=other or "start such a worker")]
    remedy = f"let new runs go there: {to_make_current(there.waiting[-1], server)}"
    if there.is_served:
        told = f"new runs go to workers without a version{polling}"
        return [Check("version", ok=True, detail=told, remedy=remedy, warning=True)]
    return [Check("version", ok=False, detail=f"no worker takes new runs{polling}", remedy=remedy)]


def held_workers(there: list[str]) -> list[Check]:
    """Tell which workers of this machine were held up; of others their logs and metrics tell."""
    held = {each: hold_of(each) for each in there}
    return [
        Check(
            f"worker {on_one_line(each.partition(MARK)[0])}",
            ok=True,
            detail=f"its event loop was {on_one_line(told)}: all its runs waited as long",
            remedy="its log has each time; a function of yours that computes or blocks belongs into `blocking`",
            warning=True,
        )
        for each, told in held.items()
        if told
    ]


def _worker(identity: str) -> str:
    digest = config_digest(identity)
    process = on_one_line(identity.partition(MARK)[0])
    if digest is None:
        return process
    return f"{process} ({'no orga.toml' if digest == NO_CONFIG else f'orga.toml {on_one_line(digest)}'})"


async def _answers(connected: Connection) -> Check:
    info = await connected.client.workflow_service.get_system_info(GetSystemInfoRequest())
    endpoint = connected.endpoint
    kind = "embedded" if endpoint.embedded else "configured"
    where = f"{endpoint.address}, namespace {endpoint.namespace!r}"
    return Check("server", ok=True, detail=f"{kind}, {where}, version {info.server_version or 'unknown'}")


async def _attributes(here: Session) -> Check:
    try:
        lacking = await missing(here.client)
    except NoSearchAttributes as error:
        return Check("search attributes", ok=True, detail=str(error), remedy=_ANOTHER_SERVER, warning=True)
    except SearchAttributesRefused as error:
        return Check("search attributes", ok=False, detail=str(error), remedy="let an administrator do that")
    if lacking:
        return Check("search attributes", ok=False, detail=f"missing: {', '.join(lacking)}", remedy="orga setup")
    return Check("search attributes", ok=True, detail="all are registered")


async def _runs(client: Client) -> list[Check]:
    """Return the live runs that no worker can go on with."""
    try:
        live = [run.id async for run in client.list_workflows(Filter(running=True).visibility(), limit=LATEST_RUNS)]
    except RPCError as error:
        if not is_lacking(error):
            raise
        detail = f"the server does not list them: {reason_of(error)}"
        return [Check("runs", ok=True, detail=detail, remedy=_ANOTHER_SERVER, warning=True)]
    failing = await failing_tasks(client, live)
    if not failing:
        return [Check("runs", ok=True, detail=f"{len(live)} live, none of them is stuck")]
    return [
        Check(f"run {each.workflow_id}", ok=False, detail=each.told, remedy=each.way_out) for each in failing.values()
    ]


async def _model(here: Session) -> Check:
    """Let the default agent's model answer once, as a run would."""
    config = LoopConfig(max_iterations=2, timeout_s=60, max_output_tokens=200)
    task = AgentInput(task=DEEP_TASK, tools=(), config=config)
    try:
        async with kept_worker(here.client, here.worker_order(), note, here.require_usable):
            run = await start_agent(here.client, task)
            ended = await run.result()
    except OrgaError as error:
        return Check("model", ok=False, detail=str(error), remedy=_MODEL_REMEDY)
    ok = bool(ended.usage.model_calls)
    told = f"{ended.termination.reason} {ended.termination.detail}".strip()
    return Check("model", ok=ok, detail=told, remedy=_MODEL_REMEDY)


def doctor(
    deep: Annotated[bool, typer.Option("--deep", help="Also let the default agent's model answer once.")] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Check configuration, folder, server, search attributes, workers, agents, tools and models.

    Each model's provider is asked for its list of models, which costs nothing and shows whether address and key are
    right; --deep lets the default agent's model answer. Exit code 6 when anything has to be mended.

    Example: orga doctor --deep
    """

    async def examined() -> int:
        found: list[Check] = []
        async for check in all_checks(config, deep=deep):
            found.append(check)
            if not json:
                result(*shown(check))
        if json:
            json_result([asdict(check) for check in found])
        return 0 if all(check.ok for check in found) else ExitCode.FAILED

    return completed(examined())


def shown(check: Check) -> list[str]:
    """Return the check, with the remedy under it."""
    mark = "!" if check.warning else "✓" if check.ok else "✗"
    lines = behind(f"{mark} {check.name}: ", check.detail)
    return [*lines, f"    → {check.remedy}"] if check.remedy and (check.warning or not check.ok) else lines


def setup(json: Json = False, config: ConfigFile = None) -> int:
    """Register the search attributes on the configured server; the embedded one has them already.

    Example: TEMPORAL_ADDRESS=temporal.example:7233 orga setup
    """
    return completed(_setup(config, as_json=json))


async def _setup(config: Path | None, *, as_json: bool) -> int:
    async with session(config) as here:
        try:
            added = await register(here.client)
        except SearchAttributesRefused as error:
            note(*behind("orga: ", str(error)))
            return ExitCode.FAILED
    if as_json:
        json_result({"registered": added, "all": [key.name for key in KEYS]})
    else:
        result(f"registered {', '.join(added)}" if added else f"all {len(KEYS)} search attributes are there")
    return 0
