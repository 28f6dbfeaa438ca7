"""A proposal as a request to Cedar."""

import json
from typing import Any

from orga.activities.adapters.policy.actions import THIS_RUN, action_of
from orga.activities.adapters.policy.cedar_lint import LEFT
from orga.activities.adapters.policy.cedar_values import MAX_LONG, Wanted, decimal, record
from orga.activities.adapters.policy.known_tool import known_tool
from orga.activities.ports import Proposal
from orga.workflows.types.delegation import delegate_arguments


def cedar_request(proposal: Proposal, want: Wanted, version: str) -> dict[str, Any]:
    """Return principal, action, resource and context.

    Raises:
        Unrepresentable: Something that a policy names cannot be told to Cedar.
    """
    return {
        "principal": {"type": "Agent", "id": proposal.agent},
        "action": {"type": "Action", "id": action_of(proposal)},
        "resource": _resource(proposal),
        "context": _context(proposal, want, version),
    }


def entities(proposal: Proposal) -> str:
    """Return what Cedar has to know of the tool, as JSON."""
    if proposal.call is None or action_of(proposal) != "tool_call":
        return "[]"
    name = proposal.call.name
    return json.dumps([{"uid": {"type": "Tool", "id": name}, "attrs": known_tool(name, proposal.spec), "parents": []}])


def _resource(proposal: Proposal) -> dict[str, str]:
    action = action_of(proposal)
    if proposal.call is None or action == "terminate":
        return {"type": "Run", "id": THIS_RUN}
    if action == "delegate":
        return {"type": "Agent", "id": delegate_arguments(proposal.call.arguments)[0]}
    return {"type": "Tool", "id": proposal.call.name}


def _context(proposal: Proposal, want: Wanted, version: str) -> dict[str, Any]:
    arguments = proposal.call.arguments if proposal.call else {}
    schema = proposal.spec.parameters if proposal.spec else None
    is_approved = proposal.approved_by and proposal.approved_version == version
    optional = {
        "tenant": proposal.tenant,
        "approved_by": proposal.approved_by if is_approved else None,
        "answer": proposal.answer,
        "plan": _plan(proposal) if proposal.plan else None,
    }
    return {
        "arguments": record(arguments, want.at("arguments"), schema, "arguments"),
        "trusted": record(proposal.trusted_context, want.at("trusted"), None, "trusted"),
        "iteration": proposal.iteration,
        "depth": proposal.depth,
        "left": {name: _left(name, value) for name, value in proposal.left.items() if name in LEFT},
        "taint": list(proposal.taint),
        "tainted": bool(proposal.taint),
        "purpose": proposal.purpose,
        **{name: value for name, value in optional.items() if value is not None},
    }


def _plan(proposal: Proposal) -> dict[str, Any]:
    """Return what the steps come to: Cedar cannot look at each one of a list."""
    skills = list(dict.fromkeys(step.skill for step in proposal.plan))
    known = [known_tool(name, proposal.plan_specs.get(name)) for name in skills]
    return {
        "steps": len(proposal.plan),
        "skills": skills,
        "effects": list(dict.fromkeys(tool["effect"] for tool in known)),
        "tags": list(dict.fromkeys(tag for tool in known for tag in tool["tags"])),
    }


def _left(name: str, value: float) -> Any:
    """Return what is left of a budget, rounded down."""
    if name == "cost_usd":
        return decimal(value, "left.cost_usd", is_rounded=True)
    return int(min(value, MAX_LONG))
