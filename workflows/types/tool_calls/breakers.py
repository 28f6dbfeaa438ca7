"""Circuit breakers: a tool or a provider that keeps failing is not called for a while."""

import re
from datetime import datetime
from math import ceil
from typing import Any, Literal

from pydantic import Field

from orga.workflows.types.record import CheckedInput, Record, replace_fields

BreakerScope = Literal["run", "worker"]
"""`run`: part of the run's state, deterministic, carried through continue-as-new. `worker`: shared by all runs of a
worker.
"""

CIRCUIT_OPEN = "CircuitOpen"
"""Failure type of a call that a worker's open circuit rejected."""

PROVIDER_PREFIX = "provider:"
"""Begins the name of a provider's circuit. No tool has a colon in its name."""

_KIND = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")


class CircuitOptions(CheckedInput):
    """The conditions on which a circuit opens, and how it is tested. Only infrastructure failures count."""

    enabled: bool = True
    """True if failures are counted at all."""
    failure_threshold: int = Field(default=3, ge=1, le=1_000)
    """The circuit opens at this number of failures in a row."""
    recovery_s: float = Field(default=60.0, gt=0, le=86_400)
    """Seconds from opening until a trial call is allowed."""
    half_open_max_calls: int = Field(default=1, ge=1, le=100)
    """Trial calls at the same time."""


class BreakerOptions(CircuitOptions):
    """`breaker` in a tool's options."""

    scope: BreakerScope = "run"
    """The failures that count: those of one run, or of all runs of a worker."""


class Breaker(Record):
    """The state of one circuit. A closed circuit without failures equals a new one, so it is not stored.

    The methods hold all rules, for both scopes. `now` is workflow time in the scope `run`, else the worker's clock.
    """

    state: Literal["closed", "open", "half_open"] = "closed"
    failures: int = 0
    """Failures in a row."""
    opened_at: datetime | None = None
    trying: int = 0
    """Running trial calls of a half-open circuit."""
    cause: str = ""
    """The last failure, on one line."""

    @property
    def is_idle(self) -> bool:
        """True if there is nothing to store."""
        return self.state == "closed" and not self.failures

    def wait_seconds(self, options: CircuitOptions, now: datetime) -> float:
        """Return the seconds until a trial call is allowed. 0 unless the circuit is open."""
        if self.state != "open" or self.opened_at is None:
            return 0.0
        return max(options.recovery_s - (now - self.opened_at).total_seconds(), 0.0)

    def with_admitted_call(self, options: CircuitOptions, now: datetime) -> "Breaker | None":
        """Return the circuit with one more running call, or None if the call is rejected."""
        if self.state == "closed":
            return self
        if self.wait_seconds(options, now) > 0 or self.trying >= options.half_open_max_calls:
            return None
        return replace_fields(self, {"state": "half_open", "trying": self.trying + 1})

    def after_success(self) -> "Breaker":
        return Breaker()

    def after_failure(self, options: CircuitOptions, now: datetime, cause: str = "") -> "Breaker":
        """Return the circuit after a failure that counts. A failure of an open circuit does not prolong its wait.

        Every caller that is rejected reads the `cause`, so it must not hold anything confidential.
        """
        failures = self.failures + 1
        changes: dict[str, Any] = {"failures": failures} | ({"cause": cause} if cause else {})
        if self.state == "open":
            return replace_fields(self, changes)
        if self.state == "half_open" or failures >= options.failure_threshold:
            return Breaker(state="open", opened_at=now, **changes)
        return Breaker(**changes)

    def after_release(self) -> "Breaker":
        """Return the circuit after a call that counts as neither success nor failure. Another trial call may begin."""
        if self.state != "half_open":
            return self
        return replace_fields(self, {"trying": max(self.trying - 1, 0)})

    def describe(self, name: str, options: CircuitOptions, now: datetime) -> str:
        """Return why a call is rejected: `search is left alone for 42 s more (failures in a row: 3)`."""
        wait_s = self.wait_seconds(options, now)
        until = f"for {ceil(wait_s)} s more" if wait_s else "while another call tries it"
        last = f"; last: {self.cause}" if self.cause else ""
        return f"{name} is left alone {until} (failures in a row: {self.failures}{last})"


def failure_cause(kind: str | None) -> str:
    """Return the kind of a tool's failure as a cause that others may read, or "".

    The failure's text is not used: it is untrusted, belongs to one run, and would appear as the loop's own text.
    """
    return kind if kind and _KIND.fullmatch(kind) else ""


def describe_to_model(cause: str, *, is_again: bool = False) -> str:
    """Return the text for the model if a tool's circuit rejects its call: the cause, and what to do instead."""
    return f"[Circuit open] {cause}. It was not called{' again' * is_again}. Use another tool, or go on without it."
