"""Circuits of a worker, with a clock that a test turns."""

from datetime import datetime

import pytest

from orga.activities.circuits import WorkerBreakers
from orga.workflows.types.tool_calls.breakers import CircuitOptions
from tests.support.values.core import at

OPTIONS = CircuitOptions()


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        """Begin at the start."""
        self.seconds = 0.0

    def __call__(self) -> datetime:
        """Return its time."""
        return at(self.seconds)


@pytest.fixture
def clock() -> Clock:
    """The clock of a test."""
    return Clock()


@pytest.fixture
def shared(clock: Clock) -> WorkerBreakers:
    """The circuits that go by it."""
    return WorkerBreakers(clock)
