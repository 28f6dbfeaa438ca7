"""Critique: what the gate let through is reviewed where the agent has critics; they only ever turn more down."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from orga.workflows.decisions import critique, observe
from orga.workflows.decisions.critics import Assessment, answer_critics, ending, remark, reviews, subject_of, why_asked
from orga.workflows.decisions.dispatch import turned_down
from orga.workflows.phases.control.pace import checkpoint, enter, phase_span
from orga.workflows.phases.gate import AllowedCall, Conclusion, Gated, GateResult, conclusion
from orga.workflows.phases.review import Subject, ask_reviewer, assess
from orga.workflows.phases.run import Run
from orga.workflows.types.critics import Critic
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.questions import ANSWER
from orga.workflows.types.recovery import Outcome


class _Concluded(NamedTuple):
    found: Assessment
    then: critique.Conclusion


_TURNED_DOWN = {"ended": critique.with_unreviewed_answer, "revise": critique.with_rejected_answer}
"""How an answer is taken in that a critic lets not through."""


async def review_answer(run: Run, gated: Gated) -> Gated:
    """Ask the critics in their order; the first that lets the answer not through sends it back."""
    critics = answer_critics(run.setup)
    if gated.conclusion is not None or not critics:
        return gated
    enter(run, "reviewing")
    with phase_span("review", run.state.iteration):
        return gated._replace(conclusion=await _conclusion(run, gated.reply, critics))


async def _conclusion(run: Run, reply: Reply, critics: tuple[Critic, ...]) -> Conclusion:
    """Return how the answer is taken in."""
    remarks: list[str] = []
    for critic in critics:
        concluded = await _concluded(run, _answer(run, critic, reply))
        run.raise_if_interrupted()
        if concluded.then in _TURNED_DOWN:
            return conclusion(_TURNED_DOWN[concluded.then], reply, critic, concluded.found)
        run.change(critique.with_round, critic, is_sent_back=False)
        remarks.append(remark(critic, concluded.found))
    return conclusion(critique.with_accepted_answer, reply, tuple(filter(None, remarks)))


async def review_calls(run: Run, gated: Gated) -> Gated:
    """Return the reply with a word of our own for each call that a critic turned down, which is not run.

    What would not be started anyway is not reviewed, and not started either when a critic makes room for it.
    """
    if not any(reviews(critic, call) for critic in run.setup.critics for call in gated.allowed):
        return gated
    gated = _without_unstarted(run, gated)
    enter(run, "reviewing")
    with phase_span("review", run.state.iteration):
        for critic in run.setup.critics:
            gated = await _reviewed_by(run, critic, gated)
            await checkpoint(run)
    return gated


def _without_unstarted(run: Run, gated: Gated) -> Gated:
    places = [index for index, result in enumerate(gated.results) if result.permitted is not None]
    found = list(gated.results)
    for nth, outcome in turned_down(run.state, gated.allowed).items():
        found[places[nth]] = found[places[nth]]._replace(permitted=None, rejected=outcome)
    return gated._replace(results=tuple(found))


async def objection(run: Run, permitted: AllowedCall, place: str) -> Outcome | None:
    """Return what becomes of a call that a critic turns down; None where all let it pass.

    For a call that is none of the reply's: it stands in for another, or is sent again. Nobody could revise it.

    Raises:
        Interrupted: The run is ended before.
    """
    for critic in run.setup.critics:
        if reviews(critic, permitted.call):
            subject = _call(critic, permitted.call, place)
            found = await assess(run, subject)
            then: critique.Conclusion = "accepted" if found.approved else "skipped"
            run.change(
                critique.evaluated, critic, subject.target, found, then, place=subject.place, call_id=subject.call_id
            )
            if not found.approved:
                return critique.rejected_call(run.state, permitted.call, critic, found)
    return None


async def _reviewed_by(run: Run, critic: Critic, gated: Gated) -> Gated:
    iteration = run.state.iteration
    subjects = {
        index: _call(critic, result.permitted.call, f"{iteration}.{index}")
        for index, result in enumerate(gated.results)
        if result.permitted is not None and reviews(critic, result.permitted.call)
    }
    concluded = await _all(run, critic, subjects)
    turned = {index: each.found for index, each in concluded.items() if each.then == "revise"}
    results = [
        _turned_down(run, result, critic, turned[index]) if index in turned else result
        for index, result in enumerate(gated.results)
    ]
    for each in concluded.values():
        if each.then == "ended" and not run.is_interrupted():
            run.change(observe.with_stop, *ending(critic, each.found))
    if concluded:
        run.change(critique.with_round, critic, is_sent_back=bool(turned))
    return gated._replace(results=tuple(results))


async def _all(run: Run, critic: Critic, subjects: Mapping[int, Subject]) -> dict[int, _Concluded]:
    """Return what follows from each review; a person sees all calls at once, a model one after the other.

    So a budget is never overdrawn by more than one verdict.
    """
    if not critic.rubric:
        found = await asyncio.gather(*(_concluded(run, each) for each in subjects.values()), return_exceptions=True)
        for error in found:
            if isinstance(error, BaseException):
                raise error
        return {index: each for index, each in zip(subjects, found, strict=True) if isinstance(each, _Concluded)}
    concluded: dict[int, _Concluded] = {}
    for index, subject in subjects.items():
        each = await _concluded(run, subject)
        concluded[index] = each
        if each.then == "ended":
            break
    return concluded


async def _concluded(run: Run, subject: Subject) -> _Concluded:
    """Return what follows from the review of one thing."""
    critic, found = subject.critic, await assess(run, subject)
    then = critique.conclusion(run.state, critic, found)
    run.change(critique.evaluated, critic, subject.target, found, then, place=subject.place, call_id=subject.call_id)
    if then == "asked":
        found = await ask_reviewer(run, subject, why_asked(critic, found))
        then = "accepted" if found.approved else "ended"
        run.change(
            critique.evaluated, critic, subject.target, found, then, place=subject.place, call_id=subject.call_id
        )
    return _Concluded(found, then)


def _answer(run: Run, critic: Critic, reply: Reply) -> Subject:
    text = run.state.partial + reply.text
    shown = ToolCall(call_id=ANSWER, name=ANSWER, arguments={"answer": text})
    return Subject(critic, shown, str(run.state.iteration), "", text)


def _call(critic: Critic, call: ToolCall, place: str) -> Subject:
    tool, text = subject_of(critic, call)
    return Subject(critic, call, place, tool, text)


def _turned_down(run: Run, result: GateResult, critic: Critic, found: Assessment) -> GateResult:
    return result._replace(permitted=None, rejected=critique.rejected_call(run.state, result.call, critic, found))
