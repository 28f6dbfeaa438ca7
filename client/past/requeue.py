"""Sends dead letters and failed deliveries of an ended run again, by a fork of the run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from temporalio.client import Client

from orga.activities.deliver import MAY_HAVE_ARRIVED
from orga.activities.ports import RunKey
from orga.client.errors import PastRefused
from orga.client.history.chain import NoSuchIteration, histories, run_chain
from orga.client.history.events import happenings
from orga.client.history.values import values_of
from orga.client.past.fork import fork
from orga.client.past.replayed_state import replayed_state
from orga.client.runs.agents import AgentHandle
from orga.client.runs.redeliveries import Sending, last_sending
from orga.workflows.decisions.limits import LIMIT_REASONS
from orga.workflows.types.goals.deliveries import DeliveryRequest
from orga.workflows.types.goals.goal_result import GoalResult
from orga.workflows.types.names import AGENT_WORKFLOWS, DELIVER, GOAL_WORKFLOW
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.recovery import DeadLetter


@dataclass(frozen=True)
class EndedRun:
    workflow_id: str
    state: AgentState

    @property
    def letters(self) -> tuple[DeadLetter, ...]:
        return self.state.dead_letters


async def read_ended_run(client: Client, workflow_id: str) -> EndedRun:
    """Return the last state of a run, replayed from its history. No worker is needed."""
    runs = await histories(client, await run_chain(client, workflow_id, kinds=AGENT_WORKFLOWS))
    return EndedRun(workflow_id, await replayed_state(runs[-1].history, values_of(client, runs[-1].history)))


async def requeue_in_fork(
    client: Client,
    ended: EndedRun,
    letter_ids: Sequence[str],
    *,
    changes: Mapping[str, Any] | None = None,
    new_id: str | None = None,
    by: str = "",
) -> AgentHandle:
    """Start a fork of an ended run that sends these letters again under their keys, and then continues.

    The ended run keeps its letters, because it cannot change any more.

    Raises:
        OrgaError: The run ended at a limit, and no change raises it. The fork would end at once.
        InvalidInput: There is no such letter.
    """
    state, changes = ended.state, changes or {}
    if state.stop is not None and state.stop[0] in LIMIT_REASONS and not changes.get("config"):
        what = f"run {ended.workflow_id!r} ended at its limit ({': '.join(state.stop)})"
        raise PastRefused(f"{what}; raise it for the fork, with --set")
    fork_at = partial(fork, client, ended.workflow_id, changes=changes, requeue=letter_ids, new_id=new_id, by=by)
    try:
        return await fork_at(state.iteration)
    except NoSuchIteration:  # the run was terminated during that iteration
        return await fork_at(max(state.iteration - 1, 0))


class UndeliveredAnswer(NamedTuple):
    """An answer that a channel did not accept."""

    run: RunKey
    request: DeliveryRequest
    may_have_arrived: bool
    """True unless every attempt is known to have failed plainly."""
    last: Sending
    """The newest repeated sending."""


async def undelivered_answers(client: Client, goal_id: str) -> dict[str, UndeliveredAnswer]:
    """Return the deliveries that were given up, by channel. Raise RunNotFound or NotAnAgent."""
    run = RunKey(goal_id, (await run_chain(client, goal_id, kinds=(GOAL_WORKFLOW,))).run_ids[-1])
    found: dict[str, DeliveryRequest] = {}
    failed_plainly: set[str] = set()
    async for happening in happenings(client, goal_id, run.run_id):
        if happening.name == DELIVER and happening.kind == "scheduled":
            found[happening.key] = DeliveryRequest.model_validate(happening.value)
        elif happening.name == DELIVER and happening.kind == "finished":
            del found[happening.key]
        elif happening.kind == "workflow_completed":
            deliveries = GoalResult.model_validate(happening.value).deliveries
            failed_plainly = {each.name for each in deliveries if _is_certain_failure(each.error)}
    return {
        request.name: UndeliveredAnswer(
            run, request, request.name not in failed_plainly, await last_sending(client, run, request.name)
        )
        for request in found.values()
    }


def _is_certain_failure(error: str) -> bool:
    """Return whether the error begins with a kind that excludes arrival. Timeouts and lost connections have no such
    kind.
    """
    kind, colon, _ = error.partition(": ")
    return bool(colon) and kind.isidentifier() and kind != MAY_HAVE_ARRIVED
