"""Deliveries that an ended goal has given up: what was to be sent stands in its history."""

from typing import NamedTuple

from temporalio.client import Client

from orga.activities.ports import RunKey
from orga.client.history.chain import run_chain
from orga.client.history.events import happenings
from orga.workflows.types.goals.deliveries import DeliveryRequest
from orga.workflows.types.names import DELIVER, GOAL_WORKFLOW


class Undelivered(NamedTuple):
    """An answer that a channel has not taken."""

    run: RunKey
    request: DeliveryRequest


async def undelivered(client: Client, goal_id: str) -> dict[str, Undelivered]:
    """Return what was given up, by channel.

    Raises:
        RunNotFound: No goal has this id.
        NotAnAgent: The id belongs to a workflow of another type.
    """
    run = RunKey(goal_id, (await run_chain(client, goal_id, kinds=(GOAL_WORKFLOW,))).run_ids[-1])
    found: dict[str, DeliveryRequest] = {}
    async for happening in happenings(client, goal_id, run.run_id):
        if happening.name == DELIVER and happening.kind == "scheduled":
            found[happening.key] = DeliveryRequest.model_validate(happening.value)
        elif happening.name == DELIVER and happening.kind == "finished":
            del found[happening.key]
    return {request.name: Undelivered(run, request) for request in found.values()}
