"""Critique: what the gate let through is reviewed where the agent has critics; they only ever turn more down.

One critic looks at one thing, by its model or by a person (`assess`); what follows is said of the whole reply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from orga.workflows.decisions import critique, observe
from orga.workflows.decisions.critique import Assessment, assessment, ending, remark, subject_of, summed, why_asked
from orga.workflows.decisions.limits import is_time_for_another, output_allowance, server_limit_s
from orga.workflows.decisions.tool_calls import approvals
from orga.workflows.decisions.tool_calls.dispatch import unstarted
from orga.workflows.phases.control.failure_text import failure_text
from orga.workflows.phases.control.visibility import ask, checkpoint, enter, phase_span
from orga.workflows.phases.failures import is_out_of_time
from orga.workflows.phases.gate import AllowedCall, Conclusion, Gated, GateResult, conclusion
from orga.workflows.phases.questions import occasion
from orga.workflows.phases.reason import ModelCall, reply_to
from orga.workflows.phases.run import Run
from orga.workflows.types.agents import MAX_SUBJECT_BYTES, Critic, CritiqueRequest
from orga.workflows.types.context import ContextRef, reference
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.questions import ANSWER
from orga.workflows.types.tool_calls.gate import ApprovalTerms, Verdict
from orga.workflows.types.tool_calls.recovery import Outcome

MAX_ATTEMPTS = 10
"""As many as a reasoning step has: a run that cannot be reviewed ends."""

MAX_VERDICTS = 2
"""Replies of the model that are read: one that is no verdict is asked for once more."""


class Subject(NamedTuple):
    """What a critic looks at."""

    critic: Critic
    call: ToolCall
    """As a person is shown it: an answer stands where a call would stand."""
    place: str
    """The iteration of an answer, `<iteration>.<index>` of a call."""
    tool: str
    """That is called; "" of an answer."""
    text: str

    @property
    def target(self) -> str:
        """What the journal calls it."""
        return self.tool or "answer"

    @property
    def call_id(self) -> str:
        """Which of the reply's calls it is; "" of an answer that is none."""
        return "" if self.call.name == ANSWER else self.call.call_id


def _note(run: Run, subject: Subject, found: Assessment, then: critique.Conclusion) -> None:
    about = {"place": subject.place, "call_id": subject.call_id}
    run.change(critique.evaluated, subject.critic, subject.target, found, then, **about)


async def assess(run: Run, subject: Subject) -> Assessment:
    """Return what the critic says; `Interrupted` where the run is ended before, as of all that follow."""
    critic = subject.critic
    if not critic.rubric:
        found = await ask_reviewer(run, subject)
    else:
        found = await _by_model(run, subject)
    if not found.failure:
        return found
    if critic.on_failure == "open":
        return found._replace(approved=True)
    if critic.person is None or found.is_by_person:
        return found
    _note(run, subject, found, "asked")
    return await ask_reviewer(run, subject, found.failure)


async def ask_reviewer(run: Run, subject: Subject, why: str = "") -> Assessment:
    """Return what a person says of it, as of a held call: in the inbox, outside the run's clock, decided once."""
    critic, terms = subject.critic, subject.critic.person
    if terms is None:
        return Assessment(approved=False, reviewer="person", failure="no person is named")
    verdict = Verdict(
        decision="approval",
        reason=f"critic {critic.name}" + (f": {why}" if why else ""),
        approval=ApprovalTerms(approvers=terms.approvers, expires_s=terms.expires_s),
        version=f"critic:{critic.name}",
    )
    place = f"{subject.place}.{critic.name}"
    item = approvals.item_of(
        run.state, place, subject.call, verdict, run.now, occasion=occasion(), stands_at=subject.place
    ).with_critic(critic.name)
    question = approvals.question_about((item,), f"critic-{critic.name}-{subject.place}", run.now)
    answer = (await ask(run, question)).items[0].answer
    if answer is None or not answer.approver:
        return Assessment(approved=False, reviewer="person", failure="nobody reviewed it in time")
    return Assessment(answer.approved, f"person:{answer.approver}", answer.reason, is_asked=bool(critic.rubric))


async def _by_model(run: Run, subject: Subject) -> Assessment:
    critic, problem, usage = subject.critic, "", None
    reviewer = f"model:{critic.model or run.setup.model}"
    if len(subject.text.encode()) > MAX_SUBJECT_BYTES:
        return Assessment(False, reviewer, failure=f"it is longer than {MAX_SUBJECT_BYTES} bytes")
    for number in range(MAX_VERDICTS):
        limit = critique.limit_reached(run.state, run.now)
        if limit is not None:
            return Assessment(False, reviewer, failure=limit[1], limit=limit[0], usage=usage)
        reply = await _ask_critic(run, subject, number, problem)
        if not isinstance(reply, Reply):
            return Assessment(False, reviewer, failure=reply, usage=usage)
        run.change(critique.with_usage, reply)
        usage = summed(usage, reply.usage)
        if reply.failed_over:
            reviewer = f"model:{reply.model}"
        try:
            return assessment(reply, critic, reviewer)._replace(usage=usage)
        except ValueError as error:
            problem = str(error)
    return Assessment(False, reviewer, failure=f"its verdict cannot be read: {problem}", usage=usage)


async def _ask_critic(run: Run, subject: Subject, number: int, problem: str) -> Reply | str:
    """Return the model's reply, or why there is none."""
    while True:
        reply = await reply_to(run, _model_call(run, subject, number, problem))
        if isinstance(reply, Reply):
            return reply
        if not (is_out_of_time(reply) and is_time_for_another(run.state, run.now)):
            return failure_text(reply)


def _model_call(run: Run, subject: Subject, number: int, problem: str) -> ModelCall:
    state, critic = run.state, subject.critic
    request = CritiqueRequest(
        iteration=state.iteration,
        context=ContextRef(head=reference(state.conversation.digest)),
        critic=critic.name,
        subject=subject.text,
        max_output_tokens=min(critic.max_output_tokens, output_allowance(state, run.config)),
        **({"tool": subject.tool} if subject.tool else {}),
        **({"problem": problem} if problem else {}),
    )
    iteration, _, index = subject.place.partition(".")
    parts = [iteration, "critic", critic.name, *([index] if index else []), *(["again"] if number else [])]
    return ModelCall(
        "critique",
        ".".join(parts),
        request,
        limit_s=server_limit_s(state, run.now),
        max_attempts=MAX_ATTEMPTS,
        summary=f"{critic.name}: {subject.target}",
    )


class _Concluded(NamedTuple):
    found: Assessment
    then: critique.Conclusion


_TURNED_DOWN = {"ended": critique.with_unreviewed_answer, "revise": critique.with_rejected_answer}
"""How an answer is taken in that a critic lets not through."""


async def review_answer(run: Run, gated: Gated) -> Gated:
    """Ask the critics in their order; the first that lets the answer not through sends it back."""
    critics = tuple(critic for critic in run.setup.critics if critic.reviews(None))
    if gated.conclusion is not None or not critics:
        return gated
    enter(run, "reviewing")
    with phase_span("review", run.state.iteration):
        return gated._replace(conclusion=await _conclude_answer(run, gated.reply, critics))


async def _conclude_answer(run: Run, reply: Reply, critics: tuple[Critic, ...]) -> Conclusion:
    """Return how the answer is taken in."""
    remarks: list[str] = []
    for critic in critics:
        concluded = await _conclude_review(run, _answer(run, critic, reply))
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
    if not any(critic.reviews(call) for critic in run.setup.critics for call in gated.allowed):
        return gated
    gated = _without_unstarted(run, gated)
    enter(run, "reviewing")
    with phase_span("review", run.state.iteration):
        for critic in run.setup.critics:
            gated = await _review_by(run, critic, gated)
            await checkpoint(run)
    return gated


def _without_unstarted(run: Run, gated: Gated) -> Gated:
    places = [index for index, result in enumerate(gated.results) if result.permitted is not None]
    found = list(gated.results)
    for nth, outcome in unstarted(run.state, gated.allowed).items():
        found[places[nth]] = found[places[nth]]._replace(permitted=None, rejected=outcome)
    return gated._replace(results=tuple(found))


async def call_objection(run: Run, permitted: AllowedCall, place: str) -> Outcome | None:
    """Return what becomes of a call that a critic turns down, of none that the reply made: nobody could revise it."""
    for critic in run.setup.critics:
        if critic.reviews(permitted.call):
            subject = _call(critic, permitted.call, place)
            found = await assess(run, subject)
            _note(run, subject, found, "accepted" if found.approved else "skipped")
            if not found.approved:
                return critique.rejected_call(run.state, permitted.call, critic, found)
    return None


async def _review_by(run: Run, critic: Critic, gated: Gated) -> Gated:
    iteration = run.state.iteration
    subjects = {
        index: _call(critic, result.permitted.call, f"{iteration}.{index}")
        for index, result in enumerate(gated.results)
        if result.permitted is not None and critic.reviews(result.permitted.call)
    }
    concluded = await _conclude_reviews(run, critic, subjects)
    turned = {index: each.found for index, each in concluded.items() if each.then == "revise"}
    results = [
        _deny(run, result, critic, turned[index]) if index in turned else result
        for index, result in enumerate(gated.results)
    ]
    for each in concluded.values():
        if each.then == "ended" and not run.is_interrupted():
            run.change(observe.with_stop, *ending(critic, each.found))
    if concluded:
        run.change(critique.with_round, critic, is_sent_back=bool(turned))
    return gated._replace(results=tuple(results))


async def _conclude_reviews(run: Run, critic: Critic, subjects: Mapping[int, Subject]) -> dict[int, _Concluded]:
    """Return what follows from each review; a person sees all calls at once, a model one after the other.

    So a budget is never overdrawn by more than one verdict.
    """
    if not critic.rubric:
        found = await asyncio.gather(
            *(_conclude_review(run, each) for each in subjects.values()), return_exceptions=True
        )
        for error in found:
            if isinstance(error, BaseException):
                raise error
        return {index: each for index, each in zip(subjects, found, strict=True) if isinstance(each, _Concluded)}
    concluded: dict[int, _Concluded] = {}
    for index, subject in subjects.items():
        each = await _conclude_review(run, subject)
        concluded[index] = each
        if each.then == "ended":
            break
    return concluded


async def _conclude_review(run: Run, subject: Subject) -> _Concluded:
    """Return what follows from the review of one thing."""
    critic, found = subject.critic, await assess(run, subject)
    then = critique.conclusion(run.state, critic, found)
    _note(run, subject, found, then)
    if then == "asked":
        found = await ask_reviewer(run, subject, why_asked(critic, found))
        then = "accepted" if found.approved else "ended"
        _note(run, subject, found, then)
    return _Concluded(found, then)


def _answer(run: Run, critic: Critic, reply: Reply) -> Subject:
    text = run.state.partial + reply.text
    shown = ToolCall(call_id=ANSWER, name=ANSWER, arguments={"answer": text})
    return Subject(critic, shown, str(run.state.iteration), "", text)


def _call(critic: Critic, call: ToolCall, place: str) -> Subject:
    tool, text = subject_of(critic, call)
    return Subject(critic, call, place, tool, text)


def _deny(run: Run, result: GateResult, critic: Critic, found: Assessment) -> GateResult:
    return result._replace(permitted=None, rejected=critique.rejected_call(run.state, result.call, critic, found))
