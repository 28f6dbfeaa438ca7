"""Act: the allowed calls run in parallel, each an activity whose type is the tool's name."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, CancelledError

from workflows.decisions.idempotency import idempotency_key
from workflows.decisions.summaries import call_summary
from workflows.phases.failures import failure_text, is_unknown_outcome
from workflows.phases.gate import Gated
from workflows.phases.interrupt import Interrupted, settle
from workflows.phases.reason import Proposed
from workflows.types.clipped import clip
from workflows.types.context import Setup
from workflows.types.gate import Verdict
from workflows.types.messages import Reply, ToolCall
from workflows.types.outcome import Outcome
from workflows.types.state import AgentState
from workflows.types.tools import ToolOutput, ToolRequest, ToolSpec

HEARTBEAT_TIMEOUT_S = 10.0
SCHEDULE_TO_START_S = 60.0
"""For tools on a task queue of their own: how long a worker may take to appear."""

_REFUSED = {"deny": "[Policy denied] {}", "invalid": "[Invalid call] {}"}


@dataclass(frozen=True)
class Acted:
    """A reply with one outcome for each of its calls, in call order."""

    reply: Reply
    verdicts: tuple[Verdict, ...]
    outcomes: tuple[Outcome, ...]


async def run_tools(gated: Gated, state: AgentState, setup: Setup, interrupted: Interrupted) -> Acted:
    """Run what the gate allowed, at most `max_concurrent_tools` at a time; answer every call whatever happens."""
    calls = gated.reply.calls
    slots = asyncio.Semaphore(setup.config.max_concurrent_tools)
    tasks: dict[int, asyncio.Task[Outcome]] = {}
    started: set[int] = set()
    for index, (call, verdict) in enumerate(zip(calls, gated.verdicts, strict=True)):
        spec = setup.tool(call.name)
        if verdict.decision == "allow" and spec is not None:
            run = _Run(state, setup, call, spec, index)
            tasks[index] = asyncio.create_task(run.in_turn(slots, started))
    if tasks:
        await settle(list(tasks.values()), interrupted)
    outcomes = tuple(
        (_ended(call, tasks[index], setup.tool(call.name)) if index in started else _not_run(call))
        if index in tasks
        else _refused(call, gated.verdicts[index])
        for index, call in enumerate(calls)
    )
    return Acted(gated.reply, gated.verdicts, outcomes)


def nothing_run(proposed: Proposed) -> tuple[Outcome, ...]:
    """Answer the calls of a reply that was never judged, because the run is being ended."""
    return tuple(_not_run(call) for call in proposed.judged.reply.calls)


@dataclass(frozen=True)
class _Run:
    """One allowed call."""

    state: AgentState
    setup: Setup
    call: ToolCall
    spec: ToolSpec
    index: int

    async def in_turn(self, slots: asyncio.Semaphore, started: set[int]) -> Outcome:
        async with slots:
            started.add(self.index)
            activity_id = f"{self.state.iteration}.{self.index}"
            try:
                output = ToolOutput.model_validate(await self._execute(activity_id))
            except ActivityError as error:
                if isinstance(error.cause, CancelledError):
                    raise asyncio.CancelledError from error
                return _failed(self.call, self.spec, error)
            text = clip(output.content, self.spec.options.max_result_bytes)
            return Outcome(call=self.call, status="ok", text=text, result=activity_id)

    async def _execute(self, activity_id: str) -> Any:
        """Return the result as any JSON: the worker of another maker may send what it likes."""
        options, config = self.spec.options, self.setup.config
        request = ToolRequest(
            call_id=self.call.call_id,
            arguments=self.call.arguments,
            key=idempotency_key(self.state.origin, self.state.iteration, self.index, self.call),
        )
        timeout = timedelta(seconds=options.timeout_s or config.tool_timeout_s)
        if options.execution == "local":
            return await workflow.execute_local_activity(
                self.spec.name,
                request,
                activity_id=activity_id,
                start_to_close_timeout=timeout,
                retry_policy=self._retry(),
                summary=call_summary(self.call, self.spec),
            )
        return await workflow.execute_activity(
            self.spec.name,
            request,
            activity_id=activity_id,
            task_queue=options.task_queue,
            start_to_close_timeout=timeout,
            schedule_to_start_timeout=timedelta(seconds=SCHEDULE_TO_START_S) if options.task_queue else None,
            heartbeat_timeout=timedelta(seconds=options.heartbeat_timeout_s or HEARTBEAT_TIMEOUT_S),
            retry_policy=self._retry(),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=call_summary(self.call, self.spec),
        )

    def _retry(self) -> RetryPolicy:
        options, recovery = self.spec.options, self.setup.config.recovery
        attempts = 1 if self.spec.effect == "irreversible" else options.max_attempts or recovery.max_attempts
        first_s = options.initial_interval_s or recovery.base_delay_ms / 1_000
        return RetryPolicy(
            initial_interval=timedelta(seconds=first_s),
            backoff_coefficient=options.backoff_coefficient,
            maximum_interval=timedelta(seconds=max(options.max_interval_s, first_s)),
            maximum_attempts=attempts,
            non_retryable_error_types=options.non_retryable or None,
        )


def _refused(call: ToolCall, verdict: Verdict) -> Outcome:
    if verdict.decision == "allow":
        verdict = Verdict(decision="invalid", reason=f"no tool {call.name!r} is offered")
    status = "denied" if verdict.decision == "deny" else "invalid"
    return Outcome(call=call, status=status, text=_REFUSED[verdict.decision].format(verdict.reason))


def _failed(call: ToolCall, spec: ToolSpec, error: ActivityError) -> Outcome:
    text = f"[Error] {failure_text(error)}"
    if spec.effect == "irreversible" and is_unknown_outcome(error):
        text += ". The outcome is unknown: it may have taken effect. Find out before you call it again."
    return Outcome(call=call, status="failed", text=text)


def _not_run(call: ToolCall) -> Outcome:
    return Outcome(call=call, status="not_run", text="[Not run] the run was ended before this call started")


def _ended(call: ToolCall, task: asyncio.Task[Outcome], spec: ToolSpec | None) -> Outcome:
    """Return the outcome of a task that ended, or was cut off by an abort or the deadline."""
    if task.done() and not task.cancelled():
        error = task.exception()
        if error is None:
            return task.result()
        raise error
    text = "[Cancelled] stopped before it ended"
    if spec is not None and spec.effect != "read_only":
        text += "; the outcome is unknown: it may have taken effect"
    return Outcome(call=call, status="cancelled", text=text)
