"""Budgets of a live run: what happens at a limit, and how one is raised."""

from datetime import datetime

from workflows.types.argument import parsed
from workflows.types.extension import BudgetExtension
from workflows.types.result import StopReason
from workflows.types.state import AgentState
from workflows.types.waits import Wait

LIMITS: frozenset[StopReason] = frozenset({"max_iterations", "max_tokens", "max_cost", "timeout"})
"""Endings that more budget would put off."""

_KEYS = {"max_tokens": "max_total_tokens", "max_cost": "max_cost_usd", "timeout": "timeout_s"}
_CALLS = {" model calls": "max_model_calls", " tool calls": "max_tool_calls"}


def is_asked_for(state: AgentState, stop: tuple[StopReason, str]) -> bool:
    """Return whether a person is asked for more budget instead of ending."""
    return stop[0] in LIMITS and state.config.on_exhausted == "ask" and state.aborted is None


def open_question(state: AgentState) -> Wait | None:
    """Return the question that the run before this one had asked, and that nobody has answered."""
    return next((wait for wait in state.waits if wait.kind == "budget"), None)


def question(state: AgentState, stop: tuple[StopReason, str], now: datetime) -> Wait:
    """Return the question to ask at a limit; a limit that is reached again is a new question."""
    asked = f"{stop[0]}: {stop[1]}. Raise it with extend_budget, or end the run"
    wait_id = f"budget-{state.iteration}-{state.questions}"
    return Wait(wait_id=wait_id, kind="budget", since=now, question=asked, data={"limit": _limit_of(stop)})


def _limit_of(stop: tuple[StopReason, str]) -> str:
    """Return the key of the config that is used up; calls end a run as `max_iterations`, which the detail tells."""
    reason, detail = stop
    if reason == "max_iterations":
        return next((limit for words, limit in _CALLS.items() if detail.endswith(words)), "max_iterations")
    return _KEYS.get(reason, reason)


def extension(state: AgentState, raw: object) -> dict[str, float]:
    """Check an extension and return the limits that it raises.

    Raises:
        ValueError: An unknown key, a bad value, nothing to raise, or a limit that would get lower.
    """
    given = parsed(BudgetExtension, raw).model_dump(exclude_none=True)
    if not given:
        raise ValueError(f"name a limit to raise: {', '.join(BudgetExtension.model_fields)}")
    config = state.config
    for name, value in given.items():
        now = getattr(config, name)
        if now is None:
            raise ValueError(f"{name}: this run has no such limit")
        if value <= now:
            raise ValueError(f"{name}: {value:g} does not raise the limit of {now:g}")
    return given


def extended(state: AgentState, limits: dict[str, float]) -> AgentState:
    """Return the state with raised limits; a limit that had been reached no longer ends the run."""
    stop = None if state.stop and state.stop[0] in LIMITS else state.stop
    return state.model_copy(update={"extended": {**state.extended, **limits}, "stop": stop, "over_budget": 0})


def with_question(state: AgentState) -> AgentState:
    """Return the state that has one more question; its ending is open again."""
    return state.model_copy(update={"stop": None, "questions": state.questions + 1})
