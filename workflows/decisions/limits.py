"""Which limit of a run is reached, and what is left of each."""

from datetime import datetime
from math import ceil

from workflows.types.context import Setup
from workflows.types.input import SLACK_S, LoopConfig
from workflows.types.result import StopReason
from workflows.types.state import AgentState
from workflows.types.status import Budgets

MAX_DENIALS_IN_A_ROW = 3
"""Iterations in a row with the same denial, after which the run ends as `policy_denial`."""


def stop_reason(state: AgentState, config: LoopConfig, now: datetime) -> tuple[StopReason, str] | None:
    """Return why the run must end now, or None while the loop may go on; asked before each reasoning step.

    An abort wins over all; then a repeated denial, iterations, tokens, cost, time, in this order, each at `>=`.
    """
    if state.aborted is not None:
        return "aborted", state.aborted
    for denial, times in state.denials.items():
        if times >= MAX_DENIALS_IN_A_ROW:
            return "policy_denial", f"{denial}, {times} iterations in a row"
    cost = state.usage.cost_usd or 0.0
    reached: list[tuple[bool, StopReason, str]] = [
        (state.iteration >= config.max_iterations, "max_iterations", f"limit of {config.max_iterations} iterations"),
        (
            state.usage.total_tokens >= config.max_total_tokens,
            "max_tokens",
            f"{state.usage.total_tokens} of {config.max_total_tokens} tokens",
        ),
        (
            config.max_cost_usd is not None and cost >= config.max_cost_usd,
            "max_cost",
            f"{cost:.4f} of {config.max_cost_usd} USD",
        ),
        (state.clock.elapsed_s(now) >= config.timeout_s, "timeout", f"limit of {config.timeout_s:g} s"),
    ]
    return next(((reason, detail) for is_reached, reason, detail in reached if is_reached), None)


def remaining_s(state: AgentState, config: LoopConfig, now: datetime) -> float:
    """Return the seconds left on the run's clock, never below 0."""
    return max(config.timeout_s - state.clock.elapsed_s(now), 0.0)


def server_limit_s(state: AgentState, config: LoopConfig, now: datetime) -> int:
    """Return the seconds after which the server gives up: behind the run's clock, which is the one that interrupts.

    Whole seconds, since fractions would take room in every history.
    """
    return ceil(remaining_s(state, config, now)) + SLACK_S


def output_allowance(state: AgentState, config: LoopConfig) -> int:
    """Return the tokens that the next reply may have: what is left of the total, at most one reply's limit."""
    return max(min(config.max_total_tokens - state.usage.total_tokens, config.max_output_tokens), 1)


def budgets(state: AgentState, setup: Setup | None, now: datetime) -> Budgets:
    """Return what is left of each limit."""
    config = setup.config if setup else state.input.config
    cost_left = None if config.max_cost_usd is None else max(config.max_cost_usd - (state.usage.cost_usd or 0.0), 0.0)
    return Budgets(
        iterations=max(config.max_iterations - state.iteration, 0),
        max_iterations=config.max_iterations,
        tokens=max(config.max_total_tokens - state.usage.total_tokens, 0),
        max_total_tokens=config.max_total_tokens,
        cost_usd=cost_left,
        max_cost_usd=config.max_cost_usd,
        time_s=round(remaining_s(state, config, now), 3),
        timeout_s=config.timeout_s,
    )
