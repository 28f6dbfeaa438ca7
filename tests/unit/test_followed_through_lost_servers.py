"""Following a journal while its server is away: for a minute from when it was lost, however long nothing was said."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from orga.client.cli import watching
from orga.client.errors import OrgaError
from orga.workflows.types.status import JournalEntry
from tests.support.values.entries import an_entry

FIRST = an_entry("Started").model_copy(update={"sequence": 0})
SECOND = an_entry("TurnStarted", turn=1).model_copy(update={"sequence": 1})


class Reading:
    """Answers each attempt with entries, keeps silent for so long by the clock, then loses the server or ends."""

    def __init__(self, *attempts: tuple[list[JournalEntry], float]) -> None:
        self.now = 0.0
        self.left = list(attempts)

    async def __call__(self, _client: Any, _id: str, *, follow: bool) -> AsyncGenerator[JournalEntry]:
        entries, silent_s = self.left.pop(0)
        for entry in entries:
            yield entry
        self.now += silent_s
        if self.left:
            raise OrgaError("the history cannot be read: transport error")


async def told(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    monkeypatch.setattr(watching, "read_journal", reading)
    monkeypatch.setattr(watching, "monotonic", lambda: reading.now)
    monkeypatch.setattr(watching, "AGAIN_S", 0.0)
    client: Any = None
    return [entry.sequence async for entry in watching.followed(client, "s")]


async def test_a_server_that_is_lost_after_a_long_silence_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session between two turns is silent for months, and its server is started anew meanwhile."""
    silent = ([FIRST], 3_600.0)
    reading = Reading(silent, ([], 5.0), silent, ([], 5.0), ([FIRST, SECOND], 0.0))
    assert await told(reading, monkeypatch) == [0, 1]


async def test_a_server_that_stays_away_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    away: tuple[list[JournalEntry], float] = ([], 9.0)
    reading = Reading(([FIRST], 3_600.0), *[away] * 20)
    with pytest.raises(OrgaError, match="transport error"):
        await told(reading, monkeypatch)
    assert len(reading.left) > 10


async def test_a_journal_that_cannot_be_read_on_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its beginning comes again with each attempt, which is no sign that more will."""
    reading = Reading(*[([FIRST], 9.0)] * 20)
    with pytest.raises(OrgaError, match="transport error"):
        await told(reading, monkeypatch)
