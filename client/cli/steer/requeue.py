"""`orga requeue`: send failed calls and deliveries again."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer
from temporalio.client import WorkflowExecutionStatus

from orga.client.cli.connection import CliContext, run_context
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.options import ConfigFile, Json, RunId, login_name
from orga.client.cli.shown.text import write_json, write_note, write_result
from orga.client.cli.steer.intervene import note_missing_worker
from orga.client.cli.steer.rewind import input_changes
from orga.client.errors import OrgaError
from orga.client.past.fork import UndeliveredAnswer, read_ended_run, requeue_in_fork, undelivered_answers
from orga.workflows.types.names import GOAL_WORKFLOW
from orga.workflows.types.tool_calls.recovery import DeadLetter


async def _redeliver(
    context: CliContext, goal_id: str, name: str | None, *, all_of_them: bool, again: bool, as_json: bool
) -> None:
    """Send the answer of an ended goal again, from this machine and with the old idempotency keys.

    The answer goes to deliveries that failed. If one fails again, the next one is tried. The goal does not change.

    Args:
        name: The name of a delivery. With None, `all_of_them` is needed if several are left.
        all_of_them: Use all deliveries that have not succeeded, neither in the goal nor in an earlier requeue.
        again: Also use deliveries that succeeded in an earlier requeue, or whose answer may have arrived.

    Raises:
        UsageError: It is not clear which delivery is meant, or the channels cannot be used here.
        OrgaError: Some deliveries failed. Those that succeeded are reported first.
    """
    answers = await undelivered_answers(context.client, goal_id)
    names = _delivery_names(goal_id, answers, name, all_of_them=all_of_them, again=again)
    sender = _DeliverySender(context)
    delivered: list[str] = []
    failed: dict[str, str] = {}
    for delivery_name in names:
        try:
            await sender.send(answers[delivery_name], again=again)
            delivered.append(delivery_name)
        except OrgaError as error:
            failed[delivery_name] = str(error)
    if as_json:
        write_json({"id": goal_id, "delivered": delivered, "failed": failed})
    elif delivered:
        write_note(f"the answer of {goal_id} is delivered to {', '.join(delivered)}")
    if failed:
        raise OrgaError("; ".join(f"not delivered to {failed_name}: {why}" for failed_name, why in failed.items()))


def _delivery_names(
    goal_id: str, answers: Mapping[str, UndeliveredAnswer], name: str | None, *, all_of_them: bool, again: bool
) -> list[str]:
    if not answers:
        raise UsageError(f"goal {goal_id!r} has no delivery that failed. See its deliveries: orga attach ID --json")
    if name is not None and name not in answers:
        raise UsageError(f"goal {goal_id!r} has no delivery {name!r} that failed. There are: {', '.join(answers)}")
    if name is not None:
        if answers[name].last.outcome == "delivered" and not again:
            command = f"orga requeue {quote(goal_id)} {quote(name)} --again"
            raise UsageError(f"{name}: a requeue has already delivered the answer. To send it once more: {command}")
        return [name]
    left = [each for each, answer in answers.items() if again or answer.last.outcome != "delivered"]
    if not left:
        raise UsageError(f"a requeue has delivered the answer of goal {goal_id!r}. --again sends it once more")
    if len(left) > 1 and not all_of_them:
        raise UsageError(f"goal {goal_id!r} was not delivered to {', '.join(left)}. Name one, or add --all")
    return left


class _DeliverySender:
    """Sends through the channels of this configuration, with the secrets of this environment."""

    def __init__(self, context: CliContext) -> None:
        from orga.activities.text.secrets import KnownSecrets
        from orga.client.workers.parts import configured_deliveries, secret_names

        config = context.config
        self._client = context.client
        self._secrets = KnownSecrets.from_environment(os.environ, secret_names(config))
        try:
            self._channels = configured_deliveries(config, Path(context.connection.workplace.root), os.environ)
        except ValueError as error:
            raise UsageError(f"{error}. Set the environment variables that the channel needs") from None

    async def send(self, answer: UndeliveredAnswer, *, again: bool) -> None:
        """Send an answer, and record the outcome. Raise OrgaError if it is not accepted, or might arrive twice."""
        from orga.activities.ports import NotifyError
        from orga.client.runs.redeliveries import record_sending

        name = answer.request.name
        if (channel := self._channels.get(name)) is None:
            raise OrgaError(f"this configuration has no {name!r} in [goals.deliveries]")
        if not again and not channel.is_repeatable and (answer.may_have_arrived or answer.last.outcome == "unknown"):
            command = f"orga requeue {quote(answer.run.workflow_id)} {name} --again"
            raise OrgaError(f"it may have arrived; only its readers can know. To send it anyway: {command}")
        try:
            async with record_sending(self._client, answer.run, name, answer.last):
                await channel.deliver(self._secrets.redact_record(answer.request), answer.run)
        except NotifyError as error:
            raise OrgaError(str(error)) from None


def _letter_ids(run_id: str, letters: Sequence[DeadLetter], *, all_of_them: bool) -> list[str]:
    """Return the letters' ids, for a command that names none. Raise UsageError for several without `all_of_them`."""
    ids = [letter.letter_id for letter in letters if not letter.requeued]
    if not ids:
        raise UsageError(f"run {run_id!r} has no dead letter. See: orga list --dead-letters")
    if len(ids) > 1 and not all_of_them:
        raise UsageError(f"run {run_id!r} has the letters {', '.join(ids)}. Name one, or add --all")
    return ids


async def requeue(
    run: RunId,
    letter: Annotated[
        str | None,
        typer.Argument(metavar="LETTER", help="The letter's id. See: orga list --dead-letters", show_default=False),
    ] = None,
    *,
    all_: Annotated[bool, typer.Option("--all", help="All letters of the run.")] = False,
    fork: Annotated[
        bool, typer.Option("--fork", help="If the run has ended: send it in a new run with the same past.")
    ] = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="With --fork: as in orga fork.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="If a goal has ended: send its answer even if it has or may have arrived.")
    ] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> None:
    """A live run sends the letter before its next reasoning step. LETTER may be omitted if there is only one.

    If a goal has ended, this machine sends its answer again to a delivery that failed; LETTER is the delivery's name.
    An answer that an earlier requeue delivered, or that may have arrived in a chat or mailbox, is sent only with
    --again.

    Example: orga requeue ID 3.0

    Example: orga requeue ID --all --fork --set max_iterations=50
    """
    if letter is not None and all_:
        raise UsageError("--all: cannot be combined with LETTER. Give one of them")
    if set_ and not fork:
        raise UsageError("--set: changes settings of a fork. Add --fork")
    named = [letter] if letter is not None else []
    async with run_context(run, config) as (context, run_id):
        handle = context.run(run_id)
        described = await handle.describe()
        has_ended = described.status != WorkflowExecutionStatus.RUNNING
        if has_ended and described.workflow_type == GOAL_WORKFLOW:
            await _redeliver(context, run_id, letter, all_of_them=all_, again=again, as_json=json)
            return
        if again:
            raise UsageError(f"--again: {run_id!r} is not a goal that has ended")
        if fork and not has_ended:
            raise UsageError(f"--fork: run {run_id!r} is live. Remove --fork")
        if has_ended and not fork:
            raise OrgaError(
                f"run {run_id!r} has ended. A fork of it can send its letters again: "
                f"orga requeue {quote(run_id)} {quote(letter) if letter is not None else '--all'} --fork"
            )
        if fork:
            ended = await read_ended_run(context.client, run_id)
            letters = named or _letter_ids(run_id, ended.letters, all_of_them=all_)
            forked = await requeue_in_fork(context.client, ended, letters, changes=input_changes(set_ or ()))
            await note_missing_worker(context, forked, "the fork waits")
        else:
            forked = None
            letters = named or _letter_ids(run_id, (await handle.live_status()).dead_letters, all_of_them=all_)
            for letter_id in letters:
                await handle.requeue(letter_id, by=login_name())
    if json:
        origin = {"id": run_id} if forked is None else {"id": forked.id, "forked_from": {"id": run_id}}
        write_json(origin | {"letters": letters})
        return
    when = "before its next reasoning step" if forked is None else "by its fork"
    write_note(f"{', '.join(letters)} of {run_id} will be sent again {when}")
    if forked is not None:
        write_result(forked.id)
