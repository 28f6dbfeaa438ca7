"""The default policy: what the agent's config lists is allowed."""

from activities.ports import Judgement, Proposal


class ListedTools:
    """Fails closed: a call of a tool that is not listed is denied. Final answers are allowed."""

    async def judge(self, proposal: Proposal) -> Judgement:
        """Return the decision."""
        if proposal.call is None:
            return Judgement(allowed=True)
        if proposal.call.name in proposal.listed:
            return Judgement(allowed=True)
        listed = ", ".join(proposal.listed) or "none"
        return Judgement(allowed=False, reason=f"{proposal.call.name} is not listed for this agent; listed: {listed}")
