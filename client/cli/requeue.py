"""`orga requeue`: send calls again that were given up."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer
from temporalio.client import WorkflowExecutionStatus

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.fork import changes
from orga.client.cli.interrupts import completed
from orga.client.cli.options import ConfigFile, Json, RunId
from orga.client.cli.output import json_result, note, result
from orga.client.cli.redeliver import redeliver
from orga.client.cli.session import Session, of_run
from orga.client.config.workplace import home_of, worker_command
from orga.client.errors import OrgaError
from orga.client.past.requeue import remains, requeue_in_fork
from orga.client.runs.agents import AgentHandle
from orga.client.server.pollers import may_be_polled
from orga.workflows.types.names import GOAL_WORKFLOW
from orga.workflows.types.recovery import DeadLetter


@dataclass(frozen=True)
class _Wish:
    run_id: str
    letter: str | None
    all: bool
    as_fork: bool
    again: bool
    settings: Sequence[str]

    def letters(self, there: Sequence[DeadLetter]) -> list[str]:
        """Return the ids of the letters that are meant.

        Raises:
            UsageError: It is not clear which.
        """
        if self.letter is not None:
            return [self.letter]
        ids = [letter.letter_id for letter in there if not letter.requeued]
        if not ids:
            raise UsageError(f"run {self.run_id!r} has no dead letter; see: orga list --dead-letters")
        if len(ids) > 1 and not self.all:
            raise UsageError(f"run {self.run_id!r} has the letters {', '.join(ids)}: name one, or give --all")
        return ids


def requeue(
    run: RunId,
    letter: Annotated[
        str | None,
        typer.Argument(metavar="LETTER", help="Which call; see: orga list --dead-letters", show_default=False),
    ] = None,
    *,
    all_: Annotated[bool, typer.Option("--all", help="All letters of the run.")] = False,
    fork: Annotated[bool, typer.Option("--fork", help="Of a run that has ended: in a new run with its past.")] = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="With --fork: as in orga fork.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Of a goal that has ended: also where its answer is, or may be.")
    ] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Send a dead letter again, through the gate and under its old idempotency key; the model reads what came of it.

    A live run does so before its next reasoning step. LETTER may be left out where there is only one.

    Of a goal that has ended the answer is sent again, from this machine, to a delivery that failed: LETTER is its name.
    What an earlier requeue has delivered, or what may have arrived in a chat or a mailbox, is sent with --again alone.

    Example: orga requeue ID 3.0

    Example: orga requeue ID --all --fork --set max_iterations=50
    """
    if letter is not None and all_:
        raise UsageError("give a LETTER or --all, not both")
    if set_ and not fork:
        raise UsageError("--set changes settings of a fork: give --fork, too")
    return completed(_requeue(_Wish(run, letter, all_, fork, again, set_ or ()), config, as_json=json))


async def _requeue(wish: _Wish, config: Path | None, *, as_json: bool) -> int:
    async with of_run(wish.run_id, config) as (here, run_id):
        wish, run = replace(wish, run_id=run_id), here.run(run_id)
        described = await run.describe()
        has_ended = described.status != WorkflowExecutionStatus.RUNNING
        if has_ended and described.workflow_type == GOAL_WORKFLOW:
            return await redeliver(
                here, wish.run_id, wish.letter, all_of_them=wish.all, again=wish.again, as_json=as_json
            )
        if wish.again:
            raise UsageError(f"--again: {wish.run_id!r} is no goal that has ended")
        if has_ended:
            return await _in_a_fork(here, wish, as_json=as_json)
        if wish.as_fork:
            raise UsageError(f"run {wish.run_id!r} is live: leave --fork out")
        letters = await _send(run, wish)
    if as_json:
        json_result({"id": wish.run_id, "letters": letters})
    else:
        note(f"{', '.join(letters)} of {wish.run_id} will be sent again before its next reasoning step")
    return 0


async def _send(run: AgentHandle, wish: _Wish) -> list[str]:
    letters = wish.letters((await run.live_status()).dead_letters if wish.letter is None else ())
    for letter_id in letters:
        await run.requeue(letter_id)
    return letters


async def _in_a_fork(here: Session, wish: _Wish, *, as_json: bool) -> int:
    if not wish.as_fork:
        what = quote(wish.letter) if wish.letter is not None else "--all"
        raise OrgaError(
            f"run {wish.run_id!r} has ended; a fork of it can send its letters again: "
            f"orga requeue {quote(wish.run_id)} {what} --fork"
        )
    ended = await remains(here.client, wish.run_id)
    letters = wish.letters(ended.letters)
    forked = await requeue_in_fork(here.client, ended, letters, changes=changes(wish.settings))
    described = await forked.describe()
    if not await may_be_polled(here.client, described.task_queue):
        start = worker_command(await home_of(described))
        note(f"no worker polls task queue {described.task_queue!r}: the fork waits; start one with: {start}")
    if as_json:
        json_result({"id": forked.id, "forked_from": {"id": wish.run_id}, "letters": letters})
    else:
        note(f"{', '.join(letters)} of {wish.run_id} will be sent again by its fork")
        result(forked.id)
    return 0
