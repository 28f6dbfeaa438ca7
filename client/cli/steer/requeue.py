"""`orga requeue`: sends failed calls and deliveries again."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer
from temporalio.client import WorkflowExecutionStatus

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.options import ConfigFile, Json, RunId
from orga.client.cli.session import CliContext, run_context
from orga.client.cli.shown.text import write_json, write_note, write_result
from orga.client.cli.steer.fork import input_changes
from orga.client.config.workplace import recorded_workplace, worker_command
from orga.client.errors import OrgaError
from orga.client.past.requeue import UndeliveredAnswer, read_ended_run, requeue_in_fork, undelivered_answers
from orga.client.runs.agents import AgentHandle
from orga.client.server.pollers import may_be_polled
from orga.workflows.types.names import GOAL_WORKFLOW
from orga.workflows.types.tool_calls.recovery import DeadLetter

if TYPE_CHECKING:
    from orga.activities.deliver import DeliveryChannel


async def redeliver(
    here: CliContext, goal_id: str, name: str | None, *, all_of_them: bool, again: bool, as_json: bool
) -> int:
    """Send from this machine, under the old keys, and go on behind one that fails; nothing of the goal changes.

    Args:
        here: Whose channels, and whose server.
        goal_id: Of the goal, which has ended.
        name: Of the delivery; None where there is one, or all are meant.
        all_of_them: All that were not delivered, by an earlier requeue either.
        again: Also what may have arrived, or was delivered by an earlier requeue.
        as_json: Write what became of each.

    Raises:
        UsageError: It is not clear which, or the channels cannot be used here.
        OrgaError: Some were not taken; the others are told as delivered.
    """
    there = await undelivered_answers(here.client, goal_id)
    names = _delivery_names(goal_id, there, name, all_of_them=all_of_them, again=again)
    send = _DeliverySender(here)
    delivered: list[str] = []
    failed: dict[str, str] = {}
    for each in names:
        try:
            await send(there[each], again=again)
            delivered.append(each)
        except OrgaError as error:
            failed[each] = str(error)
    if as_json:
        write_json({"id": goal_id, "delivered": delivered, "failed": failed})
    elif delivered:
        write_note(f"the answer of {goal_id} is delivered to {', '.join(delivered)}")
    if failed:
        raise OrgaError("; ".join(f"not delivered to {each}: {why}" for each, why in failed.items()))
    return 0


def _delivery_names(
    goal_id: str, there: Mapping[str, UndeliveredAnswer], name: str | None, *, all_of_them: bool, again: bool
) -> list[str]:
    if not there:
        raise UsageError(f"goal {goal_id!r} has no delivery that failed; see its deliveries: orga attach ID --json")
    if name is not None and name not in there:
        raise UsageError(f"goal {goal_id!r} has no delivery {name!r} that failed; there are: {', '.join(there)}")
    if name is not None:
        if there[name].last.outcome == "delivered" and not again:
            command = f"orga requeue {quote(goal_id)} {quote(name)} --again"
            raise UsageError(f"{name}: a requeue has delivered the answer already. To send it once more: {command}")
        return [name]
    left = [each for each, one in there.items() if again or one.last.outcome != "delivered"]
    if not left:
        raise UsageError(f"a requeue has delivered the answer of goal {goal_id!r}; --again sends it once more")
    if len(left) > 1 and not all_of_them:
        raise UsageError(f"goal {goal_id!r} was not delivered to {', '.join(left)}: name one, or give --all")
    return left


class _DeliverySender:
    """Sends through the channels of this configuration, with what the environment has here."""

    def __init__(self, here: CliContext) -> None:
        from orga.activities.text.secrets import KnownSecrets
        from orga.client.workers.parts import configured_deliveries, secret_names

        config = here.loaded.config
        self._client = here.client
        self._secrets = KnownSecrets.of_environment(os.environ, secret_names(config))
        try:
            self._channels = configured_deliveries(config, Path(here.connection.workplace.root), os.environ)
        except ValueError as error:
            raise UsageError(f"{error}; what a channel needs of the environment is needed here, too") from None

    async def __call__(self, wanted: UndeliveredAnswer, *, again: bool) -> None:
        """Send it, and record that.

        Raises:
            OrgaError: It was not taken, or is not to be sent twice.
        """
        from orga.activities.ports import NotifyError
        from orga.client.runs.redeliveries import record_sending

        name = wanted.request.name
        if (channel := self._channels.get(name)) is None:
            raise OrgaError(f"[goals.deliveries] has no {name!r} here")
        if not again:
            _refuse_possible_duplicate(channel, wanted)
        try:
            async with record_sending(self._client, wanted.run, name, wanted.last):
                await channel.deliver(self._secrets.hidden_in(wanted.request), wanted.run)
        except NotifyError as error:
            raise OrgaError(str(error)) from None


def _refuse_possible_duplicate(channel: "DeliveryChannel", wanted: UndeliveredAnswer) -> None:
    command = f"orga requeue {quote(wanted.run.workflow_id)} {wanted.request.name} --again"
    if not channel.is_repeatable and (wanted.may_have_arrived or wanted.last.outcome == "unknown"):
        raise OrgaError(f"it may have arrived, which nobody can tell but its readers; send it all the same: {command}")


@dataclass(frozen=True)
class _RequeueRequest:
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
    return run_interruptible(
        _requeue(_RequeueRequest(run, letter, all_, fork, again, set_ or ()), config, as_json=json)
    )


async def _requeue(wish: _RequeueRequest, config: Path | None, *, as_json: bool) -> int:
    async with run_context(wish.run_id, config) as (here, run_id):
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
            return await _requeue_in_fork(here, wish, as_json=as_json)
        if wish.as_fork:
            raise UsageError(f"run {wish.run_id!r} is live: leave --fork out")
        letters = await _requeue_letters(run, wish)
    if as_json:
        write_json({"id": wish.run_id, "letters": letters})
    else:
        write_note(f"{', '.join(letters)} of {wish.run_id} will be sent again before its next reasoning step")
    return 0


async def _requeue_letters(run: AgentHandle, wish: _RequeueRequest) -> list[str]:
    letters = wish.letters((await run.live_status()).dead_letters if wish.letter is None else ())
    for letter_id in letters:
        await run.requeue(letter_id)
    return letters


async def _requeue_in_fork(here: CliContext, wish: _RequeueRequest, *, as_json: bool) -> int:
    if not wish.as_fork:
        what = quote(wish.letter) if wish.letter is not None else "--all"
        raise OrgaError(
            f"run {wish.run_id!r} has ended; a fork of it can send its letters again: "
            f"orga requeue {quote(wish.run_id)} {what} --fork"
        )
    ended = await read_ended_run(here.client, wish.run_id)
    letters = wish.letters(ended.letters)
    forked = await requeue_in_fork(here.client, ended, letters, changes=input_changes(wish.settings))
    described = await forked.describe()
    if not await may_be_polled(here.client, described.task_queue):
        start = worker_command(await recorded_workplace(described))
        write_note(f"no worker polls task queue {described.task_queue!r}: the fork waits; start one with: {start}")
    if as_json:
        write_json({"id": forked.id, "forked_from": {"id": wish.run_id}, "letters": letters})
    else:
        write_note(f"{', '.join(letters)} of {wish.run_id} will be sent again by its fork")
        write_result(forked.id)
    return 0
