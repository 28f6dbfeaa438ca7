"""The default policy: what the agent's config lists is allowed."""

from orga.activities.ports import Judgement, Proposal
from orga.workflows.types.gate import ApprovalTerms


class ListedTools:
    """Fails closed: a call of a tool that is not listed is denied, one whose options say so needs a person's yes.

    Final answers are allowed, and so are plans: each of their steps is a call yet.
    """

    is_embedded = True

    async def judge(self, proposal: Proposal) -> Judgement:
        """Return the decision."""
        if proposal.call is None:
            return Judgement(allowed=True)
        if proposal.call.name in proposal.listed:
            if proposal.spec is not None and proposal.spec.options.approval:
                return Judgement(True, f"{proposal.call.name} is marked for approval", approval=ApprovalTerms())
            return Judgement(allowed=True)
        listed = ", ".join(proposal.listed) or "none"
        return Judgement(allowed=False, reason=f"{proposal.call.name} is not listed for this agent; listed: {listed}")
