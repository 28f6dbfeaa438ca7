"""The timeline of a run: records folded from all recorded histories agree with the journal in every window."""

import json
import stat
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter, PayloadCodec

from orga import AgentHandle, GoalHandle, SessionHandle, runs
from orga.client.errors import RunNotFound
from orga.client.history.events import read_events
from orga.client.history.values import FrugalPayloadConverter, converters_in, data_converter
from orga.client.journal import segments, timeline_fold, timeline_reader
from orga.client.journal.timeline_fold import TimelineFold
from orga.client.journal.timeline_reader import NoRecord, NoText, Timelines
from orga.client.journal.timeline_records import IterationRecord, SearchLimits, TimelineCall, texts_of
from orga.workflows.decisions.journal.fold import JournalFold
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.status import Happening, JournalEntry
from tests.replay.test_histories import HISTORIES, history_in
from tests.support.parts.served_histories import HistoryClient, without_end

OF_FIELDS = {"ReasoningComplete", "ToolsDispatched", "ObservationsCollected", "DelegationStarted"}
ROLLED_OVER = [history_in(path) for path in HISTORIES if path.stem.startswith("rolled-over")]


def recorded(name: str) -> WorkflowHistory:
    return history_in(next(path for path in HISTORIES if path.stem == name))


async def folded(history: WorkflowHistory) -> tuple[TimelineFold, list[JournalEntry]]:
    fold, journal, entries = TimelineFold("segment-0"), JournalFold(), list[JournalEntry]()
    async for happening in happenings_in(history):
        entries += (found := journal.feed(happening))
        fold.feed(happening, found)
    return fold, entries


async def happenings_in(history: WorkflowHistory) -> AsyncGenerator[Happening]:
    async for happening in read_events(converters_in(history, data_converter, "default"), history.events):
        yield happening


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_the_records_agree_with_the_journal(path: Path) -> None:
    fold, entries = await folded(history_in(path))
    records = {record.number: record for record in fold.records()}
    calls = {call.call_id: call for record in records.values() for call in record.calls if call.id.count(".") == 1}

    assert [IterationRecord.model_validate_json(each.model_dump_json()) for each in records.values()] == [
        *records.values()
    ]
    for entry in entries:
        data = entry.data
        match entry.event:
            case "ReasoningComplete":
                check_reply(records[entry.iteration], data)
            case "ObservationsCollected":
                for outcome in data["outcomes"]:
                    state = {"unfinished": "cancelled"}.get(outcome["outcome"], outcome["outcome"])
                    assert calls[outcome["call_id"]].state == state
            case "PolicyEvaluated":
                check_verdicts(records, data)
            case _:
                shown = records[number] if (number := fold.number_of(entry)) is not None else None
                assert shown
                assert entry.event in {event.event for event in shown.events} | OF_FIELDS
    shown = [event.sequence for record in records.values() for event in record.events]
    assert set(shown) >= {entry.sequence for entry in entries if entry.event not in {*OF_FIELDS, "PolicyEvaluated"}}
    assert len(set(shown)) == len(shown)


def check_reply(record: IterationRecord, data: dict[str, Any]) -> None:
    proposed = [action for action in data["actions"] if "tool" in action]
    answer = "".join(action.get("respond", "") for action in data["actions"])
    mine = [call for call in record.calls if call.id.startswith(f"{record.number}.")]
    assert [(call.tool, call.call_id, json.loads(call.arguments.head)) for call in mine] == [
        (action["tool"], action["call_id"], action["arguments"]) for action in proposed
    ]
    assert proposed or (record.reply.head if record.reply else "") == answer
    usage = record.usage.model_dump(exclude={"cost_usd"})
    assert usage == {key: data["usage"].get(key, 0) for key in usage}
    assert record.usage.cost_usd == data.get("cost_usd")


def check_verdicts(records: dict[int, IterationRecord], data: dict[str, Any]) -> None:
    calls: dict[str, TimelineCall] = {call.id: call for record in records.values() for call in record.calls}
    for place, verdict in zip(data["places"], data["verdicts"], strict=True):
        if place in calls:
            was_held = calls[place].verdict == "approval" and verdict["decision"] == "allow"
            assert was_held or calls[place].verdict == verdict["decision"]
            assert was_held or calls[place].policies == tuple(verdict.get("policies", ()))


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_any_prefix_of_a_history_has_its_records(path: Path) -> None:
    """A live run can be read at any moment."""
    fold, journal, seen = TimelineFold("segment-0"), JournalFold(), 0
    async for happening in happenings_in(history_in(path)):
        fold.feed(happening, journal.feed(happening))
        assert len(fold.numbers()) >= seen
        assert fold.numbers() == list(range(fold.numbers()[0], fold.last + 1)) if fold.numbers() else True
        seen = len(fold.numbers())
    assert all(call.state not in {"proposed", "held", "running"} for each in fold.records() for call in each.calls)


async def test_a_person_s_decision_is_shown_at_its_call() -> None:
    (records, _) = await folded(recorded("held"))
    approved, denied = next(record.calls for record in records.records() if record.calls)

    assert (approved.verdict, approved.state, approved.approver, approved.attempts) == ("approval", "ok", "ada", 1)
    assert (denied.verdict, denied.state, denied.approver) == ("approval", "denied", "ada")
    assert denied.reason == "once is enough"
    assert denied.started is None


async def test_turns_of_a_session_start_with_their_message_and_lookups() -> None:
    fold, _ = await folded(recorded("looked-up"))
    records = fold.records()

    assert [record.turn for record in records] == [None, 1, 2, 3]
    assert [record.events[0].event for record in records[1:]] == ["TurnStarted"] * 3
    assert [call.id for record in records for call in record.calls] == ["0.1.0", "0.2.0", "0.3.0", "0.3.1"]


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_each_reference_returns_the_whole_text(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_fold, "HEAD_CHARS", 3)
    client = HistoryClient(history_in(path))
    found = Timelines(client)
    page = await found.page(client.workflow_id, limit=100)
    whole = TimelineFold("segment-0", is_whole=True)
    journal = JournalFold()
    async for happening in happenings_in(history_in(path)):
        whole.feed(happening, journal.feed(happening))

    for record in page.items:
        wanted = whole.record(record.number)
        assert wanted
        for short, full in zip(texts_of(record), texts_of(wanted), strict=True):
            assert full.head.startswith(short.head)
            assert short.size == len(full.head.encode())
            assert (short.reference is None) == (len(full.head) <= 3)
            if short.reference:
                assert await found.text(client.workflow_id, short.reference) == full.head
    one = await found.record(client.workflow_id, page.total)
    wanted = whole.record(page.total)
    assert wanted
    assert [*texts_of(one)] == [*texts_of(wanted)]


@pytest.mark.parametrize(
    "reference",
    [
        *("", "x", "segment-0", "segment-0.1.reply", "segment-0.5.output", "segment-0.4.output", "segment-0.999.reply"),
        *("segment-1.9.reply", "segment-0.9.secret", "segment-0.9.arguments-7", "segment-0.9.text", "../etc.1.reply"),
    ],
)
async def test_a_reference_reaches_only_texts_of_its_own_run(reference: str) -> None:
    client = HistoryClient(recorded("tools-and-a-denial"))

    with pytest.raises(NoText, match="has no text"):
        await Timelines(client).text(client.workflow_id, reference)


async def test_only_texts_of_calls_replies_and_results_have_references() -> None:
    """Verdicts contain permits, and the setup contains instructions."""
    client = HistoryClient(recorded("held"))
    events = client.segments["segment-0"]
    parts = ["reply", "thinking", "arguments-0", "changed-1.0", "input", "news-0", "output"]
    texts = list[str]()
    for reference in (f"segment-0.{event.event_id}.{part}" for event in events for part in parts):
        try:
            texts.append(await Timelines(client).text(client.workflow_id, reference))
        except NoText:
            continue

    assert texts
    assert not [
        text for text in texts if "permit" in text or "You work on a task" in text or "search_attributes" in text
    ]


async def test_windows_cover_a_run_of_three_segments(home: Path) -> None:
    client = HistoryClient(*ROLLED_OVER)
    found, run = Timelines(client), client.workflow_id

    async def numbers(**position: int) -> list[int]:
        return [record.number for record in (await found.page(run, **position)).items]

    assert await numbers() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert await numbers(limit=2) == [6, 7]
    assert await numbers(before=6, limit=2) == [4, 5]
    assert await numbers(before=1) == [0]
    assert await numbers(before=0) == []
    assert await numbers(after=3, limit=2) == [4, 5]
    assert await numbers(after=7) == []
    assert await numbers(around=1, limit=3) == [0, 1, 2]
    assert await numbers(around=99, limit=3) == [5, 6, 7]
    page = await found.page(run, around=4)
    assert (page.total, page.first) == (7, 0)
    assert [call.state for record in page.items for call in record.calls] == ["ok"] * 6
    assert client.reads == ["segment-2", "segment-0", "segment-1"]


async def test_a_segment_is_read_only_if_its_records_are_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_reader, "WINDOW", 1)
    client = HistoryClient(*ROLLED_OVER)

    newest = await Timelines(client).page(client.workflow_id)
    assert ([record.number for record in newest.items], newest.total, client.reads) == ([7], 7, ["segment-2"])
    client.reads.clear()
    jumped = await Timelines(HistoryClient(*ROLLED_OVER)).page(client.workflow_id, around=2, limit=2)
    assert ([record.number for record in jumped.items], jumped.total) == ([1, 2], 7)


async def test_closed_segments_are_cached_in_private_files(home: Path) -> None:
    client = HistoryClient(*ROLLED_OVER)
    whole = await Timelines(client).page(client.workflow_id)
    files = sorted((home / "timelines").iterdir())

    again = HistoryClient(*ROLLED_OVER)
    assert await Timelines(again).page(again.workflow_id) == whole
    assert again.reads == []
    assert [stat.S_IMODE(path.stat().st_mode) for path in (home / "timelines", *files)] == [0o700, *[0o600] * 3]


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def overwrite(path: Path) -> None:
    path.write_bytes(b"nothing")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def share(path: Path) -> None:
    path.chmod(0o644)


def make_link(path: Path) -> None:
    other = path.with_name("other")
    path.replace(other)
    path.symlink_to(other)


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def exchange(path: Path) -> None:
    max(path.parent.iterdir()).replace(path)


@pytest.mark.parametrize("damage", [cut_off, overwrite, empty, share, make_link, make_folder, exchange])
async def test_an_untrustworthy_cache_file_is_ignored(home: Path, damage: Callable[[Path], None]) -> None:
    client = HistoryClient(*ROLLED_OVER)
    whole = await Timelines(client).page(client.workflow_id)
    damage(min((home / "timelines").iterdir()))

    again = HistoryClient(*ROLLED_OVER)
    assert await Timelines(again).page(again.workflow_id) == whole
    assert again.reads


async def test_cached_segments_of_another_fold_version_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    client = HistoryClient(*ROLLED_OVER)
    await Timelines(client).page(client.workflow_id)
    monkeypatch.setattr(segments, "FOLD_VERSION", 99)

    again = HistoryClient(*ROLLED_OVER)
    await Timelines(again).page(again.workflow_id)
    assert len(again.reads) == 3


class Reversed(PayloadCodec):
    async def encode(self, payloads: Any) -> list[Payload]:
        return [Payload(metadata={"encoding": b"reversed"}, data=each.SerializeToString()[::-1]) for each in payloads]

    async def decode(self, payloads: Any) -> list[Payload]:
        return [
            Payload.FromString(each.data[::-1]) if each.metadata.get("encoding") == b"reversed" else each
            for each in payloads
        ]


async def test_no_cache_is_written_in_clear_text_if_payloads_are_encoded(home: Path) -> None:
    converter = DataConverter(payload_converter_class=FrugalPayloadConverter, payload_codec=Reversed())
    client = HistoryClient(*ROLLED_OVER, converter=converter)
    reply = client.segments["segment-2"][-1].workflow_execution_completed_event_attributes.result
    [payload] = await Reversed().encode(reply.payloads)
    reply.payloads[0].CopyFrom(payload)

    page = await Timelines(client).page(client.workflow_id)
    assert page.total == 7
    assert not home.exists()


async def test_memory_keeps_the_most_recently_used_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "MAX_MEMORY_BYTES", 1)
    monkeypatch.setenv("ORGA_HOME", "/dev/null/nowhere")
    client = HistoryClient(*ROLLED_OVER)
    found = Timelines(client)

    assert await found.page(client.workflow_id) == await found.page(client.workflow_id)
    assert client.reads.count("segment-0") == 2


async def test_a_run_with_deleted_segments_starts_later() -> None:
    client = HistoryClient(*ROLLED_OVER)
    client.delete_oldest()
    page = await Timelines(client).page(client.workflow_id)

    assert (page.first, [record.number for record in page.items]) == (3, [4, 5, 6, 7])
    with pytest.raises(NoRecord, match="There are 3 to 7"):
        await Timelines(client).record(client.workflow_id, 1)


async def test_a_segment_deleted_after_reading_is_no_longer_shown() -> None:
    client = HistoryClient(*ROLLED_OVER)
    found = Timelines(client)
    assert (await found.page(client.workflow_id)).first == 0
    client.delete_oldest()
    page = await found.page(client.workflow_id)
    assert (page.first, [record.number for record in page.items]) == (3, [4, 5, 6, 7])


@pytest.mark.parametrize(
    "arguments",
    [
        [{"task": "do it", "fork": {"workflow_id": "other", "run_id": "r", "iteration": 1_000_000}}],
        [{"task": "do it"}, {"iteration": 1_000_000}],
        [{"task": "do it", "fork": {"iteration": "many"}}],
        [{"fork": [1]}, 7],
        [None],
        [],
    ],
)
async def test_a_false_claim_of_a_starter_hides_no_iteration(arguments: list[Any]) -> None:
    client = HistoryClient(recorded("tools-and-a-denial"))
    started = client.segments["segment-0"][0].workflow_execution_started_event_attributes
    del started.input.payloads[:]
    started.input.payloads.extend(data_converter.payload_converter.to_payloads(arguments))

    for window in ({}, {"around": 2}, {"after": 0}, {"before": 4}):
        page = await Timelines(client).page(client.workflow_id, **window)
        assert {2, 3} <= {record.number for record in page.items}


async def test_a_live_segment_is_read_again_only_after_it_has_grown() -> None:
    history = recorded("tools-and-a-denial")
    client = HistoryClient(without_end(history, 20))
    found = Timelines(client)
    early = await found.page(client.workflow_id)
    assert await found.page(client.workflow_id) == early
    assert client.reads == ["segment-0"]

    client.segments["segment-0"] = list(history.events)
    late = await found.page(client.workflow_id)
    assert (early.total, late.total, late.items[-1].phase) == (1, 3, "done")
    assert client.reads == ["segment-0"] * 2


async def test_a_search_returns_matches_with_context_newest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    client = HistoryClient(*ROLLED_OVER)
    found = await Timelines(client).search(client.workflow_id, "SEEN")
    assert [each.iteration for each in found.items] == [6, 5, 4, 3, 2, 1]
    assert {each.where for each in found.items} == {f"{n}.0 result" for n in range(1, 7)}
    assert "seen seen" in found.items[0].excerpt
    assert found.next is None

    monkeypatch.setattr(timeline_reader, "MAX_FOUND", 2)
    pages, position = list[list[int]](), None
    while not pages or position:
        page = await Timelines(client).search(client.workflow_id, "seen", next=position)
        pages.append([each.iteration for each in page.items])
        position = page.next
    assert [number for each in pages for number in each] == [6, 5, 4, 3, 2, 1]


@pytest.mark.parametrize(
    ("text", "limits", "expected"),
    [
        pytest.param("", {"tools": ["pay"]}, ["1.0 arguments", "1.1 arguments"], id="calls of a tool"),
        pytest.param("", {"tools": ["look"]}, [], id="no call of another tool"),
        pytest.param("", {"outcomes": ["denied"]}, ["1.1 arguments"], id="calls that ended in a way"),
        pytest.param("", {"outcomes": ["approval"]}, ["1.0 arguments", "1.1 arguments"], id="calls with a verdict"),
        pytest.param("", {"events": ["Terminated", "Prepared"]}, ["Terminated", "Prepared"], id="events, newest first"),
        pytest.param("", {"tools": ["pay"], "events": ["Terminated"]}, [], id="not in the same iteration"),
        pytest.param("ok", {"tools": ["pay"]}, ["1.0 result"], id="a text of such calls"),
        pytest.param("total_tokens", {"tools": ["pay"]}, [], id="no text of other parts"),
    ],
)
async def test_a_search_can_be_limited_to_calls_and_events(
    text: str, limits: dict[str, list[str]], expected: list[str]
) -> None:
    client = HistoryClient(recorded("held"))
    found = await Timelines(client).search(client.workflow_id, text, limits=SearchLimits.model_validate(limits))
    assert [each.where for each in found.items] == expected


async def test_the_bound_of_known_segments_is_not_in_the_way_of_a_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_reader, "KEPT_HEADS", 1)
    client = HistoryClient(*ROLLED_OVER)
    assert len((await Timelines(client).page(client.workflow_id)).items) == 8


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ({"limit": 0}, "limit: must be from 1 to 100"),
        ({"limit": 101}, "limit: must be from 1 to 100"),
        ({"around": 1, "before": 2}, "around: only one"),
    ],
)
async def test_an_invalid_window_is_refused(call: dict[str, int], problem: str) -> None:
    client = HistoryClient(recorded("answer"))
    with pytest.raises(InvalidInput, match=problem):
        await Timelines(client).page(client.workflow_id, **call)


@pytest.mark.parametrize(
    ("name", "kind"), [("answer", AgentHandle), ("pursued", GoalHandle), ("talked", SessionHandle)]
)
async def test_a_run_has_the_handle_of_its_kind(name: str, kind: type[AgentHandle]) -> None:
    client = HistoryClient(recorded(name))
    assert type(await runs.handle(client, client.workflow_id)) is kind


async def test_an_unknown_run_and_an_invalid_search_are_refused() -> None:
    client = HistoryClient(recorded("answer"))
    with pytest.raises(RunNotFound):
        await Timelines(client).page("other")
    with pytest.raises(InvalidInput, match="text: must not be empty"):
        await Timelines(client).search(client.workflow_id, " ")
    with pytest.raises(InvalidInput, match=r"next: 'segment-9\.1' is not from a search"):
        await Timelines(client).search(client.workflow_id, "a", next="segment-9.1")
