"""Circuits of tools, shared by all runs of a worker: an interceptor around the tools' activities."""

import asyncio
from collections.abc import Iterable
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities.breakers import TurnedAway, WorkerBreakers
from workflows.types.breaker import CIRCUIT_OPEN, told_to_model
from workflows.types.tools import WORKER_SHUTDOWN, ToolOptions, ToolSpec


class ToolCircuits(Interceptor):
    """Guards the tools whose options ask for a circuit of scope `worker`; an attempt counts, not a call."""

    def __init__(self, breakers: WorkerBreakers, specs: Iterable[ToolSpec]) -> None:
        self._breakers = breakers
        self._options = {
            spec.name: spec.options
            for spec in specs
            if spec.options.breaker.enabled and spec.options.breaker.scope == "worker"
        }

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Return the interceptor, or none where there is nothing to guard."""
        return _Guarded(next, self._breakers, self._options) if self._options else next


class _Guarded(ActivityInboundInterceptor):
    def __init__(
        self, next: ActivityInboundInterceptor, breakers: WorkerBreakers, options: dict[str, ToolOptions]
    ) -> None:
        super().__init__(next)
        self._breakers = breakers
        self._options = options

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        tool = activity.info().activity_type
        options = self._options.get(tool)
        if options is None:
            return await super().execute_activity(input)
        try:
            with self._breakers.guarded(tool, options.breaker, lambda error: _counts(error, options)):
                return await super().execute_activity(input)
        except TurnedAway as turned_away:
            text = told_to_model(str(turned_away))
            raise ApplicationError(text, type=CIRCUIT_OPEN, non_retryable=True) from None


def _counts(error: BaseException, options: ToolOptions) -> bool:
    """Return whether the tool's infrastructure failed: a time-out, or what another attempt might have cured."""
    if isinstance(error, ApplicationError):
        is_final = error.non_retryable or error.type in options.non_retryable
        return not is_final and error.type != WORKER_SHUTDOWN
    details = activity.cancellation_details()
    return isinstance(error, asyncio.CancelledError) and details is not None and details.timed_out
