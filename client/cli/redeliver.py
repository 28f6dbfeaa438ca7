"""`orga requeue` of a goal that has ended: its answer is sent once more to the channels that have not taken it."""

import os
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.output import json_result, note
from orga.client.cli.session import Session
from orga.client.errors import OrgaError
from orga.client.past.undelivered import Undelivered, undelivered

if TYPE_CHECKING:
    from orga.activities.deliver import DeliveryChannel


async def redeliver(
    here: Session, goal_id: str, name: str | None, *, all_of_them: bool, again: bool, as_json: bool
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
    there = await undelivered(here.client, goal_id)
    names = _meant(goal_id, there, name, all_of_them=all_of_them, again=again)
    send = _Sender(here)
    delivered: list[str] = []
    failed: dict[str, str] = {}
    for each in names:
        try:
            await send(there[each], again=again)
            delivered.append(each)
        except OrgaError as error:
            failed[each] = str(error)
    if as_json:
        json_result({"id": goal_id, "delivered": delivered, "failed": failed})
    elif delivered:
        note(f"the answer of {goal_id} is delivered to {', '.join(delivered)}")
    if failed:
        raise OrgaError("; ".join(f"not delivered to {each}: {why}" for each, why in failed.items()))
    return 0


def _meant(
    goal_id: str, there: Mapping[str, Undelivered], name: str | None, *, all_of_them: bool, again: bool
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


class _Sender:
    """Sends through the channels of this configuration, with what the environment has here."""

    def __init__(self, here: Session) -> None:
        from orga.activities.known_secrets import KnownSecrets
        from orga.client.workers.deliveries import configured_deliveries
        from orga.client.workers.parts import secret_names

        config = here.loaded.config
        self._client = here.client
        self._secrets = KnownSecrets.of_environment(os.environ, secret_names(config))
        try:
            self._channels = configured_deliveries(config, Path(here.connection.workplace.root), os.environ)
        except ValueError as error:
            raise UsageError(f"{error}; what a channel needs of the environment is needed here, too") from None

    async def __call__(self, wanted: Undelivered, *, again: bool) -> None:
        """Send it, and record that.

        Raises:
            OrgaError: It was not taken, or is not to be sent twice.
        """
        from orga.activities.ports import NotifyError
        from orga.client.runs.redeliveries import recorded

        name = wanted.request.name
        if (channel := self._channels.get(name)) is None:
            raise OrgaError(f"[goals.deliveries] has no {name!r} here")
        if not again:
            _check_is_not_there(channel, wanted)
        try:
            async with recorded(self._client, wanted.run, name, wanted.last):
                await channel.deliver(self._secrets.hidden_in(wanted.request), wanted.run)
        except NotifyError as error:
            raise OrgaError(str(error)) from None


def _check_is_not_there(channel: "DeliveryChannel", wanted: Undelivered) -> None:
    command = f"orga requeue {quote(wanted.run.workflow_id)} {wanted.request.name} --again"
    if not channel.is_repeatable and (wanted.may_have_arrived or wanted.last.outcome == "unknown"):
        raise OrgaError(f"it may have arrived, which nobody can tell but its readers; send it all the same: {command}")
