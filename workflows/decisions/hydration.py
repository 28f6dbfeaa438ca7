"""Pre-hydration: which tool looks up which reference, what came of it, and what the run knows afterwards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workflows.decisions.conversation import with_message
from workflows.decisions.hydration_block import context_block, pruned, total_tokens
from workflows.decisions.notes import MAX_TEXT_CHARS, with_note
from workflows.decisions.outcomes import counted
from workflows.decisions.taint import tainted
from workflows.types.hydration import PreHydration, Reference, Resolved
from workflows.types.messages import Message, ToolCall
from workflows.types.outcome import Outcome
from workflows.types.state import AgentState
from workflows.types.tools import ToolSpec

DEFAULT_TOOLS = {"url": "fetch_url", "file": "read_file", "issue": "read_issue", "pr": "read_pull_request"}

_UNFINISHED = frozenset({"cancelled", "not_run"})


@dataclass(frozen=True)
class Lookup:
    """A reference with the call that resolves it, or with why there is none."""

    reference: Reference
    call: ToolCall | None = None
    why: str = ""


def lookups(
    references: Sequence[Reference], config: PreHydration, tools: Sequence[ToolSpec], room: int | None = None
) -> tuple[Lookup, ...]:
    """Return a lookup for each reference, in order; only read-only tools that the run is offered resolve any.

    Args:
        references: What the task refers to.
        config: Says which tool is for which type.
        tools: The tools that the run is offered.
        room: Calls that the run may still make.
    """
    offered = {tool.name: tool for tool in tools}
    names = {**DEFAULT_TOOLS, **config.resolution_tools}
    looked_up: list[Lookup] = []
    for index, reference in enumerate(references):
        lookup = _lookup(index, reference, names.get(reference.ref_type, ""), offered)
        if lookup.call is not None and room is not None:
            room -= 1
            lookup = lookup if room >= 0 else Lookup(reference, why="max_tool_calls leaves no call for it")
        looked_up.append(lookup)
    return tuple(looked_up)


def _lookup(index: int, reference: Reference, name: str, offered: Mapping[str, ToolSpec]) -> Lookup:
    tool = offered.get(name)
    if tool is None:
        lacks = f"no tool {name!r} is offered" if name else "no tool is named in resolution_tools"
        return Lookup(reference, why=f"{lacks} for references of type {reference.ref_type!r}")
    if tool.effect != "read_only":  # nobody reviews a lookup
        return Lookup(reference, why=f"{name} is {tool.effect}; only a read_only tool looks references up")
    argument = _argument(tool)
    if argument is None:
        return Lookup(reference, why=f"{name} has no one argument that could take a reference")
    call_id, arguments = f"hydrate_{index}", {argument: reference.value}
    return Lookup(reference, ToolCall(call_id=call_id, name=name, arguments=arguments))


def _argument(tool: ToolSpec) -> str | None:
    """Return the argument that takes the reference: the main one, the only required one, the only one, or `input`."""
    if tool.main_argument is not None:
        return tool.main_argument
    properties: dict[str, Any] = tool.parameters.get("properties") or {}
    for names in (list(tool.parameters.get("required") or ()), list(properties)):
        if len(names) == 1:
            return names[0]
    return "input" if "input" in properties else None


def found(looked_up: Sequence[Lookup], outcomes: Mapping[str, Outcome], late: str) -> tuple[Resolved, ...]:
    """Return what became of each reference, in order.

    Args:
        looked_up: The references and their calls.
        outcomes: By call id: results arrive in any order, and a failure belongs to its own reference alone.
        late: Why a call was cut off or has no outcome.
    """
    return tuple(_found(lookup, outcomes, late) for lookup in looked_up)


def _found(lookup: Lookup, outcomes: Mapping[str, Outcome], late: str) -> Resolved:
    if lookup.call is None:
        return Resolved(reference=lookup.reference, status="unresolvable", content=lookup.why)
    outcome = outcomes.get(lookup.call.call_id)
    if outcome is None or outcome.status in _UNFINISHED:
        return Resolved(reference=lookup.reference, status="failed", tool=lookup.call.name, content=late)
    status = "resolved" if outcome.status == "ok" else "failed"
    return Resolved(reference=lookup.reference, status=status, tool=lookup.call.name, content=outcome.text)


def with_hydration(state: AgentState, items: Sequence[Resolved], max_context_tokens: int) -> AgentState:
    """Take in what was found: a pinned message after the task, and a note for the journal.

    Since it is never dropped, it gets no more than half of what the conversation may have.
    """
    kept = pruned(items, min(max_context_tokens, state.config.context_token_budget // 2))
    state = state.model_copy(update={"hydrated": True})
    if not kept:
        return state
    state = with_note(state, "PreHydrationComplete", **_told(kept))
    text = context_block(kept)
    if not text:
        return state
    block = Message(role="user", text=text, pinned=True)
    return state.model_copy(update={"conversation": with_message(state.conversation, block)})


def with_calls(state: AgentState, outcomes: Sequence[Outcome]) -> AgentState:
    """Count the calls among those of the run, which they are; what they brought is as untrusted as any result."""
    calls = counted(state.tool_calls, outcomes)
    return state.model_copy(update={"tool_calls": calls, "taint": tainted(state, outcomes), "under_way": 0})


def _told(items: Sequence[Resolved]) -> dict[str, Any]:
    counts = {status: sum(item.status == status for item in items) for status in ("resolved", "failed", "unresolvable")}
    return {
        "references_found": len(items),
        **counts,
        "total_tokens": total_tokens(items),
        "references": [_line(item) for item in items],
    }


def _line(item: Resolved) -> dict[str, str]:
    line = {"ref_type": item.reference.ref_type, "value": item.reference.value, "status": item.status}
    if item.status != "resolved":
        line["why"] = item.content
    return {key: value[:MAX_TEXT_CHARS] for key, value in line.items()}
