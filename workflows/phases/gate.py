"""Gate: a verdict for everything that is proposed. Only this phase makes a `Gated`."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

from workflows.phases.failures import failure_text
from workflows.phases.interrupt import Interrupted, settle
from workflows.phases.reason import Proposed
from workflows.phases.spans import show_verdicts
from workflows.types.context import Setup
from workflows.types.gate import GateRequest, Verdict, Verdicts
from workflows.types.messages import Reply
from workflows.types.state import AgentState

ATTEMPT_S = 5.0
MAX_ATTEMPTS = 3


@dataclass(frozen=True)
class Gated:
    """A reply whose every call, or whose answer, has its verdict."""

    reply: Reply
    verdicts: tuple[Verdict, ...]

    @property
    def answer(self) -> Verdict:
        """The verdict on a final answer."""
        return self.verdicts[0]


async def judge(proposed: Proposed, state: AgentState, setup: Setup, interrupted: Interrupted) -> Gated | None:
    """Ask the policy engine; None when the run is ended before it has decided. Whatever goes wrong is a denial."""
    reply = proposed.judged.reply
    names = {call.name for call in reply.calls}
    request = GateRequest(
        agent=setup.agent,
        iteration=state.iteration,
        calls=reply.calls,
        answer=None if reply.calls else state.partial + reply.text,
        specs=tuple(tool for tool in setup.tools if tool.name in names),
        offered=tuple(tool.name for tool in setup.tools),
        tenant=state.input.tenant,
        trusted_context=state.input.trusted_context,
    )
    verdicts = await _verdicts(request, interrupted)
    if verdicts is None:
        return None
    expected = len(reply.calls) or 1
    if len(verdicts) != expected:
        miscount = Verdict(decision="deny", reason=f"the gate gave {len(verdicts)} verdicts for {expected} proposals")
        verdicts = (miscount,) * expected
    show_verdicts(verdicts)
    return Gated(reply, verdicts)


async def _verdicts(request: GateRequest, interrupted: Interrupted) -> tuple[Verdict, ...] | None:
    task = asyncio.create_task(_ask(request))
    await settle([task], interrupted)
    has_decided = task.done() and not task.cancelled() and task.exception() is None
    if interrupted() and not has_decided:
        return None
    try:
        return (await task).verdicts
    except ActivityError as error:
        refused = Verdict(decision="deny", reason=f"the gate could not decide: {failure_text(error)}")
        return (refused,) * (len(request.calls) or 1)


async def _ask(request: GateRequest) -> Verdicts:
    return await workflow.execute_local_activity(
        "gate",
        request,
        result_type=Verdicts,
        start_to_close_timeout=timedelta(seconds=ATTEMPT_S),
        retry_policy=RetryPolicy(maximum_attempts=MAX_ATTEMPTS, initial_interval=timedelta(milliseconds=100)),
    )
