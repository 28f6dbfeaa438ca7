"""A policy for experiments: everything is allowed."""

import logging

from orga.activities.ports import Judgement, Proposal

_log = logging.getLogger(__name__)


class AllowAll:
    """Allows every proposal, and says so loudly when it is set up."""

    is_embedded = True

    def __init__(self) -> None:
        _log.warning(
            "POLICY IS OFF: every tool call of every agent is allowed; set another [policy] engine for real work"
        )

    async def judge(self, proposal: Proposal) -> Judgement:
        """Return the decision."""
        return Judgement(allowed=True)
