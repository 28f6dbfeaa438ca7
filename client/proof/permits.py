"""The permits of a history: each call that it tells of bears the gate's signature on just that call."""

from collections.abc import Sequence

from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.client import Client

from orga.activities.permits import PermitKeys, Place
from orga.client.history.chain import RunHistory
from orga.client.history.values import values_of
from orga.client.proof.gate_record import Fact, Started, carried_out
from orga.workflows.types.gate import place_of

_RESET = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW


async def permit_fault(client: Client, run: RunHistory, facts: Sequence[Fact], keys: PermitKeys) -> tuple[int, str]:
    """Return how many calls have been looked at, and which of them bear no valid permit.

    Args:
        client: That the history is from.
        run: It.
        facts: What a replay of it showed; local calls stand nowhere else.
        keys: Of the workers that the run had.
    """
    recorded = [
        each for each in await carried_out(run.history, values_of(client, run.history)) if each.kind == "activity"
    ]
    local = [fact for fact in facts if isinstance(fact, Started) and fact.kind == "local"]
    executions = _executions(run)

    def is_signed(call: Started) -> bool:
        where = (Place(client.namespace, run.history.workflow_id, each, place_of(call.place)) for each in executions)
        return any(keys.is_valid(call.permit, place, call.name, call.arguments) for place in where)

    unsigned = [f"{call.place} {call.name}: no valid permit" for call in (*recorded, *local) if not is_signed(call)]
    return len(recorded) + len(local), "; ".join(unsigned)


def _executions(run: RunHistory) -> list[str]:
    """Return the ids of the executions that the history is of: what was before a reset was another's."""
    failed = (event.workflow_task_failed_event_attributes for event in run.events)
    return [run.run_id, *(each.base_run_id for each in failed if each.cause == _RESET and each.base_run_id)]
