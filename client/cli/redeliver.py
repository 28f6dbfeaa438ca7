"""`orga requeue` of a goal that has ended: its answer is sent once more to the channels that have not taken it."""

import os
from collections.abc import Sequence
from pathlib import Path

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.output import json_result, note
from orga.client.cli.session import Session
from orga.client.errors import OrgaError
from orga.client.past.undelivered import Undelivered, undelivered


async def redeliver(here: Session, goal_id: str, name: str | None, *, all_of_them: bool, as_json: bool) -> int:
    """Send from this machine, under the old keys; nothing of the goal changes.

    Raises:
        UsageError: It is not clear which, or a channel cannot be used here.
        OrgaError: It was not taken.
    """
    there = await undelivered(here.client, goal_id)
    names = _meant(goal_id, list(there), name, all_of_them=all_of_them)
    await _send(here, [there[each] for each in names])
    if as_json:
        json_result({"id": goal_id, "delivered": names})
    else:
        note(f"the answer of {goal_id} is delivered to {', '.join(names)}")
    return 0


def _meant(goal_id: str, there: Sequence[str], name: str | None, *, all_of_them: bool) -> list[str]:
    if not there:
        raise UsageError(f"goal {goal_id!r} has no delivery that failed; see its deliveries: orga attach ID --json")
    if name is not None and name not in there:
        raise UsageError(f"goal {goal_id!r} has no delivery {name!r} that failed; there are: {', '.join(there)}")
    if name is None and len(there) > 1 and not all_of_them:
        raise UsageError(f"goal {goal_id!r} was not delivered to {', '.join(there)}: name one, or give --all")
    return [name] if name is not None else list(there)


async def _send(here: Session, wanted: Sequence[Undelivered]) -> None:
    from orga.activities.known_secrets import KnownSecrets
    from orga.activities.ports import NotifyError
    from orga.client.workers.deliveries import configured_deliveries
    from orga.client.workers.parts import secret_names

    config = here.loaded.config
    secrets = KnownSecrets.of_environment(os.environ, secret_names(config))
    try:
        channels = configured_deliveries(config, Path(here.connection.workplace.root), os.environ)
    except ValueError as error:
        raise UsageError(f"{error}; what a channel needs of the environment is needed here, too") from None
    for run, request in wanted:
        if request.name not in channels:
            raise UsageError(f"[goals.deliveries] has no {request.name!r} here")
        try:
            await channels[request.name].deliver(secrets.hidden_in(request), run)
        except NotifyError as error:
            raise OrgaError(f"{request.name}: {error}") from None
