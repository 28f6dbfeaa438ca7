"""The outside view of a finished scenario."""

from dataclasses import dataclass

from orga.activities.ports import ModelRequest
from orga.testing import FakeTool
from orga.workflows.types.status import AgentResult, AgentStatus, Happening, JournalEntry
from tests.support.scenarios.scenario import Scenario


@dataclass(frozen=True)
class Seen:
    """A model call as the provider saw it."""

    run_id: str
    iteration: int
    request: ModelRequest


@dataclass(frozen=True)
class Played:
    """A finished run, and everything that was observed of it."""

    scenario: Scenario
    result: AgentResult
    status: AgentStatus
    """The last status."""
    journal: list[JournalEntry]
    happened: list[Happening]
    """The events of all segments, oldest first."""
    seen: list[Seen]
    """Reasoning steps, one for each attempt."""
    tools: dict[str, FakeTool]
    most_in_flight: int
    """Number of parallel tool attempts."""

    def of(self, event: str) -> list[JournalEntry]:
        """Return the journal entries of one event."""
        return [entry for entry in self.journal if entry.event == event]
