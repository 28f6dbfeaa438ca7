"""`orga demo`: a durable agent at work on this project's own documents."""

from dataclasses import replace

from orga.client.cli.demo_documents import copied_documents
from orga.client.cli.following import follow
from orga.client.cli.interrupts import completed
from orga.client.cli.options import ConfigFile
from orga.client.cli.output import note, result
from orga.client.cli.session import Session, session
from orga.client.cli.timeline import Timeline
from orga.client.journal.reading import read_journal
from orga.client.runs.agents import start_agent
from orga.client.workers.keeping import WorkerKeeper, kept_worker

QUESTION = "How does orga never lose a run and never repeat an effect?"


def demo(config: ConfigFile = None) -> int:
    """Ask an agent a question about this project and watch it find out: live view, answer, journal.

    Without a model key the answer comes from offline:extractive, which reads and quotes but is no language model.

    Example: orga demo
    """

    async def shown() -> int:
        root = copied_documents()
        async with session(config, root=root) as here:
            order = replace(here.worker_order(), root=root)
            async with kept_worker(here.client, order, note) as keeper:
                return await _shown(here, keeper)

    return completed(shown())


async def _shown(here: Session, keeper: WorkerKeeper) -> int:
    run = await start_agent(here.client, QUESTION)
    note(f"question: {QUESTION}")
    note(f"run {run.id}")
    code = await follow(here, run.id, here.task_queue, keeper, as_json=False)
    result("", "The journal, folded from the history:")
    timeline = Timeline()
    async for entry in read_journal(here.client, run.id):
        result(*timeline.lines(entry))
    result("", *_next(here, run.id))
    return code


def _next(here: Session, run_id: str) -> list[str]:
    link = here.connection.link(run_id)
    return [
        f"In the Temporal UI: {link}" if link else f"On the server {here.connection.endpoint.address}: {run_id}",
        "Now try a crash: start a run, and kill its worker with SIGKILL while it works.",
        '  orga run "Which limits does a run have?"   # says the worker\'s process id',
        "  kill -9 PID                                # another worker takes over; nothing is done twice",
        "Or end the command with Ctrl-C, and come back with: orga attach ID",
    ]
