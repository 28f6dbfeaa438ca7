"""`orga demo`: a run, a goal, or two runs that share knowledge, over this project's own documents."""

import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Annotated
from uuid import uuid4

import typer
from temporalio.client import Client

from orga.client.cli.connection import CliContext, cli_context
from orga.client.cli.exit_codes import ExitCode, UsageError
from orga.client.cli.inspect.journal import Timeline
from orga.client.cli.inspect.steps import phase_table
from orga.client.cli.live.watch import follow
from orga.client.cli.options import ConfigFile
from orga.client.cli.shown.text import write_note, write_result
from orga.client.journal import event_types as on
from orga.client.journal.event_types import read_event
from orga.client.journal.phases import goal_phases
from orga.client.journal.reading import read_journal
from orga.client.runs.agents import AgentHandle, start_agent
from orga.client.runs.goals import start_goal
from orga.client.server.home import prepare_home
from orga.client.workers.process import WorkerKeeper, keep_worker
from orga.own_code import ROOT
from orga.workflows.types.status import JournalEntry

LEARNING_TASK = "How does orga never lose a run and never repeat an effect?"
RECALL_TASK = "What is reported and not repeated when its outcome is unknown?"


async def run_knowledge_demo(context: CliContext, keeper: WorkerKeeper, folder: Path) -> int:
    """Start a run that stores knowledge, and a second run that answers from it. The folder has the knowledge store."""
    tenant = f"demo-{uuid4().hex[:8]}"
    first, code = await _start_and_follow(context, keeper, {"task": LEARNING_TASK, "tenant": tenant})
    if code:
        return code
    write_note("", "A second run, which has no tool that reads files:")
    second, code = await _start_and_follow(context, keeper, {"task": RECALL_TASK, "tenant": tenant, "tools": []})
    stored = {event.id for event in map(read_event, first) if isinstance(event, on.KnowledgeStored)}
    recalls = (event for event in map(read_event, second) if isinstance(event, on.KnowledgeRecalled))
    recalled = {item.id for event in recalls for item in event.items}
    write_result("", "The second run's journal, folded from its history:", *_timeline_lines(second), "")
    if not stored & recalled:
        write_note(f"the second run did not recall what the first had stored: {', '.join(sorted(stored)) or 'nothing'}")
        return code or ExitCode.FAILED
    owner = f"--tenant {quote(tenant)}"
    write_result(
        f"It recalled what the first run had stored: {', '.join(sorted(stored & recalled))}",
        "Now look at it, add a fact yourself, and erase all of it:",
        f"  cd {quote(str(folder))}                    # each folder has its own store",
        f"  orga knowledge search effect {owner} --agent default",
        f'  orga knowledge add "the api" "is deployed" "on Fridays" {owner}',
        f"  orga knowledge forget {owner}",
        "Store your own project's conventions for agents that work there:",
        "  orga knowledge import-conventions",
    )
    return code


async def _start_and_follow(
    context: CliContext, keeper: WorkerKeeper, fields: dict[str, object]
) -> tuple[list[JournalEntry], int]:
    config = {"knowledge": {"enabled": True}}
    run = await start_agent(context.client, {**fields, "config": config})
    write_note(f"question: {fields['task']}", f"run {run.id}")
    code = await follow(context, run.id, context.task_queue, keeper, as_json=False)
    return [entry async for entry in read_journal(context.client, run.id)], code


def _timeline_lines(entries: Sequence[JournalEntry]) -> list[str]:
    timeline = Timeline()
    return [line for entry in entries for line in timeline.lines(entry)]


DOCUMENT_NAMES = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "docs")


def copy_documents() -> Path:
    """Copy the documents into a new folder in orga's home, and return it. Raise UsageError outside of a clone."""
    sources = [ROOT / name for name in DOCUMENT_NAMES if (ROOT / name).exists()]
    if not sources:
        raise UsageError("the demo reads the project's own documents. Run it from a clone of the project")
    folder = prepare_home().folder / "demo"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in sources:
        if path.is_dir():
            shutil.copytree(path, folder / path.name)
        else:
            shutil.copy(path, folder)
    return folder


QUESTION = "How does orga never lose a run and never repeat an effect?"
GOAL = "Compare how often an idempotent and an irreversible tool is tried again after a failure"


async def demo(
    *,
    goal: Annotated[bool, typer.Option("--goal", help="Show a goal: plan, carry out, evaluate, decide.")] = False,
    knowledge: Annotated[
        bool, typer.Option("--knowledge", help="Show two runs: the second answers from what the first learned.")
    ] = False,
    config: ConfigFile = None,
) -> int:
    """Without a model key, offline:extractive answers. It reads and quotes, but is not a language model.

    Example: orga demo

    Example: orga demo --goal

    Example: orga demo --knowledge
    """
    if goal and knowledge:
        raise UsageError("--goal: cannot be combined with --knowledge. Choose one demo")
    root = copy_documents()
    async with cli_context(config, root=root) as context:
        order = replace(context.worker_order(), root=root)
        async with keep_worker(context.client, order, write_note, context.require_usable) as keeper:
            if knowledge:
                return await run_knowledge_demo(
                    context, keeper, context.config.file.parent if context.config.file else root
                )
            return await _run_demo(context, keeper, _GOAL_DEMO if goal else _QUESTION_DEMO)


@dataclass(frozen=True)
class _Demo:
    """A run to start, and what to show after its end."""

    kind: str
    text: str
    start: Callable[[Client, str], Awaitable[AgentHandle]]
    ending_lines: Callable[[Client, str], Awaitable[list[str]]]
    """Returns the lines to show after the end of the run with that id."""
    next: tuple[str, ...]
    """Suggestions for what to try next. `{quoted}` is replaced by the id of the run."""


async def _run_demo(context: CliContext, keeper: WorkerKeeper, shown: _Demo) -> int:
    run = await shown.start(context.client, shown.text)
    write_note(f"{shown.kind}: {shown.text}")
    write_note(f"run {run.id}")
    code = await follow(context, run.id, context.task_queue, keeper, as_json=False)
    write_result("", *await shown.ending_lines(context.client, run.id), "", *_next_lines(context, run.id, shown))
    return code


async def _journal_lines(client: Client, run_id: str) -> list[str]:
    entries = [entry async for entry in read_journal(client, run_id)]
    return ["The journal, folded from the history:", *_timeline_lines(entries)]


async def _phase_lines(client: Client, run_id: str) -> list[str]:
    return ["Its phases, folded from the history:", *phase_table(await goal_phases(read_journal(client, run_id)))]


def _next_lines(context: CliContext, run_id: str, shown: _Demo) -> list[str]:
    link = context.connection.link(run_id)
    where = f"In the Temporal UI: {link}" if link else f"On the server {context.connection.endpoint.address}: {run_id}"
    lines = [line.replace("{quoted}", quote(run_id)) for line in shown.next]
    return [where, *lines, *([] if shutil.which("orga") else [_own_command_line()])]


def _own_command_line() -> str:
    """Return the line for a terminal that does not find `orga`, for example as its environment is not activated."""
    program = Path(sys.executable).with_name("orga")
    with suppress(ValueError):
        program = program.relative_to(Path.cwd())
    return f"Here the command is {program} instead of orga."


_QUESTION_DEMO = _Demo(
    "question",
    QUESTION,
    start_agent,
    _journal_lines,
    (
        "Now try a crash. A chat waits for you, so there is time to kill its worker:",
        "  orga chat     # prints the worker's process id; ask: When is an irreversible call repeated?",
        "  kill -9 PID   # in another terminal; then ask on in the chat, and a new worker answers",
        "Leave the chat with Ctrl-D, and return with: orga chat --last",
    ),
)
_GOAL_DEMO = _Demo(
    "goal",
    GOAL,
    start_goal,
    _phase_lines,
    (
        "The first prompt that its model received:",
        "  orga steps {quoted} --prompt 1",
        "Everything that it saw and did, and a check against the history:",
        "  orga journal {quoted}",
        "  orga verify {quoted}",
        "A goal about the files of your own folder:",
        '  orga goal "Find out how retries are configured here"',
    ),
)
