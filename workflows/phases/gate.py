"""Gate: a verdict for all that is proposed. Only this module makes a `Permitted`, and only that is carried out."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import FailureError

from workflows.phases.failures import failure_text
from workflows.phases.interrupt import settle
from workflows.phases.reason import Proposed
from workflows.phases.run import Run
from workflows.phases.spans import show_verdicts
from workflows.types.delegation import DELEGATE
from workflows.types.gate import GateRequest, Verdict, Verdicts
from workflows.types.messages import Reply, ToolCall
from workflows.types.tools import ToolSpec

ATTEMPT_S = 5.0
MAX_ATTEMPTS = 3


@dataclass(frozen=True)
class Permitted:
    """A call that the gate allowed, exactly as it stands here."""

    call: ToolCall
    spec: ToolSpec
    verdict: Verdict


@dataclass(frozen=True)
class Ruling:
    """A call and what the gate decided; `permitted` is set when it is allowed."""

    call: ToolCall
    verdict: Verdict
    permitted: Permitted | None


@dataclass(frozen=True)
class Gated:
    """A reply whose every call, or whose answer, has its verdict."""

    reply: Reply
    rulings: tuple[Ruling, ...]
    answer: Verdict | None = None
    """The verdict on a final answer."""

    @property
    def allowed(self) -> tuple[ToolCall, ...]:
        """The calls that may be carried out, in call order."""
        return tuple(ruling.call for ruling in self.rulings if ruling.permitted is not None)


async def judge(run: Run, proposed: Proposed) -> Gated | None:
    """Ask the policy engine; None when the run is ended before it has decided. Whatever goes wrong is a denial."""
    reply = proposed.judged.reply
    if reply.calls:
        rulings = await judge_calls(run, reply.calls, run.state.iteration)
        return None if rulings is None else Gated(reply, rulings)
    request = _request(run, (), run.state.iteration).model_copy(update={"answer": run.state.partial + reply.text})
    verdicts = await _verdicts(run, request)
    return None if verdicts is None else Gated(reply, (), verdicts[0])


async def judge_calls(run: Run, calls: tuple[ToolCall, ...], iteration: int) -> tuple[Ruling, ...] | None:
    """Return a ruling for each call, in call order; None when the run is ended before."""
    verdicts = await _verdicts(run, _request(run, calls, iteration))
    if verdicts is None:
        return None
    return tuple(_ruling(run, call, verdict) for call, verdict in zip(calls, verdicts, strict=True))


def _ruling(run: Run, call: ToolCall, verdict: Verdict) -> Ruling:
    spec = run.setup.tool(call.name)
    if spec is None and verdict.decision == "allow":
        verdict = Verdict(decision="invalid", reason=f"no tool {call.name!r} is offered")
    is_allowed = spec is not None and verdict.decision == "allow"
    return Ruling(call, verdict, Permitted(call, spec, verdict) if spec is not None and is_allowed else None)


def _request(run: Run, calls: tuple[ToolCall, ...], iteration: int) -> GateRequest:
    names = {call.name for call in calls}
    return GateRequest(
        agent=run.setup.agent,
        iteration=iteration,
        calls=calls,
        specs=tuple(tool for tool in run.setup.tools if tool.name in names),
        offered=tuple(tool.name for tool in run.setup.tools),
        output_schema=run.setup.output_schema,
        tenant=run.state.input.tenant,
        trusted_context=run.state.input.trusted_context,
        delegates=run.setup.delegates if DELEGATE in names else (),
    )


async def _verdicts(run: Run, request: GateRequest) -> tuple[Verdict, ...] | None:
    """Return as many verdicts as there are proposals."""
    task = asyncio.create_task(_ask(request))
    await settle([task], run.is_interrupted)
    has_decided = task.done() and not task.cancelled() and task.exception() is None
    if run.is_interrupted() and not has_decided:
        return None
    expected = len(request.calls) or 1
    try:
        verdicts = (await task).verdicts
    except FailureError as error:
        verdicts = (_denied(f"the gate could not decide: {failure_text(error)}"),) * expected
    if len(verdicts) != expected:
        verdicts = (_denied(f"the gate gave {len(verdicts)} verdicts for {expected} proposals"),) * expected
    show_verdicts(verdicts)
    return verdicts


def _denied(reason: str) -> Verdict:
    return Verdict(decision="deny", reason=reason)


async def _ask(request: GateRequest) -> Verdicts:
    return await workflow.execute_local_activity(
        "gate",
        request,
        result_type=Verdicts,
        start_to_close_timeout=timedelta(seconds=ATTEMPT_S),
        retry_policy=RetryPolicy(maximum_attempts=MAX_ATTEMPTS, initial_interval=timedelta(milliseconds=100)),
    )
