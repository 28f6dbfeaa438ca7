"""Approvals: the question about calls that need a person's approval."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import sha256

from pydantic_core import to_json

from orga.workflows.decisions.control.questions import find_item
from orga.workflows.decisions.tool_calls.calls import call_fingerprint
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.questions import Item, Question
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.gate import ApprovalTerms, Verdict

ID_CHARS = 24


def approval_item(
    state: AgentState,
    request_id: str,
    call: ToolCall,
    verdict: Verdict,
    now: datetime,
    *,
    occasion: str = "",
    place: str = "",
) -> Item:
    """Return the item of a call that the verdict allows only with a person's approval.

    Args:
        request_id: The place of the call, with the round if people are asked again, or with the critic that asks. The
            approval is bound to it.
        call: The call as it would be carried out.
        occasion: Unique to this request in this execution, so that an approval from before a reset does not count after
            it.
    """
    terms = verdict.approval or ApprovalTerms()
    about, whole = _call_digest(state.origin, request_id, call, verdict.version), call.model_dump()
    before = find_item(state, about)
    if before is not None:  # the previous segment asked already, and may have carried less of it
        updated = before.with_content(whole, verdict.version, verdict.reason, terms.approvers)
        return before if before.call == whole else updated
    return Item(
        approval_id=sha256(f"{about}/{occasion}".encode()).hexdigest()[:ID_CHARS],
        about=about,
        call=whole,
        version=verdict.version,
        reason=verdict.reason,
        approvers=terms.approvers,
        expires_at=now + timedelta(seconds=terms.expires_s),
        answer=None,
        place=place,
    )


def _call_digest(origin: str, request_id: str, call: ToolCall, version: str) -> str:
    """Return the digest of exactly this call under exactly this policy: sha256, so an approval fits nothing else."""
    identity = (
        f"{origin}/{request_id}/{call_fingerprint(call)}/{to_json(call.arguments, inf_nan_mode='strings')!r}/{version}"
    )
    return sha256(identity.encode()).hexdigest()[:ID_CHARS]


def approval_question(items: Sequence[Item], question_id: str, now: datetime) -> Question:
    tools = ", ".join(str(item.call["name"]) for item in items)
    return Question(question_id=question_id, kind="approval", since=now, text=f"approve {tools}?", items=tuple(items))
