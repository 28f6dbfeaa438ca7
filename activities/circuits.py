"""The circuit breakers of a worker, for tools and for models. All its runs share them."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from orga.activities.calls.activity import attempt_failure
from orga.activities.instruments import count_opened_circuit
from orga.activities.models.model_calls import Models
from orga.activities.ports import ModelError, ModelProvider, ModelRequest, ToolSource
from orga.workflows.types.messages import Reply
from orga.workflows.types.tool_calls.breakers import (
    CIRCUIT_OPEN,
    PROVIDER_PREFIX,
    Breaker,
    CircuitOptions,
    describe_to_model,
    failure_cause,
)
from orga.workflows.types.tool_calls.tools import OUTSIDE_STOPS, ToolOptions, ToolRequest, ToolSpec

MAX_CAUSE_CHARS = 200

MAX_CIRCUITS = 1_000
"""Circuits with failures that a worker keeps. The one that has changed least recently is dropped first."""

_ZERO = datetime(1970, 1, 1, tzinfo=UTC)


def monotonic_time() -> datetime:
    """Return a time that never jumps. Only the difference between two of them has a meaning."""
    return _ZERO + timedelta(seconds=time.monotonic())


class CircuitOpenError(Exception):
    """An open circuit turned a call away. `wait_s` is the time until the next trial call, 0 while one is running."""

    def __init__(self, message: str, wait_s: float) -> None:
        super().__init__(message)
        self.wait_s = wait_s


def _cause_text(error: BaseException) -> str:
    """Return a text that all runs of the worker may read: a provider's error, or only the kind of a tool's error."""
    if isinstance(error, ModelError):
        return " ".join(f"{error.kind}: {error}".split())[:MAX_CAUSE_CHARS]
    return failure_cause(error.type if isinstance(error, ApplicationError) else type(error).__name__)


class WorkerBreakers:
    """Circuits by name: the tool's name, or `provider:` and the provider's name. Any thread may use them."""

    def __init__(self, clock: Callable[[], datetime] = monotonic_time) -> None:
        self._clock = clock
        self._circuits: OrderedDict[str, Breaker] = OrderedDict()
        self._tried_at: dict[str, datetime] = {}
        """The time at which a half-open circuit last let a call try."""
        self._lock = Lock()

    @contextmanager
    def guard(self, name: str, options: CircuitOptions, counts: Callable[[BaseException], bool]) -> Generator[None]:
        """Run the block unless the circuit is open. Failures of the block that `counts` accepts open the circuit.

        A block that ends with any other exception, cancellation included, counts as neither success nor failure.
        Raise CircuitOpenError if the block was not run.
        """
        opened_at = self._admit(name, options)
        try:
            yield
        except BaseException as error:
            self._record_failure(name, options, opened_at, _cause_text(error) if counts(error) else None)
            raise
        self._record_success(name)

    def circuit(self, name: str) -> Breaker:
        with self._lock:
            return self._circuits.get(name, Breaker())

    def _admit(self, name: str, options: CircuitOptions) -> datetime | None:
        """Return the time at which the circuit opened if the call is its trial call. None for other calls."""
        with self._lock:
            before, now = self._circuits.get(name, Breaker()), self._clock()
            after = self._without_stale_trial(name, before, options, now).with_admitted_call(options, now)
            if after is None:
                raise CircuitOpenError(before.describe(name, options, now), before.wait_seconds(options, now))
            self._store_circuit(name, after)
            if after.state == "half_open":
                self._tried_at[name] = now
        return after.opened_at

    def _without_stale_trial(self, name: str, breaker: Breaker, options: CircuitOptions, now: datetime) -> Breaker:
        """Return the circuit without its trial call if that takes longer than `recovery_s`: other calls wait for it."""
        tried_at = self._tried_at.get(name)
        is_stale = tried_at is not None and (now - tried_at).total_seconds() >= options.recovery_s
        return breaker.after_release() if is_stale else breaker

    def _record_success(self, name: str) -> None:
        with self._lock:
            before = self._circuits.get(name, Breaker())
            self._store_circuit(name, before.after_success())
        if before.state != "closed":
            activity.logger.info("the circuit of %s has closed", name)

    def _record_failure(
        self, name: str, options: CircuitOptions, opened_at: datetime | None, cause: str | None
    ) -> None:
        """Record that the call did not succeed. `cause` is None if that does not count against the circuit."""
        with self._lock:
            before = self._circuits.get(name, Breaker())
            if before.state == "half_open" and before.opened_at != opened_at:
                return  # the call began before the circuit opened, so it is no trial call
            after = before.after_release() if cause is None else before.after_failure(options, self._clock(), cause)
            self._store_circuit(name, after)
        if after.state == "open" and before.state != "open":
            count_opened_circuit(name, "worker")
            last = f"; last: {after.cause}" if after.cause else ""
            activity.logger.warning("the circuit of %s has opened (failures: %d%s)", name, after.failures, last)

    def _store_circuit(self, name: str, breaker: Breaker) -> None:
        self._circuits.pop(name, None)
        if breaker.state != "half_open":
            self._tried_at.pop(name, None)
        if not breaker.is_idle:
            self._circuits[name] = breaker
            while len(self._circuits) > MAX_CIRCUITS:
                dropped, _ = self._circuits.popitem(last=False)
                self._tried_at.pop(dropped, None)


class ToolCircuits(Interceptor):
    """Guards the tools whose options ask for a circuit of scope `worker`. It counts attempts, not calls."""

    def __init__(self, breakers: WorkerBreakers, specs: Iterable[ToolSpec], source: ToolSource | None = None) -> None:
        self._breakers = breakers
        self._options = {spec.name: spec.options for spec in specs}
        self._source = source

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        is_needed = self._source is not None or any(map(_is_guarded, self._options.values()))
        return _CircuitInbound(next, self._breakers, self._tool_options) if is_needed else next

    def _tool_options(self, tool: str) -> ToolOptions | None:
        options = self._options.get(tool) or (self._source.options(tool) if self._source else None)
        return options if options and _is_guarded(options) else None


def _is_guarded(options: ToolOptions) -> bool:
    return options.breaker.enabled and options.breaker.scope == "worker"


class _CircuitInbound(ActivityInboundInterceptor):
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
        request = input.args[0] if input.args else None
        has_been_completed = isinstance(request, ToolRequest) and request.completion is not None
        if options is None or has_been_completed:  # the work of a completed call was done elsewhere
            return await super().execute_activity(input)
        try:
            with self._breakers.guard(tool, options.breaker, lambda error: _is_infrastructure_failure(error, options)):
                return await super().execute_activity(input)
        except CircuitOpenError as error:
            text = describe_to_model(str(error), is_again=activity.info().attempt > 1)
            raise attempt_failure(text, CIRCUIT_OPEN, retryable=False, acted="no") from None


def _is_infrastructure_failure(error: BaseException, options: ToolOptions) -> bool:
    """Return whether the tool's infrastructure failed: a time-out, or a failure that another attempt might cure."""
    if isinstance(error, ApplicationError):
        is_final = error.non_retryable or error.type in options.non_retryable
        return not is_final and error.type not in OUTSIDE_STOPS
    details = activity.cancellation_details()
    return isinstance(error, asyncio.CancelledError) and details is not None and details.timed_out


COUNTED_ERROR_KINDS = frozenset({"ServerError", "Overloaded", "ConnectionFailed", "Timeout", "BadStream"})
"""Kinds of failure that the provider causes. Rate limits and bad requests do not count, because we cause them."""


class GuardedModels:
    """Models whose providers have a circuit each."""

    def __init__(self, models: Models, breakers: WorkerBreakers, options: CircuitOptions) -> None:
        self._models = models
        self._breakers = breakers
        self._options = options

    def resolve(self, name: str) -> tuple[ModelProvider, str]:
        """Return the guarded provider and the model's name there. Raise ValueError if the model cannot be called."""
        provider, model = self._models.resolve(name)
        if not self._options.enabled:
            return provider, model
        circuit = PROVIDER_PREFIX + name.strip().partition(":")[0]
        return _GuardedProvider(provider, circuit, self._breakers, self._options), model


@dataclass(frozen=True)
class _GuardedProvider:
    provider: ModelProvider
    circuit: str
    breakers: WorkerBreakers
    options: CircuitOptions

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        try:
            with self.breakers.guard(self.circuit, self.options, _is_failure_of_provider):
                return await self.provider.complete(request, on_text)
        except CircuitOpenError as error:
            text = f"{error}; wait, or choose another model"
            wait_s = error.wait_s or None  # while a trial call is running, the usual delay holds
            raise ModelError(CIRCUIT_OPEN, text, retryable=True, retry_after_s=wait_s) from None


def _is_failure_of_provider(error: BaseException) -> bool:
    return isinstance(error, ModelError) and error.kind in COUNTED_ERROR_KINDS
