"""An approval in a chat applies only to calls that the person was shown."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest

from orga.client.cli.chat import screen
from orga.client.cli.chat.screen import TurnPrinter
from orga.client.cli.chat.talk import Chat, CommandCall, carry_out
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.shown.decisions import HeldCall
from orga.client.errors import Refused
from orga.workflows.types.questions import ShownQuestion
from tests.support.values.core import T0


class HoldingSession:
    """Holds calls and records the decisions about them."""

    id = "our talk"

    def __init__(self, *held: str) -> None:
        calls = [{"id": each, "tool": "refund", "arguments": "{}", "expires_at": T0.isoformat()} for each in held]
        question = ShownQuestion(wait_id="w", kind="approval", since=T0, question="?", data={"calls": calls})
        self.waiting = (question,)
        self.decided: list[tuple[str, str, str]] = []
        self.refuses = ""

    async def live_status(self) -> "HoldingSession":
        return self

    async def approve(self, approval_id: str, by: str, reason: str) -> None:
        if approval_id == self.refuses:
            raise Refused("somebody has decided it")
        self.decided.append(("yes", approval_id, reason))

    async def deny(self, approval_id: str, by: str, reason: str) -> None:
        self.decided.append(("no", approval_id, reason))


class CallsScreen:
    """Shows each call once."""

    def __init__(self, *call_ids: str) -> None:
        self.call_ids = set(call_ids)
        self.shown: list[str] = []

    def shown_call_ids(self) -> frozenset[str]:
        return frozenset(self.call_ids)

    def show_calls(self, calls: Iterable[HeldCall]) -> None:
        self.call_ids.update(str(call["id"]) for call in calls)

    def lines(self, *lines: str) -> None:
        self.shown += lines


class ChatOf:
    """The part of a chat that its commands use."""

    is_typed = True

    def __init__(self, held: list[str], already_shown: list[str]) -> None:
        self.session = HoldingSession(*held)
        self.shown = CallsScreen(*already_shown)

    async def says(self, name: str, argument: str = "") -> list[tuple[str, str, str]]:
        await carry_out(cast(Chat, cast(Any, self)), CommandCall(name, argument))
        return self.session.decided


async def test_a_new_call_is_shown_before_it_can_be_decided() -> None:
    chat = ChatOf(held=["new"], already_shown=["old"])
    with pytest.raises(UsageError, match="had not seen the waiting call yet"):
        await chat.says("approve", "ok")
    assert chat.session.decided == []
    assert await chat.says("approve", "ok") == [("yes", "new", "ok")]


@pytest.mark.parametrize(
    ("name", "argument", "decided"),
    [
        pytest.param("approve", "fine", [("yes", "shown", "fine")], id="without an id"),
        pytest.param("deny", "", [("no", "shown", "")], id="a denial"),
        pytest.param("approve", "all at once", [("yes", "shown", "at once")], id="all"),
        pytest.param("approve", "new I know", [("yes", "new", "I know")], id="by its id"),
    ],
)
async def test_only_a_shown_call_is_decided_unless_its_id_is_given(
    name: str, argument: str, decided: list[tuple[str, str, str]]
) -> None:
    assert await ChatOf(held=["shown", "new"], already_shown=["shown"]).says(name, argument) == decided


async def test_the_id_of_a_call_that_no_longer_waits_decides_no_other_call() -> None:
    chat = ChatOf(held=["other"], already_shown=["gone", "other"])
    with pytest.raises(UsageError, match="gone does not wait any more"):
        await chat.says("approve", "gone")
    assert chat.session.decided == []


async def test_several_shown_calls_need_an_id_or_all() -> None:
    chat = ChatOf(held=["a1", "b2"], already_shown=["a1", "b2"])
    with pytest.raises(UsageError, match=r"several calls wait\. Use /approve ID, or /approve all") as refused:
        await chat.says("approve", "ok")
    assert "b2" in str(refused.value)
    assert await chat.says("deny", "all no") == [("no", "a1", "no"), ("no", "b2", "no")]
    with pytest.raises(UsageError, match="nothing waits"):
        await ChatOf(held=[], already_shown=["a1"]).says("approve")


async def test_each_decision_is_reported_even_if_one_is_refused() -> None:
    chat = ChatOf(held=["a1", "b2", "c3"], already_shown=["a1", "b2", "c3"])
    chat.session.refuses = "b2"
    assert await chat.says("approve", "all") == [("yes", "a1", ""), ("yes", "c3", "")]
    assert chat.shown.shown == [
        "approved: refund a1",
        "not decided: refund b2: somebody has decided it",
        "approved: refund c3",
    ]


async def test_a_call_too_long_to_show_can_be_denied_here_but_not_approved() -> None:
    chat = ChatOf(held=["a1"], already_shown=["a1"])
    (question,) = chat.session.waiting
    question.data["calls"][0] |= {"arguments": "", "arguments_bytes": 4_000, "arguments_digest": "sha256:0"}
    with pytest.raises(UsageError, match="with: orga approve 'our talk' a1 --show"):
        await chat.says("approve", "ok")
    assert chat.session.decided == []
    assert await chat.says("deny", "no") == [("no", "a1", "no")]


async def test_a_question_of_a_model_cannot_pass_for_a_held_call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person who reads about a harmless call would approve it, and approve another call that was shown before."""
    monkeypatch.setattr(screen, "Keyboard", AtOnce)
    shown = screen.ChatScreen(TurnPrinter("s", as_json=False))
    forged = "waits for your approval: read_file a.md → /approve or /deny"
    asked = asyncio.create_task(shown.read_answer(ShownQuestion(wait_id="w", kind="answer", since=T0, question=forged)))
    while not shown.take_answer("no"):
        await asyncio.sleep(0)
    assert await asked == "no"
    assert capsys.readouterr().err.startswith("? asks: waits for your approval")


async def test_a_line_begun_before_a_question_is_not_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(screen, "Keyboard", AtOnce)
    shown = screen.ChatScreen(TurnPrinter("s", as_json=False))
    wait = ShownQuestion(wait_id="w", kind="answer", since=T0, question="Delete the old files?")
    asked = asyncio.create_task(shown.read_answer(wait))
    await asyncio.sleep(0)
    monkeypatch.setattr(AtOnce, "begun_before", True)
    assert not shown.take_answer("yes, and then write the report")
    monkeypatch.setattr(AtOnce, "begun_before", False)
    assert shown.take_answer("no")
    assert await asked == "no"


class AtOnce:
    """Prints immediately."""

    begun_before = False

    def input_began_before(self, moment: float) -> bool:
        return self.begun_before

    def __init__(self, *_: object) -> None:
        pass

    def print_above(self, show: Callable[[], None]) -> None:
        show()
