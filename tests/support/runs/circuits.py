"""Circuits of a worker, with a clock that a test moves."""

from datetime import datetime

import pytest

from orga.activities.circuits import WorkerBreakers
from orga.workflows.types.tool_calls.breakers import CircuitOptions
from tests.support.values.core import at

OPTIONS = CircuitOptions()


class Clock:
    """A clock that moves only on request."""

    def __init__(self) -> None:
        """Start at zero."""
        self.seconds = 0.0

    def __call__(self) -> datetime:
        """Return the time."""
        return at(self.seconds)


@pytest.fixture
def clock() -> Clock:
    """The clock of a test."""
    return Clock()


@pytest.fixture
def shared(clock: Clock) -> WorkerBreakers:
    """Return the circuits that use this clock."""
    return WorkerBreakers(clock)
