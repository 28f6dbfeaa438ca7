"""Delegation: whether a `delegate` call is allowed, the input and budget of its run, and its outcome."""

from datetime import datetime
from typing import Any

from orga.workflows.decisions.conversation import estimated_sent_tokens, estimated_tokens
from orga.workflows.decisions.limits import budgets
from orga.workflows.decisions.result import with_gathered_text
from orga.workflows.types.input import AgentInput, Lineage, parse_input
from orga.workflows.types.limits import LIMITS, Ceiling
from orga.workflows.types.models.tiers import LOCAL_TIER, RUN_TIER
from orga.workflows.types.state import AgentState
from orga.workflows.types.status import AgentResult
from orga.workflows.types.text import clip, delimited_text, to_json_text
from orga.workflows.types.tool_calls.delegation import Child, DelegateSpec
from orga.workflows.types.tool_calls.gate import Verdict
from orga.workflows.types.tool_calls.loop_tools import RUN_TOOL

ENDING_S = 2.0
ENDING_SHARE = 0.1
"""A delegate's clock ends before its parent's, so that it can report its results: by `ENDING_S` seconds, but at most by
this share of the time.
"""

READING_SHARE = 0.1
"""The least share of tokens and money that the parent keeps to read the answers."""

REPLY_TOKENS = 2_000
"""Tokens for the parent's reply to the answers."""

MIN_TIMEOUT_S = 0.001


def delegate_ceiling(state: AgentState, workflow_id: str, now: datetime) -> Ceiling:
    """Return the ceiling of the delegate `workflow_id`, whose turn has come, without its tools.

    The delegates that wait share the tokens, calls and money that are left after the shares of running delegates.
    Iterations and seconds are not shared: delegates run in parallel, and their iterations are not the parent's. The
    parent keeps one model call, with tokens and money, to read the answers. Each delegate also counts as a tool call.
    """
    left, children = budgets(state, now), state.children
    reserved = [child.ceiling for child in children if child.ceiling is not None and child.workflow_id != workflow_id]
    waiting = max(len(children) - len(reserved), 1)
    seconds = left.time_s - min(ENDING_S, left.time_s * ENDING_SHARE)
    limits: dict[str, float | int | str | None] = {
        "max_delegation_depth": state.config.max_delegation_depth,
        "tier": LOCAL_TIER if is_bound_to_local_models(state) else None,
    }
    if state.step_timeout_s is None:
        limits |= {"max_iterations": left.iterations, "timeout_s": round(seconds, 3)}
    else:  # the delegate of a goal counts its own iterations
        limits |= {"max_iterations": None, "timeout_s": round(min(seconds, state.step_timeout_s), 3)}
    if left.cost_usd is not None:
        spendable = left.cost_usd * (1 - READING_SHARE) - sum(each.max_cost_usd or 0.0 for each in reserved)
        limits["max_cost_usd"] = max(spendable, 0.0) / waiting
    kept_for_parent = {
        "max_total_tokens": reserved_reading_tokens(state, left.tokens),
        "max_model_calls": 1,
        "max_tool_calls": max(len(children), state.under_way),
    }
    for limit in LIMITS:
        rest = getattr(left, limit.rest)
        if limit.key not in limits and rest is not None:
            taken = kept_for_parent.get(limit.key, 0) + sum(getattr(each, limit.key) or 0 for each in reserved)
            limits[limit.key] = max(rest - taken, 0) // waiting
    return Ceiling.model_validate({key: value for key, value in limits.items() if value is not None})


def is_bound_to_local_models(state: AgentState) -> bool:
    """Return True if the run may only ask models of the local tier. The same then holds for all its delegates."""
    own = state.setup.tiers.get(RUN_TIER) if state.setup else None
    is_own_tier_local = own is not None and own.name == LOCAL_TIER
    return is_own_tier_local or state.input.lineage.ceiling.tier == LOCAL_TIER


def reserved_reading_tokens(state: AgentState, left: int) -> int:
    """Return the tokens that a run keeps to read its delegates' answers and to reply.

    They cover a request with the conversation and the answers, and a reply. They are at least a tenth of `left`,
    because a delegate may overspend by one reply, and at most half of it.
    """
    spec = state.tool(RUN_TOOL)
    answers = len(state.children) * estimated_tokens(spec.max_result_bytes) if spec else 0
    request = int((estimated_sent_tokens(state.conversation) + answers) * state.calibration)
    wanted = max(request + min(state.config.max_output_tokens, REPLY_TOKENS), int(left * READING_SHARE))
    return min(wanted, left // 2)


def exhausted_limits(ceiling: Ceiling) -> list[str]:
    """Return the limits with which a delegate cannot begin. It needs no tool calls to answer."""
    floors = {"timeout_s": MIN_TIMEOUT_S, "max_cost_usd": 0.0}
    exhausted = list[str]()
    for limit in LIMITS:
        value = getattr(ceiling, limit.key)
        if value is None or limit.key == "max_tool_calls":
            continue
        if value <= 0 or value < floors.get(limit.key, 1):
            exhausted.append(limit.noun)
    return exhausted


def common_tools(*most: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the tools in all of these. None allows all tools."""
    bounds = [tools for tools in most if tools is not None]
    if not bounds:
        return None
    return tuple(tool for tool in dict.fromkeys(bounds[0]) if all(tool in tools for tools in bounds[1:]))


SHOWN_CHARS = 200

FRAME_BYTES = 300
"""Bytes of the lines around another agent's text."""

EMPTY_ANSWER = "(empty answer)"


def delegation_problem(state: AgentState, target: str) -> str:
    """Return why the call may not delegate to `target`, or "". Checked in this order: unknown, a cycle, too deep."""
    if _find_delegate(state, target) is None:
        known = ", ".join(spec.agent for spec in _delegate_specs(state)) or "none"
        return f"there is no agent {target!r} to delegate to; there are: {known}"
    chain = delegation_chain(state)
    if target in chain:
        return f"agent {target!r} waits for this already ({' > '.join(chain)}); do it yourself or choose another"
    depth, limit = state.input.lineage.depth, state.config.max_delegation_depth
    if depth >= limit:
        return f"{depth} delegations lead here and no more than {limit} are allowed; do it yourself"
    return ""


def delegation_chain(state: AgentState) -> tuple[str, ...]:
    return (*state.input.lineage.chain, state.agent)


def with_waiting_delegate(state: AgentState, child: Child) -> AgentState:
    return state.with_family(children=(*without_delegate(state, child.workflow_id).children, child))


def with_reserved_ceiling(state: AgentState, workflow_id: str, ceiling: Ceiling) -> AgentState:
    return state.with_family(
        children=tuple(c.with_ceiling(ceiling) if c.workflow_id == workflow_id else c for c in state.children)
    )


def without_delegate(state: AgentState, workflow_id: str) -> AgentState:
    """Return the state without the delegate. Its unused share is free again."""
    others = tuple(child for child in state.children if child.workflow_id != workflow_id)
    return state if others == state.children else state.with_family(children=others)


def with_delegate_usage(state: AgentState, workflow_id: str, result: AgentResult | None) -> AgentState:
    """Return the state with the delegate's usage counted once. Without a result the usage is unknown."""
    state = without_delegate(state, workflow_id)
    if result is None:
        return state
    state = with_gathered_text(state, _result_text(result))
    counts, spent = state.tool_calls, result.tool_calls.spent
    return state.with_budget(
        usage=state.usage.plus_totals(result.usage),
        tool_calls=counts.plus(delegated=spent) if counts.delegated + spent else counts,
    )


def child_tools(state: AgentState, target: str, verdict: Verdict) -> tuple[str, ...] | None:
    """Return the tools that the delegate may use. The config, the gate, and this run's input and ceiling limit them."""
    spec = _find_delegate(state, target)
    run_input = state.input
    return common_tools(verdict.tools, spec.tools if spec else (), run_input.tools, run_input.lineage.ceiling.tools)


def child_input(
    state: AgentState, child: Child, task: str, ceiling: Ceiling, *, parent: str, key: str, is_awaited: bool = False
) -> AgentInput:
    """Return the input of the delegate. Raise InvalidInput if the task is invalid."""
    lineage: dict[str, Any] = {"parent": parent, "chain": delegation_chain(state), "key": key, "ceiling": ceiling}
    if state.taint:
        lineage["taint"] = state.taint
    if is_awaited:
        lineage["is_awaited"] = True
    fields: dict[str, object] = {"task": task, "agent": child.agent, "lineage": Lineage(**lineage)}
    if state.step_timeout_s is not None and ceiling.timeout_s is not None:
        fields["config"] = {"timeout_s": ceiling.timeout_s}
    if state.input.tenant is not None:
        fields["tenant"] = state.input.tenant
    if state.input.trusted_context:
        fields["trusted_context"] = state.input.trusted_context
    return parse_input(fields)


def delegate_abort_reason(state: AgentState) -> str:
    text = "the run that delegated is ending"
    if state.aborted:
        return f"{text}: {state.aborted}"
    return f"{text}: {state.stop.reason}: {state.stop.detail}" if state.stop else text


def delegate_answer_text(agent: str, result: AgentResult, max_bytes: int) -> str:
    return framed_text(f"answer of agent {agent!r}", _result_text(result) or EMPTY_ANSWER, max_bytes)


def delegate_shortfall_text(agent: str, result: AgentResult, max_bytes: int) -> str:
    ending = result.termination
    text = f"agent {agent!r} did not finish: {ending.reason}" + (f" ({ending.detail})" if ending.detail else "")
    output = _result_text(result)
    if not output:
        return f"{clip(text, max_bytes)}; it had no output"
    framed = framed_text(f"what agent {agent!r} had by then", output, max_bytes * 3 // 4)
    return f"{clip(text, max_bytes // 4)}\n{framed}"


def framed_text(title: str, text: str, max_bytes: int) -> str:
    """Return another agent's text between two lines that it cannot forge, because they contain its digest."""
    shown = clip(text, max(max_bytes - FRAME_BYTES, FRAME_BYTES), "ask the agent for less")
    return delimited_text(shown, title)


def _result_text(result: AgentResult) -> str:
    data = "" if result.data is None else f"data: {to_json_text(result.data)}"
    return "\n".join(filter(None, (result.output.strip(), data)))


def _delegate_specs(state: AgentState) -> tuple[DelegateSpec, ...]:
    return state.setup.delegates if state.setup else ()


def _find_delegate(state: AgentState, target: str) -> DelegateSpec | None:
    return next((spec for spec in _delegate_specs(state) if spec.agent == target), None)


def is_paused_by_people(state: AgentState) -> bool:
    """Return True if a person holds up the run, or one of its delegates."""
    return state.clock.stopped_at is not None


def with_delegate_paused(state: AgentState, arguments: tuple[object, ...], now: datetime) -> AgentState:
    """Apply a delegate's signal: its workflow id, and whether it waits for a person. Other signals change nothing."""
    match arguments:
        case (child_id, bool(held)):
            children = tuple(c.with_held(held) if c.workflow_id == child_id else c for c in state.children)
            return state.with_family(children=children).with_clock_updated(now)
        case _:
            return state
