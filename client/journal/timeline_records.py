"""The records of a timeline: one for each iteration of a run, with its texts, calls and events.

`timeline_fold.py` makes them from a history. The console, the front ends and applications read them.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Literal, Self, cast

from pydantic_core import to_json

from orga.workflows.types.record import Record, replace_fields

HEAD_CHARS = 2_000
"""Characters of a text in a record. The rest is read by its reference."""
CallState = Literal["proposed", "held", "running", "ok", "failed", "denied", "cancelled", "not_run"]


class TimelineText(Record):
    """The beginning of a text, and a reference to the whole text."""

    head: str
    """Its beginning, at most 2,000 characters. In a single record it may have 64,000 bytes."""
    size: int
    """Bytes of the whole text in UTF-8."""
    reference: str | None = None
    """Names the whole text for `Timelines.text`. None if `head` is all of it."""


class TimelineUsage(Record):
    """Tokens and cost of an iteration's model call. Those of critics and summaries are in their events."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    thinking_tokens: int = 0
    """Part of `output_tokens`."""
    cost_usd: float | None = None


class TimelineDelegate(Record):
    """The run that carries out a delegation."""

    id: str
    agent: str


class TimelineCall(Record):
    """A call of a reply, or one that the loop made: a lookup, or a call that was sent again."""

    id: str
    """The activity id, such as `7.0`."""
    call_id: str
    tool: str
    arguments: TimelineText
    """JSON: the arguments that the model proposed, or those that policy or a person has put in their place."""
    verdict: str | None = None
    """`allow`, `deny`, `approval` or `invalid`. A held call that was approved keeps `approval`."""
    policies: tuple[str, ...] = ()
    """Ids of the policies that decided."""
    reason: str = ""
    """The reason of the verdict, or of the person who decided on the call."""
    approver: str | None = None
    attempts: int = 0
    state: CallState = "proposed"
    """`proposed`, `held` (for a person), `running`, `ok`, `failed`, `denied`, `cancelled` or `not_run`."""
    result: TimelineText | None = None
    """The result that the tool returned, or the text that the model was shown in its place."""
    failure: str | None = None
    started: datetime | None = None
    ended: datetime | None = None
    delegate: TimelineDelegate | None = None

    def with_texts(self, arguments: TimelineText, result: TimelineText | None) -> Self:
        return replace_fields(self, {"arguments": arguments, "result": result})


class TimelineEvent(Record):
    """A journal entry that the other fields of a record do not show."""

    sequence: int | None
    """Its number in the journal. None if it is unknown, because not all earlier entries were read."""
    event: str
    at: datetime
    data: dict[str, Any]
    """The data of the entry. Strings are cut to 2,000 characters."""


class IterationRecord(Record):
    """One iteration of a run. Record 0 has everything before the first iteration."""

    number: int
    turn: int | None = None
    """The turn of a session."""
    prompt: str | None = None
    """`reason`, or the prompt of a goal: `goal_plan`, `goal_evaluate`, and so on."""
    started: datetime | None = None
    ended: datetime | None = None
    phase: str = "preparing"
    """`preparing`, `reasoning`, `gating`, `waiting`, `acting`, or `done`."""
    model: str | None = None
    usage: TimelineUsage = TimelineUsage()
    reply: TimelineText | None = None
    thinking: TimelineText | None = None
    calls: tuple[TimelineCall, ...] = ()
    events: tuple[TimelineEvent, ...] = ()
    scores: tuple[float, ...] = ()

    def joined_with(self, earlier: Self) -> Self:
        """Return the record of an iteration that two segments share. `earlier` is the record in the earlier segment.

        Fields that are not joined are those of the record with the reply.
        """
        with_reply = self if self.reply is not None or self.calls else earlier
        own_calls = {call.id for call in self.calls}
        changes = {
            **{name: getattr(with_reply, name) for name in type(self).model_fields},
            "started": earlier.started or self.started,
            "ended": self.ended or earlier.ended,
            "calls": (*(call for call in earlier.calls if call.id not in own_calls), *self.calls),
            "events": (*earlier.events, *self.events),
            "scores": (*earlier.scores, *self.scores),
        }
        return replace_fields(self, changes)

    def with_texts(self, texts: Mapping[str, TimelineText]) -> Self:
        """Return the record with new texts. `texts` has them by the reference of the text that they replace."""

        def new(text: TimelineText) -> TimelineText:
            return texts.get(text.reference or "", text)

        changes = {
            "reply": self.reply and new(self.reply),
            "thinking": self.thinking and new(self.thinking),
            "calls": tuple(
                call.with_texts(new(call.arguments), call.result and new(call.result)) for call in self.calls
            ),
        }
        return replace_fields(self, changes)


def texts_of(record: IterationRecord) -> Iterator[TimelineText]:
    texts = (record.reply, record.thinking, *(text for call in record.calls for text in (call.arguments, call.result)))
    return (text for text in texts if text is not None)


class SearchLimits(Record):
    """The calls and events that a search reads. An iteration that does not meet every limit is left out."""

    tools: frozenset[str] = frozenset()
    outcomes: frozenset[str] = frozenset()
    """States of calls, such as `failed`, and verdicts, such as `approval`."""
    events: frozenset[str] = frozenset()
    """Names of events that records have."""

    @property
    def is_of_calls(self) -> bool:
        """True if the calls are limited."""
        return bool(self.tools or self.outcomes)

    def parts(self, record: IterationRecord) -> Iterator[tuple[tuple[str, str], ...]]:
        """Yield the parts of a record that a search reads (reply, thinking, calls, events), with places and texts."""
        has_limits = bool(self.is_of_calls or self.events)
        calls = [call for call in record.calls if self._is_searched(call)]
        events = [event for event in record.events if not self.events or event.event in self.events]
        if (self.is_of_calls and not calls) or (self.events and not events):
            return
        if not has_limits:
            for where in ("reply", "thinking"):
                if (text := getattr(record, where)) is not None:
                    yield ((where, text.head),)
        if self.is_of_calls or not has_limits:
            yield from map(_call_texts, calls)
        if self.events or not has_limits:
            yield from (((event.event, json_text(event.data)),) for event in events)

    def _is_searched(self, call: TimelineCall) -> bool:
        has_tool = not self.tools or call.tool in self.tools
        has_outcome = not self.outcomes or not self.outcomes.isdisjoint((call.state, call.verdict))
        return has_tool and has_outcome


def _call_texts(call: TimelineCall) -> tuple[tuple[str, str], ...]:
    return (
        (f"{call.id} arguments", f"{call.tool} {call.arguments.head}"),
        (f"{call.id} result", call.result.head if call.result else ""),
        (f"{call.id} failure", call.failure or ""),
    )


def json_text(value: Any) -> str:
    return to_json(value, inf_nan_mode="strings").decode()


def clipped_strings(value: Any) -> Any:
    """Return a JSON value with its strings cut to `HEAD_CHARS`."""
    match value:
        case str():
            return value if len(value) <= HEAD_CHARS else f"{value[:HEAD_CHARS]}…"
        case dict():
            return {key: clipped_strings(each) for key, each in cast("dict[str, Any]", value).items()}
        case list():
            return [clipped_strings(each) for each in cast("list[Any]", value)]
        case _:
            return value
