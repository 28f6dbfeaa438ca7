"""`orga acp` and `orga mcp-server`: editors and assistants talk with agents over standard input and output."""

import os
import stat
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from temporalio.client import WorkflowExecution

from orga.activities.adapters.problem import extra_remedy
from orga.client.cli.connection import CliContext, cli_context
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.options import AgentName, ConfigFile, NoWorker, login_name
from orga.client.cli.shown.text import write_note
from orga.client.cli.start.task_input import RunOptions, session_input
from orga.client.config.known_input import RequestedNames, refuse_in_process, refuse_unknown, requested_names
from orga.client.frontends.reach import Reach
from orga.client.server.pollers import may_be_polled
from orga.client.server.resolve import names_server
from orga.client.workers.process import keep_worker
from orga.workflows.types.goals.goal_input import GoalInput
from orga.workflows.types.input import AgentInput
from orga.workflows.types.text import one_line

Tenant = Annotated[str | None, typer.Option(help="Serve only this tenant: its runs, and new runs for it.")]


async def acp(
    agent: AgentName = None,
    *,
    goal: Annotated[
        bool, typer.Option("--goal", help="Start goals: the first message of a new conversation is the goal.")
    ] = False,
    tenant: Tenant = None,
    no_worker: NoWorker = False,
    config: ConfigFile = None,
) -> None:
    """An editor starts this command and talks with it over standard input and output. You do not type it yourself. Name
    it in the editor's settings: docs/front-ends.md has them for Zed and JetBrains. The agent acts in the folder where
    the command starts.

    Each conversation is a session: orga list, orga inbox and orga chat show it too. If the editor closes, the session
    goes on while a worker runs. The editor asks you to allow or reject each call that a policy holds.

    Example: orga acp --agent reviewer
    """
    if not find_spec("acp"):
        raise UsageError(
            f"orga acp needs the optional extra acp, which is not installed here. Install it: {extra_remedy('acp')}"
        )
    session = session_input(RunOptions("", agent, tenant=tenant), None)
    pipes = _take_pipes()
    from orga.client.frontends.acp import serve  # only this command needs the package

    async with _reach(requested_names(session), config, session.tenant, no_worker=no_worker) as (context, reach):
        await serve(reach, session.agent, Path(context.connection.workplace.root), pipes, starts_goals=goal)


async def mcp_server(
    *,
    agent_tools: Annotated[
        bool, typer.Option("--agent-tools", help="Offer a tool for each agent of orga.toml, such as ask_reviewer.")
    ] = False,
    may_decide: Annotated[
        bool,
        typer.Option(
            "--may-decide",
            help="Offer the tool decide, which allows and denies held calls under your login name. Without it, they "
            "wait in orga inbox.",
        ),
    ] = False,
    tenant: Tenant = None,
    no_worker: NoWorker = False,
    config: ConfigFile = None,
) -> None:
    """An assistant such as Claude Code starts this command and calls its tools over standard input and output:
    docs/front-ends.md shows how to add it. The runs act in the folder where the command starts.

    The tools: start_run, run_state, result, answer, steer, abort. Each call returns within a minute, and the run goes
    on. orga list and orga inbox show it too. If the assistant closes, the run goes on while a worker runs.

    Example: orga mcp-server --agent-tools
    """
    _require_pipes()
    from orga.client.frontends.mcp_server import build_server  # only this command needs the server of the package

    async with _reach(None, config, tenant, no_worker=no_worker) as (context, reach):
        agents = context.config.agents if agent_tools else {}
        summaries = {name: one_line(agent.instructions or "", 300) for name, agent in agents.items()}
        server = build_server(reach, agent_tools=summaries, may_decide=may_decide)
        await server.run_stdio_async()


def _require_pipes() -> None:
    """Raise UsageError unless standard input and output are connected to a program."""
    kinds = [os.fstat(number).st_mode for number in (0, 1)]
    if not all(stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) for kind in kinds):
        raise UsageError(
            "stdin and stdout: must be connected to a program. Name this command in the settings of your editor "
            "or assistant, as docs/front-ends.md shows"
        )


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Return standard input and output for the protocol alone. From now on, other output to stdout goes to stderr."""
    _require_pipes()
    pipes = os.fdopen(os.dup(0), "rb", buffering=0), os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return pipes


@asynccontextmanager
async def _reach(
    names: RequestedNames | None, config: Path | None, tenant: str | None, *, no_worker: bool
) -> AsyncGenerator[tuple[CliContext, Reach]]:
    """Connect. Unless `no_worker` is set, keep workers for new runs and for each run that the front end opens."""
    check = partial(refuse_unknown, names) if names else None
    async with cli_context(config, check=check) as context, AsyncExitStack() as workers:
        served_queues = set[str]()

        async def serve_queue(queue: str) -> None:
            if not no_worker and queue not in served_queues:
                served_queues.add(queue)
                order = context.worker_order(queue)
                await workers.enter_async_context(
                    keep_worker(context.client, order, write_note, context.require_usable)
                )

        async def serve(run: WorkflowExecution) -> None:
            if await context.may_work_on(run):
                await serve_queue(run.task_queue)

        def check_names(given: AgentInput | GoalInput) -> None:
            settings = context.config
            if not names_server(settings.temporal.address):  # workers of a shared server may know other agents
                refuse_unknown(requested_names(given), settings)

        def is_in_reach(run: WorkflowExecution) -> bool:
            """Decide as `folder_runs_query` does."""
            if context.connection.endpoint.embedded:
                return run.task_queue.startswith(context.connection.folder_queue)
            return run.task_queue == context.task_queue

        if names and not no_worker and not await may_be_polled(context.client, context.task_queue):
            refuse_in_process(names, context.config)
        await serve_queue(context.task_queue)
        yield (
            context,
            Reach(context.client, login_name(), context.folder_runs_query, is_in_reach, serve, tenant, check_names),
        )
