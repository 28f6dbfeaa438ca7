"""Calls that a person has to approve: an engine that asks, the held calls, and an approval."""

from dataclasses import dataclass, field
from typing import Any

from temporalio.client import WorkflowHandle

from orga.workflows.types.tool_calls.gate import ApprovalTerms, GateRequest, Verdict
from tests.support.hold import wait_until
from tests.support.runs.questions import is_on_record
from tests.support.values.policies import a_verdict


@dataclass
class Asks:
    """A policy engine that requires approval of these tools, and whose version can change."""

    is_embedded = True

    tools: tuple[str, ...] = ("pay",)
    approvers: tuple[str, ...] = ()
    expires_s: float = 3_600
    version: str = "v1"
    answer: bool = False
    policies: tuple[str, ...] = ()
    seen: list[GateRequest] = field(default_factory=list[GateRequest])

    async def judge(self, proposal: GateRequest) -> Verdict:
        """Require approval of what is listed."""
        self.seen.append(proposal)
        asks = self.answer if proposal.call is None else proposal.call.name in self.tools
        terms = ApprovalTerms(approvers=self.approvers, expires_s=self.expires_s) if asks else None
        return a_verdict(True, reason="money moves", approval=terms, version=self.version, policies=self.policies)


async def wait_for_held_calls(handle: WorkflowHandle[Any, Any], count: int = 1) -> list[dict[str, Any]]:
    """Return the held calls, once there are this many."""
    found: list[dict[str, Any]] = []

    async def asks() -> bool:
        found[:] = (await handle.query("status"))["pending_approvals"]
        return len(found) == count and await is_on_record(handle)

    await wait_until(asks)
    return found


def approval_argument(question: dict[str, Any], approver: str = "ada", **more: Any) -> dict[str, Any]:
    """Return the argument of `approve` and `deny`."""
    return {"approval_id": question["approval_id"], "approver": approver, **more}
