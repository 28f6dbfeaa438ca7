"""`async with orga.worker(...) as client`: a worker in the process of a script, on the configured server."""

import site
import sys
import sysconfig
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker

from orga.activities.knowledge.ports import KnowledgeStore
from orga.activities.ports import BlobStore, CodeCritic, ModelProvider, PolicyEngine, Summarizer
from orga.client.config.known_input import refuse_in_process
from orga.client.config.policy import starter_policy
from orga.client.config.sections import OrgaConfig
from orga.client.config.workplace import set_client_home, short_digest
from orga.client.connect import connection
from orga.client.runs.agents import register_check
from orga.client.telemetry.start import telemetry
from orga.client.workers.deployment import build_id
from orga.client.workers.in_code import Agent, Function
from orga.client.workers.plugin import OrgaPlugin
from orga.workflows.types.tool_calls.mcp import McpServer

GRACE_OF_A_SCRIPT = timedelta(seconds=5)
"""Time for running calls to end when the block ends. It is short, because somebody waits for the script."""


@asynccontextmanager
async def worker(
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
    workflows: Sequence[type[Any]] = (),
    activities: Sequence[Callable[..., Any]] = (),
    task_queue: str | None = None,
) -> AsyncGenerator[Client]:
    """Run a worker in this process until the block ends, and yield a client. The worker carries out the client's runs.

    Use it as `async with orga.worker() as client: handle = await start_agent(client, "…")`. If no server is configured,
    the embedded one starts. Blocking code stops the worker: await slow operations, or run them in a thread.

    Args:
        agents: As for `OrgaPlugin`, and so are all arguments up to `blobs`.
        tools: Functions for agents.
        mcp_servers: Servers by name.
        policy: Folder of Cedar files, or an object that judges.
        config: A configuration, or its file.
        root: Root of the file tools.
        models: Your own models.
        critics: Your own critics.
        knowledge: Your own store of knowledge.
        summarizer: Your own summarizer.
        blobs: Your own store of pictures and documents.
        workflows: Your own workflows, in addition to agents and goals.
        activities: Your own activities.
        task_queue: The queue to poll. None takes the queue of this folder and configuration. If anything is given in
            code, None takes a queue that only this program has, because no other worker of the folder has that code.
            A notebook, or an application that another program runs, is identified by its folder and the names of its
            parts. If two such programs have the same names, name the queue.

    Raises:
        ConfigError: As for `OrgaPlugin`.
        ServerUnavailable: As for `connect`.
    """
    plugin = OrgaPlugin(
        agents=agents,
        tools=tools,
        mcp_servers=mcp_servers,
        policy=policy,
        config=config,
        root=root,
        models=models,
        critics=critics,
        knowledge=knowledge,
        summarizer=summarizer,
        blobs=blobs,
    )
    has_own = plugin.has_more_than_the_file or bool(workflows or activities)
    observed = telemetry(plugin.config.telemetry)
    try:
        async with connection(plugin.config, lambda _: None, observed.plugins, root=plugin.root) as connected:
            mark = _program_mark(_part_names(plugin, workflows, activities)) if has_own else ""
            queue = task_queue or connected.task_queue + mark
            home = connected.workplace if connected.endpoint.embedded else None
            set_client_home(connected.client, queue, home, partial(starter_policy, plugin.config))
            register_check(connected.client, partial(refuse_in_process, config=plugin.config))
            own_worker = Worker(
                connected.client,
                task_queue=queue,
                workflows=workflows,
                activities=activities,
                plugins=[plugin],
                build_id=None if has_own else build_id(),
                graceful_shutdown_timeout=GRACE_OF_A_SCRIPT,
            )
            async with observed.watch(connected.client), own_worker:
                yield connected.client
    finally:
        observed.shutdown()


def _program_mark(names: Iterable[str]) -> str:
    """Return a suffix for the queue of this program. It is the same at every start, so that its runs continue.

    A program without a file of its own (a notebook, or an application that `uvicorn` or `pytest` runs) is identified by
    its working folder and the names of its worker's parts. Another program in that folder has other names.
    """
    file = _own_file()
    program = [str(Path.cwd()), *sorted(names)] if file is None else [str(file)]
    return f"-{short_digest(chr(0).join(program))}"


def _part_names(
    plugin: OrgaPlugin, workflows: Sequence[type[Any]], activities: Sequence[Callable[..., Any]]
) -> Iterator[str]:
    yield from plugin.names
    yield from (workflow_class.__qualname__ for workflow_class in workflows)
    yield from (getattr(function, "__qualname__", type(function).__qualname__) for function in activities)


def _own_file() -> Path | None:
    """Return the file of the running program, unless it belongs to Python or a package."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    if main is None:
        return None
    file, paths = Path(main).resolve(), sysconfig.get_paths()
    installed = {Path(paths[name]).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")}
    installed |= {Path(folder).resolve() for folder in (*site.getsitepackages(), site.getusersitepackages())}
    is_installed = any(file.is_relative_to(folder) for folder in installed)
    return None if is_installed else file
