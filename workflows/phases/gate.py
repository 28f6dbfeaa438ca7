"""Gate: a verdict for every proposal. Only this module makes an `AllowedCall`, and only allowed calls are carried out.

The policy engine is asked once about all proposals of a reply. Any failure is a denial.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Concatenate, NamedTuple, ParamSpec

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import FailureError

from orga.workflows.decisions.limits import budget_left
from orga.workflows.decisions.observe import ClassifiedReply
from orga.workflows.decisions.result import gate_summary
from orga.workflows.decisions.tool_calls.calls import refused_outcome
from orga.workflows.phases.agent_run import Run, show_verdicts
from orga.workflows.phases.control.failure_text import failure_text
from orga.workflows.phases.control.run import CutShort, Interrupted
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.questions import ANSWER
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.gate import (
    ENDING,
    GateRequest,
    Purpose,
    Verdict,
    Verdicts,
    call_activity_id,
    gate_id,
)
from orga.workflows.types.tool_calls.loop_tools import loop_tool
from orga.workflows.types.tool_calls.recovery import Outcome
from orga.workflows.types.tool_calls.tools import ToolSpec

ATTEMPT_S = 5.0
SERVER_ATTEMPT_S = 10.0
"""Seconds if the policy engine is on a server of its own. The gate is then an ordinary activity."""

SERVER_CALL_S = 3.0
"""Additional seconds for each call of a reply after the first, because a server may judge them one after the other."""

HEARTBEAT_S = 5.0
"""Seconds without a heartbeat, after which another worker repeats the attempt."""

MAX_ATTEMPTS = 3

ENDING_TIMEOUT_S = 3.0
"""Seconds for the gate's verdict on the text of an ending, because the run's time may be used up."""


class AllowedCall(NamedTuple):
    """A call that the gate allowed, exactly as it is here."""

    call: ToolCall
    spec: ToolSpec
    verdict: Verdict
    purpose: Purpose = "reply"
    approver: str = ""
    """The person who approved it, if approval was needed."""


class GateResult(NamedTuple):
    """A call and the gate's decision. `permitted` is set if it is allowed."""

    call: ToolCall
    """The call as the model proposed it."""
    verdict: Verdict
    permitted: AllowedCall | None = None
    rejected: Outcome | None = None
    """The outcome of an allowed call that a later stage rejected, or that is not started."""
    place: str = ""
    """The call's activity id, which a permit is bound to. For an answer: its iteration."""

    @property
    def judged_call(self) -> ToolCall:
        """The call that the verdict is about. Policy or a person may have replaced the model's arguments."""
        arguments = self.verdict.arguments
        return self.call if arguments is None else self.call.with_arguments(arguments)

    @property
    def refusal(self) -> Outcome:
        """The outcome of a call that is not permitted."""
        return self.rejected or refused_outcome(self.call, self.verdict)

    def with_rejection(self, outcome: Outcome) -> "GateResult":
        return self._replace(permitted=None, rejected=outcome)


def permitted_calls(results: Iterable[GateResult]) -> dict[int, AllowedCall]:
    """Return the calls that may be carried out, by their index in the results."""
    return {index: result.permitted for index, result in enumerate(results) if result.permitted is not None}


AnswerConclusion = Callable[[AgentState], AgentState]
P = ParamSpec("P")


def answer_conclusion(
    take_in: Callable[Concatenate[AgentState, P], AgentState], *args: P.args, **kwargs: P.kwargs
) -> AnswerConclusion:
    return lambda state: take_in(state, *args, **kwargs)


class GatedReply(NamedTuple):
    """A reply with a verdict on each call, or on its answer."""

    classified: ClassifiedReply
    results: tuple[GateResult, ...]
    """Results of the calls, or the one result of a final answer."""
    paused_s: float
    """The run's `paused_seconds()` when the whole reply was last judged."""
    is_answered: bool = False
    """True if people have decided about the reply. Another segment would ask them again."""
    conclusion: AnswerConclusion | None = None
    """The function that adds a final answer to the state. A stage sets it if it rejects or accepts the answer."""

    @property
    def reply(self) -> Reply:
        return self.classified.reply

    @property
    def allowed(self) -> dict[int, ToolCall]:
        """The calls that may be carried out, by their index in the reply, with the arguments that policy changed."""
        return {index: allowed.call for index, allowed in permitted_calls(self.results).items()}

    def with_rejections(self, outcomes: Mapping[int, Outcome]) -> "GatedReply":
        """Return the reply with these outcomes of calls that are not carried out, by their index in the reply."""
        results = dict(enumerate(self.results))
        rejected = {index: results[index].with_rejection(outcome) for index, outcome in outcomes.items()}
        return self._replace(results=tuple((results | rejected).values()))


async def judge_reply(run: Run, classified: ClassifiedReply) -> GatedReply:
    """Ask the policy engine. Any failure is a denial. Raise Interrupted if the run ends before there is a decision."""
    reply, iteration = classified.reply, run.state.iteration
    if reply.calls:
        places = tuple(f"{iteration}.{index}" for index in range(len(reply.calls)))
        results = await judge_calls(run, reply.calls, places)
    else:
        results = await judge_calls(run, (answer_call(run.state.partial + reply.text),), (str(iteration),))
    return GatedReply(classified, results, run.paused_seconds())


def answer_call(text: str) -> ToolCall:
    """Return an answer in the form of a call, in which it is judged and shown to people."""
    return ToolCall(call_id=ANSWER, name=ANSWER, arguments={"answer": text})


async def is_text_allowed(run: Run, text: str) -> bool:
    """Return True if a run without an answer may end with this text. It is judged like an answer, within seconds."""
    request = gate_request(run, (answer_call(text),), (ENDING,), "ending").without_schema()
    deadline = run.start_timer(ENDING_TIMEOUT_S, "to judge what was gathered")
    try:
        verdicts = await ask_for_verdicts(run, request, deadline.done)
    except Interrupted:
        return False
    deadline.cancel()
    return verdicts[0].decision == "allow"


async def judge_calls(
    run: Run,
    calls: tuple[ToolCall, ...],
    activity_ids: tuple[str, ...],
    purpose: Purpose = "reply",
    is_cut_short: CutShort | None = None,
) -> tuple[GateResult, ...]:
    """Return a result for each call, in call order.

    Raise Interrupted if `is_cut_short` is true first, by default when the run is interrupted.
    """
    request = gate_request(run, calls, activity_ids, purpose)
    verdicts = await ask_for_verdicts(run, request, is_cut_short or run.is_interrupted)
    judged = zip(calls, verdicts, activity_ids, strict=True)
    return tuple(_gate_result(run, GateResult(call, verdict, place=place), purpose) for call, verdict, place in judged)


async def judge_again(run: Run, results: tuple[GateResult, ...], purpose: Purpose) -> tuple[GateResult, ...]:
    """Judge allowed calls once more after a person held up the reply, because policy may have changed."""
    calls, places = tuple(result.judged_call for result in results), tuple(result.place for result in results)
    verdicts = await ask_for_verdicts(run, gate_request(run, calls, places, purpose), run.is_interrupted)
    return tuple(
        _gate_result(run, _with_later_verdict(result, verdict), purpose)
        for result, verdict in zip(results, verdicts, strict=True)
    )


async def judge_approved(run: Run, result: GateResult, approver: str, purpose: Purpose) -> GateResult:
    """Judge a call once more after a person approved it under the policy set of its latest verdict."""
    request = gate_request(run, (result.judged_call,), (result.place,), purpose)
    request = request.with_approval(approver, result.verdict.version)
    (verdict,) = await ask_for_verdicts(run, request, run.is_interrupted)
    if verdict.arguments is not None:
        verdict = _denial("policy changed the call after it was approved")
    return _gate_result(run, _with_later_verdict(result, verdict), purpose, approver)


async def confirm_call(run: Run, result: GateResult) -> GateResult:
    """Judge a permitted call once more, unchanged. If this raises Interrupted, earlier permissions are invalid."""
    permitted = result.permitted
    if permitted is None:
        return result
    if permitted.approver:
        again = await judge_approved(run, result, permitted.approver, permitted.purpose)
    else:
        (again,) = await judge_again(run, (result,), permitted.purpose)
    if again.permitted is not None and again.permitted.call != permitted.call:
        return with_denial(result, "policy now changes this call; propose it again")
    return again


async def confirm_allowed(run: Run, allowed: AllowedCall, activity_id: str) -> AllowedCall | Verdict:
    """Judge an allowed call once more, right before it is carried out. Return it, or the verdict that refuses it."""
    result = GateResult(allowed.call, allowed.verdict, allowed, place=call_activity_id(activity_id))
    again = await confirm_call(run, result)
    return again.verdict if again.permitted is None else allowed._replace(verdict=again.permitted.verdict)


def with_denial(result: GateResult, reason: str) -> GateResult:
    return GateResult(result.call, _denial(reason), place=result.place)


def _with_later_verdict(result: GateResult, verdict: Verdict) -> GateResult:
    """Return the result with a later verdict. Arguments that were changed earlier stay, if the verdict has none."""
    earlier = result.verdict
    if verdict.arguments is None and earlier.arguments is not None:
        if earlier.changed_by:
            verdict = verdict.with_person_arguments(earlier.arguments, earlier.changed_by)
        else:
            verdict = verdict.with_arguments(earlier.arguments)
    return GateResult(result.call, verdict, place=result.place)


def _gate_result(run: Run, judged: GateResult, purpose: Purpose, approver: str = "") -> GateResult:
    """Return the result, with the allowed call if the verdict is "allow" and the tool is offered."""
    if judged.verdict.decision != "allow" or judged.call.name == ANSWER:
        return judged
    spec = run.setup.tool(judged.call.name)
    if spec is None:
        verdict = Verdict(decision="invalid", reason=f"no tool {judged.call.name!r} is offered")
        return judged._replace(verdict=verdict)
    return judged._replace(permitted=AllowedCall(judged.judged_call, spec, judged.verdict, purpose, approver))


def gate_request(
    run: Run, calls: tuple[ToolCall, ...], places: tuple[str, ...], purpose: Purpose = "reply"
) -> GateRequest:
    """Return the request about these calls, or about an answer in the form of a call."""
    answer = next((call.arguments["answer"] for call in calls if call.name == ANSWER), None)
    if answer is not None:
        calls = ()
    names = {call.name for call in calls}
    return GateRequest(
        agent=run.setup.agent,
        iteration=0 if purpose == "hydration" else run.state.iteration,
        engine=run.setup.policy,
        calls=calls,
        places=places,
        answer=answer,
        purpose=purpose,
        depth=run.state.input.lineage.depth,
        taint=run.state.taint,
        left=budget_left(run.state, run.now),
        specs=tuple(tool.with_output_schema(None) for tool in run.setup.tools if tool.name in names),
        offered=tuple(tool.name for tool in run.setup.tools),
        output_schema=run.setup.output_schema,
        tenant=run.state.input.tenant,
        trusted_context=run.state.input.trusted_context,
        delegates=run.setup.delegates if any(loop_tool(name).action == "delegate" for name in names) else (),
    ).with_values(run.state.values)


async def ask_for_verdicts(run: Run, request: GateRequest, is_cut_short: CutShort) -> tuple[Verdict, ...]:
    try:
        answer = await run.wait_for_result(asyncio.create_task(_ask_gate(run, request)), is_cut_short)
        verdicts, problem = answer.for_places(request.places), "the gate did not give one verdict for each proposal"
    except FailureError as error:
        verdicts, problem = None, f"the gate could not decide: {failure_text(error)}"
    if verdicts is None:
        verdicts = (_denial(problem),) * len(request.places)
    show_verdicts(verdicts)
    return verdicts


def _denial(reason: str) -> Verdict:
    return Verdict(decision="deny", reason=reason)


def occasion_id() -> str:
    """Return a random id for one request for approval. A replay repeats it, and a reset leads to another."""
    return f"{workflow.random().getrandbits(64):016x}"


async def _ask_gate(run: Run, request: GateRequest) -> Verdicts:
    if run.setup.gate_execution == "activity":
        further_calls = request.calls[1:]
        limit_s = SERVER_ATTEMPT_S + SERVER_CALL_S * len(further_calls)
        return await run.wait_for_event(
            workflow.execute_activity(
                "gate",
                request,
                activity_id=gate_id(request.places),
                summary=gate_summary(request),
                result_type=Verdicts,
                start_to_close_timeout=timedelta(seconds=limit_s),
                heartbeat_timeout=timedelta(seconds=HEARTBEAT_S),
                retry_policy=RetryPolicy(maximum_attempts=MAX_ATTEMPTS, initial_interval=timedelta(milliseconds=100)),
            )
        )
    # A local activity ends within its workflow task: an abort that arrives meanwhile is handled after the verdict.
    # History has only its result, so the verdicts name their subjects.
    return await workflow.execute_local_activity(
        "gate",
        request,
        activity_id=gate_id(request.places),
        summary=gate_summary(request),
        result_type=Verdicts,
        start_to_close_timeout=timedelta(seconds=ATTEMPT_S),
        retry_policy=RetryPolicy(maximum_attempts=MAX_ATTEMPTS, initial_interval=timedelta(milliseconds=100)),
    )
