"""A proposal as the `input` of an OPA policy."""

from typing import Any

from orga.activities.adapters.policy.actions import action_of
from orga.activities.adapters.policy.known_tool import known_tool
from orga.activities.ports import Proposal
from orga.workflows.types.delegation import delegate_arguments


def opa_input(proposal: Proposal) -> dict[str, Any]:
    """Return the document. What does not apply is null.

    An approval that nobody gave is absent, so that `not input.approved_by` holds.
    """
    call, spec = proposal.call, proposal.spec
    action = action_of(proposal)
    approval = {"approved_by": proposal.approved_by, "approved_version": proposal.approved_version}
    return {
        "action": action,
        "agent": proposal.agent,
        "tool": None if call is None else known_tool(call.name, spec),
        "target": delegate_arguments(call.arguments)[0] if call and action == "delegate" else None,
        "arguments": call.arguments if call else {},
        "parameters": spec.parameters if spec else {},
        "answer": proposal.answer,
        "plan": [
            step.model_dump() | {"tool": known_tool(step.skill, proposal.plan_specs.get(step.skill))}
            for step in proposal.plan
        ]
        or None,
        "trusted": proposal.trusted_context,
        "tenant": proposal.tenant,
        "iteration": proposal.iteration,
        "depth": proposal.depth,
        "left": dict(proposal.left),
        "taint": list(proposal.taint),
        "tainted": bool(proposal.taint),
        "purpose": proposal.purpose,
        **{name: said for name, said in approval.items() if said},
    }
