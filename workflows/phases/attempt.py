"""One allowed call as an activity: its options, its slot, its circuit, and its outcome."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from enum import IntEnum
from typing import Any, Concatenate, NamedTuple, ParamSpec

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import FailureError, is_cancelled_exception

from orga.workflows.decisions.control.interventions import remaining_s
from orga.workflows.decisions.recall import call_behalf, with_recalled_taint
from orga.workflows.decisions.result import argument_summary
from orga.workflows.decisions.tool_calls import dispatch
from orga.workflows.decisions.tool_calls.calls import (
    answered_unrun_outcome,
    cancelled_outcome,
    effect_text,
    failed_outcome,
    not_run_outcome,
    refused_outcome,
)
from orga.workflows.decisions.tool_calls.recovery import max_attempts, tool_recovery
from orga.workflows.phases import gate
from orga.workflows.phases.agent_run import Run, show_circuits
from orga.workflows.phases.control.failure_text import failure_kind, failure_text
from orga.workflows.phases.control.run import CutShort, Interrupted
from orga.workflows.phases.failures import (
    asked_inputs,
    had_effect,
    is_infrastructure_failure,
    is_turned_away_by_worker,
    may_have_acted,
    may_still_act,
)
from orga.workflows.phases.gate import AllowedCall
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.names import CLOSED_CIRCUIT_SHOWN
from orga.workflows.types.questions import AskedInputs, Completion, GivenInputs
from orga.workflows.types.recall import KNOWLEDGE_TOOLS, knowledge_report_in
from orga.workflows.types.state import AgentState
from orga.workflows.types.text import clip
from orga.workflows.types.tool_calls.gate import (
    COMPENSATED_PURPOSES,
    UNCONFIRMED_PURPOSES,
    Verdict,
    permit_terms,
)
from orga.workflows.types.tool_calls.recovery import Outcome
from orga.workflows.types.tool_calls.tools import (
    MAX_LOCAL_TIMEOUT_S,
    REPORT_S,
    Caller,
    ToolOutput,
    ToolRequest,
    ToolSpec,
)


def _admit_by_circuit(run: Run, spec: ToolSpec) -> str:
    """Let a call begin at the tool's circuit, and return "". If the circuit is open, return the text for the model."""
    try:
        run.change_state(dispatch.with_admitted_call, spec, run.now)
    except dispatch.CircuitOpen as refusal:
        return str(refusal)
    return ""


def _count_failure(run: Run, spec: ToolSpec, error: BaseException) -> None:
    """Record a failure at the tool's circuit. A failure that is the call's own fault does not count."""
    if is_infrastructure_failure(error, spec.options.non_retryable):
        _change_circuit(run, spec, dispatch.with_circuit_failure, run.now, failure_kind(error))
    else:
        _change_circuit(run, spec, dispatch.with_circuit_released)


P = ParamSpec("P")


def _change_circuit(
    run: Run,
    spec: ToolSpec,
    decide: Callable[Concatenate[AgentState, ToolSpec, P], AgentState],
    *args: P.args,
    **kwargs: P.kwargs,
) -> None:
    before = _circuit_state(run, spec)
    run.change_state(lambda state: decide(state, spec, *args, **kwargs))
    after = _circuit_state(run, spec)
    has_opened_or_left = (before == "open") != (after == "open")
    has_closed = (before, after) == ("half_open", "closed") and run.setup.search_attributes
    if has_opened_or_left or (has_closed and workflow.patched(CLOSED_CIRCUIT_SHOWN)):
        show_circuits(run)


def _circuit_state(run: Run, spec: ToolSpec) -> str:
    breaker = run.state.breakers.get(spec.name)
    return breaker.state if breaker is not None else "closed"


HEARTBEAT_TIMEOUT_S = 10.0
COMPLETION_TIMEOUT_S = 60.0
"""Seconds for one attempt to record the end of a deferred call. The check of its result may take 20."""

SCHEDULE_TO_START_S = 60.0
"""Seconds until a worker has to take a call, for tools on a task queue of their own."""

MAX_ITERATION_RESULT_BYTES = 2_000_000
"""Bytes of one iteration's results, after which no more of its calls begin. The history holds them in full."""

RESULTS_FULL_TEXT = (
    "the other results of this reply are as much as one step can take; call it again, with fewer at once"
)

LOCAL_RETRY_THRESHOLD = timedelta(milliseconds=1)
"""With longer delays, a retry waits for a timer and not within the workflow task, so that an abort is handled."""


class CallIdentity(NamedTuple):
    """The activity id of a call, the idempotency key of all its attempts, and when it has to end."""

    activity_id: str
    key: str
    is_cut_short: CutShort
    """Returns True once the call has to end."""
    given: GivenInputs | None = None
    """Input of people that the tool's server asked for."""

    @property
    def is_before_reasoning(self) -> bool:
        return self.activity_id.startswith("0.")


class KnownEffect(IntEnum):
    """The part of its effect that a failed call may have had. A greater value stays after a smaller one."""

    NOT_RUN = 0
    NONE = 1
    POSSIBLE = 2
    """It may have acted, but may be repeated."""
    UNKNOWN = 3
    """It may have acted irreversibly, so it must not be repeated before somebody has checked."""
    CERTAIN = 4
    """It acted irreversibly, although its answer cannot be read. It must not be repeated."""


class FailedCall(NamedTuple):
    """A call that failed, after its last attempt."""

    error: str
    """One line: the kind of failure and its message."""
    effect: KnownEffect = KnownEffect.NONE
    goes_on: bool = False
    """True if it was cut off and the work that it began may still act."""
    asked: AskedInputs | None = None

    @property
    def was_run(self) -> bool:
        return self.effect > KnownEffect.NOT_RUN

    @property
    def is_unrepeatable(self) -> bool:
        return self.effect >= KnownEffect.UNKNOWN

    @property
    def took_effect(self) -> bool:
        return self.effect == KnownEffect.CERTAIN

    @property
    def effect_warning(self) -> str:
        return effect_text(took_effect=self.took_effect) if self.is_unrepeatable else ""

    def outcome(self, call: ToolCall) -> Outcome:
        if not self.was_run:
            outcome = answered_unrun_outcome(call, self.error)
        else:
            outcome = failed_outcome(call, self.error, is_unknown=self.is_unrepeatable, took_effect=self.took_effect)
        return outcome.with_possible_effect(self.effect >= KnownEffect.POSSIBLE).with_going_on(self.goes_on)

    def after_earlier_failure(self, earlier: "FailedCall") -> "FailedCall":
        """Return this failure with the possible effects of an earlier failure of the same call."""
        error = self.error if self.was_run else f"{earlier.error}; tried again: {self.error}"
        effect, goes_on = max(self.effect, earlier.effect), self.goes_on or earlier.goes_on
        return self._replace(error=error, effect=effect, goes_on=goes_on)

    def with_remark(self, remark: str) -> "FailedCall":
        return self._replace(error=f"{self.error}; {remark}")


def task_outcome(task: asyncio.Task[Outcome], allowed: AllowedCall) -> Outcome:
    if not task.done() or task.cancelled():
        return cancelled_outcome(allowed.call, allowed.spec)
    return task.result()


def is_acting_step(allowed: AllowedCall) -> bool:
    """Return True if the call may have to be undone. That is only possible after it has ended."""
    return allowed.purpose in COMPENSATED_PURPOSES and allowed.spec.effect != "read_only"


async def confirm_call_if_paused(
    run: Run, allowed: AllowedCall, activity_id: str, paused_before_s: float
) -> AllowedCall | Outcome:
    """Return the call if it may still be carried out, or else its outcome.

    If people have held up the run since the call began to wait, it is judged once more. `paused_before_s` is what
    `run.paused_seconds()` was at that time.
    """
    if not run.was_paused_since(paused_before_s) or run.is_interrupted() or allowed.purpose in UNCONFIRMED_PURPOSES:
        return allowed
    try:
        confirmed = await gate.confirm_allowed(run, allowed, activity_id)
    except (Interrupted, asyncio.CancelledError):
        return not_run_outcome(allowed.call)
    return refused_outcome(allowed.call, confirmed) if isinstance(confirmed, Verdict) else confirmed


async def execute_attempt(run: Run, allowed: AllowedCall, identity: CallIdentity) -> Outcome | FailedCall:
    """Carry out the call in one of the run's slots. Cancellation is an outcome too."""
    paused_before_s = run.paused_seconds()
    try:
        await run.slots.acquire()
    except asyncio.CancelledError:
        return not_run_outcome(allowed.call)
    try:
        if allowed.purpose == "reply" and run.result_bytes > MAX_ITERATION_RESULT_BYTES:
            return not_run_outcome(allowed.call, RESULTS_FULL_TEXT)
        confirmed = await confirm_call_if_paused(run, allowed, identity.activity_id, paused_before_s)
        return confirmed if isinstance(confirmed, Outcome) else await _execute_in_slot(run, confirmed, identity)
    finally:
        run.slots.release()


async def _execute_in_slot(run: Run, allowed: AllowedCall, identity: CallIdentity) -> Outcome | FailedCall:
    spec = allowed.spec
    if refusal := _admit_by_circuit(run, spec):
        return FailedCall(refusal, KnownEffect.NOT_RUN)
    try:
        result = await _execute_activity(run, allowed, _tool_request(run, allowed, identity), identity.activity_id)
    except (asyncio.CancelledError, FailureError) as error:
        if is_cancelled_exception(error):
            _change_circuit(run, spec, dispatch.with_circuit_released)
            return cancelled_outcome(allowed.call, spec)
        _count_failure(run, spec, error)
        return _failed_call(spec, error)
    _change_circuit(run, spec, dispatch.with_circuit_success)
    if spec.name in KNOWLEDGE_TOOLS:
        run.change_state(with_recalled_taint, knowledge_report_in(spec.name, result).taint)
    return _successful_outcome(run, allowed, identity, result)


async def _execute_activity(run: Run, allowed: AllowedCall, request: ToolRequest, activity_id: str) -> Any:
    spec, options = allowed.spec, allowed.spec.options
    limit_s = options.timeout_s or run.config.tool_timeout_s
    if (step_s := run.state.step_timeout_s) is not None:  # the limit of a goal's steps applies to every tool
        limit_s = min(limit_s, step_s)
    if options.execution == "local":
        return await workflow.execute_local_activity(
            spec.name,
            request,
            activity_id=activity_id,
            start_to_close_timeout=timedelta(seconds=min(limit_s, MAX_LOCAL_TIMEOUT_S) + REPORT_S),
            retry_policy=_retry_policy(run, allowed),
            local_retry_threshold=LOCAL_RETRY_THRESHOLD,
            summary=argument_summary(allowed.call, spec),
        )
    return await run.wait_for_event(
        workflow.execute_activity(
            spec.name,
            request,
            activity_id=activity_id,
            task_queue=options.task_queue,
            start_to_close_timeout=timedelta(seconds=limit_s + REPORT_S),
            schedule_to_start_timeout=timedelta(seconds=SCHEDULE_TO_START_S) if options.task_queue else None,
            heartbeat_timeout=timedelta(seconds=options.heartbeat_timeout_s or HEARTBEAT_TIMEOUT_S),
            retry_policy=_retry_policy(run, allowed),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=argument_summary(allowed.call, spec),
        )
    )


async def report_completion(
    run: Run, allowed: AllowedCall, identity: CallIdentity, completion: Completion
) -> Outcome | FailedCall:
    """Record the end of a deferred tool's call as the end of an activity, as for calls of other tools.

    The activity has no effect. So it takes no slot, and the server repeats it until a worker has carried it out.
    """
    call, spec, options = allowed.call, allowed.spec, allowed.spec.options
    request = _tool_request(run, allowed, identity).with_completion(completion)
    try:
        result: Any = await run.wait_for_event(
            workflow.execute_activity(
                spec.name,
                request,
                activity_id=identity.activity_id,
                task_queue=options.task_queue,
                start_to_close_timeout=timedelta(seconds=COMPLETION_TIMEOUT_S),
                heartbeat_timeout=timedelta(seconds=HEARTBEAT_TIMEOUT_S),
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                summary=argument_summary(call, spec),
            )
        )
    except (asyncio.CancelledError, FailureError) as error:
        return cancelled_outcome(call, spec) if is_cancelled_exception(error) else _failed_call(spec, error)
    return _successful_outcome(run, allowed, identity, result)


def _successful_outcome(run: Run, allowed: AllowedCall, identity: CallIdentity, result: Any) -> Outcome:
    output = ToolOutput.model_validate(result)  # it accepts any JSON, because other workers may return any
    run.result_bytes += len(output.content.encode())
    text = clip(output.content, allowed.spec.max_result_bytes)
    return Outcome(call=allowed.call, status="ok", text=text, result=identity.activity_id).with_media(output.media)


def _failed_call(spec: ToolSpec, error: BaseException) -> FailedCall:
    effect = _known_effect(spec, error)
    goes_on = effect >= KnownEffect.POSSIBLE and may_still_act(error)
    return FailedCall(failure_text(error), effect, goes_on, asked_inputs(error))


def _known_effect(spec: ToolSpec, error: BaseException) -> KnownEffect:
    if not may_have_acted(error, spec.effect):
        return KnownEffect.NOT_RUN if is_turned_away_by_worker(error) else KnownEffect.NONE
    if spec.effect != "irreversible":
        return KnownEffect.POSSIBLE
    return KnownEffect.CERTAIN if had_effect(error) else KnownEffect.UNKNOWN


def _tool_request(run: Run, allowed: AllowedCall, identity: CallIdentity) -> ToolRequest:
    call, spec = allowed.call, allowed.spec
    must_end_before_next_turn = run.waits_for_cut_calls and not identity.is_before_reasoning
    is_awaited = must_end_before_next_turn or is_acting_step(allowed)
    signature, terms = allowed.verdict.permit, permit_terms(allowed.verdict.version, allowed.purpose, allowed.approver)
    permit = f"{signature}{terms}" if signature else ""
    optional = {"digest": spec.digest, "permit": permit, "is_awaited": is_awaited}
    given: dict[str, Any] = {name: value for name, value in optional.items() if value}
    if spec.name in KNOWLEDGE_TOOLS:
        behalf = call_behalf(run.state)
        given["behalf"] = behalf.with_learning(run.evidence_outputs()) if allowed.purpose == "learning" else behalf
    if spec.takes_caller:
        facts = run.state.input
        given["caller"] = Caller.from_facts(run.setup.agent, facts.tenant, facts.trusted_context, allowed.approver)
    if identity.given is not None:
        given["given"] = identity.given
    has_retries = max_attempts(spec, run.config) != 1
    if has_retries and spec.options.execution != "local":
        given["left_s"] = round(remaining_s(run.state, run.now), 1)
    return ToolRequest(call_id=call.call_id, arguments=call.arguments, key=identity.key, **given)


def _retry_policy(run: Run, allowed: AllowedCall) -> RetryPolicy:
    options, recovery = allowed.spec.options, tool_recovery(allowed.spec, run.config)
    first_s = options.initial_interval_s or recovery.base_delay_ms / 1_000
    return RetryPolicy(
        initial_interval=timedelta(seconds=first_s),
        backoff_coefficient=options.backoff_coefficient,
        maximum_interval=timedelta(seconds=max(options.max_interval_s, first_s)),
        maximum_attempts=max_attempts(allowed.spec, run.config),
        non_retryable_error_types=options.non_retryable or None,
    )
