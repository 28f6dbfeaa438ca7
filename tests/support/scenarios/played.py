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
    """A run that has ended, and all that was seen of it."""

    scenario: Scenario
    result: AgentResult
    status: AgentStatus
    """The last one."""
    journal: list[JournalEntry]
    happened: list[Happening]
    """The events of all runs of the chain, oldest first."""
    seen: list[Seen]
    """Reasoning steps, one for each attempt."""
    tools: dict[str, FakeTool]
    most_in_flight: int
    """Tool attempts at the same time."""

    def of(self, event: str) -> list[JournalEntry]:
        """Return the journal's entries of one kind."""
        return [entry for entry in self.journal if entry.event == event]
