"""Critique: critics review what the gate allowed. They can only reject more.

One critic reviews one subject, by a model or a person (`assess_subject`). The consequences apply to the whole reply.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from orga.workflows.decisions import critique, observe
from orga.workflows.decisions.critique import (
    Assessment,
    critic_stop,
    escalation_reason,
    parsed_assessment,
    review_subject,
    summed_usage,
    unapproved_remark,
)
from orga.workflows.decisions.limits import output_allowance, server_timeout_seconds
from orga.workflows.decisions.tool_calls import call_questions
from orga.workflows.decisions.tool_calls.dispatch import unstarted_outcomes
from orga.workflows.phases.agent_run import Run
from orga.workflows.phases.control.ask_people import ask_people
from orga.workflows.phases.control.failure_text import failure_text
from orga.workflows.phases.control.visibility import enter_phase, pause_checkpoint, phase_span
from orga.workflows.phases.gate import (
    AllowedCall,
    AnswerConclusion,
    GatedReply,
    answer_call,
    answer_conclusion,
    occasion_id,
)
from orga.workflows.phases.reason import ModelCall, execute_model_call, may_ask_again
from orga.workflows.types.context import ContextRef, short_digest
from orga.workflows.types.critics import MAX_SUBJECT_BYTES, Critic, CritiqueRequest
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.questions import ANSWER
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.gate import ApprovalTerms, Verdict
from orga.workflows.types.tool_calls.recovery import Outcome

MAX_ATTEMPTS = 10
"""Attempts of one model call: as many as for a reasoning step, because a failed review may end the run."""

MAX_VERDICTS = 2
"""Replies to one review. If the first is no valid verdict, the model is asked once more."""


class ReviewSubject(NamedTuple):
    critic: Critic
    call: ToolCall
    """The call that a person sees. An answer has the form of a call here."""
    place: str
    """The iteration of an answer, or `<iteration>.<index>` of a call."""
    tool: str
    """The tool of a call. "" for an answer."""
    text: str

    @property
    def journal_target(self) -> str:
        return self.tool or "answer"

    @property
    def call_id(self) -> str:
        return "" if self.call.name == ANSWER else self.call.call_id


def _note_critique(run: Run, subject: ReviewSubject, found: Assessment, conclusion: critique.Conclusion) -> None:
    run.change_state(
        critique.with_critique_note,
        subject.critic,
        subject.journal_target,
        found,
        conclusion,
        place=subject.place,
        call_id=subject.call_id,
    )


async def assess_subject(run: Run, subject: ReviewSubject) -> Assessment:
    """Return the critic's verdict. If the review fails, `on_failure` decides.

    This and the functions below raise `Interrupted` if the run ends first.
    """
    critic = subject.critic
    found = await _assess_by_model(run, subject) if critic.is_model else await _ask_person(run, subject)
    if not found.failure:
        return found
    if critic.on_failure == "open":
        return found._replace(approved=True)
    if critic.person is None or found.is_by_person:
        return found
    _note_critique(run, subject, found, "asked")
    return await _ask_person(run, subject, found.failure)


async def _ask_person(run: Run, subject: ReviewSubject, why: str = "") -> Assessment:
    """Return a person's verdict. The person is asked as about a held call: in the inbox, with a stopped clock.

    `why` is the reason why the person is asked and not the model.
    """
    critic, terms = subject.critic, subject.critic.person
    if terms is None:
        return Assessment(approved=False, reviewer="person", failure="no person is named")
    verdict = Verdict(
        decision="approval",
        reason=f"critic {critic.name}" + (f": {why}" if why else ""),
        approval=ApprovalTerms(approvers=terms.approvers, expires_s=terms.expires_s),
        version=f"critic:{critic.name}",
    )
    request_id = f"{subject.place}.{critic.name}"
    item = call_questions.approval_item(
        run.state, request_id, subject.call, verdict, run.now, occasion=occasion_id(), place=subject.place
    ).with_critic(critic.name)
    question = call_questions.approval_question((item,), f"critic-{critic.name}-{subject.place}", run.now)
    answer = (await ask_people(run, question)).items[0].answer
    if answer is None or not answer.approver:
        return Assessment(approved=False, reviewer="person", failure="nobody reviewed it in time")
    return Assessment(answer.approved, f"person:{answer.approver}", answer.reason, is_asked=critic.is_model)


async def _assess_by_model(run: Run, subject: ReviewSubject) -> Assessment:
    """Return a model's verdict. If its first reply cannot be read, it gets the problem and replies once more."""
    critic, problem, usage = subject.critic, "", None
    reviewer = f"model:{critic.model or run.setup.model}"
    if len(subject.text.encode()) > MAX_SUBJECT_BYTES:
        return Assessment(False, reviewer, failure=f"it is longer than {MAX_SUBJECT_BYTES} bytes")
    for number in range(MAX_VERDICTS):
        stop = critique.budget_stop(run.state, run.now)
        if stop is not None:
            limit, detail = stop
            return Assessment(False, reviewer, failure=detail, limit=limit, usage=usage)
        reply = await _ask_model(run, subject, number, problem)
        if not isinstance(reply, Reply):
            return Assessment(False, reviewer, failure=reply, usage=usage)
        run.change_state(AgentState.with_usage_of, reply)
        usage = summed_usage(usage, reply.usage)
        if reply.failed_over:
            reviewer = f"model:{reply.model}"
        try:
            return parsed_assessment(reply, critic, reviewer)._replace(usage=usage)
        except ValueError as error:
            problem = str(error)
    return Assessment(False, reviewer, failure=f"its verdict cannot be read: {problem}", usage=usage)


async def _ask_model(run: Run, subject: ReviewSubject, number: int, problem: str) -> Reply | str:
    """Return the model's reply number `number`, from 0, or the text of the failure."""
    while True:
        reply = await execute_model_call(run, _model_call(run, subject, number, problem))
        if isinstance(reply, Reply):
            return reply
        if not may_ask_again(run, reply):
            return failure_text(reply)


def _model_call(run: Run, subject: ReviewSubject, number: int, problem: str) -> ModelCall:
    state, critic = run.state, subject.critic
    optional = {"tool": subject.tool, "problem": problem}
    given: dict[str, Any] = {name: text for name, text in optional.items() if text}
    request = CritiqueRequest(
        iteration=state.iteration,
        context=ContextRef(head=short_digest(state.conversation.digest)),
        critic=critic.name,
        subject=subject.text,
        max_output_tokens=min(critic.max_output_tokens * 4**number, output_allowance(state, run.config)),
        **given,
    )
    iteration, dot, index = subject.place.partition(".")  # an answer has no index
    again = ".again" if number else ""
    return ModelCall(
        "critique",
        f"{iteration}.critic.{critic.name}{dot}{index}{again}",
        request,
        limit_s=server_timeout_seconds(state, run.now),
        max_attempts=MAX_ATTEMPTS,
        summary=f"{critic.name}: {subject.journal_target}",
    )


class _Review(NamedTuple):
    assessment: Assessment
    conclusion: critique.Conclusion


_CHANGE_IF_NOT_ACCEPTED = {"ended": critique.with_unreviewed_answer, "revise": critique.with_rejected_answer}
"""The change of the state for each conclusion that does not accept an answer."""


async def review_answer(run: Run, gated: GatedReply) -> GatedReply:
    """Ask the critics in order. The first one that does not accept the answer sends it back or ends the run."""
    critics = tuple(critic for critic in run.setup.critics if critic.reviews_answers)
    if gated.conclusion is not None or not critics:
        return gated
    enter_phase(run, "reviewing")
    with phase_span("review", run.state.iteration):
        return gated._replace(conclusion=await _conclude_answer(run, gated.reply, critics))


async def _conclude_answer(run: Run, reply: Reply, critics: tuple[Critic, ...]) -> AnswerConclusion:
    remarks: list[str] = []
    for critic in critics:
        text = run.state.partial + reply.text
        subject = ReviewSubject(critic, answer_call(text), str(run.state.iteration), "", text)
        review = await _review(run, subject)
        run.raise_if_interrupted()
        if review.conclusion in _CHANGE_IF_NOT_ACCEPTED:
            return answer_conclusion(_CHANGE_IF_NOT_ACCEPTED[review.conclusion], reply, critic, review.assessment)
        run.change_state(critique.with_round, critic, is_sent_back=False)
        if remark := unapproved_remark(critic, review.assessment):
            remarks.append(remark)
    return answer_conclusion(critique.with_accepted_answer, reply, tuple(remarks))


async def review_calls(run: Run, gated: GatedReply) -> GatedReply:
    """Return the reply with an outcome for each call that a critic rejected. Those calls are not run.

    Calls beyond the budget are not reviewed. They are not run even if a rejection makes room for them.
    """
    if not any(critic.reviews_call(call) for critic in run.setup.critics for call in gated.allowed.values()):
        return gated
    gated = gated.with_rejections(unstarted_outcomes(run.state, gated.allowed))
    enter_phase(run, "reviewing")
    with phase_span("review", run.state.iteration):
        for critic in run.setup.critics:
            gated = await _review_calls_by(run, critic, gated)
            await pause_checkpoint(run)
    return gated


async def call_objection(run: Run, allowed: AllowedCall, activity_id: str) -> Outcome | None:
    """Return an outcome if a critic rejects a call outside of a reply. The model cannot revise such a call."""
    for critic in run.setup.critics:
        if critic.reviews_call(allowed.call):
            subject = _call_subject(critic, allowed.call, activity_id)
            found = await assess_subject(run, subject)
            _note_critique(run, subject, found, "accepted" if found.approved else "skipped")
            if not found.approved:
                return critique.rejected_call_outcome(run.state, allowed.call, critic, found)
    return None


async def _review_calls_by(run: Run, critic: Critic, gated: GatedReply) -> GatedReply:
    reviewed = {index: call for index, call in gated.allowed.items() if critic.reviews_call(call)}
    if not reviewed:
        return gated
    iteration = run.state.iteration
    subjects = {index: _call_subject(critic, call, f"{iteration}.{index}") for index, call in reviewed.items()}
    reviews = await _review_all(run, critic, subjects)
    rejected = {
        index: critique.rejected_call_outcome(run.state, gated.results[index].call, critic, review.assessment)
        for index, review in reviews.items()
        if review.conclusion == "revise"
    }
    for review in reviews.values():
        if review.conclusion == "ended" and not run.is_interrupted():
            run.change_state(observe.with_stop, critic_stop(critic, review.assessment))
    run.change_state(critique.with_round, critic, is_sent_back=bool(rejected))
    return gated.with_rejections(rejected)


async def _review_all(run: Run, critic: Critic, subjects: Mapping[int, ReviewSubject]) -> dict[int, _Review]:
    """Return the reviews by the index of their call. A person is asked about all calls at once.

    A model reviews one call after the other, so that no more than one review exceeds a budget.
    """
    if not critic.is_model:
        tasks = {index: asyncio.create_task(_review(run, subject)) for index, subject in subjects.items()}
        await asyncio.gather(*tasks.values(), return_exceptions=True)  # an error is raised only after all have ended
        return {index: task.result() for index, task in tasks.items()}
    reviews: dict[int, _Review] = {}
    for index, subject in subjects.items():
        reviews[index] = await _review(run, subject)
        if reviews[index].conclusion == "ended":
            break
    return reviews


async def _review(run: Run, subject: ReviewSubject) -> _Review:
    """Review the subject, and record what follows from it. After too many rejections, a person may be asked."""
    critic, found = subject.critic, await assess_subject(run, subject)
    conclusion = critique.review_conclusion(run.state, critic, found)
    _note_critique(run, subject, found, conclusion)
    if conclusion == "asked":
        found = await _ask_person(run, subject, escalation_reason(critic, found))
        conclusion = "accepted" if found.approved else "ended"
        _note_critique(run, subject, found, conclusion)
    return _Review(found, conclusion)


def _call_subject(critic: Critic, call: ToolCall, place: str) -> ReviewSubject:
    tool, text = review_subject(critic, call)
    return ReviewSubject(critic, call, place, tool, text)
