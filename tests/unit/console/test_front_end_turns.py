"""Front ends are shown the same turn however it was read, and only what they lack."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from ag_ui.core import BaseEvent, RunAgentInput
from hypothesis import given
from hypothesis import strategies as st
from temporalio.client import Client

from orga.client.errors import OrgaError
from orga.client.frontends import reach
from orga.client.frontends.agui_events import ClientView
from orga.client.frontends.responses import ResponseFold
from orga.client.frontends.turns import CallEnded, CallMade, Over, Step, Text, TurnFold
from orga.client.journal.watcher import LiveActivity
from orga.workflows.types.models.usage import UsageTotals
from orga.workflows.types.status import JournalEntry

AT = datetime(2026, 1, 1, tzinfo=UTC)
ID = "session-1"


def answered(text: str) -> dict[str, Any]:
    return {"actions": [{"respond": text}]}


def entries(*events: tuple[str, int, dict[str, Any]]) -> list[JournalEntry]:
    """Return entries of a session whose first turn they are. Each has its event, its iteration, and its data."""
    begun = ("TurnStarted", 0, {"turn": 1, "message": "hi"})
    return [
        JournalEntry(sequence=n, timestamp=AT, agent="a", iteration=iteration, event=event, data=data)
        for n, (event, iteration, data) in enumerate([begun, *events])
    ]


def live(text: str, iteration: int = 1, *, attempt: int = 1, length: int | None = None) -> LiveActivity:
    size = len(text) if length is None else length
    return LiveActivity(run=ID, activity_id=str(iteration), name="reason", attempt=attempt, text=text, text_length=size)


def steps(read: Iterable[JournalEntry | LiveActivity]) -> list[Step]:
    fold = TurnFold(ID, 1)
    return [
        step for each in read for step in (fold.take_live(each) if isinstance(each, LiveActivity) else fold.take(each))
    ]


def response(
    read: Iterable[JournalEntry | LiveActivity], after: int = -1
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the events of a response, and the response."""
    shown = ResponseFold({}, "http://x/inbox", after)
    events = [*shown.begin(), *(event for step in steps(read) for event in shown.take(step))]
    return events, shown.response()


def output_texts(shown: dict[str, Any]) -> list[str]:
    return [item["content"][0]["text"] for item in shown["output"] if item["type"] == "message"]


END = ("TurnEnded", 2, {"turn": 1, "reason": "completed"})
BEGUN, FIRST, SECOND, DONE = entries(
    ("ReasoningComplete", 1, answered("a secret")), ("ReasoningComplete", 2, answered("no comment")), END
)


def test_a_run_that_ends_names_the_turn_that_it_ends() -> None:
    *amid, after, ended = entries(
        ("ReasoningComplete", 1, answered("yes")), END, ("Terminated", 2, {"reason": "aborted"})
    )
    for read, turns in (([*amid, ended], [1]), ([*amid, after, ended], [1, 0])):
        fold = TurnFold(ID, None)
        found = [step for entry in read for step in fold.take(entry)]
        assert [step.turn for step in found if isinstance(step, Over)] == turns


def test_an_answer_that_was_not_accepted_is_no_part_of_the_response() -> None:
    _, shown = response([BEGUN, FIRST, SECOND, DONE])
    assert (shown["status"], output_texts(shown)) == ("completed", ["no comment"])


@pytest.mark.parametrize(
    ("reason", "status"),
    [("max_iterations", "incomplete"), ("interrupted", "cancelled"), ("error", "failed"), ("aborted", "cancelled")],
)
def test_a_turn_that_did_not_complete_has_its_own_status_and_no_rejected_answer(reason: str, status: str) -> None:
    shown = ResponseFold({}, "", -1)
    for step in (Text("", 1, "a secret", is_whole=True, is_answer=True), Over(reason, "why", "", UsageTotals())):
        list(shown.take(step))
    assert (shown.response()["status"], shown.response()["output"]) == (status, [])


def test_a_gap_in_live_text_is_filled_by_the_whole_text() -> None:
    whole = "x" * 20_000
    journal = entries(("ReasoningComplete", 1, answered(whole)), END)
    read = [journal[0], live("x" * 100), live("x" * 8_192, length=19_000), *journal[1:]]
    events, shown = response(read)
    assert "".join(event["delta"] for event in events if "delta" in event) == whole
    assert output_texts(shown) == [whole]


RESTARTED = entries(("ReasoningComplete", 1, answered("Another text")), END)


def test_the_text_of_a_failed_attempt_is_replaced() -> None:
    read = [RESTARTED[0], live("Half a"), live("Another", attempt=2), *RESTARTED[1:]]
    assert output_texts(response(read)[1]) == ["Another text"]
    events = agui_events(read, [])
    assert applied(events)["session-1/1"]["content"] == "Another text"


WORDS = st.text(st.sampled_from("ab é\n"), min_size=1, max_size=12).filter(lambda text: text == text.rstrip())


def streamed(texts: Sequence[str], cuts: Sequence[int]) -> list[JournalEntry | LiveActivity]:
    """Return a turn with these replies, of which some were seen while they were written."""
    journal = entries(*(("ReasoningComplete", n, answered(text)) for n, text in enumerate(texts, 1)), END)
    found: list[JournalEntry | LiveActivity] = [journal[0]]
    for n, text in enumerate(texts, 1):
        found += [live(text[:cut], n) for cut in sorted(set(cuts)) if cut < len(text)]
        found.append(journal[n])
    return [*found, journal[-1]]


@given(
    st.lists(WORDS, min_size=1, max_size=3),
    st.lists(st.integers(1, 12)),
    st.lists(st.integers(1, 12)),
    st.integers(0, 60),
)
def test_a_stream_continues_after_any_number_however_it_was_read(
    texts: list[str], cuts: list[int], other_cuts: list[int], after: int
) -> None:
    whole, _ = response(streamed(texts, cuts))
    had = [event for event in whole[:-1] if event["sequence_number"] <= after]
    rest, _ = response(streamed(texts, other_cuts), had[-1]["sequence_number"])
    for n in range(1, len(texts) + 1):
        deltas = [event["delta"] for event in (*had, *rest) if event.get("item_id") == f"msg_{n}" and "delta" in event]
        assert "".join(deltas) == texts[n - 1]
    kinds = [[event["type"] for event in events if "delta" not in event] for events in ((*had, *rest), whole)]
    assert kinds[0] == kinds[1]


def agui_events(
    read: Iterable[JournalEntry | LiveActivity], messages: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    return shown_events(steps(read), messages)


def shown_events(taken: Iterable[Step], messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    given_input = RunAgentInput.model_validate({"threadId": "t", "runId": "r", "messages": messages})
    shown = ClientView(given_input, "http://x/", ID)
    found: list[BaseEvent] = [event for step in taken for event in shown.take(step)]
    return [event.model_dump(mode="json", by_alias=True) for event in found]


def applied(events: Iterable[dict[str, Any]], messages: Iterable[dict[str, Any]] = ()) -> dict[str, dict[str, Any]]:
    """Return the messages of a client after these events, as the protocol says."""
    found = {each["id"]: {**each} for each in messages}
    for event in events:
        match event["type"]:
            case "TEXT_MESSAGE_START" | "REASONING_MESSAGE_START":
                found.setdefault(event["messageId"], {"id": event["messageId"], "role": event.get("role", "assistant")})
            case "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT":
                message = found[event["messageId"]]
                message["content"] = message.get("content", "") + event["delta"]
            case "TOOL_CALL_START":
                own = {"id": event["parentMessageId"], "role": "assistant"}
                function = {"name": event["toolCallName"], "arguments": ""}
                call = {"id": event["toolCallId"], "type": "function", "function": function}
                found.setdefault(own["id"], own).setdefault("toolCalls", []).append(call)
            case "TOOL_CALL_ARGS":
                calls = [call for each in found.values() for call in each.get("toolCalls", ())]
                next(c for c in calls if c["id"] == event["toolCallId"])["function"]["arguments"] += event["delta"]
            case "TOOL_CALL_RESULT":
                assert event["messageId"] not in found
                result = {key: event[key] for key in ("toolCallId", "content")}
                found[event["messageId"]] = {"id": event["messageId"], "role": "tool", **result}
            case "MESSAGES_SNAPSHOT":
                found = {each["id"]: {**each} for each in event["messages"]}
            case _:
                pass
    return found


TAKEN: list[Step] = [
    Text("", 1, "I th", is_thinking=True),
    Text("", 1, "I think", is_thinking=True, is_whole=True),
    Text("", 1, "Let me", is_whole=False),
    Text("", 1, "Let me see", is_whole=True),
    CallMade("", 1, "1.0", "look", '{"a": 1}'),
    CallMade("", 1, "1.1", "look", "{}"),
    CallEnded("", 1, "1.0", "ok", "a lamp"),
    CallEnded("", 1, "1.1", "failed", "broken"),
    Text("", 2, "Done", is_whole=True, is_answer=True),
    Over("completed", "", "Done", UsageTotals(), reply="Done"),
]


@given(st.integers(0, len(TAKEN)))
def test_a_client_that_lost_its_connection_gets_just_what_it_lacks(seen: int) -> None:
    whole = applied(shown_events(TAKEN, []))
    had = applied(shown_events(TAKEN[:seen], []))
    again = shown_events(TAKEN, [*had.values()])
    assert applied(again, had.values()) == whole
    assert len(whole) == 5


async def test_a_refusal_of_the_server_is_not_shown_as_an_id_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = OrgaError("the server refuses 'mine': no")
    monkeypatch.setattr(reach, "start_agent", AsyncMock(side_effect=refused))
    own = reach.Reach(Mock(spec=Client), by="ann", runs_query="", has=lambda _: True)
    with pytest.raises(OrgaError) as caught:
        await own.start("agent", "default", "a task", "mine")
    assert caught.value is refused
