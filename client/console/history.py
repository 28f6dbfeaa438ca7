"""Routes that read the history of a run: its timeline, texts, search, result and journal, and a comparison of two."""

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NoReturn

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
from orga.client.runs.ids import read_result
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
        tools, outcomes, events = (
            frozenset(filter(None, names.split(","))) for names in (self.tool, self.outcome, self.event)
        )
        return SearchLimits(tools=tools, outcomes=outcomes, events=events)


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
    common, fork = await _common_iterations(found, a.id, b.id)
    after = common if given.next is None else int(given.next)
    left, right = await _after(found, a.id, after, given.limit), await _after(found, b.id, after, given.limit)
    numbers = sorted({*left, *right})[: given.limit]
    rows = [compared(number, left.get(number), right.get(number)) for number in numbers]
    is_more = len(numbers) == given.limit
    return Comparison(a=a, b=b, common=common, fork=fork, rows=tuple(rows), next=str(numbers[-1]) if is_more else None)


async def _compared_run(console: Console, described: WorkflowExecutionDescription) -> ComparedRun:
    row = await read_row(console.client, described, await task_of(console, described))
    ended = await read_result(console.client, described)
    return ComparedRun(**row.model_dump(), result=ended.model_dump(mode="json") if ended else None)


async def _after(timelines: Timelines, run_id: str, after: int, limit: int) -> dict[int, IterationRecord]:
    page = await timelines.page(run_id, after=after, limit=limit)
    return {record.number: record for record in page.items if record.number > 0}


async def _common_iterations(timelines: Timelines, a: str, b: str) -> tuple[int, Literal["a", "b"] | None]:
    """Return the last iteration of the common beginning, 0 if there is none, and which run is a fork of the other."""
    (first_a, origin_a), (first_b, origin_b) = [await _beginning(timelines, run_id) for run_id in (a, b)]
    if origin_a == b:
        return first_a, "a"
    if origin_b == a:
        return first_b, "b"
    if origin_a and origin_a == origin_b:
        return min(first_a, first_b), None
    if first_a or first_b:
        return 0, None
    common = 0
    while True:
        left, right = [await _after(timelines, run_id, common, MAX_COMPARED) for run_id in (a, b)]
        for number in range(common + 1, common + MAX_COMPARED + 1):
            if number not in left or number not in right or _differences(left[number], right[number]) - _MEASURED:
                return common, None
            common = number


async def _beginning(timelines: Timelines, run_id: str) -> tuple[int, str]:
    """Return the number of a run's first record, and the run that it is a fork of, or ""."""
    first = (await timelines.page(run_id, limit=1)).first
    page = await timelines.page(run_id, around=first, limit=1)
    events = [event for record in page.items for event in record.events if event.event == "Started"]
    return first, next((as_text(as_object(event.data.get("forked_from")).get("workflow_id")) for event in events), "")


_MEASURED = {"cost", "time"}
"""Parts that may differ even if two runs do the same."""


def compared(number: int, a: IterationRecord | None, b: IterationRecord | None) -> ComparedIteration:
    """Return a row with the parts in which two iterations differ. There are none if only one run has the iteration."""
    differs = [part for part in _PARTS if a and b and part in _differences(a, b)]
    return ComparedIteration(number=number, a=a, b=b, differs=tuple(differs))


def _differences(a: IterationRecord, b: IterationRecord) -> set[str]:
    return {part for part, value_of in _PARTS.items() if value_of(a) != value_of(b)}
