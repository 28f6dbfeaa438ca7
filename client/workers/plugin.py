"""`OrgaPlugin`: adds our workflows, activities and tools to the workers of an application, or of a script."""

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import temporalio.client
import temporalio.worker
from temporalio.client import Client, ClientConfig, WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.service import ConnectConfig, ServiceClient
from temporalio.worker import (
    Interceptor,
    Replayer,
    ReplayerConfig,
    UnsandboxedWorkflowRunner,
    Worker,
    WorkerConfig,
    WorkerDeploymentConfig,
    WorkflowReplayResult,
    WorkflowRunner,
)
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from orga.activities.knowledge.ports import KnowledgeStore
from orga.activities.ports import Agents, BlobStore, CodeCritic, ModelProvider, PolicyEngine, Summarizer
from orga.client.config.file import load_config
from orga.client.config.sections import OrgaConfig
from orga.client.config.trust.rules_in_use import writable_rules
from orga.client.config.workplace import workplace
from orga.client.connect import UpdateReasons, run_page
from orga.client.errors import ConfigError
from orga.client.runners.workflows import WORKFLOWS, SharedRunner, UnpinningRunner, our_runner, sandbox_for_others
from orga.client.runs.attachments import register_store
from orga.client.server.search_attributes import are_usable
from orga.client.telemetry.trace_headers import TraceHeaders
from orga.client.workers.core_faults import SHUTDOWN_GRACE, end_if_not_begun, work_around_core_faults
from orga.client.workers.engine_memory import engine_change_text, recorded_engine, require_own_policy, worker_policy
from orga.client.workers.in_code import Agent, Function, InCodeParts, OwnParts
from orga.client.workers.parts import Parts, StandIns, configured_parts
from orga.client.workers.registrations import (
    HEARTBEAT_THROTTLE,
    WORKFLOW_TASKS,
    refuse_shared_names,
    registrations,
    supporting_services,
    with_our_converter,
    worker_client,
)
from orga.own_code import seal
from orga.workflows.types.setup import PrepareRequest, Setup
from orga.workflows.types.tool_calls.mcp import McpServer

_log = logging.getLogger(__name__)


class _ServerAgents:
    """The agents of a worker. `knows_attributes` is set when the worker starts, because then the server is asked."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents
        self.knows_attributes = False

    async def setup(self, request: PrepareRequest, *, is_goal: bool = False) -> Setup:
        setup = await self._agents.setup(request, is_goal=is_goal)
        return setup.with_search_attributes(self.knows_attributes)


class _WorkerParts(NamedTuple):
    interceptor: Interceptor
    """Identifies the worker of these parts when it runs, because no other worker has this object."""
    parts: Parts
    agents: _ServerAgents


class OrgaPlugin(temporalio.client.Plugin, temporalio.worker.Plugin):
    """Adds agents to a Temporal client and its workers: `Client.connect(..., plugins=[OrgaPlugin(...)])`.

    Each worker of that client runs `AgentWorkflow`, `GoalWorkflow`, `SessionWorkflow` and the tools of their agents, in
    addition to the workflows and activities of the application.
    """

    _stand_ins: StandIns | None = None
    """Replacements for a worker under test."""
    _shutdown_grace = SHUTDOWN_GRACE
    """Time for running activities to end, if the application sets none."""

    def __init__(
        self,
        *,
        agents: Sequence[Agent] = (),
        tools: Sequence[Function] = (),
        mcp_servers: Mapping[str, McpServer | Mapping[str, Any]] | None = None,
        policy: Path | str | PolicyEngine | None = None,
        config: OrgaConfig | Path | str | None = None,
        root: Path | str | None = None,
        models: Mapping[str, ModelProvider] | None = None,
        critics: Mapping[str, CodeCritic] | None = None,
        knowledge: KnowledgeStore | None = None,
        summarizer: Summarizer | None = None,
        blobs: BlobStore | None = None,
    ) -> None:
        """Read the configuration and add the given parts to it.

        Args:
            agents: Agents in addition to those of the configuration.
            tools: Functions that agents may name: plain, or marked by `@tool` or `@activity.defn`.
            mcp_servers: Servers by name, as in `[mcp.servers.NAME]`.
            policy: Folder of Cedar files that judge every call, or an object that judges them.
            config: A configuration, or its file. None takes `orga.toml` from this folder or the nearest one above.
            root: Folder that file tools stay in. None takes the configured root, else the working directory.
            models: Your own models. Agents name them `code:NAME`.
            critics: Your own critics. An agent's critic uses one by the model `code:NAME`.
            knowledge: Your own store of knowledge, in place of the configured one.
            summarizer: Writes the summary of old messages under `context_strategy = "anchored_summary"`.
            blobs: Your own store of pictures and documents, for runs and for attachments that this client sends.

        Raises:
            ConfigError: Something cannot be used, two things have one name, or nobody has trusted the file.
        """
        folder = Path(policy) if isinstance(policy, (str, Path)) else None
        engine = None if isinstance(policy, (str, Path)) else policy
        own = OwnParts(models or {}, critics or {}, engine, knowledge, summarizer, blobs)
        in_code = InCodeParts(agents, tools, mcp_servers or {}, folder, own)
        self.has_more_than_the_file = isinstance(config, OrgaConfig) or not in_code.is_empty
        if not isinstance(config, OrgaConfig):
            config = load_config(None if config is None else Path(config), named_by="config=")
        self._in_code = in_code
        self._functions = in_code.functions()
        self.config = in_code.merged_with(config)
        self.root = Path(root or self.config.tools.files.root or Path.cwd()).resolve()
        self._worker_parts: list[_WorkerParts] = []

    @property
    def names(self) -> list[str]:
        """The names of all agents, tools and MCP servers, including the configured ones, and of own models."""
        tools = (tool.spec.name for tool in self._functions)
        return [*self.config.agents, *tools, *self.config.mcp.servers, *self._in_code.own.names]

    def configure_client(self, config: ClientConfig) -> ClientConfig:
        """Give the client our payload converter, the store of pictures, and errors that explain refused updates.

        The client's codec and all other parts of its converter stay. Workers get no unreadable trace contexts.
        """
        config["data_converter"] = with_our_converter(config.get("data_converter", DataConverter.default))
        config["interceptors"] = [TraceHeaders(), *config.get("interceptors", ()), UpdateReasons()]
        register_store(cast("dict[str, ServiceClient]", config)["service_client"], self._in_code.own.blobs)
        return config

    async def connect_service_client(
        self, config: ConnectConfig, next: Callable[[ConnectConfig], Awaitable[ServiceClient]]
    ) -> ServiceClient:
        """Connect as without the plugin."""
        return await next(config)

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Add what agents need to the application's own registrations.

        Raises:
            ConfigError: The client does not have the plugin, the worker has it twice, two things have one name, or a
                deployment has no default versioning behavior.
        """
        client = worker_client(config, self)
        register_store(client.service_client, self._in_code.own.blobs)
        parts = self._parts(client)
        agents = _ServerAgents(parts.agents)
        parts = replace(parts, agents=agents)
        options = cast("dict[str, Any]", config)
        workflows, activities = list(options.get("workflows", ())), list(options.get("activities", ()))
        ours = registrations(client, parts, activities)
        refuse_shared_names(workflows, activities, ours, {tool.spec.name for tool in self._functions})
        seal()
        self._worker_parts.append(_WorkerParts(ours.interceptors[-1], parts, agents))
        options["workflows"] = [*workflows, *ours.workflows]
        options["activities"] = [*activities, *ours.activities]
        options["interceptors"] = [*options.get("interceptors", ()), *ours.interceptors]
        _share_runners(options, _runner_for(options.get("deployment_config")))
        options["default_heartbeat_throttle_interval"] = HEARTBEAT_THROTTLE
        options["max_heartbeat_throttle_interval"] = HEARTBEAT_THROTTLE
        options["graceful_shutdown_timeout"] = options.get("graceful_shutdown_timeout") or self._shutdown_grace
        has_own_limit = options.get("max_concurrent_workflow_tasks") is not None or options.get("tuner") is not None
        if not has_own_limit:
            options["max_concurrent_workflow_tasks"] = WORKFLOW_TASKS
        if options.get("max_cached_workflows") == 0:
            _log.warning(
                "max_cached_workflows=0: a worker without a cache loses tasks when runs are looked at; give 1 or more"
            )
        return config

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:
        """Run the worker together with the services that agents need.

        Raises:
            ConfigError: Another policy judges the runs of the task queue, or a stronger engine has judged them.
        """
        async with AsyncExitStack() as stack:
            with end_if_not_begun(worker):
                interceptors = cast("dict[str, Any]", worker.config(active_config=True))["interceptors"]
                [own] = [item for item in self._worker_parts if item.interceptor in interceptors]
                await self._check_before_start(worker, own)
                await stack.enter_async_context(supporting_services(own.parts))
            await next(work_around_core_faults(worker))

    async def _check_before_start(self, worker: Worker, own: _WorkerParts) -> None:
        """Look for search attributes, refuse a wrong policy, and warn about a changed engine or writable rules."""
        own.agents.knows_attributes = await are_usable(worker.client, _log.warning)
        await require_own_policy(worker.client, worker.task_queue, worker_policy(self.config, own.parts.policy))
        before = await recorded_engine(worker.client, worker.task_queue)
        if changed := engine_change_text(self.config, own.parts.engine, before):
            _log.warning(changed)
        if warning := writable_rules(self.config, self.root, os.environ):
            _log.warning("%s", warning)

    def configure_replayer(self, config: ReplayerConfig) -> ReplayerConfig:
        """Let a replayer also replay our runs."""
        config["data_converter"] = with_our_converter(config.get("data_converter", DataConverter.default))
        config["workflows"] = [*config.get("workflows", []), *WORKFLOWS]
        _share_runners(cast("dict[str, Any]", config), our_runner())
        return config

    def run_replayer(
        self,
        replayer: Replayer,
        histories: AsyncIterator[WorkflowHistory],
        next: Callable[
            [Replayer, AsyncIterator[WorkflowHistory]],
            AbstractAsyncContextManager[AsyncIterator[WorkflowReplayResult]],
        ],
    ) -> AbstractAsyncContextManager[AsyncIterator[WorkflowReplayResult]]:
        """Replay as without the plugin."""
        return next(replayer, histories)

    def _parts(self, client: Client) -> Parts:
        config, ui = self.config, self.config.notify.ui_url
        try:
            parts = configured_parts(
                config,
                os.environ,
                self.root,
                knows_attributes=True,
                link=lambda workflow_id: run_page(ui, client.namespace, workflow_id) if ui else None,
                workplace=workplace(config, self.root),
                in_code=self._functions,
                stand_ins=self._stand_ins,
                client=client,
                own=self._in_code.own,
            )
        except ValueError as error:
            raise ConfigError(str(error)) from error
        specs = {tool.spec.name: tool.spec for tool in parts.tools}
        self._in_code.refuse_unknown_tools(specs, config.mcp.is_server_tool)
        self._in_code.refuse_missing_models(parts.models.resolve)
        return parts


def _runner_for(deployment: WorkerDeploymentConfig | None) -> WorkflowRunner:
    """Return the runner of our workflows. Raise ConfigError for a deployment without a default versioning behavior."""
    if deployment is None or not deployment.use_worker_versioning:
        return our_runner()
    if not deployment.default_versioning_behavior:
        raise ConfigError(
            "deployment_config: orga's workflows need a versioning behavior; set "
            "default_versioning_behavior=VersioningBehavior.PINNED, which leaves workflows with their own unchanged"
        )
    return UnpinningRunner(our_runner())


def _share_runners(config: dict[str, Any], ours: WorkflowRunner) -> None:
    config["workflow_runner"] = sandbox_for_others(config.get("workflow_runner") or SandboxedWorkflowRunner())
    theirs = config.get("unsandboxed_workflow_runner") or UnsandboxedWorkflowRunner()
    config["unsandboxed_workflow_runner"] = SharedRunner(ours, theirs)
