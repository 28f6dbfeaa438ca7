"""What a delegated run may spend: its share of what its parent has left, reserved until it has ended."""

from datetime import datetime

from workflows.decisions.calibration import sent_tokens
from workflows.decisions.estimate import tokens_of
from workflows.decisions.limits import budgets
from workflows.types.delegation import Ceiling
from workflows.types.loop_tools import DELEGATE
from workflows.types.state import AgentState

ENDING_S = 2.0
ENDING_SHARE = 0.1
"""A delegate's clock ends this long before its parent's, at most a tenth of the time: it can still tell what it has."""

READING_SHARE = 0.1
"""Of tokens and money, at least: what stays with the parent to read the answers."""

REPLY_TOKENS = 2_000
"""For the reply that follows from them."""

MIN_TIMEOUT_S = 0.001

_WORDS = {
    "max_iterations": "iterations",
    "max_total_tokens": "tokens",
    "max_cost_usd": "money",
    "timeout_s": "time",
    "max_model_calls": "model calls",
}


def ceiling_for(state: AgentState, workflow_id: str, now: datetime) -> Ceiling:
    """Return what the delegate `workflow_id`, whose turn has come, may spend. Its tools are another matter.

    What is spent is divided: the remainder, less what is reserved for delegates in flight, by those that wait for their
    turn. Iterations and seconds are not: delegates run side by side, and neither is the parent's after they have ended.
    One model call stays with the parent, which has to read the answers, and the tokens and the money for it. Each
    delegate is a tool call of its own, too.
    """
    left, children = budgets(state, now), state.children
    begun = max(len(children), state.under_way)
    reserved = [child.ceiling for child in children if child.ceiling is not None and child.workflow_id != workflow_id]
    waiting = max(len(children) - len(reserved), 1)
    limits: dict[str, float | int | None] = {
        "max_iterations": left.iterations,
        "max_total_tokens": _share(
            left.tokens - reading_tokens(state, left.tokens), [each.max_total_tokens for each in reserved], waiting
        ),
        "max_cost_usd": None,
        "timeout_s": round(left.time_s - min(ENDING_S, left.time_s * ENDING_SHARE), 3),
        "max_model_calls": _share(left.model_calls, [1, *(each.max_model_calls for each in reserved)], waiting),
        "max_tool_calls": _share(left.tool_calls, [begun, *(each.max_tool_calls for each in reserved)], waiting),
        "max_delegation_depth": state.config.max_delegation_depth,
    }
    if left.cost_usd is not None:
        spendable = left.cost_usd * (1 - READING_SHARE) - sum(each.max_cost_usd or 0.0 for each in reserved)
        limits["max_cost_usd"] = max(spendable, 0.0) / waiting
    return Ceiling.model_validate({key: value for key, value in limits.items() if value is not None})


def reading_tokens(state: AgentState, left: int) -> int:
    """Return the tokens that stay with a run so that it can read what its delegates say, and answer.

    A request of its conversation with the answers in it, and a reply; a tenth of what is left, where that is more,
    since a delegate may overspend by a reply; never more than half.
    """
    spec = state.setup.tool(DELEGATE) if state.setup else None
    answers = len(state.children) * tokens_of(spec.max_result_bytes) if spec else 0
    request = int((sent_tokens(state.conversation) + answers) * state.calibration)
    wanted = max(request + min(state.config.max_output_tokens, REPLY_TOKENS), int(left * READING_SHARE))
    return min(wanted, left // 2)


def lacking(ceiling: Ceiling) -> list[str]:
    """Return what there is none of. Without tool calls a delegate can still answer."""
    floors = {"timeout_s": MIN_TIMEOUT_S, "max_cost_usd": 0.0}
    limits = {key: value for key, value in ceiling.model_dump(include=set(_WORDS)).items() if value is not None}
    return [_WORDS[key] for key, value in limits.items() if value <= 0 or value < floors.get(key, 1)]


def narrowed_tools(*most: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the tools that all of these leave; None leaves everything."""
    bounds = [tools for tools in most if tools is not None]
    if not bounds:
        return None
    return tuple(tool for tool in dict.fromkeys(bounds[0]) if all(tool in tools for tools in bounds[1:]))


def _share(left: int | None, reserved: list[int | None], waiting: int) -> int | None:
    if left is None:
        return None
    return max(left - sum(each or 0 for each in reserved), 0) // waiting
