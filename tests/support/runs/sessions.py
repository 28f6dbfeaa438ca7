"""Sessions on a real server: begun, closed, and what the outside sees of them once they have ended."""

from collections.abc import Callable
from typing import Any

from orga.client.journal.reading import read_journal
from orga.client.runs.sessions import SessionHandle, start_session
from orga.workflows.types.sessions.result import SessionResult, SessionStatus, TurnResult
from orga.workflows.types.status import JournalEntry
from tests.support.hold import wait_until
from tests.support.runs.loop import Loop, check_journal, check_replay, check_tasks, histories_of


class EndedSession:
    """A session that has ended, as the outside sees it."""

    def __init__(self, raw: SessionResult, journal: list[JournalEntry], runs: int) -> None:
        """Take in its result and its journal."""
        self.result = raw
        self.journal = journal
        self.events = [entry.event for entry in journal]
        self.runs = runs
        """The run ids of the chain."""


async def begin(loop: Loop, *, idle_timeout_s: float | None = None, **config: Any) -> SessionHandle:
    """Start a session; `config` are keys of its LoopConfig."""
    return await start_session(
        loop.client,
        config=config or None,  # pyright: ignore[reportArgumentType]
        task_queue=loop.task_queue,
        idle_timeout_s=idle_timeout_s,
    )


async def wait_for_session(session: SessionHandle) -> EndedSession:
    """Wait for the ending, replay the histories, read the journal."""
    raw = await session.result()
    assert isinstance(raw, SessionResult)
    histories = await histories_of(session.client, session.id)
    for history in histories:
        check_tasks(history)
        await check_replay(history)
    journal = [entry async for entry in read_journal(session.client, session.id)]
    check_journal(journal)
    return EndedSession(raw, journal, len(histories))


async def close_session(session: SessionHandle) -> EndedSession:
    """Close it, and look at it from the outside."""
    await session.close()
    return await wait_for_session(session)


def turn_and_store_events(last: EndedSession) -> list[str]:
    """Return what the journal tells of turns, and of what was stored."""
    told = [entry for entry in last.journal if entry.event in {"TurnStarted", "TurnEnded", "KnowledgeStored"}]
    return [f"turn {e.data['turn']}" if "turn" in e.data else str(e.data["kind"]) for e in told]


async def session_status(session: SessionHandle) -> SessionStatus:
    """Return what the session says of itself."""
    status = await session.status()
    assert isinstance(status, SessionStatus)
    return status


async def wait_for_status(session: SessionHandle, holds: Callable[[SessionStatus], bool]) -> None:
    """Wait until its status is so."""

    async def is_so() -> bool:
        return holds(await session_status(session))

    await wait_until(is_so)


def turn_summary(turn: TurnResult) -> tuple[int, str, str]:
    """Return what matters of a turn: its number, its answer, why it ended."""
    return turn.turn, turn.output, turn.termination.reason
