"""Limits of a run: which one is reached, what is left of each, and how people raise them."""

from collections.abc import Callable
from datetime import datetime
from math import ceil
from typing import NamedTuple, TypeVar

from orga.workflows.decisions.control.interventions import remaining_s
from orga.workflows.types.control import Stop
from orga.workflows.types.input import LoopConfig
from orga.workflows.types.limits import LAST_TRY_S, LIMITS, SLACK_S, BudgetExtension, Budgets, SentExtension
from orga.workflows.types.messages import Reply
from orga.workflows.types.models.call_settings import Effort
from orga.workflows.types.questions import Question
from orga.workflows.types.record import parse_record
from orga.workflows.types.state import AgentState

MAX_OVER_BUDGET_IN_A_ROW = 2
"""The run ends after this many iterations in a row with more calls than `max_tool_calls` allows. After the first of
them, the model can still answer.
"""

MAX_DENIALS_IN_A_ROW = 3
"""The run ends after this many iterations in a row with the same denial (as `policy_denial`), or with the same invalid
call or only invalid calls (as `error`).
"""

_SPENT: dict[str, Callable[[AgentState, datetime], float]] = {
    "max_iterations": lambda state, now: state.counted_iterations,
    "max_total_tokens": lambda state, now: state.usage.total_tokens,
    "max_cost_usd": lambda state, now: state.usage.cost_usd or 0.0,
    "timeout_s": lambda state, now: state.clock.elapsed_seconds(now),
    "max_model_calls": lambda state, now: state.usage.model_calls,
    "max_tool_calls": lambda state, now: state.tool_calls.spent,
}

_TIME_LAST = sorted(LIMITS, key=lambda limit: limit.key == "timeout_s")


def stop_reason(state: AgentState, config: LoopConfig, now: datetime) -> Stop | None:
    """Return why the run must end now, or None if it may continue. This is checked before each reasoning step.

    If there are several reasons, the first of this list wins: an abort, a repeated denial, a repeated invalid call,
    iterations, tokens, cost, model calls, tool calls, time. A limit is reached as soon as that much is spent.
    """
    if state.aborted is not None:
        return Stop("aborted", state.aborted)
    for denial, times in state.denials.items():
        if times >= MAX_DENIALS_IN_A_ROW:
            return Stop("policy_denial", f"{denial}, {times} iterations in a row")
    for call, times in state.invalid.items():
        if times >= MAX_DENIALS_IN_A_ROW:
            return Stop("error", f"the same invalid call again: {call}, {times} iterations in a row")
    for limit in _TIME_LAST:
        most, spent = getattr(config, limit.key), _SPENT[limit.key](state, now)
        if limit.key == "max_tool_calls":  # the run goes on for a while, but further calls are not run
            is_reached = state.over_budget >= MAX_OVER_BUDGET_IN_A_ROW
        else:
            is_reached = most is not None and spent >= most
        if is_reached:
            return Stop(limit.reason, limit.detail.format(used=spent, max=most, noun=limit.noun))
    return None


def can_retry_model_call(state: AgentState, now: datetime) -> bool:
    """Return True if a model call that ran out of time is repeated, because the run's clock stopped meanwhile."""
    return remaining_s(state, now) > LAST_TRY_S + 1


def server_timeout_seconds(state: AgentState, now: datetime) -> int:
    """Return the seconds after which the server gives up. The run's clock ends earlier, and interrupts the run itself.

    They are whole seconds, because fractions would take room in every history.
    """
    return ceil(remaining_s(state, now)) + SLACK_S


class _ReplyTerms(NamedTuple):
    room_factor: int
    """The limit of one reply, as a multiple of `max_output_tokens`."""
    effort: Effort | None = None
    """None is the usual one."""


_TERMS_BY_THINKING_CUTS = (_ReplyTerms(1), _ReplyTerms(2), _ReplyTerms(4, "low"), _ReplyTerms(4, "none"))


def output_allowance(state: AgentState, config: LoopConfig) -> int:
    """Return the tokens that the next reply may take: what is left of the total, but at most the limit of one reply.

    The limit of one reply is higher after replies that were only thinking.
    """
    room = config.max_output_tokens * _TERMS_BY_THINKING_CUTS[state.thinking_cuts].room_factor
    return max(min(config.max_total_tokens - state.usage.total_tokens, room), 1)


S = TypeVar("S", bound=AgentState)

OWN_LIMIT_SHARE = 0.9
"""A reply that was cut below this share of its limit has reached the model's own limit. More room does not help."""


def with_thinking_cut(state: S, reply: Reply) -> S:
    """Count the replies in a row that were only thinking. The tokens of this reply must not be counted yet.

    If the model's own limit cut the first one, it counts twice, so that the next reply also has a lower effort.
    """
    if not reply.is_only_thinking:
        cuts = 0
    elif state.thinking_cuts:
        cuts = min(state.thinking_cuts + 1, len(_TERMS_BY_THINKING_CUTS) - 1)
    else:
        allowance, tokens = output_allowance(state, state.config), reply.usage.output_tokens
        is_own_limit = not reply.usage.estimated and tokens < allowance * OWN_LIMIT_SHARE
        cuts = 2 if is_own_limit else 1
    return state if cuts == state.thinking_cuts else state.with_dialogue(thinking_cuts=cuts)


def lowered_effort(state: AgentState) -> Effort | None:
    """Return the effort for the next reply, or None for the usual one."""
    return _TERMS_BY_THINKING_CUTS[state.thinking_cuts].effort


def budgets(state: AgentState, now: datetime) -> Budgets:
    given: dict[str, float | None] = {}
    for limit in LIMITS:
        most = getattr(state.config, limit.key)
        given[limit.key] = most
        given[limit.rest] = None if most is None else max(most - _SPENT[limit.key](state, now), 0)
    return Budgets.model_validate({**given, "time_s": round(remaining_s(state, now), 3)})


def budget_left(state: AgentState, now: datetime) -> dict[str, float]:
    """Return what is left of each limit that the run has, for policies."""
    left = budgets(state, now)
    return {limit.rest: value for limit in LIMITS if (value := getattr(left, limit.rest)) is not None}


def tool_calls_left(state: AgentState) -> int | None:
    """Return the tool calls that the run may still make. None means no limit."""
    most = state.config.max_tool_calls
    return None if most is None else max(most - state.tool_calls.spent, 0)


LIMIT_REASONS = frozenset(limit.reason for limit in LIMITS)
"""Endings that a larger budget would delay."""


def can_ask_for_budget(state: AgentState, stop: Stop) -> bool:
    """Return True if a person is asked for more budget instead of ending the run."""
    return stop.reason in LIMIT_REASONS and state.config.on_exhausted == "ask" and state.aborted is None


def budget_question(state: AgentState, stop: Stop, now: datetime) -> Question:
    """Return the question at a limit. A limit that is reached again is a new question.

    If the previous segment's question is still open, that one is returned.
    """
    for carried in state.questions:
        if carried.kind == "budget":
            return carried
    limit = _used_up_limit(stop)
    return Question(
        question_id=f"budget-{state.iteration}-{state.budget_questions}",
        kind="budget",
        since=now,
        text=f"{stop.reason}: {stop.detail}. Raise it with extend_budget, or end the run",
        data={"limit": limit, "value": getattr(state.config, limit, None)},
        choices=("skip", "abort"),
    )


def _used_up_limit(stop: Stop) -> str:
    """Return the config key of the limit. Several limits end a run as `max_iterations`; the detail identifies them."""
    with_reason = [limit for limit in LIMITS if limit.reason == stop.reason]
    in_detail = [limit for limit in with_reason if stop.detail.endswith(f" {limit.noun}")]
    return (in_detail or with_reason)[0].key


def parsed_extension(state: AgentState, raw: object) -> dict[str, float]:
    """Return the new limits. Raise ValueError for a bad key or value, no key, or a limit that does not rise."""
    given = parse_record(SentExtension, raw).model_dump(exclude_none=True, exclude={"by"})
    if not given:
        raise ValueError(f"name a limit to raise: {', '.join(BudgetExtension.model_fields)}")
    config = state.config
    for name, value in given.items():
        current = getattr(config, name)
        if current is None:
            raise ValueError(f"{name}: this run has no such limit")
        if value <= current:
            raise ValueError(f"{name}: {value:g} does not raise the limit of {current:g}")
    return given


def with_extension(state: AgentState, limits: dict[str, float]) -> AgentState:
    """Return the state with raised limits. A limit that had been reached no longer ends the run."""
    is_at_limit = state.stop is not None and state.stop.reason in LIMIT_REASONS
    after = state.with_budget(extended={**state.extended, **limits}, over_budget=0)
    return after.with_control(stop=None if is_at_limit else state.stop)


def with_budget_question(state: AgentState, question: Question) -> AgentState:
    """Return the state in which this question is asked, without the ending that the run had."""
    is_carried = any(asked.question_id == question.question_id for asked in state.questions)
    asked_so_far = state.budget_questions if is_carried else state.budget_questions + 1
    return state.with_budget(budget_questions=asked_so_far).with_control(stop=None)
