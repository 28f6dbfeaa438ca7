"""The circuits of a worker, shared by all its runs."""

import time
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Lock

from temporalio import activity
from temporalio.exceptions import ApplicationError

from orga.activities.instruments import count_opened_circuit
from orga.activities.ports import ModelError
from orga.workflows.types.breakers import Breaker, CircuitOptions, cause_named

MAX_CAUSE_CHARS = 200

MAX_CIRCUITS = 1_000
"""Those that failed or were tried last; a circuit without failures is not kept at all."""

_ZERO = datetime(1970, 1, 1, tzinfo=UTC)


def monotonic_time() -> datetime:
    """Return a time that never jumps; only differences mean something."""
    return _ZERO + timedelta(seconds=time.monotonic())


class TurnedAway(Exception):
    """An open circuit; `wait_s` is the time until a call may try, 0 while others are trying."""

    def __init__(self, told: str, wait_s: float) -> None:
        super().__init__(told)
        self.wait_s = wait_s


@dataclass(frozen=True)
class _Permit:
    """A call on its way; `opened_at` is the opening after which it tries, None when it found the circuit closed."""

    name: str
    options: CircuitOptions
    opened_at: datetime | None


def _cause(error: BaseException) -> str:
    """Return what all runs of the worker may read of a failure: a provider's words, of a tool no more than the kind."""
    if isinstance(error, ModelError):
        return " ".join(f"{error.kind}: {error}".split())[:MAX_CAUSE_CHARS]
    return cause_named(error.type if isinstance(error, ApplicationError) else type(error).__name__)


class WorkerBreakers:
    """Circuits by name: a tool's, or `provider:` and a provider's. For any thread."""

    def __init__(self, clock: Callable[[], datetime] = monotonic_time) -> None:
        self._clock = clock
        self._circuits: OrderedDict[str, Breaker] = OrderedDict()
        self._tried_at: dict[str, datetime] = {}
        """When a half-open circuit last let a call try."""
        self._lock = Lock()

    @contextmanager
    def guarded(self, name: str, options: CircuitOptions, counts: Callable[[BaseException], bool]) -> Generator[None]:
        """Let the block run unless the circuit is open; its failures that `counts` accepts open it.

        A block that leaves by any other exception, cancellation included, says nothing: its permit comes back.

        Raises:
            TurnedAway: The block was not run.
        """
        permit = self._admitted(name, options)
        try:
            yield
        except BaseException as error:
            self._ended(permit, _cause(error) if counts(error) else None)
            raise
        self._succeeded(permit)

    def circuit(self, name: str) -> Breaker:
        """Return the state of a circuit."""
        with self._lock:
            return self._circuits.get(name, Breaker())

    def _admitted(self, name: str, options: CircuitOptions) -> _Permit:
        with self._lock:
            breaker, now = self._circuits.get(name, Breaker()), self._clock()
            let_through = self._released(name, breaker, options, now).admitted(options, now)
            if let_through is None:
                raise TurnedAway(breaker.describe(name, options, now), breaker.wait_s(options, now))
            self._keep(name, let_through)
            if let_through.state == "half_open":
                self._tried_at[name] = now
        return _Permit(name, options, let_through.opened_at)

    def _released(self, name: str, breaker: Breaker, options: CircuitOptions, now: datetime) -> Breaker:
        """Return the circuit without a call that has tried for long: a reply may take minutes, and others wait."""
        tried_at = self._tried_at.get(name)
        is_long = tried_at is not None and (now - tried_at).total_seconds() >= options.recovery_s
        return breaker.released() if is_long else breaker

    def _succeeded(self, permit: _Permit) -> None:
        with self._lock:
            breaker = self._circuits.get(permit.name, Breaker())
            self._keep(permit.name, breaker.succeeded())
        if breaker.state != "closed":
            activity.logger.info("the circuit of %s has closed", permit.name)

    def _ended(self, permit: _Permit, cause: str | None) -> None:
        """Take in the end of a call; `cause` is that of a failure that counts."""
        with self._lock:
            before = self._circuits.get(permit.name, Breaker())
            if before.state == "half_open" and before.opened_at != permit.opened_at:
                return  # it began before the circuit opened and holds none of the permits that are out now
            after = before.released() if cause is None else before.failed(permit.options, self._clock(), cause)
            self._keep(permit.name, after)
        if after.state == "open" and before.state != "open":
            count_opened_circuit(permit.name, "worker")
            told = f"failures: {after.failures}" + (f"; last: {after.cause}" if after.cause else "")
            activity.logger.warning("the circuit of %s has opened (%s)", permit.name, told)

    def _keep(self, name: str, breaker: Breaker) -> None:
        self._circuits.pop(name, None)
        if breaker.state != "half_open":
            self._tried_at.pop(name, None)
        if not breaker.is_idle:
            self._circuits[name] = breaker
            while len(self._circuits) > MAX_CIRCUITS:
                self._tried_at.pop(self._circuits.popitem(last=False)[0], None)
