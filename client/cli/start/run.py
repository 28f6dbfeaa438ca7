"""`orga run` and `orga goal` start a run, `orga attach` follows one. A worker is started if none is running."""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer
from temporalio.client import WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError

from orga.client.cli.connection import CliContext, cli_context, run_context
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import Command
from orga.client.cli.live.watch import follow
from orga.client.cli.options import (
    Again,
    AgentName,
    Attach,
    ConfigFile,
    Detach,
    Instructions,
    Json,
    Model,
    NoWorker,
    Quiet,
    RunId,
    Settings,
    Tools,
    TrustedFacts,
)
from orga.client.cli.shown.text import set_quiet, terminal_line, write_json, write_note, write_result, write_warning
from orga.client.cli.start.task_input import GoalOptions, RunOptions, agent_input, attached_media, goal_input
from orga.client.config.known_input import RequestedNames, refuse_in_process, refuse_unknown, requested_names
from orga.client.config.policy import starter_policy
from orga.client.config.workplace import command_in, recorded_workplace
from orga.client.errors import ConfigError
from orga.client.runs.agents import AgentHandle, new_run_id, start_agent
from orga.client.runs.goals import start_goal
from orga.client.runs.ids import wait_until_listed
from orga.client.server.pollers import (
    WorkerIdentity,
    may_be_polled,
    poller_identities,
    short_config,
    short_policy,
)
from orga.client.server.versions import may_be_served, routing
from orga.client.workers.deployment import no_workers_text
from orga.client.workers.process import WorkerKeeper, keep_worker
from orga.workflows.types.goals.goal_input import GoalInput
from orga.workflows.types.input import AgentInput
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.tool_calls.gate import is_same_policy
from orga.workflows.types.workplace import Workplace


def run(
    task: Annotated[str, typer.Argument(metavar="TASK", help="What to do; - reads it from standard input.")],
    *,
    agent: AgentName = None,
    model: Model = None,
    instructions: Instructions = None,
    tools: Tools = None,
    set_: Settings = None,
    max_iterations: Annotated[int | None, typer.Option(help="Maximum number of reasoning steps.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Time limit in seconds of the run's clock.")] = None,
    id_: Annotated[str | None, typer.Option("--id", help="The run's id. Default: agent-<uuid7>.")] = None,
    tenant: Annotated[str | None, typer.Option(help="The tenant that the run is for.")] = None,
    trusted: TrustedFacts = None,
    attach: Attach = None,
    again: Again = False,
    no_worker: NoWorker = False,
    detach: Detach = False,
    quiet: Quiet = False,
    json: Json = False,
    config: ConfigFile = None,
) -> Command:
    """If no worker is running, the command starts one. Ctrl-C detaches: the run goes on, and `orga attach ID` follows
    it again.

    Exit codes: 0 completed, 2 bad input, 3 a limit, 4 denied by policy, 5 aborted, 6 failed, 7 no server, 130 detached.

    Example: orga run "Which limits does a run have?" --max-iterations 10

    Example: orga run "What is wrong on this page?" --attach screenshot.png

    Example: git diff | orga run - --instructions "Review this change." --json
    """
    options = RunOptions(
        task=task,
        agent=agent,
        model=model,
        instructions=instructions,
        tools=tools or (),
        settings=set_ or (),
        max_iterations=max_iterations,
        timeout_s=timeout,
        tenant=tenant,
        trusted=trusted or (),
    )
    set_quiet(quiet=quiet)
    if again and id_ is None:
        raise UsageError("--again: it needs a run's id. Add --id ID")
    checked = agent_input(options)
    run_id, attached = new_run_id(id_), attached_media(attach or ())

    async def start(context: CliContext) -> AgentHandle:
        return await start_agent(context.client, checked, workflow_id=run_id, again=again, attachments=attached)

    return _start(start, checked, config, detach=detach, no_worker=no_worker, as_json=json)


RunStarter = Callable[[CliContext], Awaitable[AgentHandle]]
"""Starts a run of any kind."""


async def _start(
    start: RunStarter,
    checked: AgentInput | GoalInput,
    config: Path | None,
    *,
    detach: bool,
    no_worker: bool,
    as_json: bool,
) -> int:
    names = requested_names(checked)
    if detach:
        await _start_detached(start, names, config, as_json=as_json)
        return 0
    async with started_run(start, names, config, no_worker=no_worker) as (context, run_id, keeper):
        return await follow(context, run_id, context.task_queue, keeper, as_json=as_json)


@asynccontextmanager
async def started_run(
    start: RunStarter, names: RequestedNames, config: Path | None, *, no_worker: bool, what: str = "run"
) -> AsyncGenerator[tuple[CliContext, str, WorkerKeeper | None]]:
    """Start and announce a run of any kind. Unless `no_worker` is set, keep a worker for it until the block ends."""
    async with cli_context(config, check=partial(refuse_unknown, names)) as context:
        if not no_worker and not await may_be_polled(context.client, context.task_queue):
            _refuse_for_own_worker(names, context)
        async with _optional_worker(context, context.task_queue, is_wanted=not no_worker) as keeper:
            yield context, await _start_and_announce(context, start, what), keeper


@asynccontextmanager
async def _optional_worker(context: CliContext, queue: str, *, is_wanted: bool) -> AsyncGenerator[WorkerKeeper | None]:
    if not is_wanted:
        yield None
        return
    async with keep_worker(context.client, context.worker_order(queue), write_note, context.require_usable) as keeper:
        yield keeper


def _refuse_for_own_worker(names: RequestedNames, context: CliContext) -> None:
    """Raise InvalidInput if a worker that this command starts could not carry out the run."""
    try:
        refuse_in_process(names, context.config)
    except InvalidInput as error:
        if context.connection.endpoint.embedded:
            raise
        why = f"no worker polls task queue {context.task_queue!r}, and a worker of this folder knows only its files"
        raise InvalidInput(f"{error} ({why}: start your own worker first, or add --no-worker)") from None


async def _start_detached(start: RunStarter, names: RequestedNames, config: Path | None, *, as_json: bool) -> None:
    async with cli_context(config, check=partial(refuse_unknown, names)) as context:
        run_id = await _start_and_announce(context, start)
        with suppress(RPCError):  # the run has started, so its id is printed in any case
            await warn_of_missing_worker(context, names)
            await wait_until_listed(context.client, run_id)  # the next command may use `--last`
        if as_json:
            write_json({"id": run_id, "ui": context.connection.link(run_id)})
        else:
            write_result(run_id)


async def warn_of_missing_worker(
    context: CliContext, names: RequestedNames, consequence: str = "the run waits"
) -> None:
    """Write a note with the consequence and the remedy if no worker takes new runs of this folder."""
    queue_routing = await routing(context.client, context.task_queue)
    queue = f"task queue {context.task_queue!r}"
    if queue_routing is None:
        unknown = f"the server does not report whether a worker polls {queue}: without one {consequence}"
        write_note(f"{unknown}; {_worker_start_text(names, context)}")
    elif not queue_routing.is_served and queue_routing.current is not None:
        write_note(no_workers_text(queue_routing.current, context.task_queue))
    elif not queue_routing.is_served:
        write_note(f"no worker polls {queue}: {consequence}; {_worker_start_text(names, context)}")


def _worker_start_text(names: RequestedNames, context: CliContext) -> str:
    """Return how to start a worker for the run. An agent that is defined in code needs the project's own worker."""
    try:
        refuse_unknown(names, context.config)
    except InvalidInput as error:
        return f"start your project's own worker, because `orga worker` would fail the run here ({error})"
    return "start one with: orga worker"


def warn_of_disabled_policy(context: CliContext) -> None:
    if context.config.policy.engine == "allow":
        write_warning('POLICY IS OFF: engine = "allow" lets every tool call of every agent through')


def warn_of_idle_addresses(context: CliContext) -> None:
    """If the embedded model is the default, warn about addresses of model servers in the environment."""
    from orga.activities.adapters.models.model_settings import EMBEDDED_MODEL, default_model, idle_addresses

    if context.config.models.default is None and default_model(os.environ) == EMBEDDED_MODEL:
        for text in idle_addresses(os.environ):
            write_warning(f"{text}; until then {EMBEDDED_MODEL} answers")


async def _check_workers(context: CliContext) -> None:
    """Warn of workers with another `orga.toml`. Raise ConfigError if one judges by another policy."""
    digest, policy = short_config(context.connection.workplace), short_policy(starter_policy(context.config))
    for identity in await poller_identities(context.client, context.task_queue) or ():
        worker = WorkerIdentity.parse(identity)
        process = terminal_line(worker.process)
        if not is_same_policy(worker.policy, policy):
            raise ConfigError(
                f"policy: worker {process} polls task queue {context.task_queue!r} and judges by another policy than "
                "this folder's. Set [temporal] task_queue to a name that only this folder uses"
            )
        if context.connection.endpoint.embedded and worker.config not in {None, digest}:
            write_warning(
                f"worker {process} started before orga.toml was changed, or with another one; "
                "to use the file as it is now, stop that worker and start it again"
            )


async def _start_and_announce(context: CliContext, start: RunStarter, what: str = "run") -> str:
    """Check the workers, start a run, print its id, link and folder as notes, and return the id."""
    warn_of_disabled_policy(context)
    warn_of_idle_addresses(context)
    await _check_workers(context)
    run_id = (await start(context)).id
    link = context.connection.link(run_id)
    write_note(f"{what} {run_id}" + (f"  {link}" if link else ""))
    if context.connection.endpoint.embedded:
        write_note(f"it acts in {terminal_line(context.connection.workplace.root)}")
    return run_id


async def attach(
    run: RunId, no_worker: NoWorker = False, quiet: Quiet = False, json: Json = False, config: ConfigFile = None
) -> int:
    """If the run belongs to another folder, start a worker there. Only a worker of that folder can carry it out.

    A run that has ended is shown at once, with its result. The exit codes are those of `orga run`.

    Example: orga attach agent-0199b1c2-6f3e-7c11-9d8a-5a6b7c8d9e0f
    """
    set_quiet(quiet=quiet)
    async with run_context(run, config) as (context, run_id):
        described = await context.run(run_id).describe()
        if link := context.connection.link(run_id):
            write_note(link)
        async with worker_for_live_run(context, described, "orga attach", no_worker=no_worker) as keeper:
            return await follow(context, run_id, described.task_queue, keeper, as_json=json)


@asynccontextmanager
async def worker_for_live_run(
    context: CliContext, described: WorkflowExecutionDescription, command: str, *, no_worker: bool
) -> AsyncGenerator[WorkerKeeper | None]:
    """If the run is live and a worker of this folder may work on it, keep a worker until the block ends.

    If it may not, and no worker polls the run's queue, a note shows in which folder to give the command.
    """
    queue = described.task_queue
    is_own = await context.may_work_on(described)
    if not is_own and not await may_be_served(context.client, described):
        write_note(_other_folder_hint(described.id, queue, await recorded_workplace(described), command))
    versions = await routing(context.client, queue)
    needs_version = versions is not None and versions.current is not None  # of which this command starts no worker
    is_wanted = is_own and not no_worker and not needs_version and described.status == WorkflowExecutionStatus.RUNNING
    async with _optional_worker(context, queue, is_wanted=is_wanted) as keeper:
        yield keeper


def _other_folder_hint(run_id: str, queue: str, home: Workplace | None, command: str) -> str:
    """Return how to start a worker for a run of another folder, or of a shell that names other models."""
    if home is None:
        return (
            f"the run was started without a folder, so no folder's worker polls task queue {queue!r}; "
            "`orga doctor` shows the workers that do"
        )
    is_this_folder = home.folder == str(Path.cwd())
    other_folder = f"belongs to the folder {terminal_line(home.folder)}"
    why = "uses the models of its own shell" if is_this_folder else other_folder
    return f"the run {why}: {command_in(home, f'{command} {quote(run_id)}')}"


def goal(
    goal: Annotated[str, typer.Argument(metavar="GOAL", help="What to reach; - reads it from standard input.")],
    *,
    agent: Annotated[
        str | None,
        typer.Option("--agent", "-a", help="The agent whose tools the goal uses. Default: the default agent."),
    ] = None,
    model: Model = None,
    skills: Annotated[
        list[str] | None,
        typer.Option(help="Only these of the agent's tools. Repeat it, or separate names by commas."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="A setting of the goal, such as max_llm_calls=30."),
    ] = None,
    max_iterations: Annotated[int | None, typer.Option(help="Maximum number of rounds of steps.")] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Time limit in seconds. Default: depends on the length of the plan.")
    ] = None,
    id_: Annotated[str | None, typer.Option("--id", help="The goal's id. Default: goal-<uuid7>.")] = None,
    tenant: Annotated[str | None, typer.Option(help="The tenant that the goal runs for.")] = None,
    deliver: Annotated[
        list[str] | None,
        typer.Option(
            help="Deliver the answer to this name in goals.deliveries. Repeat it. Default: those with default = true."
        ),
    ] = None,
    pipeline: Annotated[
        str | None, typer.Option(help="A plan from orga.toml, by its name. Default: the model plans.")
    ] = None,
    input_: Annotated[
        list[str] | None, typer.Option("--input", help="One input of a pipeline of kind map_reduce. Repeat it.")
    ] = None,
    attach: Attach = None,
    again: Again = False,
    no_worker: NoWorker = False,
    detach: Detach = False,
    quiet: Quiet = False,
    json: Json = False,
    config: ConfigFile = None,
) -> Command:
    """Steps and their scores go to stderr, the answer to stdout. Every command that takes a run also takes a goal, such
    as status, journal, steer, pause, abort and attach. `orga answer` answers a goal's questions.

    Exit codes: 0 completed, 2 bad input, 3 a limit, 4 denied, 5 aborted, 6 failed or stuck, 7 no server, 130 detached.

    Example: orga goal "Compare what the README says about limits with the code" --max-iterations 5
    """
    set_quiet(quiet=quiet)
    if again and id_ is None:
        raise UsageError("--again: it needs a goal's id. Add --id ID")
    options = GoalOptions(
        goal=goal,
        agent=agent,
        model=model,
        skills=skills or (),
        settings=set_ or (),
        max_iterations=max_iterations,
        timeout_s=timeout,
        tenant=tenant,
        deliver=deliver or (),
        pipeline=pipeline,
        inputs=input_ or (),
    )
    checked = goal_input(options)
    run_id, attached = new_run_id(id_, "goal"), attached_media(attach or ())

    async def start(context: CliContext) -> AgentHandle:
        return await start_goal(context.client, checked, workflow_id=run_id, again=again, attachments=attached)

    return _start(start, checked, config, detach=detach, no_worker=no_worker, as_json=json)
