"""Following a run until it ends or the person leaves, with a word on how to come back."""

import asyncio
from shlex import quote

from orga.client.cli.ending import show_ending
from orga.client.cli.output import alarm, note
from orga.client.cli.session import Session
from orga.client.cli.watching import Watch, screen
from orga.client.workers.keeping import WorkerKeeper


async def follow(here: Session, run_id: str, task_queue: str, keeper: WorkerKeeper | None, *, as_json: bool) -> int:
    """Show the run to its end and return the exit code.

    Args:
        here: The command's session.
        run_id: The run.
        task_queue: Where its workers poll.
        keeper: Has the worker that ends with this command, if there is one.
        as_json: Whether the result is written as JSON.
    """
    shown = screen()
    if keeper is not None:
        keeper.report = shown.note
    try:
        ended = await Watch(here.client, here.run(run_id), task_queue, shown, keeper).to_the_end()
    except asyncio.CancelledError:
        alarm(_farewell(run_id, keeper))
        raise
    finally:
        if keeper is not None:
            keeper.report = note
    return show_ending(ended, as_json=as_json)


def _farewell(run_id: str, keeper: WorkerKeeper | None) -> str:
    if keeper is not None and keeper.own is not None:
        state = "our worker finishes its step and ends (Ctrl-C again: at once), then the run waits for another"
    else:
        state = "the run goes on as long as a worker polls"
    return f"detached: {state}. To come back: orga attach {quote(run_id)}"
