"""Review: one critic looks at one thing, by its model or by a person."""

from typing import NamedTuple

from orga.workflows.decisions import approvals, critique
from orga.workflows.decisions.critics import Assessment, assessment, summed
from orga.workflows.decisions.limits import is_time_for_another, output_allowance, server_limit_s
from orga.workflows.phases.control.failures import failure_text
from orga.workflows.phases.control.questions import ask
from orga.workflows.phases.failures import is_out_of_time
from orga.workflows.phases.questions import occasion
from orga.workflows.phases.reason import ModelCall, reply_to
from orga.workflows.phases.run import Run
from orga.workflows.types.context import MAX_SUBJECT_BYTES, ContextRef, CritiqueRequest
from orga.workflows.types.critics import Critic
from orga.workflows.types.digest import reference
from orga.workflows.types.gate import ApprovalTerms, Verdict
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.questions import ANSWER

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


async def assess(run: Run, subject: Subject) -> Assessment:
    """Return what the critic says.

    Raises:
        Interrupted: The run is ended before.
    """
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
    run.change(critique.evaluated, critic, subject.target, found, "asked", place=subject.place, call_id=subject.call_id)
    return await ask_reviewer(run, subject, found.failure)


async def ask_reviewer(run: Run, subject: Subject, why: str = "") -> Assessment:
    """Return what a person says of it, as of a held call: in the inbox, outside the run's clock, decided once.

    Raises:
        Interrupted: The run is ended before.
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
        reply = await _reply(run, subject, number, problem)
        if not isinstance(reply, Reply):
            return Assessment(False, reviewer, failure=reply, usage=usage)
        run.change(critique.with_usage, reply)
        usage = summed(usage, reply.usage)
        try:
            return assessment(reply, critic, reviewer)._replace(usage=usage)
        except ValueError as error:
            problem = str(error)
    return Assessment(False, reviewer, failure=f"its verdict cannot be read: {problem}", usage=usage)


async def _reply(run: Run, subject: Subject, number: int, problem: str) -> Reply | str:
    """Return the model's reply, or why there is none."""
    while True:
        reply = await reply_to(run, _call(run, subject, number, problem))
        if isinstance(reply, Reply):
            return reply
        if not (is_out_of_time(reply) and is_time_for_another(run.state, run.now)):
            return failure_text(reply)


def _call(run: Run, subject: Subject, number: int, problem: str) -> ModelCall:
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
