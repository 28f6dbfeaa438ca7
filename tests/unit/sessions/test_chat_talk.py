"""A chat with a worker that is slow to accept a message, or finishes a turn before the message is confirmed."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.service import RPCError, RPCStatusCode

from orga.activities.media import Media
from orga.client.cli.chat import command, talk
from orga.client.cli.chat.command import ChatOptions, begin_chat
from orga.client.cli.chat.screen import ChatExit, InputMode
from orga.client.cli.chat.talk import Chat, CommandCall, carry_out
from orga.client.cli.exit_codes import UsageError
from orga.client.errors import NoAnswer, NotTakenYet, Refused, RunEnded, ServerLost, SessionClosed, TurnUnknown
from orga.client.journal.run_view import ViewedEntry
from orga.workflows.types.sessions.session_input import SessionInput
from orga.workflows.types.status import JournalEntry
from tests.support.values.entries import ENDED, TURN
from tests.support.values.pictures import a_png

SOON_S = 10.0


class Shown:
    """Records the shown lines."""

    def __init__(self) -> None:
        self.is_busy = False
        self.seen: list[str] = []

    def show_line(self, line: Any, at: Any) -> None:
        pass

    def note(self, text: str) -> None:
        self.seen.append(text)

    def lines(self, *lines: str) -> None:
        self.seen += lines

    def show_turn(self, turn: Any) -> None:
        self.seen.append(turn.output)

    def take_answer(self, text: str) -> bool:
        return False


class Session:
    """Accepts a message as turn 1 when the test allows it."""

    id = "s"
    events: Any = None
    """The journal's events. Each test has its own."""

    def __init__(self) -> None:
        self.taken = asyncio.Event()
        self.closed = asyncio.Event()
        self.posted: list[tuple[str, str]] = []
        self.attached: list[list[str]] = []
        self.ids: set[str] = set()
        self.fails: Exception | None = None
        self.loses: list[Exception] = []
        """Errors for the next messages. Each message may still have arrived."""
        self.unknown: Exception | None = None
        self.reason = "max_iterations"
        self.interrupts: list[tuple[str, int | None]] = []

    async def post(self, text: str, *, when_busy: str, message_id: str, attachments: Sequence[Media] = ()) -> int:
        self.posted.append((text, when_busy))
        self.attached.append([each.name for each in attachments])
        self.ids.add(message_id)
        if self.fails is not None:
            raise self.fails
        if self.loses:
            raise self.loses.pop(0)
        await self.taken.wait()
        return 1

    async def result_of(self, turn: int) -> Any:
        if self.unknown is not None:
            raise self.unknown
        return SimpleNamespace(output="A test.", termination=SimpleNamespace(reason=self.reason))

    async def interrupt(self, why: str, *, turn: int | None = None, by: str = "") -> None:
        self.interrupts.append((why, turn))

    async def close(self, *, by: str = "") -> None:
        self.closed.set()


class Watch:
    """Observes nothing."""

    def show_event(self, viewed: ViewedEntry) -> None:
        pass

    @asynccontextmanager
    async def refreshing(self) -> AsyncGenerator[None]:
        yield


class Source:
    """Returns these lines and then exits."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)

    async def read(self, ctrl_c: Any) -> str:
        if not self.lines:
            raise ChatExit
        return self.lines.pop(0)

    def has_more(self) -> bool:
        return bool(self.lines)


def a_chat(session: Session, mode: InputMode, *lines: str) -> Chat:
    fakes: Any = SimpleNamespace(client=None, session=session, watch=Watch(), shown=Shown())
    return Chat(fakes.client, fakes.session, fakes.watch, Source(*lines), fakes.shown, mode=mode)


def a_picture(folder: Path, name: str) -> Path:
    (folder / name).write_bytes(a_png())
    return folder / name


async def test_attachments_go_with_the_next_message_that_is_taken(tmp_path: Path) -> None:
    session = Session()
    chat = a_chat(session, "typed")
    dropped = str(a_picture(tmp_path, "a photo.png")).replace(" ", "\\ ")
    await carry_out(chat, CommandCall("attach", dropped))
    await carry_out(chat, CommandCall("attach", str(a_picture(tmp_path, "it's.png"))))
    session.fails = Refused("too long")
    with pytest.raises(Refused):
        await chat.send_message("What is this?")
    session.fails, session.loses = None, [ServerLost("unreachable")]
    session.taken.set()
    await chat.send_message("Look at the left one first.", "steer")
    await chat.send_message("What is it?")
    await chat.send_message("And now?")
    both = ["a photo.png", "it's.png"]
    assert session.attached == [both, [], [], both, []]


async def test_what_cannot_be_attached_is_reported_and_the_rest_stays(tmp_path: Path) -> None:
    chat = a_chat(Session(), "typed")
    await carry_out(chat, CommandCall("attach"))
    await carry_out(chat, CommandCall("attach", str(a_picture(tmp_path, "one.png"))))
    (tmp_path / "notes.txt").write_text("notes")
    for name, problem in (
        ("notes.txt", "is no PNG"),
        ("none.png", "No such file"),
        (".", "directory"),
        ("x\0", "null"),
    ):
        with pytest.raises(UsageError, match=rf"^/attach .*{problem}.*\. [A-Z]"):
            await carry_out(chat, CommandCall("attach", f"{tmp_path}/{name}"))
    for _ in range(9):
        await carry_out(chat, CommandCall("attach", str(tmp_path / "one.png")))
    with pytest.raises(UsageError, match=r"^/attach there are 11, and the limit is 10\. "):
        await carry_out(chat, CommandCall("attach", str(tmp_path / "one.png")))
    assert len(chat.attached) == 10
    await carry_out(chat, CommandCall("detach"))
    first, second, *_, last = shown_in(chat)
    line = f"[image one.png, 4x3, {len(a_png())} bytes] goes with the next message"
    assert (first, second, last) == ("nothing is attached", line, "nothing is attached")


async def test_a_script_attaches_nothing_by_a_line(tmp_path: Path) -> None:
    chat = a_chat(Session(), "piped")
    with pytest.raises(UsageError, match="From a script use: --attach FILE"):
        await carry_out(chat, CommandCall("attach", str(a_picture(tmp_path, "one.png"))))
    assert chat.attached == []


def shown_in(chat: Chat) -> list[str]:
    shown: Any = chat.shown
    return shown.seen


def journal_ahead_of_confirmation(session: Session) -> Any:
    """Return a journal with the whole turn before its message is confirmed."""

    async def followed(_session: Session, after: int) -> AsyncGenerator[JournalEntry]:
        while not session.posted:
            await asyncio.sleep(0)
        for entry in (*TURN, ENDED):
            yield entry.model_copy(update={"sequence": 1})
        session.taken.set()
        await asyncio.Event().wait()

    return followed


async def test_a_script_does_not_wait_for_a_turn_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session()
    monkeypatch.setattr(Session, "events", journal_ahead_of_confirmation(session))
    chat = a_chat(session, "one", "What is in it?")
    assert await asyncio.wait_for(chat.talk(), SOON_S) == 3
    assert "A test." in shown_in(chat)


async def test_a_turn_without_a_kept_result_is_shown_from_the_journal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A chat that was suspended (Ctrl-Z, a closed laptop) continues after others sent many messages."""
    session = Session()
    session.unknown = TurnUnknown("turn 1 is too long ago")
    monkeypatch.setattr(Session, "events", journal_ahead_of_confirmation(session))
    chat = a_chat(session, "one", "What is in it?")
    assert await asyncio.wait_for(chat.talk(), SOON_S) == 0
    reported = "\n".join(shown_in(chat))
    assert "A test." in reported
    assert "turn 1 is too long ago" in reported


def journal_of_an_ended_session(session: Session, *entries: JournalEntry) -> Any:
    """Return a journal that ends with the session before the sent message is confirmed."""

    async def followed(_session: Session, after: int) -> AsyncGenerator[JournalEntry]:
        while not session.posted:
            await asyncio.sleep(0)
        for entry in entries:
            yield entry.model_copy(update={"sequence": 1})

    return followed


async def talked(chat: Chat, session: Session) -> int:
    """Talk, and let the message be accepted after the session has ended."""
    talk = asyncio.create_task(chat.talk())
    while not (chat.has_ended or talk.done()):
        await asyncio.sleep(0)
    session.taken.set()
    return await asyncio.wait_for(talk, SOON_S)


async def test_a_script_keeps_the_exit_code_of_the_last_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session()
    monkeypatch.setattr(Session, "events", journal_of_an_ended_session(session, *TURN, ENDED))
    chat = a_chat(session, "one", "What is in it?")
    assert await talked(chat, session) == 3
    assert shown_in(chat)[1:] == ["A test."]


async def test_a_message_whose_turn_never_begins_is_reported_as_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session()
    session.reason = "aborted"
    monkeypatch.setattr(Session, "events", journal_of_an_ended_session(session))
    assert await talked(a_chat(session, "piped", "What is in it?"), session) == 5


async def test_a_script_fails_if_the_session_ends_before_its_last_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Session()
    session.reason = "completed"
    monkeypatch.setattr(Session, "events", journal_of_an_ended_session(session, *TURN, ENDED))
    with pytest.raises(RunEnded):
        await talked(a_chat(session, "piped", "What is in it?", "And then?"), session)
    assert [text for text, _ in session.posted] == ["What is in it?"]


async def test_a_script_that_closes_the_session_waits_for_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session()

    async def followed(_session: Session, after: int) -> AsyncGenerator[JournalEntry]:
        for entry in ():
            yield entry
        await session.closed.wait()
        for _ in range(9):
            await asyncio.sleep(0)

    monkeypatch.setattr(Session, "events", followed)
    chat = a_chat(session, "piped", "/close")
    assert (await asyncio.wait_for(chat.talk(), SOON_S), chat.has_ended) == (0, True)
    session.closed.clear()
    with pytest.raises(RunEnded):
        await asyncio.wait_for(a_chat(session, "piped", "/close", "And then?").talk(), SOON_S)


async def test_a_turn_that_ends_while_it_is_steered_does_not_keep_the_chat_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Session()
    monkeypatch.setattr(Session, "events", journal_ahead_of_confirmation(session))
    chat = a_chat(session, "typed", "/steer Be brief")
    chat.turns.take(chat.run.take(TURN[0]))
    assert await asyncio.wait_for(chat.talk(), SOON_S) == 0
    assert session.posted == [("Be brief", "steer")]
    assert not chat.is_busy


async def test_a_message_in_transit_counts_as_sent_and_is_interrupted_before_exit() -> None:
    session = Session()
    chat = a_chat(session, "typed")
    does = [chat.handle_ctrl_c()]
    saying = asyncio.create_task(chat.send_message("Hello"))
    while not session.posted:
        await asyncio.sleep(0)
    assert chat.has_sent
    does += [chat.handle_ctrl_c(), chat.handle_ctrl_c()]
    assert does == ["clears", "interrupts", "leaves"]
    session.taken.set()
    await saying
    assert session.interrupts == [("Ctrl-C in the chat", None)]


async def test_ctrl_c_interrupts_again_after_the_interrupted_turn_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """This also holds before the next turn has begun, for example while its message is sent."""
    session, is_cut, has_ended = Session(), asyncio.Event(), asyncio.Event()

    async def followed(_session: Session, after: int) -> AsyncGenerator[JournalEntry]:
        for entry in TURN:
            yield entry
        await is_cut.wait()
        yield ENDED
        has_ended.set()
        await asyncio.Event().wait()

    async def nothing(_source: Source, _ctrl_c: Any) -> str:
        await asyncio.Event().wait()
        return ""

    monkeypatch.setattr(Session, "events", followed)
    monkeypatch.setattr(Source, "read", nothing)
    chat = a_chat(session, "typed")
    talking = asyncio.create_task(chat.talk())
    while not chat.is_busy:
        await asyncio.sleep(0)
    assert chat.handle_ctrl_c() == "interrupts"
    is_cut.set()
    await asyncio.wait_for(has_ended.wait(), SOON_S)
    saying = asyncio.create_task(chat.send_message("Hello"))
    while not session.posted:
        await asyncio.sleep(0)
    assert [chat.handle_ctrl_c(), chat.handle_ctrl_c()] == ["interrupts", "leaves"]
    for task in (saying, talking):
        task.cancel()
    await asyncio.gather(saying, talking, return_exceptions=True)


async def test_a_new_session_is_closed_if_no_message_could_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session()

    async def unread(*_: Any) -> AsyncGenerator[JournalEntry]:
        raise RPCError("gone", RPCStatusCode.UNAVAILABLE, b"")
        yield

    def a_session(*_: Any) -> Session:
        return session

    @asynccontextmanager
    async def started(*_: Any, **__: Any) -> AsyncGenerator[Any]:
        yield SimpleNamespace(client=None, task_queue="q"), "s", None

    monkeypatch.setattr(talk, "read_journal", unread)
    monkeypatch.setattr(command, "started_run", started)
    monkeypatch.setattr(command, "SessionHandle", a_session)
    with pytest.raises(RPCError):
        await begin_chat(SessionInput(), "s", ChatOptions("Hello", None, 3, no_worker=True, as_json=False))
    assert session.closed.is_set()


async def test_a_message_that_no_worker_accepted_was_not_sent() -> None:
    session = Session()
    session.fails = NoAnswer("q")
    chat = a_chat(session, "one")
    with pytest.raises(NoAnswer):
        await chat.send_message("Hello")
    assert (chat.has_sent, chat.is_busy) == (False, False)


async def test_an_interrupt_with_text_sends_it_in_place_of_the_turn() -> None:
    session = Session()
    session.taken.set()
    chat = a_chat(session, "typed")
    await carry_out(chat, CommandCall("interrupt", "In short?"))
    assert (session.posted, session.interrupts) == ([("In short?", "interrupt")], [])
    await carry_out(chat, CommandCall("interrupt"))
    assert (len(session.posted), session.interrupts) == (1, [("/interrupt in the chat", None)])


async def test_an_interrupt_applies_to_the_shown_turn() -> None:
    """The next turn may have begun in the meantime."""
    session = Session()
    chat = a_chat(session, "typed")
    chat.turns.take(chat.run.take(TURN[0]))
    await carry_out(chat, CommandCall("interrupt"))
    assert session.interrupts == [("/interrupt in the chat", 1)]


async def test_a_message_that_may_have_arrived_is_sent_again_with_its_id() -> None:
    session = Session()
    session.taken.set()
    session.loses = [NotTakenYet("no worker", "start one"), ServerLost("it is away"), ServerLost("still")]
    chat = a_chat(session, "typed")
    await chat.send_message("Hello")
    assert (len(session.posted), len(session.ids)) == (4, 1)
    assert shown_in(chat)[0] == "no worker has confirmed the message yet; sending it again"


async def test_an_error_of_several_lines_is_shown_on_several_lines() -> None:
    session = Session()
    session.fails = Refused("several calls wait\napproval  tool")
    chat = a_chat(session, "typed", "/steer x", "Hello")
    chat.turns.take(chat.run.take(TURN[0]))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Session, "events", journal_ahead_of_confirmation(session))
        assert await asyncio.wait_for(chat.talk(), SOON_S) == 0
    assert shown_in(chat)[:2] == ["orga: several calls wait", "      approval  tool"]


@pytest.mark.parametrize("closing", [SessionClosed("it is ending"), RunEnded("s")], ids=["closing", "ended"])
@pytest.mark.parametrize("before", [0, 3])
async def test_a_script_fails_or_keeps_its_code_if_its_session_is_closed(
    monkeypatch: pytest.MonkeyPatch, closing: Exception, before: int
) -> None:
    async def followed(_session: Session, after: int) -> AsyncGenerator[JournalEntry]:
        await asyncio.Event().wait()
        yield ENDED

    monkeypatch.setattr(Session, "events", followed)
    session = Session()
    session.fails = closing
    chat = a_chat(session, "piped", "Hello")
    chat.code = before
    if before:
        assert await asyncio.wait_for(chat.talk(), SOON_S) == before
        return
    with pytest.raises(RunEnded):
        await asyncio.wait_for(chat.talk(), SOON_S)


async def test_the_history_shows_the_requested_number_of_turns() -> None:
    chat = a_chat(Session(), "typed")
    await carry_out(chat, CommandCall("history"))
    assert shown_in(chat) == ["nothing was sent yet"]
    for number in (1, 2):
        begins, ends = ({**entry.data, "turn": number} for entry in (TURN[0], ENDED))
        chat.turns.take(chat.run.take(TURN[0].model_copy(update={"data": begins})))
        chat.turns.take(chat.run.take(ENDED.model_copy(update={"data": ends})))
    await carry_out(chat, CommandCall("history", "1"))
    assert [line[:9] for line in shown_in(chat) if line.startswith("──")] == ["── turn 2"]
    with pytest.raises(UsageError, match="/history 0: not a number of turns"):
        await carry_out(chat, CommandCall("history", "0"))
