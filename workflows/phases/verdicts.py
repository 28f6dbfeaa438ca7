"""Asking the policy engine: one request for all that is proposed at once. Whatever goes wrong is a denial."""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import FailureError

from orga.workflows.decisions.limits import budget_left
from orga.workflows.decisions.summaries import of_gate
from orga.workflows.phases.control.failures import failure_text
from orga.workflows.phases.control.run import CutShort, result_of
from orga.workflows.phases.run import Run, show_verdicts
from orga.workflows.types.gate import GateRequest, Purpose, Verdict, Verdicts, gate_id
from orga.workflows.types.loop_tools import loop_tool
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.questions import ANSWER

ATTEMPT_S = 5.0
SERVER_ATTEMPT_S = 10.0
"""Of an engine that is a server of its own: then the gate is an ordinary activity."""

SERVER_CALL_S = 3.0
"""More for each call of a reply beyond the first: a server may take them one after the other."""

HEARTBEAT_S = 5.0
"""Without a sign of life from the worker: then another one asks, however long the attempt may be."""

MAX_ATTEMPTS = 3


def request_for(
    run: Run, calls: tuple[ToolCall, ...], places: tuple[str, ...], purpose: Purpose = "reply"
) -> GateRequest:
    """Return what the policy engine is asked about these calls, or about the answer that stands as one."""
    is_answer = any(call.name == ANSWER for call in calls)
    names = set[str]() if is_answer else {call.name for call in calls}
    return GateRequest(
        agent=run.setup.agent,
        iteration=0 if purpose == "hydration" else run.state.iteration,
        engine=run.setup.policy,
        calls=() if is_answer else calls,
        places=places,
        answer=calls[0].arguments["answer"] if is_answer else None,
        purpose=purpose,
        depth=run.state.input.lineage.depth,
        taint=run.state.taint,
        left=budget_left(run.state, run.now),
        specs=tuple(tool for tool in run.setup.tools if tool.name in names),
        offered=tuple(tool.name for tool in run.setup.tools),
        output_schema=run.setup.output_schema,
        tenant=run.state.input.tenant,
        trusted_context=run.state.input.trusted_context,
        delegates=run.setup.delegates if any(loop_tool(name).action == "delegate" for name in names) else (),
    )


async def ask_for_verdicts(run: Run, request: GateRequest, is_cut_short: CutShort) -> tuple[Verdict, ...]:
    """Return a verdict for each place that was asked about, in their order."""
    try:
        verdicts = (await result_of(asyncio.create_task(_ask(run, request)), is_cut_short)).on(request.places)
        problem = "the gate did not give one verdict for each proposal"
    except FailureError as error:
        verdicts, problem = None, f"the gate could not decide: {failure_text(error)}"
    verdicts = verdicts or (denied(problem),) * len(request.places)
    show_verdicts(verdicts)
    return verdicts


def denied(reason: str) -> Verdict:
    """Return a denial of the gate's own."""
    return Verdict(decision="deny", reason=reason)


async def _ask(run: Run, request: GateRequest) -> Verdicts:
    if run.setup.gate_execution == "activity":
        within_s = SERVER_ATTEMPT_S + SERVER_CALL_S * len(request.calls[1:])
        return await run.event(
            workflow.execute_activity(
                "gate",
                request,
                activity_id=gate_id(request.places),
                summary=of_gate(request),
                result_type=Verdicts,
                start_to_close_timeout=timedelta(seconds=within_s),
                heartbeat_timeout=timedelta(seconds=HEARTBEAT_S),
                retry_policy=RetryPolicy(maximum_attempts=MAX_ATTEMPTS, initial_interval=timedelta(milliseconds=100)),
            )
        )
    return await workflow.execute_local_activity(
        "gate",
        request,
        activity_id=gate_id(request.places),
        summary=of_gate(request),
        result_type=Verdicts,
        start_to_close_timeout=timedelta(seconds=ATTEMPT_S),
        retry_policy=RetryPolicy(maximum_attempts=MAX_ATTEMPTS, initial_interval=timedelta(milliseconds=100)),
    )
