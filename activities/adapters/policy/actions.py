"""The names that policies use for the action and the tool of a proposal."""

from typing import Any

from orga.workflows.types.tool_calls.gate import GateRequest
from orga.workflows.types.tool_calls.loop_tools import loop_tool
from orga.workflows.types.tool_calls.tools import ToolSpec

THIS_RUN = "this"
"""Id of the run as a resource."""


def proposal_action(proposal: GateRequest) -> str:
    """Return `tool_call`, `delegate`, `terminate`, `plan` or `respond`."""
    if proposal.call is None:
        return "plan" if proposal.plan else "respond"
    return loop_tool(proposal.call.name).action


def tool_facts(name: str, spec: ToolSpec | None) -> dict[str, Any]:
    """Return the facts about a tool. A tool without a definition counts as the most dangerous kind."""
    return {
        "name": name,
        "effect": spec.effect if spec else "irreversible",
        "tags": list(spec.options.tags) if spec else [],
        "verified": spec.options.verified if spec else False,
        "approval": spec.options.approval if spec else True,
    }
