"""Circuit breakers of a run. They are part of its state, so a replay finds each circuit as it was."""

from __future__ import annotations

from datetime import datetime

from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.breakers import Breaker, BreakerOptions, describe_to_model, failure_cause
from orga.workflows.types.tool_calls.tools import ToolSpec

RUN_SCOPE = "run"


def admit_call(state: AgentState, spec: ToolSpec, now: datetime) -> tuple[AgentState, str]:
    """Admit a call of the tool, or return the text for the model about its rejection.

    Each admitted call ends in exactly one of `with_success`, `with_failure` and `with_slot_released`.
    """
    breaker, options = state.breakers.get(spec.name), spec.options.breaker
    if breaker is None or not _is_run_scoped(options):
        return state, ""
    let_through = breaker.with_admitted_call(options, now)
    if let_through is None:
        return state, describe_to_model(breaker.describe(spec.name, options, now))
    return _with_breaker(state, spec, let_through), ""


def with_success(state: AgentState, spec: ToolSpec) -> AgentState:
    """Record a success of the tool: its circuit closes."""
    breaker = state.breakers.get(spec.name)
    if breaker is None or not _is_run_scoped(spec.options.breaker):
        return state
    closed = _with_breaker(state, spec, breaker.after_success())
    return closed if breaker.state == "closed" else closed.with_note("CircuitClosed", tool=spec.name, scope=RUN_SCOPE)


def with_failure(state: AgentState, spec: ToolSpec, now: datetime, kind: str | None = None) -> AgentState:
    """Record a failure of the tool's infrastructure: a time-out, or an error that a retry might have cured."""
    options = spec.options.breaker
    if not _is_run_scoped(options):
        return state
    before = state.breakers.get(spec.name, Breaker())
    after = before.after_failure(options, now, failure_cause(kind))
    failed = _with_breaker(state, spec, after)
    if before.state == "open" or after.state != "open":
        return failed
    data = {"failures": after.failures, "recovery_s": options.recovery_s} | (
        {"cause": after.cause} if after.cause else {}
    )
    return failed.with_note("CircuitOpened", tool=spec.name, scope=RUN_SCOPE, **data)


def with_slot_released(state: AgentState, spec: ToolSpec) -> AgentState:
    """Record a call that says nothing about the tool: cancelled, not started, or failed by its own fault."""
    breaker = state.breakers.get(spec.name)
    if breaker is None or not _is_run_scoped(spec.options.breaker):
        return state
    return _with_breaker(state, spec, breaker.after_release())


def _is_run_scoped(options: BreakerOptions) -> bool:
    return options.enabled and options.scope == RUN_SCOPE


def _with_breaker(state: AgentState, spec: ToolSpec, breaker: Breaker) -> AgentState:
    breakers = {tool: kept for tool, kept in state.breakers.items() if tool != spec.name}
    if not breaker.is_idle:
        breakers[spec.name] = breaker
    return state.with_failures(breakers=breakers)
