"""What a set of Cedar policies decides on a proposal."""

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import cedarpy

from orga.activities.adapters.policy.actions import action_of
from orga.activities.adapters.policy.cedar_policy import CedarPolicy
from orga.activities.adapters.policy.cedar_request import cedar_request, entities
from orga.activities.adapters.policy.cedar_set import CedarSet, is_liftable
from orga.activities.ports import Judgement, Proposal
from orga.workflows.types.gate import ApprovalTerms


class Undecided(ValueError):
    """Cedar came to no decision that can be trusted."""


def judged(policies: CedarSet, proposal: Proposal) -> Judgement:
    """Return the decision: default deny, forbid wins, and whatever cannot be decided is denied."""
    try:
        request = cedar_request(proposal, policies.wanted, policies.version)
        is_allowed, deciding = _evaluated(policies, policies.all_of_them, request, entities(proposal))
        lifted: list[CedarPolicy] = []
        if not is_allowed and deciding and all(map(is_liftable, deciding)):
            lifted = deciding
            is_allowed, deciding = _evaluated(policies, policies.without_liftable, request, entities(proposal))
    except ValueError as error:
        return Judgement(allowed=False, reason=f"the policies cannot judge this: {error}", version=policies.version)
    if not is_allowed:
        return _denied(policies, proposal, deciding)
    return _allowed(policies, lifted, deciding)


def _evaluated(
    policies: CedarSet, compiled: cedarpy.PolicySet, request: dict[str, Any], known: str
) -> tuple[bool, list[CedarPolicy]]:
    """Return whether it is allowed, and by which policies; an error in one could be that of a forbid, so it counts."""
    found = cedarpy.is_authorized(request, compiled, known)  # pyright: ignore[reportUnknownMemberType]
    if errors := found.diagnostics.errors:
        raise Undecided("; ".join(errors))
    if found.decision is cedarpy.Decision.NoDecision:
        raise Undecided("Cedar gave no decision")
    reasons = set(found.diagnostics.reasons)
    return found.allowed, [policy for policy_id, policy in policies.policies.items() if policy_id in reasons]


def _denied(policies: CedarSet, proposal: Proposal, deciding: Sequence[CedarPolicy]) -> Judgement:
    reason = "forbidden by policy " + _told(deciding) if deciding else f"no policy permits {_wish(proposal)}"
    return Judgement(allowed=False, reason=reason, policies=_ids(deciding), version=policies.version)


def _allowed(policies: CedarSet, lifted: Sequence[CedarPolicy], permits: Sequence[CedarPolicy]) -> Judgement:
    """Return the judgement; a person has to lift each forbid, and to say yes where every permit asks for it."""
    asking = [*lifted]
    demands = [policy.says.approval for policy in lifted if policy.says.approval]
    permitted_by = [policy.says.approval for policy in permits if policy.says.approval]
    if permits and len(permitted_by) == len(permits):
        asking += permits
        demands.append(reduce(_either, permitted_by))
    deciding = [*lifted, *permits]
    if not demands:
        return Judgement(True, tools=_tools(permits), policies=_ids(deciding), version=policies.version)
    terms = _all_of(demands)
    if terms is None:
        reason = f"no one person may approve this: {_told(asking)} name different approvers"
        return Judgement(allowed=False, reason=reason, policies=_ids(deciding), version=policies.version)
    return Judgement(True, f"policy {_told(asking)}", _tools(permits), None, terms, _ids(deciding), policies.version)


def _either(one: ApprovalTerms, other: ApprovalTerms) -> ApprovalTerms:
    """Return terms that are met when one of two is."""
    are_named = one.approvers and other.approvers
    approvers = tuple(dict.fromkeys((*one.approvers, *other.approvers))) if are_named else ()
    return ApprovalTerms(approvers=approvers, expires_s=min(one.expires_s, other.expires_s))


def _all_of(demands: Sequence[ApprovalTerms]) -> ApprovalTerms | None:
    """Return terms under which one person meets every demand; None when nobody may."""
    named = [terms.approvers for terms in demands if terms.approvers]
    approvers = tuple(name for name in named[0] if all(name in others for others in named)) if named else ()
    if named and not approvers:
        return None
    return ApprovalTerms(approvers=approvers, expires_s=min(terms.expires_s for terms in demands))


def _tools(permits: Iterable[CedarPolicy]) -> tuple[str, ...] | None:
    lists = [policy.says.tools for policy in permits if policy.says.tools is not None]
    return tuple(name for name in lists[0] if all(name in others for others in lists)) if lists else None


def _ids(deciding: Iterable[CedarPolicy]) -> tuple[str, ...]:
    return tuple(policy.policy_id for policy in deciding)


def _told(deciding: Iterable[CedarPolicy]) -> str:
    reasons = (
        f"{policy.policy_id}: {policy.says.reason}" if policy.says.reason else policy.policy_id for policy in deciding
    )
    return "; ".join(reasons)


def _wish(proposal: Proposal) -> str:
    match action_of(proposal):
        case "tool_call" if proposal.call is not None:
            return f"{proposal.call.name} for agent {proposal.agent}"
        case "delegate" if proposal.call is not None:
            return f"{proposal.agent} to delegate to {proposal.call.arguments.get('agent')}"
        case "terminate":
            return f"{proposal.agent} to end its run"
        case "plan":
            return f"this plan of {proposal.agent}"
        case _:
            return f"{proposal.agent} to answer"
