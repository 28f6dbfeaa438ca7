"""`orga demo`: a durable agent, a goal, or two runs that learn from each other, on this project's own documents."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from shlex import quote
from typing import Annotated

import typer
from temporalio.client import Client

from orga.client.cli import demo_knowledge
from orga.client.cli.demo_documents import copied_documents
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.following import follow
from orga.client.cli.interrupts import completed
from orga.client.cli.options import ConfigFile
from orga.client.cli.output import note, result
from orga.client.cli.phase_rows import table
from orga.client.cli.session import Session, session
from orga.client.cli.timeline import Timeline
from orga.client.journal.phases import goal_phases
from orga.client.journal.reading import read_journal
from orga.client.runs.agents import AgentHandle, start_agent
from orga.client.runs.goals import start_goal
from orga.client.workers.keeping import WorkerKeeper, kept_worker

QUESTION = "How does orga never lose a run and never repeat an effect?"
GOAL = "Compare how often an idempotent and an irreversible tool is tried again after a failure"


def demo(
    *,
    goal: Annotated[bool, typer.Option("--goal", help="A goal: plan, carry out, evaluate, decide.")] = False,
    knowledge: Annotated[
        bool, typer.Option("--knowledge", help="Two runs: the second answers from what the first has learnt.")
    ] = False,
    config: ConfigFile = None,
) -> int:
    """Ask an agent a question about this project and watch it find out: live view, answer, journal.

    Without a model key the answer comes from offline:extractive, which reads and quotes but is no language model.

    Example: orga demo

    Example: orga demo --goal

    Example: orga demo --knowledge
    """
    if goal and knowledge:
        raise UsageError("--goal and --knowledge are two demos; choose one")

    async def shown() -> int:
        root = copied_documents()
        async with session(config, root=root) as here:
            order = replace(here.worker_order(), root=root)
            async with kept_worker(here.client, order, note, here.require_usable) as keeper:
                if knowledge:
                    return await demo_knowledge.shown(
                        here, keeper, here.loaded.path.parent if here.loaded.path else root
                    )
                return await _shown(here, keeper, _PURSUED if goal else _ANSWERED)

    return completed(shown())


@dataclass(frozen=True)
class _Demo:
    """What is started, and what is told of it behind its end."""

    kind: str
    text: str
    start: Callable[[Client, str], Awaitable[AgentHandle]]
    told: Callable[[Client, str], Awaitable[list[str]]]
    next: tuple[str, ...]
    """What to try then; `{quoted}` is the id of the run."""


async def _shown(here: Session, keeper: WorkerKeeper, what: _Demo) -> int:
    run = await what.start(here.client, what.text)
    note(f"{what.kind}: {what.text}")
    note(f"run {run.id}")
    code = await follow(here, run.id, here.task_queue, keeper, as_json=False)
    result("", *await what.told(here.client, run.id), "", *_next(here, run.id, what))
    return code


async def _journal(client: Client, run_id: str) -> list[str]:
    timeline, lines = Timeline(), ["The journal, folded from the history:"]
    async for entry in read_journal(client, run_id):
        lines += timeline.lines(entry)
    return lines


async def _phases(client: Client, run_id: str) -> list[str]:
    return ["Its phases, folded from the history:", *table(await goal_phases(read_journal(client, run_id)))]


def _next(here: Session, run_id: str, what: _Demo) -> list[str]:
    link = here.connection.link(run_id)
    where = f"In the Temporal UI: {link}" if link else f"On the server {here.connection.endpoint.address}: {run_id}"
    return [where, *(line.replace("{quoted}", quote(run_id)) for line in what.next)]


_ANSWERED = _Demo(
    "question",
    QUESTION,
    start_agent,
    _journal,
    (
        "Now try a crash: start a run, and kill its worker with SIGKILL while it works.",
        '  orga run "Which limits does a run have?"   # says the worker\'s process id',
        "  kill -9 PID                                # another worker takes over; nothing is done twice",
        "Or end the command with Ctrl-C, and come back with: orga attach ID",
    ),
)
_PURSUED = _Demo(
    "goal",
    GOAL,
    start_goal,
    _phases,
    (
        "What its model was sent in the first turn:",
        "  orga steps {quoted} --prompt 1",
        "All that it saw and did, and whether the history agrees:",
        "  orga journal {quoted}",
        "  orga verify {quoted}",
        "A goal about the files of your own folder:",
        '  orga goal "Find out how retries are configured here"',
    ),
)
