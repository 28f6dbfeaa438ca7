"""Routes that read the history of a run: its timeline, texts, search, result and journal, and a comparison of two."""

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NamedTuple, NoReturn

from pydantic import Field
from starlette.responses import Response, StreamingResponse
from temporalio.client import WorkflowExecutionDescription, WorkflowExecutionStatus

from orga.client.console.problems import Problem, invalid
from orga.client.console.routes import Call, Console, Flag, NoParameters, Routes, visible_run
from orga.client.console.rows import Row, read_row, task_of
from orga.client.journal.file import KeyProblem, journal_content, private_key, sealed_head
from orga.client.journal.reading import read_journal
from orga.client.journal.timeline_reader import FoundTexts, TimelinePage, Timelines, timelines_of
from orga.client.journal.timeline_records import IterationRecord, SearchLimits, TimelineText
from orga.client.runs.endings import read_result
from orga.workflows.decisions.journal.entries import canonical_line
from orga.workflows.types.json_text import as_object, as_text
from orga.workflows.types.record import CheckedInput, Record
from orga.workflows.types.status import JournalEntry

ROUTES = Routes()

MAX_ITERATION = 10**9

MAX_COMPARED = 100
"""Rows of one answer of `/compare`."""


class Window(CheckedInput):
    """The part of a timeline to return. Without a position, it is the newest part."""

    around: int | None = Field(default=None, ge=0, le=MAX_ITERATION)
    before: int | None = Field(default=None, ge=0, le=MAX_ITERATION)
    after: int | None = Field(default=None, ge=0, le=MAX_ITERATION)
    limit: int = Field(default=50, ge=1, le=100)


class TextQuery(CheckedInput):
    download: Flag = False
    """Answer with an attachment."""


class SearchQuery(CheckedInput):
    text: str = Field(default="", max_length=1_000)
    tool: str = Field(default="", max_length=1_000)
    """Only calls of these tools, separated by commas."""
    event: str = Field(default="", max_length=1_000)
    """Only events with these names, separated by commas."""
    outcome: str = Field(default="", max_length=1_000)
    """Only calls with these states or verdicts, such as `failed,deny`."""
    next: str | None = Field(default=None, max_length=100)

    @property
    def limits(self) -> SearchLimits:
        return SearchLimits(tools=_names(self.tool), outcomes=_names(self.outcome), events=_names(self.event))


def _names(listed: str) -> frozenset[str]:
    return frozenset(filter(None, listed.split(",")))


class JournalQuery(CheckedInput):
    signed: Flag = False
    """End with the head of the journal, signed by the console's key."""


class CompareQuery(CheckedInput):
    a: str = Field(min_length=1, max_length=1_000)
    b: str = Field(min_length=1, max_length=1_000)
    next: str | None = Field(default=None, pattern=r"^\d{1,9}$")
    """The last iteration of the previous rows. By default, the rows begin after the common beginning."""
    limit: int = Field(default=50, ge=1, le=MAX_COMPARED)


@ROUTES.get("/runs/{id}/timeline")
async def _timeline(call: Call[Window]) -> TimelinePage:
    """Return successive iterations of a run."""
    given = call.given
    return await timelines_of(call.client).page(
        call.run_id, around=given.around, before=given.before, after=given.after, limit=given.limit
    )


@ROUTES.get("/runs/{id}/iterations/{number}", more_statuses=(404, 422))
async def _iteration(call: Call[NoParameters]) -> IterationRecord:
    """Return one iteration with its texts, each up to 64 kB."""
    number = call.path("number")
    if not re.fullmatch(r"[0-9]{1,9}", number):
        raise invalid([f"number: {number[:50]!r} is not the number of an iteration. Give one from 0"])
    return await timelines_of(call.client).record(call.run_id, int(number))


@ROUTES.get("/runs/{id}/texts/{reference}", media_type="text/plain", more_statuses=(404,))
async def _text(call: Call[TextQuery]) -> Response:
    """Return one whole text of the timeline."""
    reference = call.path("reference")
    text = await timelines_of(call.client).text(call.run_id, reference)
    headers = {"X-Content-Type-Options": "nosniff"}
    if call.given.download:
        headers["Content-Disposition"] = f'attachment; filename="{reference}.txt"'  # a found reference is plain ASCII
    return Response(text.encode("utf-8", "replace"), media_type="text/plain; charset=utf-8", headers=headers)


@ROUTES.get("/runs/{id}/search")
async def _search(call: Call[SearchQuery]) -> FoundTexts:
    """Find texts, calls and events of a run, newest first."""
    given = call.given
    return await timelines_of(call.client).search(call.run_id, given.text, limits=given.limits, next=given.next)


@ROUTES.get("/runs/{id}/result", {"type": "object"}, more_statuses=(404,))
async def _result(call: Call[NoParameters]) -> dict[str, Any]:
    """Return the result of an ended run."""
    ended = await read_result(call.client, call.described)
    if ended is None:
        is_live = call.described.status == WorkflowExecutionStatus.RUNNING
        reason = "is running, and has no result yet" if is_live else "ended without a result. Its timeline shows how"
        raise Problem(404, f"result: run {call.run_id!r} {reason}")
    return ended.model_dump(mode="json")


@ROUTES.get("/runs/{id}/journal", media_type="application/x-ndjson", more_statuses=(409,))
async def _journal(call: Call[JournalQuery]) -> Response:
    """Return the journal so far, one JSON object on each line."""
    media_type = "application/x-ndjson"
    if call.given.signed:
        entries = [entry async for entry in read_journal(call.client, call.run_id)]
        return Response(_signed_content(call, entries), media_type=media_type)
    entries = read_journal(call.client, call.run_id)
    first = await anext(entries, None)  # read before the status is sent, so that an error can change it
    return StreamingResponse(_lines(first, entries), media_type=media_type)


async def _lines(first: JournalEntry | None, entries: AsyncGenerator[JournalEntry]) -> AsyncGenerator[bytes]:
    async with aclosing(entries):
        if first is not None:
            yield canonical_line(first) + b"\n"
        async for entry in entries:
            yield canonical_line(entry) + b"\n"


def _signed_content(call: Call[JournalQuery], entries: Sequence[JournalEntry]) -> bytes:
    path = call.console.signing_key_file
    if path is None:
        _refuse_to_sign("no key is configured. Set [audit] signing_key_file in the console's folder")
    try:
        key = private_key(path)
    except KeyProblem:  # its text names the file
        _refuse_to_sign("its key cannot be used. `orga journal --export --sign` shows why")
    return journal_content(entries, sealed_head(call.run_id, entries, key, datetime.now(UTC)))


def _refuse_to_sign(why: str) -> NoReturn:
    raise Problem(409, f"signed: this console cannot sign: {why}")


def _text_key(text: TimelineText | None) -> tuple[str, int] | None:
    return (text.head, text.size) if text else None


_GUIDANCE = frozenset({"steer", "add_context", "override_step"})


def _answers(record: IterationRecord) -> list[tuple[object, ...]]:
    """Return the answers of people. Their decisions about calls are in the verdicts."""
    keys = ("question", "choice", "answer")
    return [tuple(event.data.get(key) for key in keys) for event in record.events if event.event == "QuestionAnswered"]


def _guidance(record: IterationRecord) -> list[tuple[object, object]]:
    sent = [event.data for event in record.events if event.event == "InterventionReceived"]
    return [(data["kind"], data.get("text")) for data in sent if data.get("kind") in _GUIDANCE]


def _seconds(record: IterationRecord) -> float | None:
    if record.started is None or record.ended is None:
        return None
    return round((record.ended - record.started).total_seconds(), 1)


_PARTS: dict[str, Callable[[IterationRecord], object]] = {
    "reply": lambda record: _text_key(record.reply),
    "thinking": lambda record: _text_key(record.thinking),
    "calls": lambda record: [(call.tool, _text_key(call.arguments)) for call in record.calls],
    "verdicts": lambda record: [(call.verdict, call.policies, call.approver) for call in record.calls],
    "results": lambda record: [(call.state, _text_key(call.result), call.failure) for call in record.calls],
    "answers": _answers,
    "guidance": _guidance,
    "scores": lambda record: record.scores,
    "model": lambda record: record.model,
    "cost": lambda record: record.usage.cost_usd,
    "time": _seconds,
}
"""The parts of two iterations that are compared."""


class ComparedRun(Row):
    result: dict[str, Any] | None


class ComparedIteration(Record):
    """The same iteration in both runs."""

    number: int
    a: IterationRecord | None
    b: IterationRecord | None
    differs: tuple[Annotated[str, Field(json_schema_extra={"enum": list(_PARTS)})], ...]


class Comparison(Record):
    a: ComparedRun
    b: ComparedRun
    common: int
    """The last iteration of the common beginning: the last that a fork shares, or the last that is equal."""
    fork: Literal["a", "b"] | None = None
    """The run that is a fork of the other one."""
    rows: tuple[ComparedIteration, ...]
    next: str | None


@ROUTES.get("/compare", more_statuses=(404,))
async def _compare(call: Call[CompareQuery]) -> Comparison:
    """Compare two runs after their common beginning."""
    given = call.given
    described = [await visible_run(call.client, call.visitor, run_id) for run_id in (given.a, given.b)]
    a, b = [await _compared_run(call.console, run) for run in described]
    found = timelines_of(call.client)
    common = await _common_beginning(found, a.id, b.id)
    after = common.last if given.next is None else int(given.next)
    left = await _records_after(found, a.id, after, given.limit)
    right = await _records_after(found, b.id, after, given.limit)
    numbers = sorted({*left, *right})[: given.limit]
    rows = [compared(number, left.get(number), right.get(number)) for number in numbers]
    following = str(numbers[-1]) if len(numbers) == given.limit else None
    return Comparison(a=a, b=b, common=common.last, fork=common.fork, rows=tuple(rows), next=following)


async def _compared_run(console: Console, described: WorkflowExecutionDescription) -> ComparedRun:
    row = await read_row(console.client, described, await task_of(console, described))
    ended = await read_result(console.client, described)
    return ComparedRun(**row.model_dump(), result=ended.model_dump(mode="json") if ended else None)


async def _records_after(timelines: Timelines, run_id: str, after: int, limit: int) -> dict[int, IterationRecord]:
    page = await timelines.page(run_id, after=after, limit=limit)
    return {record.number: record for record in page.items if record.number > 0}


class _CommonBeginning(NamedTuple):
    last: int
    """The last iteration of it. 0 if there is none."""
    fork: Literal["a", "b"] | None = None
    """The run that is a fork of the other one."""


async def _common_beginning(timelines: Timelines, a: str, b: str) -> _CommonBeginning:
    first_a, first_b = await _first_record(timelines, a), await _first_record(timelines, b)
    if first_a.origin == b:
        return _CommonBeginning(first_a.number, "a")
    if first_b.origin == a:
        return _CommonBeginning(first_b.number, "b")
    if first_a.origin and first_a.origin == first_b.origin:
        return _CommonBeginning(min(first_a.number, first_b.number))
    if first_a.number or first_b.number:  # the first iterations of a run are unknown, or those of a third run
        return _CommonBeginning(0)
    common = 0
    while True:
        left, right = [await _records_after(timelines, run_id, common, MAX_COMPARED) for run_id in (a, b)]
        for number in range(common + 1, common + MAX_COMPARED + 1):
            if not _is_same(left.get(number), right.get(number)):
                return _CommonBeginning(common)
            common = number


class _FirstRecord(NamedTuple):
    number: int
    origin: str
    """The run that this run is a fork of, or ""."""


async def _first_record(timelines: Timelines, run_id: str) -> _FirstRecord:
    number = (await timelines.page(run_id, limit=1)).first
    page = await timelines.page(run_id, around=number, limit=1)
    started = next((event for record in page.items for event in record.events if event.event == "Started"), None)
    origin = as_object(started.data.get("forked_from")) if started else {}
    return _FirstRecord(number, as_text(origin.get("workflow_id")))


def _is_same(a: IterationRecord | None, b: IterationRecord | None) -> bool:
    return a is not None and b is not None and _MEASURED.issuperset(_differences(a, b))


_MEASURED = {"cost", "time"}
"""Parts that may differ even if two runs do the same."""


def compared(number: int, a: IterationRecord | None, b: IterationRecord | None) -> ComparedIteration:
    """Return a row with the parts in which two iterations differ. There are none if only one run has the iteration."""
    return ComparedIteration(number=number, a=a, b=b, differs=_differences(a, b) if a and b else ())


def _differences(a: IterationRecord, b: IterationRecord) -> tuple[str, ...]:
    return tuple(part for part, value_of in _PARTS.items() if value_of(a) != value_of(b))
