"""Delegation: whether a `delegate` call may be carried out, what its run is given, and what came of it."""

from typing import Any

from pydantic_core import to_json

from workflows.decisions.ceilings import narrowed_tools
from workflows.decisions.gathering import with_gathered
from workflows.types.clipped import clip
from workflows.types.delegation import Ceiling, DelegateSpec, Lineage
from workflows.types.gate import Verdict
from workflows.types.input import AgentInput, parse_input
from workflows.types.result import AgentResult
from workflows.types.state import AgentState, Child
from workflows.types.untrusted import delimited

SHOWN_CHARS = 200
"""Of a task, in what people are shown."""

FRAME_BYTES = 300
"""What the lines around another agent's words may take."""

EMPTY_ANSWER = "(empty answer)"


def refusal(state: AgentState, target: str) -> str:
    """Return why `target` is not delegated to, or "". In this order: unknown, in a cycle, too deep."""
    if _spec(state, target) is None:
        known = ", ".join(spec.agent for spec in _delegates(state)) or "none"
        return f"there is no agent {target!r} to delegate to; there are: {known}"
    chain = chain_below(state)
    if target in chain:
        return f"agent {target!r} waits for this already ({' > '.join(chain)}); do it yourself or choose another"
    depth, limit = state.input.lineage.depth, state.config.max_delegation_depth
    if depth >= limit:
        return f"{depth} delegations lead here and no more than {limit} are allowed; do it yourself"
    return ""


def chain_below(state: AgentState) -> tuple[str, ...]:
    """Return the agents from the first run down to this one, its own included."""
    own = state.setup.agent if state.setup else state.input.agent
    return (*state.input.lineage.chain, own)


def announced(state: AgentState, child: Child) -> AgentState:
    """Return the state in which a delegate waits for its turn."""
    return state.model_copy(update={"children": (*without(state, child.workflow_id).children, child)})


def reserved(state: AgentState, workflow_id: str, ceiling: Ceiling) -> AgentState:
    """Return the state in which the delegate's share is nobody else's."""
    children = tuple(
        child.model_copy(update={"ceiling": ceiling}) if child.workflow_id == workflow_id else child
        for child in state.children
    )
    return state.model_copy(update={"children": children})


def without(state: AgentState, workflow_id: str) -> AgentState:
    """Return the state without the delegate: what it did not use is back."""
    if all(child.workflow_id != workflow_id for child in state.children):
        return state
    return state.model_copy(update={"children": tuple(c for c in state.children if c.workflow_id != workflow_id)})


def settled(state: AgentState, workflow_id: str, result: AgentResult | None) -> AgentState:
    """Return the state with what the delegate used, once; of one without a result that is not known."""
    state = without(state, workflow_id)
    if result is None:
        return state
    state, counts = with_gathered(state, _said(result)), state.tool_calls
    delegated = counts.delegated + result.tool_calls.spent
    return state.model_copy(
        update={
            "usage": state.usage.plus_totals(result.usage),
            "tool_calls": counts.model_copy(update={"delegated": delegated}) if delegated else counts,
        }
    )


def child_tools(state: AgentState, target: str, verdict: Verdict) -> tuple[str, ...] | None:
    """Return the most that the delegate may use: what config, gate and this run's own ceiling leave."""
    spec = _spec(state, target)
    return narrowed_tools(verdict.tools, spec.tools if spec else (), state.input.lineage.ceiling.tools)


def child_input(state: AgentState, child: Child, task: str, ceiling: Ceiling, *, parent: str, key: str) -> AgentInput:
    """Return what the delegate is started with.

    Raises:
        InvalidInput: The task is none.
    """
    tainted: dict[str, Any] = {"taint": state.taint} if state.taint else {}
    lineage = Lineage(parent=parent, chain=chain_below(state), key=key, ceiling=ceiling, **tainted)
    given: dict[str, object] = {"task": task, "agent": child.agent, "lineage": lineage}
    if state.input.tenant is not None:
        given["tenant"] = state.input.tenant
    if state.input.trusted_context:
        given["trusted_context"] = state.input.trusted_context
    return parse_input(given)


def abort_reason(state: AgentState) -> str:
    """Return what a delegate is told when its parent is being ended."""
    why = state.aborted or (": ".join(state.stop) if state.stop else "")
    return f"the run that delegated is ending: {why}" if why else "the run that delegated is ending"


def answer_text(agent: str, result: AgentResult, max_bytes: int) -> str:
    """Return what the model is told of a delegate that has finished."""
    return framed(f"answer of agent {agent!r}", _said(result) or EMPTY_ANSWER, max_bytes)


def shortfall_text(agent: str, result: AgentResult, max_bytes: int) -> str:
    """Return what the model is told of a delegate that ended without having finished."""
    ending = result.termination
    text = f"agent {agent!r} did not finish: {ending.reason}" + (f" ({ending.detail})" if ending.detail else "")
    said = _said(result)
    if not said:
        return f"{clip(text, max_bytes)}; it had no output"
    return f"{clip(text, max_bytes // 4)}\n{framed(f'what agent {agent!r} had by then', said, max_bytes * 3 // 4)}"


def framed(title: str, text: str, max_bytes: int) -> str:
    """Return another agent's words between two lines that they cannot forge: these name their digest."""
    shown = clip(text, max(max_bytes - FRAME_BYTES, FRAME_BYTES), "ask the agent for less")
    return delimited(shown, title)


def _said(result: AgentResult) -> str:
    data = "" if result.data is None else to_json(result.data, inf_nan_mode="strings").decode()
    return "\n".join(part for part in (result.output.strip(), f"data: {data}" if data else "") if part)


def _delegates(state: AgentState) -> tuple[DelegateSpec, ...]:
    return state.setup.delegates if state.setup else ()


def _spec(state: AgentState, target: str) -> DelegateSpec | None:
    return next((spec for spec in _delegates(state) if spec.agent == target), None)
