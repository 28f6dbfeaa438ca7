"""Deliveries that an ended goal has given up: what was to be sent stands in its history."""

from typing import NamedTuple

from temporalio.client import Client

from orga.activities.deliver import MAY_HAVE_ARRIVED
from orga.activities.ports import RunKey
from orga.client.history.chain import run_chain
from orga.client.history.events import happenings
from orga.client.runs.redeliveries import Sending, last_sending
from orga.workflows.types.goals.deliveries import DeliveryRequest
from orga.workflows.types.goals.result import GoalResult
from orga.workflows.types.names import DELIVER, GOAL_WORKFLOW


class Undelivered(NamedTuple):
    """An answer that a channel has not taken."""

    run: RunKey
    request: DeliveryRequest
    may_have_arrived: bool
    """Whether it is not known that each attempt failed plainly."""
    last: Sending
    """The newest time that it was sent again."""


async def undelivered(client: Client, goal_id: str) -> dict[str, Undelivered]:
    """Return what was given up, by channel.

    Raises:
        RunNotFound: No goal has this id.
        NotAnAgent: The id belongs to a workflow of another type.
    """
    run = RunKey(goal_id, (await run_chain(client, goal_id, kinds=(GOAL_WORKFLOW,))).run_ids[-1])
    found: dict[str, DeliveryRequest] = {}
    failed_plainly: set[str] = set()
    async for happening in happenings(client, goal_id, run.run_id):
        if happening.name == DELIVER and happening.kind == "scheduled":
            found[happening.key] = DeliveryRequest.model_validate(happening.value)
        elif happening.name == DELIVER and happening.kind == "finished":
            del found[happening.key]
        elif happening.kind == "workflow_completed":
            told = GoalResult.model_validate(happening.value).deliveries
            failed_plainly = {each.name for each in told if _is_plain(each.error)}
    return {
        request.name: Undelivered(
            run, request, request.name not in failed_plainly, await last_sending(client, run, request.name)
        )
        for request in found.values()
    }


def _is_plain(error: str) -> bool:
    """Return whether it begins with the kind of a failure that says so; what took too long or was cut off has none."""
    kind, colon, _ = error.partition(": ")
    return bool(colon) and kind.isidentifier() and kind != MAY_HAVE_ARRIVED
