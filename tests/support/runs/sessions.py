"""Sessions on a real server: started, closed, and observed from outside after their end."""

from collections.abc import Callable
from typing import Any

from orga.client.journal.reading import read_journal
from orga.client.runs.sessions import SessionHandle, start_session
from orga.workflows.types.sessions.session_result import SessionResult, SessionStatus, TurnResult
from orga.workflows.types.status import JournalEntry
from tests.support.hold import wait_until
from tests.support.runs.loop import Loop, check_journal, check_replay, check_tasks, histories_of


class EndedSession:
    """A finished session as seen from outside."""

    def __init__(self, raw: SessionResult, journal: list[JournalEntry], runs: int) -> None:
        """Read its result and its journal."""
        self.result = raw
        self.journal = journal
        self.events = [entry.event for entry in journal]
        self.runs = runs
        """The run ids of all segments."""


async def begin(loop: Loop, *, idle_timeout_s: float | None = None, **config: Any) -> SessionHandle:
    """Start a session; `config` are keys of its LoopConfig."""
    return await start_session(
        loop.client,
        config=config or None,  # pyright: ignore[reportArgumentType]
        task_queue=loop.task_queue,
        idle_timeout_s=idle_timeout_s,
    )


async def wait_for_session(session: SessionHandle) -> EndedSession:
    """Wait for the end, replay the histories, and read the journal."""
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
    """Close the session, and observe it from outside."""
    await session.close()
    return await wait_for_session(session)


def turn_and_store_events(last: EndedSession) -> list[str]:
    """Return the turns and the stored knowledge in the journal."""
    reported = [entry for entry in last.journal if entry.event in {"TurnStarted", "TurnEnded", "KnowledgeStored"}]
    return [f"turn {e.data['turn']}" if "turn" in e.data else str(e.data["kind"]) for e in reported]


async def session_status(session: SessionHandle) -> SessionStatus:
    """Return the status of the session."""
    status = await session.status()
    assert isinstance(status, SessionStatus)
    return status


async def wait_for_status(session: SessionHandle, holds: Callable[[SessionStatus], bool]) -> None:
    """Wait until the status has this property."""

    async def is_so() -> bool:
        return holds(await session_status(session))

    await wait_until(is_so)


def turn_summary(turn: TurnResult) -> tuple[int, str, str]:
    """Return the number, the answer and the ending of a turn."""
    return turn.turn, turn.output, turn.termination.reason
