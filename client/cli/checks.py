"""What `orga doctor` looks at, one check after the other; a later one is left out when it needs an earlier one."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

from temporalio.api.workflowservice.v1 import GetSystemInfoRequest

from client.agents import start_agent
from client.cli.output import note
from client.cli.session import Session
from client.cli.worker_check import WorkerReport, worker_report
from client.config_file import ConfigError, load_config
from client.connect import Connection, connection
from client.errors import OrgaError
from client.pollers import pollers
from client.server.endpoint import ServerUnavailable
from client.server.home import prepared_home
from client.server.search_attributes import SearchAttributesRefused, missing
from client.worker_keeping import kept_worker
from workflows.types.input import AgentInput, LoopConfig

DEEP_TASK = "Answer with the single word OK."


@dataclass(frozen=True)
class Check:
    """One finding."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


async def all_checks(config: Path | None, *, deep: bool) -> AsyncGenerator[Check]:
    """Yield the findings in order."""
    yield _folder()
    try:
        loaded = load_config(config)
    except ConfigError as error:
        yield Check("config", ok=False, detail=str(error), remedy="correct the file or the variable that is named")
        return
    yield Check("config", ok=True, detail=str(loaded.path or "no orga.toml: the defaults hold"))
    for check in _parts(await worker_report(loaded.path)):
        yield check
    try:
        async with connection(loaded.config, note) as connected:
            async for check in _server(Session(loaded, connected), deep=deep):
                yield check
    except ServerUnavailable as error:
        yield Check("server", ok=False, detail=error.cause, remedy=error.remedy)


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
        agents = "; ".join(f"{name} ({agent.model}, {len(agent.tools)} tools)" for name, agent in report.agents.items())
        found.append(Check("agents", ok=True, detail=agents))
    if report.tools:
        found.append(Check("tools", ok=True, detail=", ".join(report.tools)))
    if report.policy:
        found.append(Check("policy", ok=True, detail=report.policy))
    return found


async def _server(here: Session, *, deep: bool) -> AsyncGenerator[Check]:
    yield await _answers(here.connection)
    yield await _attributes(here)
    there = await pollers(here.client, here.task_queue)
    none = "none polls; orga run and orga attach bring their own"
    yield Check("worker", ok=True, detail=", ".join(there) or none)
    if deep:
        yield await _model(here)


async def _answers(connected: Connection) -> Check:
    info = await connected.client.workflow_service.get_system_info(GetSystemInfoRequest())
    endpoint = connected.endpoint
    kind = "embedded" if endpoint.embedded else "configured"
    where = f"{endpoint.address}, namespace {endpoint.namespace!r}"
    return Check("server", ok=True, detail=f"{kind}, {where}, version {info.server_version}")


async def _attributes(here: Session) -> Check:
    try:
        lacking = await missing(here.client)
    except SearchAttributesRefused as error:
        return Check("search attributes", ok=False, detail=str(error), remedy="let an administrator do that")
    if lacking:
        return Check("search attributes", ok=False, detail=f"missing: {', '.join(lacking)}", remedy="orga setup")
    return Check("search attributes", ok=True, detail="all are registered")


async def _model(here: Session) -> Check:
    """Let the default agent's model answer once, as a run would."""
    remedy = "check the model's name, key and address; the line above says which model it is"
    config = LoopConfig(max_iterations=2, timeout_s=60, max_output_tokens=200)
    task = AgentInput(task=DEEP_TASK, tools=(), config=config)
    try:
        async with kept_worker(here.client, here.worker_order(), note):
            run = await start_agent(here.client, task, task_queue=here.task_queue)
            ended = await run.result()
    except OrgaError as error:
        return Check("model", ok=False, detail=str(error), remedy=remedy)
    ok = bool(ended.usage.model_calls)
    return Check("model", ok=ok, detail=f"{ended.termination.reason} {ended.termination.detail}".strip(), remedy=remedy)
