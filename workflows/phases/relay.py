"""Watching over a delegated run until it ends: what people send to its parent reaches it, and so does the end."""

from typing import Any

from temporalio import workflow
from temporalio.exceptions import FailureError

from workflows.decisions.delegation import abort_reason
from workflows.phases.interrupt import CANCEL_GRACE_S
from workflows.phases.run import Run

Handle = workflow.ChildWorkflowHandle[Any, Any]


async def attend(run: Run, child: Handle) -> None:
    """Wait until the child has ended; guidance, pauses and the parent's own ending are passed on meanwhile."""
    relay = _Relay(run, child)
    while not child.done():
        await workflow.wait_condition(lambda: child.done() or run.is_interrupted() or relay.is_behind)
        if run.is_interrupted():
            return await _ended(run, child)
        await relay.pass_on()
    return None


async def _ended(run: Run, child: Handle) -> None:
    """Abort the child and wait for what it has by then; one that says nothing within the grace is cancelled.

    The call has its outcome then, and this goes on behind it: what the child used is settled whenever it has ended.
    """
    await _tell(child, "abort", abort_reason(run.state))
    try:
        await workflow.wait_condition(child.done, timeout=CANCEL_GRACE_S)
    except TimeoutError:
        run.tick()
        child.cancel()
        await workflow.wait_condition(child.done)


class _Relay:
    """What a child was told so far of what its parent was told. What is unread when it starts is for it, too."""

    def __init__(self, run: Run, child: Handle) -> None:
        self._run = run
        self._child = child
        self._told = 0
        self._is_paused = False

    @property
    def is_behind(self) -> bool:
        state = self._run.state
        return state.paused != self._is_paused or len(state.inbox) > self._told

    async def pass_on(self) -> None:
        """Pass one thing on: one after the other, since the server keeps no order among signals on their way."""
        state = self._run.state
        if state.paused != self._is_paused:
            self._is_paused = state.paused
            await _tell(self._child, "pause" if state.paused else "resume")
        elif len(state.inbox) > self._told:
            item = state.inbox[self._told]
            self._told += 1
            await _tell(self._child, item.kind, item.text)


async def _tell(child: Handle, signal: str, *arguments: str) -> None:
    """Send a signal; one that comes after the child's end is no fault."""
    if child.done():
        return
    try:
        await child.signal(signal, args=list(arguments))
    except FailureError:
        workflow.logger.info("%s came too late for %s", signal, child.id)
