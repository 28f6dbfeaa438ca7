"""Forks a run or a goal: a new run continues from the same past.

The fork's worker builds that past itself, because it trusts no state from a starter. The client builds it, too, and so
reports problems early.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowHistory
from temporalio.common import SearchAttributePair, TypedSearchAttributes, WorkflowIDConflictPolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from orga.activities.ports import RunKey
from orga.client.config.workplace import recorded_policy, recorded_workplace
from orga.client.errors import OrgaError, PastRefused, ServerLost
from orga.client.history.chain import NoSuchIteration, RunHistory, boundary_of, histories, run_chain
from orga.client.history.events import folded_context, happenings
from orga.client.history.values import converters_of
from orga.client.past.replayed_state import history_until_task, replayed_state
from orga.client.runs.agents import STARTED_BY_MEMO, SUMMARY_CHARS, AgentHandle, new_run_id
from orga.client.runs.goals import GoalHandle
from orga.client.runs.ids import id_taken_error, reuse_policy
from orga.client.runs.redeliveries import Sending, last_sending
from orga.client.server.server_errors import is_lost
from orga.workflows.decisions.continue_as_new import MAX_CARRIED_BYTES
from orga.workflows.decisions.fork import fork_state
from orga.workflows.decisions.goals.begin import goal_fork_state
from orga.workflows.decisions.limits import LIMIT_REASONS
from orga.workflows.types.context import DigestMismatch, messages_digest
from orga.workflows.types.goals.deliveries import MAY_HAVE_ARRIVED, DeliveryRequest
from orga.workflows.types.goals.pursuit import GoalResult, GoalState
from orga.workflows.types.names import AGENT_WORKFLOW, DELIVER, GOAL_WORKFLOW, TENANT
from orga.workflows.types.past import ForkedFrom, ForkInput, GoalForkInput, parse_fork, parse_goal_fork
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.state import AgentState
from orga.workflows.types.text import one_line
from orga.workflows.types.tool_calls.recovery import DeadLetter
from orga.workflows.types.workplace import run_memo

_NO_SUCH_RUN = (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT)
"""Errors after which a retry is useless. For an id that no run can have, the server reports an invalid argument."""


class RunPasts:
    """Implements the port `Pasts` with a worker's client, for runs in the client's namespace."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def shared_past(self, fork_input: ForkInput | GoalForkInput) -> AgentState:
        """Return the past. Raise InvalidInput if a retry is useless. Temporal retries after other errors."""
        try:
            return await shared_past(self._client, fork_input)
        except OrgaError as error:
            cause = error.__cause__
            if isinstance(cause, RPCError) and cause.status not in _NO_SUCH_RUN:
                raise
            raise InvalidInput(f"fork: {error}") from None


async def shared_past(client: Client, fork_input: ForkInput | GoalForkInput) -> AgentState:
    """Return the past that a fork shares.

    Raises:
        InvalidInput: A change for the fork does not fit. The text names each bad key.
        NoSuchIteration: The run has not finished that iteration.
        RunNotFound: The server does not have the run.
        OrgaError: The past is too large, ends with the answer, or contradicts its own history.
    """
    fork = fork_input.fork
    kinds = (GOAL_WORKFLOW,) if isinstance(fork_input, GoalForkInput) else (AGENT_WORKFLOW,)
    chain = await run_chain(client, fork.workflow_id, fork.run_id or None, kinds)
    runs = await histories(client, chain)
    shared = _shared_history(fork.workflow_id, runs, fork.iteration)
    history = shared.history
    state = await replayed_state(history, converters_of(client, history))
    if state.iteration != fork.iteration:
        first = state.forked_from.iteration if state.forked_from else 0
        raise NoSuchIteration(fork.workflow_id, fork.iteration, state.iteration + 1, first)
    await _check_messages(client, history, state)
    has_answered = state.stop is not None and state.stop.reason == "completed"
    has_work = fork_input.task is not None or bool(fork.requeue)
    if has_answered and not has_work:
        answer = f"iteration {fork.iteration} is the answer of run {fork.workflow_id!r}"
        raise PastRefused(f"{answer}: give the fork a --task")
    source = ForkedFrom(workflow_id=fork.workflow_id, run_id=shared.run_id, iteration=fork.iteration)
    past = _build_past(state, source, fork_input, shared.ended_at)
    if len(past.model_dump_json().encode()) > MAX_CARRIED_BYTES:
        raise PastRefused(f"the past of {fork.workflow_id!r} is too large to share; fork it at an earlier iteration")
    return past


def _build_past(
    state: AgentState, source: ForkedFrom, fork_input: ForkInput | GoalForkInput, ended_at: datetime
) -> AgentState:
    if isinstance(fork_input, ForkInput):
        return fork_state(state, source, fork_input, ended_at)
    if not isinstance(state, GoalState):
        raise PastRefused(f"run {source.workflow_id!r} is no goal")
    return goal_fork_state(state, source, fork_input, ended_at)


class _SharedHistory(NamedTuple):
    """The history of a segment, up to the end of the last iteration that a fork shares."""

    run_id: str
    history: WorkflowHistory
    ended_at: datetime


def _shared_history(workflow_id: str, runs: Sequence[RunHistory], iteration: int) -> _SharedHistory:
    """Return the history up to the end of the iteration. Raise NoSuchIteration if it has not ended.

    The last iteration of a completed run ends with the run. A terminated run may have stopped in the middle of one.
    """
    try:
        boundary = boundary_of(workflow_id, runs, iteration)
    except NoSuchIteration:
        run = runs[-1]
        last = run.events[-1]
        if last.event_type != EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
            raise
        return _SharedHistory(run.run_id, run.history, last.event_time.ToDatetime(tzinfo=UTC))
    run = next(run for run in runs if run.run_id == boundary.run_id)
    return _SharedHistory(run.run_id, history_until_task(run.history, boundary.event_id), boundary.at)


async def _check_messages(client: Client, history: WorkflowHistory, state: AgentState) -> None:
    """Raise OrgaError if the replayed messages do not match the recorded digests."""
    try:
        recorded = await folded_context(client, history, state.iteration)
    except DigestMismatch as error:
        raise PastRefused(f"the history of {history.workflow_id!r} is inconsistent: {error}") from None
    if state.conversation.forget:  # the messages no longer include what was recalled for that call
        recorded = tuple(message for message in recorded if not message.knowledge)
    if state.conversation.sent and messages_digest(recorded) != state.conversation.digest:
        raise PastRefused(f"the messages of {history.workflow_id!r} are not those that its history recorded")


async def fork(
    client: Client,
    workflow_id: str,
    at_iteration: int,
    *,
    changes: Mapping[str, Any] | None = None,
    task: str | None = None,
    requeue: Collection[str] = (),
    new_id: str | None = None,
    by: str = "",
) -> AgentHandle:
    """Start a run that shares another run's past up to the end of an iteration. The other run does not change.

    The input of the fork only refers to the past. The fork's worker reads it from the other run's history.

    The fork has the model, instructions and settings of its past, and its agent's present tools. A goal also keeps
    plan, scores and memory. The fork's idempotency keys differ from the other run's, so its effects are its own. Only
    dead letters that it sends again keep their keys.

    Args:
        client: From `connect`.
        workflow_id: The run whose past is shared, live or ended.
        at_iteration: The last iteration of that past. 0 shares only what came before the first iteration.
        changes: Keys of the input that differ in the fork (`model`, `instructions`, `tools`, `agent`; for a goal
            `model`, `skills`, `agent`, `deliver`). Keys of `config` are changed one by one.
        task: The fork's task, asked after the conversation so far. At iteration 0 it replaces the old task. A goal
            takes it as guidance.
        requeue: Dead letters of that past that the fork sends again first.
        new_id: The fork's id, by default `agent-<uuid7>`, or `goal-<uuid7>` for a goal.
        by: The name of the person who forks it. The fork's memo has it.

    Raises:
        InvalidInput: The input is invalid. The text names each bad key, and nothing was started.
        NoSuchIteration: The run has not finished that iteration.
        RunNotFound: No run has this id.
    """
    described = await AgentHandle(client, workflow_id).describe()
    is_goal = described.workflow_type == GOAL_WORKFLOW
    fork_id = new_run_id(new_id, "goal" if is_goal else "agent")
    if changes and "fork" in changes:  # a caller that checks access has checked it for `workflow_id` only
        raise InvalidInput("fork: cannot be changed. It names the run whose past is shared")
    given: dict[str, Any] = {
        "fork": {"workflow_id": workflow_id, "iteration": at_iteration, "requeue": list(requeue)},
        **(changes or {}),
    }
    if task is not None:
        given["task"] = task
    fork_input = parse_goal_fork(given) if is_goal else parse_fork(given)
    return await _start_fork(client, described, fork_input, await shared_past(client, fork_input), fork_id, by=by)


async def _start_fork(
    client: Client,
    described: WorkflowExecutionDescription,
    fork_input: ForkInput | GoalForkInput,
    past: AgentState,
    workflow_id: str,
    *,
    by: str,
) -> AgentHandle:
    """Start the fork with a reference to exactly this past. The worker reads it again, from the same segment."""
    exact_input = fork_input.with_run(past.forked_from.run_id if past.forked_from else "")
    memo = run_memo(await recorded_workplace(described), await recorded_policy(described))
    if by:
        memo = {**memo, STARTED_BY_MEMO: by}
    # The fork itself sets its tenant only after a worker has prepared it.
    tenant = described.typed_search_attributes.get(TENANT)
    try:
        await client.start_workflow(
            GOAL_WORKFLOW if isinstance(fork_input, GoalForkInput) else AGENT_WORKFLOW,
            exact_input.model_dump(mode="json", exclude_unset=True),
            id=workflow_id,
            task_queue=described.task_queue,
            id_reuse_policy=reuse_policy(),
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            static_summary=one_line(past.input.task, SUMMARY_CHARS),
            memo=memo or None,
            search_attributes=TypedSearchAttributes([SearchAttributePair(TENANT, tenant)] if tenant else []),
        )
    except WorkflowAlreadyStartedError:
        raise await id_taken_error(client, workflow_id, "leave it out") from None
    except RPCError as error:
        problem = f"the server refuses {workflow_id!r}: {error.message}"
        raise (ServerLost(problem) if is_lost(error) else OrgaError(problem)) from error
    handle = GoalHandle if isinstance(fork_input, GoalForkInput) else AgentHandle
    return handle(client, workflow_id)


@dataclass(frozen=True)
class EndedRun:
    """A run with its last state."""

    workflow_id: str
    state: AgentState

    @property
    def letters(self) -> tuple[DeadLetter, ...]:
        return self.state.dead_letters


async def read_ended_run(client: Client, workflow_id: str) -> EndedRun:
    """Return the last state of a run, replayed from its history. No worker is needed."""
    runs = await histories(client, await run_chain(client, workflow_id, kinds=(AGENT_WORKFLOW,)))
    last = runs[-1].history
    return EndedRun(workflow_id, await replayed_state(last, converters_of(client, last)))


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

    The ended run keeps its letters, because it can no longer change.

    Raises:
        OrgaError: The run ended at a limit, and no change raises that limit. The fork would end at once.
        InvalidInput: There is no such letter.
    """
    state, changes = ended.state, changes or {}
    if state.stop is not None and state.stop.reason in LIMIT_REASONS and not changes.get("config"):
        limit = ": ".join(state.stop)
        raise PastRefused(f"run {ended.workflow_id!r} ended at its limit ({limit}); raise it for the fork, with --set")
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
    """False only if the recorded error shows that the answer did not arrive."""
    last: Sending
    """The newest repetition by a person, or `NEVER_SENT`."""


async def undelivered_answers(client: Client, goal_id: str) -> dict[str, UndeliveredAnswer]:
    """Return the deliveries that were given up, by channel. Raise RunNotFound or NotAnAgent."""
    run = RunKey(goal_id, (await run_chain(client, goal_id, kinds=(GOAL_WORKFLOW,))).run_ids[-1])
    given_up: dict[str, DeliveryRequest] = {}
    certain_failures: set[str] = set()
    async for happening in happenings(client, goal_id, run.run_id):
        if happening.name == DELIVER and happening.kind == "scheduled":
            given_up[happening.key] = DeliveryRequest.model_validate(happening.value)
        elif happening.name == DELIVER and happening.kind == "finished":
            del given_up[happening.key]
        elif happening.kind == "workflow_completed":
            deliveries = GoalResult.model_validate(happening.value).deliveries
            certain_failures = {each.name for each in deliveries if _is_certain_failure(each.error)}
    answers: dict[str, UndeliveredAnswer] = {}
    for request in given_up.values():
        channel = request.name
        last = await last_sending(client, run, channel)
        answers[channel] = UndeliveredAnswer(run, request, may_have_arrived=channel not in certain_failures, last=last)
    return answers


def _is_certain_failure(error: str) -> bool:
    """Return whether the answer did not arrive. Then the error has a kind, unlike timeouts and lost connections."""
    kind, colon, _ = error.partition(": ")
    return bool(colon) and kind.isidentifier() and kind != MAY_HAVE_ARRIVED
