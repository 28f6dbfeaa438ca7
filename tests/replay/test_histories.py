"""Recorded histories replay through today's code, and today's folds read them."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHistory

from client.history import read_events
from tests.support.loop import replayed
from workflows.decisions.context_fold import ContextFold
from workflows.decisions.journal import JournalFold, first_break

HISTORIES = sorted((Path(__file__).parent / "histories").glob("*.json"))


def test_there_are_histories() -> None:
    assert len(HISTORIES) >= 8


def _history(path: Path) -> WorkflowHistory:
    return WorkflowHistory.from_json(path.stem, path.read_text())


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_a_recorded_history_replays(path: Path) -> None:
    await replayed(_history(path))


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_a_recorded_history_folds(client: Client, path: Path) -> None:
    """Every model call's context has its digest, and the journal ends as the run did."""
    contexts, journal = ContextFold(), JournalFold()
    entries: list[Any] = []
    async for happening in read_events(client, _events(_history(path))):
        contexts.feed(happening)
        entries += journal.feed(happening)

    assert contexts.iteration > 0
    assert first_break(entries) is None
    goes_on = path.stem.startswith("rolled-over") and not path.stem.endswith(_last_of("rolled-over"))
    assert entries[-1].event == "Terminated" or goes_on


async def _events(history: WorkflowHistory) -> AsyncGenerator[Any]:
    for event in history.events:
        yield event


def _last_of(name: str) -> str:
    return max(path.stem for path in HISTORIES if path.stem.startswith(name)).removeprefix(name)
