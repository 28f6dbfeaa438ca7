"""Approvals: held calls, who may decide about them, until when, and once only."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from pydantic_core import to_json

from orga.workflows.decisions.calls import fingerprint, shown_arguments
from orga.workflows.decisions.control import with_note
from orga.workflows.decisions.questions import closed, opened, wait_named
from orga.workflows.types.gate import ANSWER, ApprovalTerms, Verdict
from orga.workflows.types.input import parsed
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.questions import Answer, ApprovalDecision, Hold, Wait
from orga.workflows.types.state import AgentState

ID_CHARS = 24
SHOWN_BYTES = 2_000
"""Of a call's arguments, in what a person is shown."""

SHOWN_ANSWER_BYTES = 50_000
"""Of an answer that a person reviews: all of it counts."""

_LONG = frozenset({"reason"})

EXPIRED = Answer(approved=False, approver="", reason="nobody approved it in time")


def hold_of(
    state: AgentState,
    place: str,
    call: ToolCall,
    verdict: Verdict,
    now: datetime,
    *,
    occasion: str = "",
    stands_at: str = "",
) -> Hold:
    """Return the hold of a call that the verdict lets through only with a person's yes.

    Args:
        state: Of the run.
        place: Of this question: the approval is bound to it.
        call: As it would be carried out.
        verdict: The gate's, or what stands for a critic's.
        now: Workflow time.
        occasion: Of this asking alone, in this execution: a yes given before a reset never counts behind it.
        stands_at: Place of the call, or iteration of the answer.
    """
    terms = verdict.approval or ApprovalTerms()
    about = _about(state.origin, place, call, verdict.version)
    before = next((hold for hold in state.holds if hold.about == about), None)
    if before is not None:  # the run before this one was asking; where room was short it carried less of it
        whole = before.with_content(call, verdict.version, verdict.reason, terms.approvers)
        return before if before.call == call else whole
    return Hold(
        approval_id=sha256(f"{about}/{occasion}".encode()).hexdigest()[:ID_CHARS],
        about=about,
        call=call,
        version=verdict.version,
        reason=verdict.reason,
        approvers=terms.approvers,
        expires_at=now + timedelta(seconds=terms.expires_s),
        place=stands_at,
    )


def _about(origin: str, place: str, call: ToolCall, version: str) -> str:
    """Return the digest of exactly this call under exactly this policy: sha256, so a yes fits nothing else."""
    identity = f"{origin}/{place}/{fingerprint(call)}/{to_json(call.arguments, inf_nan_mode='strings')!r}/{version}"
    return sha256(identity.encode()).hexdigest()[:ID_CHARS]


def asked(state: AgentState, holds: Sequence[Hold], wait_id: str, now: datetime) -> AgentState:
    """Return the state in which these calls are held, all in one question.

    A question that the run before this one had asked is asked on: what was held keeps its time and its answer.
    """
    answers = {hold.approval_id: hold.answer for hold in state.holds}
    holds = [hold.with_answer(answers.get(hold.approval_id, hold.answer)) for hold in holds]
    ids = {hold.approval_id for hold in holds}
    asked_before = wait_named(state, wait_id)
    tools = ", ".join(hold.call.name for hold in holds)
    wait = Wait(
        wait_id=wait_id,
        kind="approval",
        since=asked_before.since if asked_before else now,
        question=f"approve {tools}?",
        data={"calls": [_shown(hold) for hold in holds if hold.answer is None]},
    )
    others = tuple(hold for hold in state.holds if hold.approval_id not in ids)
    open_waits = tuple(other for other in state.waits if other.wait_id != wait_id)
    held = opened(state.with_dialogue(holds=(*others, *holds)).with_control(waits=open_waits), wait, now)
    for hold in holds:
        held = with_note(held, "ApprovalRequested", kind="call", place=hold.place, **_shown(hold))
        held = held if hold.answer is None else _resolved(held, hold, hold.answer)
    return held


def _resolved(state: AgentState, hold: Hold, answer: Answer) -> AgentState:
    told: dict[str, Any] = {"approved": answer.approved, "approver": answer.approver, "reason": answer.reason}
    told |= {"id": hold.approval_id, "place": hold.place, "tool": hold.call.name}
    return with_note(state, "ApprovalResolved", kind="call", **told)


def parsed_decision(state: AgentState, raw: object, now: datetime) -> ApprovalDecision:
    """Check a person's decision against what is held.

    Raises:
        ValueError: It names nothing that is held, was decided or has expired, or this person may not decide it.
    """
    decision = parsed(ApprovalDecision, raw, long=_LONG)
    hold = next((hold for hold in state.holds if hold.approval_id == decision.approval_id), None)
    if hold is None:
        pending = ", ".join(hold.approval_id for hold in pending_holds(state, now)) or "none"
        raise ValueError(f"no approval is pending under {decision.approval_id!r}; pending: {pending}")
    if hold.answer is not None:
        said = "approved" if hold.answer.approved else "denied"
        raise ValueError(f"{decision.approval_id} is {said} already, by {hold.answer.approver or 'nobody in time'}")
    if now >= hold.expires_at:
        raise ValueError(f"{decision.approval_id} has expired")
    if hold.approvers and decision.approver not in hold.approvers:
        raise ValueError(f"{decision.approver!r} may not decide this; these may: {', '.join(hold.approvers)}")
    return decision


def answered(state: AgentState, decision: ApprovalDecision, approved: bool) -> AgentState:
    """Record a person's decision; the first one stays."""
    answer = Answer(approved=approved, approver=decision.approver, reason=decision.reason)
    return _answered(state, {decision.approval_id: answer})


def pending_holds(state: AgentState, now: datetime) -> tuple[Hold, ...]:
    """Return the calls that can still be decided."""
    return tuple(hold for hold in state.holds if hold.answer is None and now < hold.expires_at)


def next_expiry(state: AgentState, ids: Collection[str]) -> datetime | None:
    """Return when the next undecided one of these calls expires."""
    undecided = (hold for hold in state.holds if hold.answer is None and hold.approval_id in ids)
    return min((hold.expires_at for hold in undecided), default=None)


def without_expired(state: AgentState, now: datetime) -> AgentState:
    """Return the state in which what nobody decided in time is denied."""
    late = [hold.approval_id for hold in state.holds if hold.answer is None and now >= hold.expires_at]
    return _answered(state, dict.fromkeys(late, EXPIRED)) if late else state


def settled(state: AgentState, ids: Collection[str], wait_id: str, now: datetime) -> AgentState:
    """Return the state without these holds; what nobody decided before the run was interrupted stays unrun."""
    others = tuple(hold for hold in state.holds if hold.approval_id not in ids)
    return closed(state.with_dialogue(holds=others), wait_id, now)


def withdrawn(state: AgentState, asked_on: Collection[str], now: datetime) -> AgentState:
    """Return the state without what the run before this one had asked and this one does not: policy has changed.

    To be called where no other call of the run is held.

    Args:
        state: Of the run.
        asked_on: Ids of what is held now.
        now: Workflow time.
    """
    stale = {hold.approval_id for hold in state.holds if hold.approval_id not in asked_on}
    if not stale:
        return state
    if len(stale) < len(state.holds):  # one question for all of them, which is asked on without these
        return state.with_dialogue(holds=tuple(h for h in state.holds if h.approval_id not in stale))
    for wait in state.waits:
        state = settled(state, stale, wait.wait_id, now) if wait.kind == "approval" else state
    return state


def _answered(state: AgentState, answers: dict[str, Answer]) -> AgentState:
    holds: list[Hold] = []
    for hold in state.holds:
        answer = answers.get(hold.approval_id)
        if answer is None or hold.answer is not None:
            holds.append(hold)
            continue
        holds.append(hold.with_answer(answer))
        state = _resolved(state, hold, answer)
    return state.with_dialogue(holds=tuple(holds)).with_control(waits=_undecided(state.waits, answers))


def _undecided(waits: tuple[Wait, ...], answers: Collection[str]) -> tuple[Wait, ...]:
    """Return the questions without the calls that have an answer: nobody is asked about those again."""
    return tuple(
        wait.with_calls([call for call in wait.data["calls"] if call["id"] not in answers])
        if wait.kind == "approval"
        else wait
        for wait in waits
    )


def _shown(hold: Hold) -> dict[str, Any]:
    by = {"critic": hold.critic} if hold.critic else {}
    most = SHOWN_ANSWER_BYTES if hold.call.name == ANSWER else SHOWN_BYTES
    return {
        "id": hold.approval_id,
        "tool": hold.call.name,
        "call_id": hold.call.call_id,
        **shown_arguments(to_json(hold.call.arguments, inf_nan_mode="strings").decode(), most),
        "reason": hold.reason,
        "approvers": list(hold.approvers),
        "expires_at": hold.expires_at.isoformat(),
        **by,
    }
