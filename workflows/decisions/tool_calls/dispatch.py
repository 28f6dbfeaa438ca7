"""Decides which allowed calls start. A used-up budget, a stopped call, a given-up tool or an open circuit forbids it.

This module also counts failed calls. The circuits of a run are part of its state, so a replay finds each as it was.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from math import inf

from orga.workflows.decisions.limits import tool_calls_left
from orga.workflows.decisions.tool_calls import repeated_calls
from orga.workflows.decisions.tool_calls.calls import answered_unrun_outcome, not_run_outcome
from orga.workflows.decisions.tool_calls.recovery import given_up_text, tries_left
from orga.workflows.decisions.tool_calls.repeated_calls import with_failed_call, without_failures_of
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.breakers import Breaker, BreakerOptions, describe_to_model, failure_cause
from orga.workflows.types.tool_calls.loop_tools import loop_tool
from orga.workflows.types.tool_calls.recovery import Outcome
from orga.workflows.types.tool_calls.tools import ToolSpec


def unstarted_outcomes(state: AgentState, calls: Mapping[int, ToolCall]) -> dict[int, Outcome]:
    """Return the outcomes of the calls that are not started. The keys of `calls` are indexes in the reply.

    Nothing is started next to `terminate`. Stopped calls, and tools that the model may not try again, are not started.
    The others are started in call order while `max_tool_calls` has room. A saga counts with all its steps.
    """
    ending = next((index for index, call in calls.items() if loop_tool(call.name).stands_alone), None)
    if ending is not None:
        return {i: not_run_outcome(call, "the reply ends the run") for i, call in calls.items() if i != ending}
    found: dict[int, Outcome] = {}
    left = _calls_left(state)
    for index, call in calls.items():
        outcome = given_up_outcome(state, call)
        if outcome is None and left < _call_cost(call):
            outcome = over_budget_outcome(state, call)
        if outcome is not None:
            found[index] = outcome
        else:
            left -= _call_cost(call)
    return found


def over_budget_outcome(state: AgentState, call: ToolCall) -> Outcome:
    limit = state.config.max_tool_calls
    return not_run_outcome(call, f"the run's {limit} tool calls are used up; answer with what you have")


def exceeds_call_budget(state: AgentState, calls: Iterable[ToolCall]) -> bool:
    """Return True if `max_tool_calls` is the only reason why some of these calls cannot start."""
    if state.config.max_tool_calls is None:
        return False
    costs = (
        _call_cost(call)
        for call in calls
        if given_up_outcome(state, call) is None and not loop_tool(call.name).stands_alone
    )
    return sum(costs) > _calls_left(state)


def with_over_budget(state: AgentState, is_over: bool) -> AgentState:
    """Count the iterations in a row with more calls than the limit allows."""
    count = state.over_budget + 1 if is_over else 0
    return state if count == state.over_budget else state.with_budget(over_budget=count)


def given_up_outcome(state: AgentState, call: ToolCall) -> Outcome | None:
    """Return the outcome of a call that was stopped, or whose tool may not be tried again. Else None."""
    stopped = repeated_calls.stopped_call_text(state, call)
    if stopped:
        return answered_unrun_outcome(call, stopped)
    spec = state.tool(call.name)
    if spec is not None and tries_left(state, spec) == 0:
        return answered_unrun_outcome(call, given_up_text(call.name))
    return None


def with_begun_calls(state: AgentState, calls: Sequence[ToolCall]) -> AgentState:
    """Record the cost of the calls that begin. A recovery leaves room for them (see `can_begin_another_call`)."""
    return state.with_budget(under_way=sum(map(_call_cost, calls)))


def can_begin_another_call(state: AgentState) -> bool:
    """Return True if one more call may begin. Running calls, and calls that delegates may make, count as made."""
    delegated = sum(child.ceiling.max_tool_calls or 0 for child in state.children if child.ceiling)
    return _calls_left(state) > state.under_way + delegated


def with_extra_call(state: AgentState) -> AgentState:
    return state.with_budget(under_way=state.under_way + 1)


def _calls_left(state: AgentState) -> float:
    left = tool_calls_left(state)
    return inf if left is None else left


def _call_cost(call: ToolCall) -> int:
    return loop_tool(call.name).cost(call.arguments)


def with_attempts(state: AgentState, outcomes: tuple[Outcome, ...], now: datetime) -> AgentState:
    """Count failed calls, and reset the count of those that succeeded."""
    for outcome in outcomes:
        if outcome.status == "failed":
            state = with_failed_call(state, outcome.call, outcome.error or outcome.text, now)
        elif outcome.status == "ok":
            state = without_failures_of(state, outcome.call)
    return state


_RUN_SCOPE = "run"


class CircuitOpen(Exception):
    """An open circuit turns a call away. It holds the text for the model."""


def with_admitted_call(state: AgentState, spec: ToolSpec, now: datetime) -> AgentState:
    """Admit a call of the tool. Raise CircuitOpen if its circuit is open.

    Each admitted call ends in exactly one of the next three functions.
    """
    options = spec.options.breaker
    if (breaker := _run_breaker(state, spec)) is None:
        return state
    after = breaker.with_admitted_call(options, now)
    if after is None:
        raise CircuitOpen(describe_to_model(breaker.describe(spec.name, options, now)))
    return _with_breaker(state, spec, after)


def with_circuit_success(state: AgentState, spec: ToolSpec) -> AgentState:
    """Record a success of the tool: its circuit closes."""
    if (breaker := _run_breaker(state, spec)) is None:
        return state
    closed = _with_breaker(state, spec, breaker.after_success())
    return closed if breaker.state == "closed" else closed.with_note("CircuitClosed", tool=spec.name, scope=_RUN_SCOPE)


def with_circuit_failure(state: AgentState, spec: ToolSpec, now: datetime, kind: str | None = None) -> AgentState:
    """Record a failure of the tool's infrastructure: a time-out, or an error that a retry might have cured."""
    options = spec.options.breaker
    if not _is_run_scoped(options):
        return state
    before = state.breakers.get(spec.name, Breaker())
    after = before.after_failure(options, now, failure_cause(kind))
    failed = _with_breaker(state, spec, after)
    if before.state == "open" or after.state != "open":
        return failed
    data: dict[str, object] = {"failures": after.failures, "recovery_s": options.recovery_s}
    if after.cause:
        data["cause"] = after.cause
    return failed.with_note("CircuitOpened", tool=spec.name, scope=_RUN_SCOPE, **data)


def with_circuit_released(state: AgentState, spec: ToolSpec) -> AgentState:
    """Record a call that proves nothing about the tool: cancelled, not started, or failed by its own fault."""
    if (breaker := _run_breaker(state, spec)) is None:
        return state
    return _with_breaker(state, spec, breaker.after_release())


def _is_run_scoped(options: BreakerOptions) -> bool:
    return options.enabled and options.scope == _RUN_SCOPE


def _run_breaker(state: AgentState, spec: ToolSpec) -> Breaker | None:
    return state.breakers.get(spec.name) if _is_run_scoped(spec.options.breaker) else None


def _with_breaker(state: AgentState, spec: ToolSpec, breaker: Breaker) -> AgentState:
    breakers = {tool: kept for tool, kept in state.breakers.items() if tool != spec.name}
    if not breaker.is_idle:
        breakers[spec.name] = breaker
    return state.with_failures(breakers=breakers)
