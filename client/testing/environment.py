"""Runs a Temporal server and workers in a test: `async with environment() as env`."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from orga.activities.knowledge.ports import KnowledgeStore
from orga.activities.ports import BlobStore, CodeCritic, PolicyEngine, Summarizer
from orga.client.config.sections import OrgaConfig
from orga.client.errors import ConfigError
from orga.client.history.values import data_converter
from orga.client.runs.attachments import Attachable, forget_store
from orga.client.server.embedded import FAST_SERVER_FLAGS
from orga.client.server.obtain import locate
from orga.client.server.search_attributes import register_missing
from orga.client.testing.at_work import AtWork, Ran
from orga.client.testing.fake_tools import FakeTool
from orga.client.testing.script import ReplyingModel, ScriptedModels
from orga.client.testing.skipping_server import skipping_server
from orga.client.workers.in_code import Agent, Function
from orga.client.workers.parts import StandInModels, StandIns, StandInTool
from orga.client.workers.plugin import OrgaPlugin
from orga.client.workers.registrations import with_our_converter
from orga.workflows.types.input import AgentInput
from orga.workflows.types.tool_calls.mcp import McpServer


class PluginUnderTest(OrgaPlugin):
    """Adds agents to a worker as `OrgaPlugin` does, but with replaced models and tools."""

    _shutdown_grace = timedelta(0)

    def __init__(self, models: StandInModels, fakes: Sequence[StandInTool], **given: Any) -> None:
        super().__init__(**given)
        if not isinstance(fakes, (list, tuple)) or not all(hasattr(each, "in_place_of") for each in fakes):
            raise ConfigError("fakes takes a list of fake tools; write fakes=[FakeTool(NAME, RESULT)]")
        self._stand_ins = StandIns(models, fakes)


BUILD = "test"
"""Build id of the workers. Without one, the SDK reads all modules from disk, which takes two seconds."""


class Environment:
    """A server, and workers for it."""

    def __init__(self, temporal: WorkflowEnvironment) -> None:
        self.temporal = temporal
        """The SDK's environment, for everything that this class does not offer."""

    @property
    def client(self) -> Client:
        """A client that is connected to the server and writes values as orga does."""
        return self.temporal.client

    @property
    def skips_time(self) -> bool:
        """True if waiting takes no real time."""
        return self.temporal.supports_time_skipping

    async def sleep(self, duration: timedelta | float) -> None:
        """Let time pass (a number means seconds). A time-skipping server does that at once."""
        await self.temporal.sleep(duration)

    async def now(self) -> datetime:
        """Return the server's time."""
        return await self.temporal.get_current_time()

    @asynccontextmanager
    async def worker(
        self,
        *,
        model: ReplyingModel | Mapping[str, ReplyingModel],
        agents: Sequence[Agent] = (),
        tools: Sequence[Function] = (),
        fakes: Sequence[FakeTool] = (),
        mcp_servers: Mapping[str, McpServer | Mapping[str, Any]] | None = None,
        policy: Path | str | PolicyEngine | None = None,
        config: OrgaConfig | Path | str | None = None,
        root: Path | str | None = None,
        critics: Mapping[str, CodeCritic] | None = None,
        knowledge: KnowledgeStore | None = None,
        summarizer: Summarizer | None = None,
        blobs: BlobStore | None = None,
        workflows: Sequence[type[Any]] = (),
        activities: Sequence[Callable[..., Any]] = (),
        task_queue: str | None = None,
    ) -> AsyncGenerator[AtWork]:
        """Run a worker on a task queue of its own until the block ends.

        Args:
            model: Replaces all models: one for each name (`{"openai:gpt-5": scripted(...)}`), or one for all.
            agents: As for `OrgaPlugin`, like `tools`, `mcp_servers`, `policy` and `root`.
            tools: Functions for agents.
            fakes: Fake tools. Each replaces the worker's tool of the same name, or is added.
            mcp_servers: Servers by name.
            policy: A folder of Cedar files, or an object that judges.
            config: A configuration, or its file. None reads no file, even if the folder has one.
            root: Root of the file tools.
            critics: Your own critics.
            knowledge: Your own store of knowledge.
            summarizer: Your own summarizer.
            blobs: Your own store of pictures and documents.
            workflows: Your own workflows.
            activities: Your own activities.
            task_queue: The queue, by default a new one.

        Raises:
            ConfigError: As for `OrgaPlugin`.
        """
        models = ScriptedModels(model)
        plugin = PluginUnderTest(
            models,
            fakes,
            agents=agents,
            tools=tools,
            mcp_servers=mcp_servers,
            policy=policy,
            config=OrgaConfig() if config is None else config,
            root=root,
            critics=critics,
            knowledge=knowledge,
            summarizer=summarizer,
            blobs=blobs,
        )
        queue = task_queue or f"test-{uuid4()}"
        worker = Worker(
            self.client,
            task_queue=queue,
            workflows=workflows,
            activities=activities,
            plugins=[plugin],
            build_id=BUILD,
            graceful_shutdown_timeout=timedelta(0),
        )
        at_work = AtWork(self.temporal, queue, models)
        async with worker:
            try:
                yield at_work
            finally:
                await at_work.clear()
                forget_store(self.client.service_client)  # the next worker has the same connection

    async def run(
        self,
        agent: Agent | str | None,
        task: AgentInput | Mapping[str, Any] | str,
        *,
        model: ReplyingModel | Mapping[str, ReplyingModel],
        agents: Sequence[Agent] = (),
        settings: Mapping[str, Any] | None = None,
        attachments: Sequence[Attachable] = (),
        **given: Any,
    ) -> Ran:
        """Run one agent to its end on a worker of its own, and return its result and journal.

        Args:
            agent: An agent made in code, or the name of one of `agents` or of the configuration. None means `default`.
            task: The task, or the whole input.
            model: As for `worker`.
            agents: Agents in addition to `agent`.
            settings: Settings of this run, as `config` of an input.
            attachments: Pictures and documents, as for `start_agent`.
            given: As for `worker`: `tools`, `fakes`, `policy`, `config`, …

        Raises:
            ScriptExhausted: The run asked for more replies than the script has.
            NotEnded: The run takes longer than a minute, or waits for a person.
        """
        if isinstance(agent, Agent) and agent not in agents:
            agents = [*agents, agent]
        async with self.worker(model=model, agents=agents, **given) as at_work:
            return await at_work.run(agent, task, settings=settings, attachments=attachments)


@asynccontextmanager
async def environment(
    *, time_skipping: bool = True, data_converter: DataConverter = DataConverter.default
) -> AsyncGenerator[Environment]:
    """Start a separate Temporal server in memory, and stop it when the block ends.

    Args:
        time_skipping: True starts Temporal's test server, on which days of waiting take no time. It is named by
            `ORGA_TEST_SERVER`, found on PATH or in the cache, downloaded by Temporal's SDK, or fetched with Maven and
            run by Java. False starts the server that `orga` uses (`ORGA_TEMPORAL_CLI`, PATH, the cache, a download, a
            build with Go), which has search attributes.
        data_converter: Your client's converter, if the test includes your codec or external storage.

    Raises:
        ServerUnavailable: There is no server. The text shows what was tried and what to do.
    """
    converter = with_our_converter(data_converter)
    async with skipping_server(converter) if time_skipping else local_server(converter) as temporal:
        if not time_skipping:
            await register_missing(temporal.client)
        yield Environment(temporal)


@asynccontextmanager
async def local_server(converter: DataConverter = data_converter) -> AsyncGenerator[WorkflowEnvironment]:
    """Start the server that `orga` uses, in memory."""
    executable = await locate(lambda _: None)
    async with await WorkflowEnvironment.start_local(  # pyright: ignore[reportUnknownMemberType]
        dev_server_existing_path=str(executable), data_converter=converter, dev_server_extra_args=FAST_SERVER_FLAGS
    ) as found:
        yield found
