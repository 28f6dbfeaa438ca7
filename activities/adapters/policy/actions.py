"""What policies call a proposal."""

from orga.activities.ports import Proposal
from orga.workflows.types.loop_tools import loop_tool

THIS_RUN = "this"
"""The id of the run as a resource."""


def action_of(proposal: Proposal) -> str:
    """Return `tool_call`, `delegate`, `terminate`, `plan` or `respond`."""
    if proposal.call is None:
        return "plan" if proposal.plan else "respond"
    return loop_tool(proposal.call.name).action
