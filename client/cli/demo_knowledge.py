"""`orga demo --knowledge`: what one run has learnt answers another, which is given no file to read."""

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from uuid import uuid4

from orga.client.cli.exit_codes import ExitCode
from orga.client.cli.following import follow
from orga.client.cli.output import note, result
from orga.client.cli.session import Session
from orga.client.cli.timeline import Timeline
from orga.client.journal.reading import read_journal
from orga.client.runs.agents import start_agent
from orga.client.workers.keeping import WorkerKeeper
from orga.workflows.types.status import JournalEntry

LEARNING = "How does orga never lose a run and never repeat an effect?"
ASKING = "What is reported and not repeated when its outcome is unknown?"


async def shown(here: Session, keeper: WorkerKeeper, folder: Path) -> int:
    """Let one run find something out and another answer from that; the exit code says whether it did.

    Args:
        here: Where they run.
        keeper: Sees to it that somebody works.
        folder: Whose store of knowledge they share.
    """
    tenant = f"demo-{uuid4().hex[:8]}"
    first, code = await _follow(here, keeper, {"task": LEARNING, "tenant": tenant})
    if code:
        return code
    note("", "A second run, which is given no tool to read files with:")
    second, code = await _follow(here, keeper, {"task": ASKING, "tenant": tenant, "tools": []})
    stored = {str(entry.data.get("id")) for entry in first if entry.event == "KnowledgeStored"}
    recalled = {
        str(item["id"]) for entry in second if entry.event == "KnowledgeRecalled" for item in entry.data["items"]
    }
    result("", "The second run's journal, folded from its history:", *_timeline(second), "")
    if not stored & recalled:
        note(f"the second run did not recall what the first had stored: {', '.join(sorted(stored)) or 'nothing'}")
        return code or ExitCode.FAILED
    whose = f"--tenant {quote(tenant)}"
    result(
        f"It recalled what the first run had stored: {', '.join(sorted(stored & recalled))}",
        "Now look at it, tell agents something yourself, and forget it all:",
        f"  cd {quote(str(folder))}                    # each folder has a store of its own",
        f"  orga knowledge search effect {whose} --agent default",
        f'  orga knowledge add "the api" "is deployed" "on Fridays" {whose}',
        f"  orga knowledge forget {whose}",
        "What your own project's files say of its conventions, for agents that work there:",
        "  orga knowledge import-conventions",
    )
    return code


async def _follow(here: Session, keeper: WorkerKeeper, given: dict[str, object]) -> tuple[list[JournalEntry], int]:
    config = {"knowledge": {"enabled": True}}
    run = await start_agent(here.client, {**given, "config": config})
    note(f"question: {given['task']}", f"run {run.id}")
    code = await follow(here, run.id, here.task_queue, keeper, as_json=False)
    return [entry async for entry in read_journal(here.client, run.id)], code


def _timeline(entries: Sequence[JournalEntry]) -> list[str]:
    timeline = Timeline()
    return [line for entry in entries for line in timeline.lines(entry)]
