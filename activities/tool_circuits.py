"""Circuits of tools, shared by all runs of a worker: an interceptor around the tools' activities."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from orga.activities.breakers import TurnedAway, WorkerBreakers
from orga.activities.earlier_attempts import attempt_failed
from orga.activities.ports import ToolSource
from orga.workflows.types.breakers import CIRCUIT_OPEN, describe_to_model
from orga.workflows.types.tools import WORKER_SHUTDOWN, ToolOptions, ToolSpec


class ToolCircuits(Interceptor):
    """Guards the tools whose options ask for a circuit of scope `worker`; an attempt counts, not a call."""

    def __init__(self, breakers: WorkerBreakers, specs: Iterable[ToolSpec], source: ToolSource | None = None) -> None:
        self._breakers = breakers
        self._options = {spec.name: spec.options for spec in specs}
        self._source = source

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Return the interceptor, or none where there is nothing to guard."""
        is_needed = self._source is not None or any(map(_is_guarded, self._options.values()))
        return _Guarded(next, self._breakers, self._options_of) if is_needed else next

    def _options_of(self, tool: str) -> ToolOptions | None:
        options = self._options.get(tool) or (self._source.options(tool) if self._source else None)
        return options if options and _is_guarded(options) else None


def _is_guarded(options: ToolOptions) -> bool:
    return options.breaker.enabled and options.breaker.scope == "worker"


class _Guarded(ActivityInboundInterceptor):
    def __init__(
        self,
        next: ActivityInboundInterceptor,
        breakers: WorkerBreakers,
        options_of: Callable[[str], ToolOptions | None],
    ) -> None:
        super().__init__(next)
        self._breakers = breakers
        self._options_of = options_of

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        tool = activity.info().activity_type
        options = self._options_of(tool)
        if options is None:
            return await super().execute_activity(input)
        try:
            with self._breakers.guarded(tool, options.breaker, lambda error: _counts(error, options)):
                return await super().execute_activity(input)
        except TurnedAway as turned_away:
            text = describe_to_model(str(turned_away), is_again=activity.info().attempt > 1)
            raise attempt_failed(text, CIRCUIT_OPEN, retryable=False, acted="no") from None


def _counts(error: BaseException, options: ToolOptions) -> bool:
    """Return whether the tool's infrastructure failed: a time-out, or what another attempt might have cured."""
    if isinstance(error, ApplicationError):
        is_final = error.non_retryable or error.type in options.non_retryable
        return not is_final and error.type != WORKER_SHUTDOWN
    details = activity.cancellation_details()
    return isinstance(error, asyncio.CancelledError) and details is not None and details.timed_out
