"""Approve: calls that need a person's yes are held until each has an answer; then they are judged once more.

A call that was allowed before the run was paused: it stands still, and is judged once more when the run goes on.
"""

import asyncio
from collections.abc import Collection
from dataclasses import replace

from temporalio import workflow

from orga.workflows.decisions import approvals
from orga.workflows.phases import attributes, gate
from orga.workflows.phases.gate import Gated, GateResult
from orga.workflows.phases.interrupt import Interrupted
from orga.workflows.phases.pace import set_phase
from orga.workflows.phases.run import Run
from orga.workflows.types.gate import Purpose
from orga.workflows.types.questions import Hold

MAX_ROUNDS = 5
"""Times that one call is asked about anew because the policy set changed while a person decided."""

SHORTEST_S = 0.001
"""Of a timer: one of no time at all is none."""


async def approve_reply(run: Run, gated: Gated) -> Gated:
    """Return the reply once nothing of it waits for a person any more; while it does, the run may continue as new."""
    is_asked = any(result.verdict.decision == "approval" for result in gated.results)
    results = await ask_approval(run, gated.results, str(run.state.iteration), may_roll_over=True)
    return replace(gated, results=results, stopped_s=run.state.clock.stopped_s, is_answered=is_asked)


async def ask_approval(
    run: Run, results: tuple[GateResult, ...], place: str, purpose: Purpose = "reply", *, may_roll_over: bool = False
) -> tuple[GateResult, ...]:
    """Return the results once no call waits for a person any more.

    An approval is bound to the call, its arguments and the policy set: the call is judged once more, with the approver
    named, and a set that has changed meanwhile asks anew. So are the calls beside it that needed no yes.

    Raises:
        Interrupted: The run is ended before; one that ends asks nobody any more.
    """
    for round_number in range(MAX_ROUNDS):
        held = [index for index, result in enumerate(results) if result.verdict.decision == "approval"]
        if not held:
            break
        if run.is_interrupted():
            if may_roll_over:
                _withdraw(run)
            raise Interrupted
        may_go = may_roll_over and not round_number
        holds = await _answers(run, results, held, f"{place}.{round_number}" if round_number else place, may_go)
        results = await _judged_again(run, results, holds, purpose)
    if may_roll_over:
        _withdraw(run)
    return results


def _withdraw(run: Run, asked_on: Collection[str] = ()) -> None:
    """Close what the run before this one had asked, but for what is asked on: left open, it would hold the clock."""
    before = run.state.waits
    run.change(approvals.withdrawn, asked_on, run.now)
    if run.state.waits != before:
        attributes.show_waiting(run)


async def _answers(
    run: Run, results: tuple[GateResult, ...], held: list[int], place: str, may_roll_over: bool
) -> dict[int, Hold]:
    """Ask a person about the calls at these places."""
    now = run.now
    asked = {
        index: approvals.hold_of(
            run.state,
            f"{place}.{index}",
            results[index].proposed,
            results[index].verdict,
            now,
            occasion=occasion(),
            stands_at=results[index].place,
        )
        for index in held
    }
    if may_roll_over:
        _withdraw(run, {hold.approval_id for hold in asked.values()})
    found = await ask_people(run, tuple(asked.values()), f"approval-{place}", may_roll_over=may_roll_over)
    return {index: found[hold.approval_id] for index, hold in asked.items()}


def occasion() -> str:
    """Return what no other asking has: the server seeds chance anew with each reset, and a replay sees the same."""
    return f"{workflow.random().getrandbits(64):016x}"


async def ask_people(
    run: Run, holds: tuple[Hold, ...], wait_id: str, *, may_roll_over: bool = False
) -> dict[str, Hold]:
    """Ask a person all of these in one question and return them with their answers, by id.

    Raises:
        Interrupted: The run is ended before all have one.
    """
    phase, ids = run.state.phase, {hold.approval_id for hold in holds}
    run.change(approvals.asked, holds, wait_id, run.now)
    set_phase(run, "waiting")
    attributes.show_waiting(run)
    try:
        await _until_answered(run, ids, may_roll_over)
    except asyncio.CancelledError:  # what waits was given up; an open question would hold the clock
        run.change(approvals.settled, ids, wait_id, run.now)
        raise
    found = {hold.approval_id: hold for hold in run.state.holds if hold.approval_id in ids}
    run.change(approvals.settled, ids, wait_id, run.now)
    set_phase(run, phase)
    attributes.show_waiting(run)
    if any(hold.answer is None for hold in found.values()):
        raise Interrupted
    return found


async def _until_answered(run: Run, ids: set[str], may_roll_over: bool) -> None:
    """Wait for these answers; sagas that run side by side ask for others at the same time.

    What expires is told by the timer alone, which runs from where the run's own clock stood.
    """
    while (expiry := approvals.next_expiry(run.state, ids)) is not None and not run.is_interrupted():
        left = max((expiry - run.now).total_seconds(), SHORTEST_S)
        try:
            await run.stood_by(
                lambda: approvals.next_expiry(run.state, ids) is None or run.is_interrupted(),
                may_roll_over=may_roll_over,
                timeout_s=left,
            )
        except TimeoutError:
            run.tick()
            run.change(approvals.without_expired, expiry)


async def _judged_again(
    run: Run, results: tuple[GateResult, ...], holds: dict[int, Hold], purpose: Purpose
) -> tuple[GateResult, ...]:
    found = dict(enumerate(results)) | await _beside(run, results, purpose)
    for index, hold in holds.items():
        answer = hold.answer
        if answer is None or not answer.approved:
            why = (answer and answer.reason) or "an approver said no"
            found[index] = gate.turned_down(results[index], f"not approved: {why}")
        else:
            found[index] = await gate.judge_approved(run, results[index], answer.approver, purpose)
    return tuple(found.values())


async def _beside(run: Run, results: tuple[GateResult, ...], purpose: Purpose) -> dict[int, GateResult]:
    """Judge the calls that waited beside the held ones: what was allowed days ago may be forbidden by now."""
    places = [index for index, result in enumerate(results) if result.permitted is not None]
    if not places:
        return {}
    again = await gate.judge_again(run, tuple(results[index] for index in places), purpose)
    return dict(zip(places, again, strict=True))


async def confirm_when_resumed(run: Run, result: GateResult) -> GateResult:
    """Return the result that holds once the run is paused no more.

    Raises:
        Interrupted: The run is ended before.
    """
    if not run.state.paused:
        return result
    await workflow.wait_condition(lambda: not run.state.paused or run.is_interrupted())
    return await gate.confirm(run, result)
