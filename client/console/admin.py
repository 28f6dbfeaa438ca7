"""The admin page: agents, models, tools, policies, prompts, schedules, workers and knowledge; and actions on schedules.

Only a `check` sends API keys or starts MCP servers. Texts are shown without the secrets of the environment.
"""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import Field
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from orga.activities.adapters.agents.agents import with_default_agent
from orga.client.config.file import load_config
from orga.client.config.listed import (
    ModelRow,
    agent_json,
    checked_rows,
    mcp_rows,
    model_price,
    model_rows,
    tool_rows,
)
from orga.client.config.run_time import RunTimeRules
from orga.client.config.sections import OrgaConfig
from orga.client.console.problems import Problem
from orga.client.console.routes import Call, Flag, ListOf, NoParameters, Routes
from orga.client.console.settings_api import read_settings_view, sources_of, without_secrets
from orga.client.errors import ConfigError, InvalidSettings, ScheduleNotFound
from orga.client.runs.settings import read_settings
from orga.client.schedules.handle import ScheduleHandle, all_schedules, run_states, schedule_json
from orga.client.server.pollers import WorkerIdentity, describe_queue, live_pollers, longest_block_text, short_config
from orga.workflows.types.knowledge import DEFAULT_THRESHOLD, Reader, Recall
from orga.workflows.types.record import CheckedInput
from orga.workflows.types.text import clean_text
from orga.workflows.types.tool_calls.tools import Effect

ROUTES = Routes()

_LIST = ListOf[dict[str, Any]]

_OUTCOME: Mapping[str, Any] = {
    "type": "object",
    "required": ["outcome"],
    "properties": {"outcome": {"type": "string"}},
}


class KnowledgeQuery(CheckedInput):
    """The parameters of a search: the words, and the reader whose knowledge is searched."""

    text: str = Field(default="", max_length=2_000)
    tenant: str = Field(default="", max_length=200)
    user: str = Field(default="", max_length=200)
    agent: str = Field(default="", max_length=200)
    limit: Annotated[int, Field(ge=1, le=100)] = 20


class ScheduleAct(CheckedInput):
    kind: Literal["pause", "resume", "trigger", "delete"]
    reason: str = Field(default="", max_length=2_000)
    """The note of a pause or a resumption."""


class ProposedCall(CheckedInput):
    """A call to be judged by the policies. Nothing is run."""

    tool: str = Field(min_length=1, max_length=200)
    arguments: dict[str, Any] = {}
    agent: str = Field(default="default", max_length=200)
    effect: Effect | None = None
    """The tool's effect. Needed if it is no built-in tool."""
    tags: tuple[str, ...] = ()
    trusted_context: dict[str, Any] = {}
    tenant: str | None = Field(default=None, max_length=200)
    taint: tuple[str, ...] = ()


class Checks(CheckedInput):
    check: Flag = False
    """Ask the providers or servers, for at most a few seconds. Needs the role operator."""


def _listed(items: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Return a list as every route returns it, without secrets of the environment."""
    return without_secrets({"items": items, "next": None, **more})


async def _configuration(call: Call[Any]) -> OrgaConfig:
    """Return the configuration that new runs use, with the settings at run time if they are valid."""
    config = (await asyncio.to_thread(sources_of, call)).config
    config = config.with_agents(with_default_agent(config.agents))
    found = await read_settings(call.client, call.console.connection.task_queue)
    try:
        return RunTimeRules.for_display(config, os.environ).effective(found.values)
    except InvalidSettings:
        return config


async def _trusted_configuration(call: Call[Any]) -> OrgaConfig:
    """Load the configuration to use its addresses and stores. Raise Problem if it is not trusted or cannot be used."""
    try:
        return await asyncio.to_thread(load_config, call.console.config_file)
    except ConfigError:  # its text contains paths
        detail = "the configuration cannot be used, or nobody has trusted it. Run `orga doctor` in the console's folder"
        raise Problem(503, detail) from None


@ROUTES.get("/agents", _LIST)
async def _agents(call: Call[NoParameters]) -> dict[str, Any]:
    """Return the agents in full."""
    config = await _configuration(call)
    return _listed([agent_json(name, agent, config, os.environ) for name, agent in config.agents.items()])


@ROUTES.get("/models", _LIST, more_statuses=(503,))
async def _models(call: Call[Checks]) -> dict[str, Any]:
    """Return the models with their prices and problems, and with `check` also whether their providers answer."""
    config = await _configuration(call)
    rows = list(model_rows(config, os.environ))
    if call.given.check:
        rows = await checked_rows(rows, await _configuration_for_checks(call), os.environ)
    items = await asyncio.to_thread(lambda: [_model_item(row, config, is_checked=call.given.check) for row in rows])
    return _listed(items, tiers=config.models.tiers.model_dump(mode="json"))


def _model_item(row: ModelRow, config: OrgaConfig, *, is_checked: bool) -> dict[str, Any]:
    price = model_price(row.model, config)
    return {
        **asdict(row),
        "problem": row.problem or None,
        "reachable": not row.problem if is_checked and not row.is_example else None,
        "input_price": price and price.input,
        "output_price": price and price.output,
    }


@ROUTES.get("/tools", _LIST, more_statuses=(503,))
async def _tools(call: Call[Checks]) -> dict[str, Any]:
    """Return the tools and the MCP servers, with `check` also whether the servers answer."""
    config = await _configuration(call)
    answers = dict[str, bool]()
    if call.given.check:
        answers = await _answering_servers(await _configuration_for_checks(call))
    servers = [{**row, "reachable": answers.get(row["name"])} for row in mcp_rows(config)]
    return _listed(await asyncio.to_thread(lambda: list(tool_rows(config))), servers=servers)


async def _configuration_for_checks(call: Call[Checks]) -> OrgaConfig:
    """Return the configuration for a check. A viewer may not check, because that sends keys and starts MCP servers."""
    call.console.doors.require(call.visitor, "operator", is_write=False)
    return await _trusted_configuration(call)


async def _answering_servers(config: OrgaConfig) -> dict[str, bool]:
    """Return whether each MCP server answers, but not the reason: it may name a command, which may hold secrets."""
    from orga.client.workers.tool_sources import configured_servers
    from orga.workflows.types.tool_calls.mcp import SEPARATOR

    try:
        servers = await asyncio.to_thread(configured_servers, config, (), os.environ)
    except ValueError:  # a server needs something that is missing
        return dict.fromkeys(config.mcp.servers, False)
    if servers is None:
        return {}
    async with servers:
        # no server has a tool without a name; the tool is absent "temporarily" only if the server does not answer
        absent = {name: servers.absent_tool(f"{name}{SEPARATOR}") for name in config.mcp.servers}
    return {name: not (each and each.is_temporary) for name, each in absent.items()}


@ROUTES.get("/policies", _LIST)
async def _policies(call: Call[NoParameters]) -> dict[str, Any]:
    """Return the policies with their text."""
    return _listed(**await asyncio.to_thread(_policy_view, await _configuration(call)))


def _policy_view(config: OrgaConfig) -> dict[str, Any]:
    from orga.activities.adapters.policy.cedar import read_policies
    from orga.activities.adapters.policy.cedar_files import files_version, policy_files
    from orga.activities.adapters.policy.engines import engine_name
    from orga.activities.adapters.problem import BrokenPolicies
    from orga.client.config.policy import policy_settings

    settings = policy_settings(config.policy, {})
    shown: dict[str, Any] = {"items": [], "engine": engine_name(settings), "version": None, "problem": None}
    if settings.folder is None:
        return shown
    base = f"{settings.folder.parent}{os.sep}"  # no answer may contain a whole path
    try:
        files = policy_files(settings.folder, settings.surface)
        policies = read_policies(files)[0]
    except BrokenPolicies as error:
        return shown | {"problem": str(error).replace(base, "")}
    items = [
        {
            "id": policy.policy_id.replace(base, ""),
            "place": policy.statement.place.replace(base, ""),
            "effect": "forbid" if policy.is_forbid else "permit",
            "text": policy.statement.text,
        }
        for policy in policies
    ]
    return shown | {"items": items, "version": files_version(files)}


@ROUTES.post("/policies/test", _OUTCOME, more_statuses=(503,), is_write=False)
async def _judge(call: Call[ProposedCall]) -> dict[str, Any]:
    """Judge a proposed call by the policies, without running it."""
    from orga.activities.adapters.policy.engines import policy_engine
    from orga.client.config.policy import policy_settings
    from orga.client.policies.cases import BadCases, CaseFile, CaseTool, PolicyCase, case_results

    given, config = call.given, await _trusted_configuration(call)
    case = PolicyCase(
        name="test",
        agent=given.agent,
        tool=given.tool,
        arguments=given.arguments,
        trusted=given.trusted_context,
        tenant=given.tenant,
        taint=given.taint,
        expect="allow",  # required, but only the outcome is read
    )
    tools = {given.tool: CaseTool(effect=given.effect, tags=given.tags)} if given.effect else {}
    try:
        engine = await asyncio.to_thread(lambda: policy_engine(policy_settings(config.policy, os.environ)))
        [judged] = [done async for done in case_results(engine, CaseFile(tools, (case,)))]
    except BadCases:
        detail = "is no built-in tool. Give its effect"
        raise Problem(422, f"tool: {detail}", errors=[{"where": "tool", "detail": detail}]) from None
    except ValueError as error:
        raise Problem(503, f"policy: {error}") from None
    shown = await asyncio.to_thread(_policy_view, config)
    policies = {each["id"]: each for each in shown["items"]}
    verdict = judged.verdict
    answer = {
        "outcome": judged.outcome,
        "reason": verdict.reason,
        "version": verdict.version or None,
        "policies": [policies.get(each, {"id": each}) for each in verdict.policies],
    }
    return cast("dict[str, Any]", without_secrets(answer))


@ROUTES.post("/schedules/{id}/actions", _OUTCOME, role="admin", more_statuses=(404,))
async def _act_on_schedule(call: Call[ScheduleAct]) -> dict[str, Any]:
    """Pause, resume, trigger or delete a schedule."""
    schedule, given = ScheduleHandle(call.client, call.path("id")), call.given
    if call.visitor.tenants is not None:  # no schedule shows its tenant, so no tenant sees one
        raise ScheduleNotFound(schedule.id)
    why = f"{call.visitor.name}: {given.reason or given.kind}"
    match given.kind:
        case "pause":
            await schedule.pause(why)
        case "resume":
            await schedule.resume(why)
        case "delete":
            await schedule.delete()
        case "trigger":
            return asdict(await schedule.trigger())
    return {"outcome": f"{given.kind}d", "run_id": ""}


@ROUTES.get("/prompts", _LIST)
async def _prompts(call: Call[NoParameters]) -> dict[str, Any]:
    """Return the templates of goal prompts."""
    items = (await read_settings_view(call)).items
    return _listed([each.model_dump(mode="json") for each in items if each.template_variables is not None])


@ROUTES.get("/schedules", _LIST)
async def _schedules(call: Call[NoParameters]) -> dict[str, Any]:
    """Return the schedules and their next runs."""
    if call.visitor.tenants is not None:  # no schedule shows its tenant, so no tenant sees one
        return _listed([])
    found = await all_schedules(call.client)
    states = await run_states(call.client, [one.runs[-1] for one in found if one.runs])
    return _listed([schedule_json(one, states) for one in found])


@ROUTES.get("/workers", _LIST)
async def _workers(call: Call[NoParameters]) -> dict[str, Any]:
    """Return the workers of this task queue, and how long the namespace keeps ended runs."""
    here = call.console.connection
    own, items = short_config(here.workplace), list[dict[str, Any]]()
    for queue in dict.fromkeys((here.task_queue, here.folder_queue)):
        answer = await describe_queue(call.client, queue)
        for poller in live_pollers(answer) if answer else ():
            worker, version = WorkerIdentity.parse(poller.identity), poller.deployment_options
            items.append(
                {
                    "identity": worker.process,
                    "task_queue": queue,
                    "last_seen": poller.last_access_time.ToDatetime(tzinfo=UTC),
                    "config": worker.config,
                    "has_this_config": worker.config in {None, own},  # an unknown configuration counts as the same
                    "deployment": version.deployment_name or None,
                    "build": version.build_id or poller.worker_version_capabilities.build_id or None,
                    "blocked": longest_block_text(worker.process) or None,
                }
            )
    retention_days = await _retention_days(call.client)
    return _listed(items, namespace=here.endpoint.namespace, task_queue=here.task_queue, retention_days=retention_days)


async def _retention_days(client: Client) -> float | None:
    """Return for how many days the server keeps an ended run, or None if it does not answer."""
    try:
        request = DescribeNamespaceRequest(namespace=client.namespace)
        found = await client.workflow_service.describe_namespace(request, retry=True)
    except RPCError:
        return None
    return round(found.config.workflow_execution_retention_ttl.ToSeconds() / 86_400, 2)


@ROUTES.get("/knowledge", _LIST, role="admin")
async def _knowledge(call: Call[KnowledgeQuery]) -> dict[str, Any]:
    """Search the knowledge that a reader may see."""
    given, tenants = call.given, call.visitor.tenants
    if tenants is not None and given.tenant not in tenants:
        return _listed([])
    from orga.activities.knowledge.ports import KnowledgeError
    from orga.client.workers.knowledge_store import configured_store

    config = await _trusted_configuration(call)
    root = (config.tools.files.root or (config.file.parent if config.file else Path.cwd())).resolve()
    reader = Reader(tenant=clean_text(given.tenant), user=clean_text(given.user), agent=clean_text(given.agent))
    request = Recall(text=clean_text(given.text), reader=reader, limit=given.limit, threshold=DEFAULT_THRESHOLD)
    try:
        store = configured_store(config, os.environ, root)
    except ValueError as error:
        raise Problem(503, f"knowledge: {error}") from None
    try:
        found = await store.recall(request)
    except KnowledgeError as error:
        raise Problem(503, f"knowledge: {error}") from None
    finally:
        await store.close()
    return _listed([{"score": round(each.score, 4), **each.item.model_dump(mode="json")} for each in found])
