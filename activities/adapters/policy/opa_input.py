"""A proposal as the `input` of an OPA policy."""

from typing import Any

from activities.adapters.policy.actions import action_of
from activities.ports import Proposal
from workflows.types.delegation import delegate_arguments


def opa_input(proposal: Proposal) -> dict[str, Any]:
    """Return the document; what does not apply is null."""
    call, spec = proposal.call, proposal.spec
    action = action_of(proposal)
    return {
        "action": action,
        "agent": proposal.agent,
        "tool": None if call is None else _tool(proposal),
        "target": delegate_arguments(call.arguments)[0] if call and action == "delegate" else None,
        "arguments": call.arguments if call else {},
        "parameters": spec.parameters if spec else {},
        "answer": proposal.answer,
        "trusted": proposal.trusted_context,
        "tenant": proposal.tenant,
        "iteration": proposal.iteration,
        "depth": proposal.depth,
        "left": dict(proposal.left),
        "taint": list(proposal.taint),
        "tainted": bool(proposal.taint),
        "purpose": proposal.purpose,
        "approved_by": proposal.approved_by or None,
        "approved_version": proposal.approved_version or None,
    }


def _tool(proposal: Proposal) -> dict[str, Any]:
    """Return what is known of the tool; one without a definition counts as the worst of all."""
    assert proposal.call is not None
    spec = proposal.spec
    return {
        "name": proposal.call.name,
        "effect": spec.effect if spec else "irreversible",
        "tags": list(spec.options.tags) if spec else [],
        "verified": spec.options.verified if spec else False,
        "approval": spec.options.approval if spec else True,
    }
