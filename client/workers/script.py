"""`async with orga.worker(...) as client`: a worker beside the code of a script, on the server that is configured."""

import hashlib
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker

from orga.client.config.known_input import refuse_here
from orga.client.config.sections import OrgaConfig
from orga.client.config.workplace import settle
from orga.client.connect import connection
from orga.client.runs.worker_beside import check_by
from orga.client.telemetry.start import telemetry
from orga.client.workers.build import build_id
from orga.client.workers.in_code import Agent, Function
from orga.client.workers.plugin import OrgaPlugin
from orga.workflows.types.mcp import McpServer

SHUTDOWN_GRACE = timedelta(seconds=5)
MARK_CHARS = 10


@asynccontextmanager
async def worker(
    *,
    agents: Sequence[Agent] = (),
    tools: Sequence[Function] = (),
    mcp_servers: Mapping[str, McpServer | Mapping[str, Any]] | None = None,
    policy: Path | str | None = None,
    config: OrgaConfig | Path | str | None = None,
    root: Path | str | None = None,
    workflows: Sequence[type[Any]] = (),
    activities: Sequence[Callable[..., Any]] = (),
    task_queue: str | None = None,
) -> AsyncGenerator[Client]:
    """Have a worker in this process, and yield a client whose runs it carries out, as long as the block lasts.

    `async with orga.worker() as client: handle = await start_agent(client, "…")`. Without a configured server the
    embedded one is started. Code that blocks holds the worker up: what takes long is awaited, or left to a thread.

    Args:
        agents: As `OrgaPlugin` takes them, and so the next five.
        tools: Functions for agents.
        mcp_servers: By name.
        policy: Folder of Cedar files.
        config: A configuration, or its file.
        root: Of file tools.
        workflows: Of your own, beside agents and goals.
        activities: Of your own.
        task_queue: None for that of this folder and configuration; with anything given in code, for one of this program
            alone, since no other worker of the folder has that.

    Raises:
        ConfigError: As `OrgaPlugin`.
        ServerUnavailable: As `connect`.
    """
    plugin = OrgaPlugin(agents=agents, tools=tools, mcp_servers=mcp_servers, policy=policy, config=config, root=root)
    has_own = plugin.has_more_than_the_file or bool(workflows or activities)
    observed = telemetry(plugin.config.telemetry)
    try:
        async with connection(plugin.config, lambda _: None, observed.plugins, root=plugin.root) as connected:
            queue = task_queue or connected.task_queue + (_mark_of_program() if has_own else "")
            settle(connected.client, queue, connected.workplace if connected.endpoint.embedded else None)
            check_by(connected.client, partial(refuse_here, config=plugin.config))
            at_work = Worker(
                connected.client,
                task_queue=queue,
                workflows=workflows,
                activities=activities,
                plugins=[plugin],
                build_id=None if has_own else build_id(),
                graceful_shutdown_timeout=SHUTDOWN_GRACE,
            )
            async with observed.watch(connected.client), at_work:
                yield connected.client
    finally:
        observed.shutdown()


def _mark_of_program() -> str:
    """Return what sets the queue of this program apart: the same whenever it is started, so that its runs go on."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    place = str(Path(main).resolve()) if main else ""
    return f"-{hashlib.sha256(place.encode(errors='surrogateescape')).hexdigest()[:MARK_CHARS]}"
