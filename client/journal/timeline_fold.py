"""Folds the history of a run to one record for each iteration (see `timeline_records.py`).

A fold reads one segment. A record has the beginning of a long text, and a reference to the event with the whole text.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from pydantic import ConfigDict

from orga.client.history.events import passed_on_state
from orga.client.journal import event_types as on
from orga.client.journal.event_types import JournalEvent, read_event
from orga.client.journal.timeline_records import (
    HEAD_CHARS,
    CallState,
    IterationRecord,
    TimelineCall,
    TimelineDelegate,
    TimelineEvent,
    TimelineText,
    TimelineUsage,
    clipped_strings,
    json_text,
)
from orga.workflows.types.context import ReasonRequest
from orga.workflows.types.json_text import as_count, as_object, as_text
from orga.workflows.types.messages import Reply
from orga.workflows.types.names import OWN_ACTIVITIES, PROMPT_ACTIVITIES, READ_PAST
from orga.workflows.types.parts import ThinkingPart
from orga.workflows.types.status import Happening, JournalEntry
from orga.workflows.types.text import undelimited_text
from orga.workflows.types.tool_calls.delegation import delegate_activity_id
from orga.workflows.types.tool_calls.gate import START_SUFFIX, Verdicts, activity_id_before_input
from orga.workflows.types.tool_calls.loop_tools import loop_tool
from orga.workflows.types.tool_calls.tools import ToolOutput

FOLD_VERSION = 3
"""Version of the records in cached segments. Raise it when a fold makes other records of the same history."""


def event_texts(happening: Happening) -> dict[str, str]:
    """Return the texts of an event by name. A reference ends with such a name, and no other text can be read.

    Raises:
        ValueError: A value in the event does not have the form that this project writes.
    """
    if (reply := reply_in(happening)) is not None:
        return _reply_texts(Reply.model_validate(reply))
    if happening.name in PROMPT_ACTIVITIES:
        return _news_texts(ReasonRequest.model_validate(happening.value)) if happening.kind == "scheduled" else {}
    if happening.name == "gate" and happening.kind == "finished":
        verdicts = Verdicts.model_validate(happening.value).by_place(happening.key) or {}
        return {f"changed-{place}": json_text(verdict.arguments) for place, verdict in verdicts.items()}
    if happening.name in OWN_ACTIVITIES:
        return {}
    return _tool_texts(happening)


def _tool_texts(happening: Happening) -> dict[str, str]:
    match happening.kind:
        case "scheduled":
            return {"input": json_text(as_object(happening.value).get("arguments", {}))}
        case "finished":
            return {"output": ToolOutput.model_validate(happening.value).content}
        case "child_finished":
            return {"output": as_text(as_object(happening.value).get("output"))}
        case _:
            return {}


def _reply_texts(reply: Reply) -> dict[str, str]:
    thoughts = [part.text for part in reply.parts if isinstance(part, ThinkingPart)]
    arguments = {f"arguments-{n}": call.malformed or json_text(call.arguments) for n, call in enumerate(reply.calls)}
    return {"reply": reply.text, "thinking": "\n\n".join(filter(None, thoughts)), **arguments}


def _news_texts(request: ReasonRequest) -> dict[str, str]:
    """Return the results of tools that a model call shows for the first time."""
    news = enumerate(request.context.news)
    tools = ((n, each.message) for n, each in news if each.message and each.message.role == "tool")
    return {f"news-{n}": undelimited_text(message.text) for n, message in tools}


def reply_in(happening: Happening) -> Any:
    """Return the reply of a model call, the reply with which a segment or a fork begins, or None."""
    if happening.name in PROMPT_ACTIVITIES:
        return happening.value if happening.kind == "finished" else None
    if happening.kind == "started":
        return as_object(passed_on_state(happening.value)).get("pending")
    return as_object(happening.value).get("pending") if happening.name == READ_PAST else None


def iterations_before(arguments: list[Any]) -> int:
    """Return the number of iterations before a segment that starts with these arguments."""
    fork = as_object(as_object(arguments[0] if arguments else None).get("fork"))
    state = as_object(passed_on_state(arguments))
    return as_count(state.get("iteration") or fork.get("iteration"))


class _JudgedCall(NamedTuple):
    """The gate's verdict on a call, and the arguments that policy has put in place of the call's own."""

    verdict: on.RecordedVerdict
    changed: TimelineText | None


class _Call(TimelineCall):
    """A call whose fields change with every event about it."""

    model_config = ConfigDict(frozen=False)

    def begin(self, at: datetime) -> None:
        self.started, self.state = self.started or at, "running"

    def take_verdict(self, judged: _JudgedCall) -> None:
        """Apply a verdict of the gate. A held call keeps the verdict `approval` when the gate allows it later."""
        verdict = judged.verdict
        self.arguments = judged.changed or self.arguments
        if self.verdict == "approval" and verdict.decision == "allow":
            return
        self.verdict, self.reason = verdict.decision or None, verdict.reason[:HEAD_CHARS]
        self.policies = verdict.policies
        states: dict[str, CallState] = {"approval": "held", "deny": "denied", "invalid": "denied"}
        self.state = states.get(verdict.decision, self.state)

    def as_record(self) -> TimelineCall:
        return TimelineCall(**dict(self))


@dataclass
class _Iteration:
    number: int
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    phase: str = "preparing"
    started: datetime | None = None
    ended: datetime | None = None
    calls: list[_Call] = field(default_factory=list[_Call])
    events: list[TimelineEvent] = field(default_factory=list[TimelineEvent])
    scores: list[float] = field(default_factory=list[float])

    def end(self, at: datetime) -> None:
        self.ended, self.phase = self.ended or at, "done"

    def end_answers(self, at: datetime) -> None:
        """End the calls that answer. The journal has no outcome for a call that ends a run."""
        for call in self.calls:
            if loop_tool(call.tool).is_answer and call.started and call.result is None:
                call.state, call.ended = "ok", at

    def as_record(self) -> IterationRecord:
        return IterationRecord(
            number=self.number,
            phase=self.phase,
            started=self.started,
            ended=self.ended,
            calls=tuple(call.as_record() for call in self.calls),
            events=tuple(self.events),
            scores=tuple(self.scores),
            **self.fields,
        )


_PLACE = re.compile(r"(\d{1,9}\.\d{1,9})((?:\.[a-pr-z]\d+)*)")
"""The place of a call, and the suffix of a part of it. A call with the suffix `q` was sent again: it is no part."""

_FIELD_EVENTS = (on.ReasoningComplete, on.ToolsDispatched, on.ObservationsCollected, on.DelegationStarted)
"""Events that the fields of a record show."""

_OUTCOMES: dict[str, CallState] = {
    "ok": "ok",
    "failed": "failed",
    "cancelled": "cancelled",
    "unfinished": "cancelled",
    "not_run": "not_run",
}


def _verdicts_by_place(event: on.PolicyEvaluated, iteration: _Iteration) -> dict[str, on.RecordedVerdict]:
    if verdicts := dict(zip(event.places, event.verdicts, strict=False)):
        return verdicts
    denial = on.RecordedVerdict(decision="deny", reason=event.error)  # the gate failed, which denies everything
    return dict.fromkeys(event.places or [call.id for call in iteration.calls], denial)


class TimelineFold:
    """The records of one segment. It takes the events in order, each with the journal entries that it makes."""

    def __init__(self, run_id: str, *, is_whole: bool = False) -> None:
        """Begin a segment.

        Args:
            is_whole: Records have whole texts. Otherwise, they have the beginnings of long texts, with references.
        """
        self.run_id = run_id
        self.base = 0
        """The last iteration of the earlier segments."""
        self.is_first = False
        """True if the run begins with this segment."""
        self.is_closed = False
        """True if the segment has ended, so that it never changes."""
        self._is_whole = is_whole
        self._iterations: dict[int, _Iteration] = {}
        self._calls: dict[str, _Call] = {}
        self._by_call_id: dict[str, _Call] = {}
        self._changed_by_people = set[str]()
        """The calls whose arguments a person has changed."""
        self._verdicts: dict[str, _JudgedCall] = {}
        """Verdicts on calls of the loop that have not begun, by place."""
        self._numbers: dict[int, int] = {}
        """The numbers of records, by the sequence of an entry."""
        self._questions: set[str] = set()
        self._current = 0
        self._is_turn_pending = False
        """True between the message of a turn and its first iteration. Entries in between belong to that iteration."""
        self._turn: int | None = None
        self._model: str | None = None

    @property
    def last(self) -> int:
        """The highest number of a record."""
        return max(self._iterations, default=self.base)

    def numbers(self) -> list[int]:
        return sorted(self._iterations)

    def record(self, number: int) -> IterationRecord | None:
        iteration = self._iterations.get(number)
        return iteration.as_record() if iteration else None

    def records(self) -> list[IterationRecord]:
        return [self._iterations[number].as_record() for number in self.numbers()]

    def number_of(self, entry: JournalEntry) -> int | None:
        """Return the number of the record that shows this entry, or None if another segment has it."""
        return self._numbers.get(entry.sequence)

    def feed(self, happening: Happening, entries: Iterable[JournalEntry], *, is_numbered: bool = True) -> None:
        """Take the next event, and its journal entries. Entries of delegated runs are ignored.

        `is_numbered` is True if the entries have their numbers in the whole journal.
        """
        if happening.kind == "started":
            self._on_started(happening)
        for entry in entries:
            if not entry.run and entry.event != on.PAST_MISSING:  # the first record's number shows what is missing
                self._take_entry(entry, happening, is_numbered)
        if happening.name in PROMPT_ACTIVITIES:
            self._on_prompt(happening)
        elif happening.name in OWN_ACTIVITIES:
            self._on_own_activity(happening)
        elif happening.kind.startswith("child_"):
            self._on_delegation(happening)
        elif happening.kind == "scheduled":
            self._on_call_scheduled(happening)
        elif happening.kind == "finished":
            self._end_call(happening, happening.key, "ok", self._texts(happening, event_texts(happening))["output"])
        elif happening.kind in {"failed", "cancelled"}:
            state: CallState = "failed" if happening.kind == "failed" else "cancelled"
            self._end_call(happening, happening.key, state)
        elif happening.kind == "continued_as_new" or happening.kind.startswith("workflow_"):
            self._close(happening.at)

    def _on_started(self, happening: Happening) -> None:
        carried = passed_on_state(happening.value)
        self.is_first = carried is None
        state = as_object(carried)
        self.base = self._current = as_count(state.get("iteration"))  # a fork reads its past later
        self._turn = as_count(as_object(state.get("session")).get("turn")) or None
        self._model = as_text(as_object(state.get("setup")).get("model")) or None
        self._take_reply(happening)

    def _on_own_activity(self, happening: Happening) -> None:
        if happening.kind != "finished":
            return
        value = as_object(happening.value)
        if happening.name == "prepare":
            self._model = as_text(value.get("model")) or self._model
        elif happening.name == READ_PAST:
            self._model = as_text(as_object(value.get("setup")).get("model")) or self._model
            self.base = self._current = as_count(value.get("iteration"))
            self._take_reply(happening)

    def _on_prompt(self, happening: Happening) -> None:
        if happening.kind != "scheduled":
            self._take_reply(happening)
            return
        request = ReasonRequest.model_validate(happening.value)
        if request.iteration != self._current and (before := self._iterations.get(self._current)):
            before.end(happening.at)
        self._current, self._is_turn_pending = request.iteration, False
        iteration = self._iteration(self._current)
        iteration.started = iteration.started or happening.at
        iteration.phase, iteration.fields["prompt"] = "reasoning", happening.name
        texts = self._texts(happening, _news_texts(request))
        for index, news in enumerate(request.context.news):
            call = self._by_call_id.get(news.message.call_id or "") if news.message else None
            if call is not None and call.result is None:
                call.result = texts.get(f"news-{index}")

    def _take_reply(self, happening: Happening) -> None:
        if (value := reply_in(happening)) is None:
            return
        reply, iteration = Reply.model_validate(value), self._iteration(self._current)
        texts = self._texts(happening, _reply_texts(reply))
        iteration.phase = "gating"
        iteration.fields |= {
            "model": reply.model or self._model,
            "usage": TimelineUsage.model_validate({**reply.usage.model_dump(), "cost_usd": reply.cost_usd}),
            "reply": texts["reply"] if reply.text else None,
            "thinking": texts["thinking"] if texts["thinking"].size else None,
        }
        calls = [
            _Call(
                id=f"{iteration.number}.{n}",
                call_id=call.call_id,
                tool=call.name,
                arguments=texts[f"arguments-{n}"],
            )
            for n, call in enumerate(reply.calls)
        ]
        self._calls |= {call.id: call for call in calls}
        self._by_call_id |= {call.call_id: call for call in calls}
        # a call of the loop in this record is a lookup or was sent again: its id has the number of another iteration
        calls_of_loop = (call for call in iteration.calls if not call.id.startswith(f"{iteration.number}."))
        iteration.calls = [*calls_of_loop, *calls]

    def _on_call_scheduled(self, happening: Happening) -> None:
        call = self._called_at(happening.key)
        if call is None:
            call_id = as_text(as_object(happening.value).get("call_id"))
            texts = self._texts(happening, event_texts(happening))
            call = _Call(id=happening.key, call_id=call_id, tool=happening.name, arguments=texts["input"])
            if (judged := self._verdicts.pop(happening.key, None)) is not None:
                call.take_verdict(judged)
            self._calls[call.id] = call
            self._iteration(self._current).calls.append(call)
        elif happening.key in self._changed_by_people:
            call.arguments = self._texts(happening, event_texts(happening))["input"]
        call.begin(happening.at)

    def _on_delegation(self, happening: Happening) -> None:
        place = delegate_activity_id(happening.key)
        value = as_object(happening.value)
        if happening.kind == "child_failed":
            self._end_call(happening, place, "failed")
        elif happening.kind == "child_started":
            if call := self._called_at(place):
                call.begin(happening.at)
                call.delegate = TimelineDelegate(id=happening.key, agent=as_text(value.get("agent")))
        else:
            ending = as_object(value.get("termination"))
            output = self._texts(happening, event_texts(happening))["output"]
            if ending.get("reason") == "completed":
                self._end_call(happening, place, "ok", output)
            else:
                failure = as_text(ending.get("detail")) or as_text(ending.get("reason"))
                self._end_call(happening, place, "failed", output if output.size else None, failure=failure)

    def _end_call(
        self, happening: Happening, place: str, state: CallState, result: TimelineText | None = None, failure: str = ""
    ) -> None:
        place = activity_id_before_input(place)
        if place.endswith(START_SUFFIX):
            if state == "ok":  # the work is started, and the call goes on
                return
            place = place.removesuffix(START_SUFFIX)
        call = self._called_at(place)
        if call is None:
            return
        call.ended = happening.at
        if call.id == place:  # not if a part of it has ended, such as a fallback
            call.state, call.attempts = state, max(call.attempts, happening.attempts)
            call.result, call.failure = result, (happening.text or failure)[:HEAD_CHARS] or None

    def _called_at(self, place: str) -> _Call | None:
        """Return the call at this place, or the call with a part at this place."""
        if call := self._calls.get(place):
            return call
        parts = _PLACE.fullmatch(place)
        return self._calls.get(parts[1]) if parts else None

    def _take_entry(self, entry: JournalEntry, happening: Happening, is_numbered: bool) -> None:
        event = read_event(entry)
        if isinstance(event, on.TurnStarted):
            self._turn, self._current, self._is_turn_pending = event.turn, entry.iteration + 1, True
        has_fields = isinstance(event, _FIELD_EVENTS)
        number = entry.iteration
        if self._is_turn_pending and not has_fields:
            number = max(number, self._current)
        iteration = self._iteration(number)
        if is_numbered:
            self._numbers[entry.sequence] = iteration.number
        if isinstance(event, on.PolicyEvaluated):
            verdicts = _verdicts_by_place(event, iteration)
            self._take_verdicts(verdicts, happening)
            calls_show_it = bool(verdicts) and self._calls.keys() >= verdicts.keys()
        else:
            self._take_event(event, iteration, entry.timestamp)
            calls_show_it = False
        if not (has_fields or calls_show_it):
            sequence, data = entry.sequence if is_numbered else None, clipped_strings(entry.data)
            iteration.events.append(TimelineEvent(sequence=sequence, event=entry.event, at=entry.timestamp, data=data))

    def _take_verdicts(self, verdicts: Mapping[str, on.RecordedVerdict], happening: Happening) -> None:
        is_changed = any(verdict.arguments for verdict in verdicts.values())
        texts = self._texts(happening, event_texts(happening)) if is_changed else {}
        for place, verdict in verdicts.items():
            judged = _JudgedCall(verdict, texts.get(f"changed-{place}") if verdict.arguments else None)
            if call := self._calls.get(place):
                call.take_verdict(judged)
            else:
                self._verdicts[place] = judged

    def _take_event(self, event: JournalEvent, iteration: _Iteration, at: datetime) -> None:
        match event:
            case on.ApprovalRequested() | on.QuestionAsked():
                self._take_question(event, iteration)
            case on.ApprovalResolved() | on.QuestionAnswered():
                self._take_decision(event, iteration, at)
            case on.ToolsDispatched():
                iteration.phase = "acting"
                self._begin_calls(event, at)
            case on.ObservationsCollected():
                self._take_outcomes(event)
                iteration.end(at)
            case on.SagaEnded() | on.DecisionGrounded():
                if call := self._calls.get(event.place):
                    call.ended = at
            case on.StepEvaluated() if event.score is not None and not event.by:  # a critic's scores have another scale
                iteration.scores.append(float(event.score))
            case on.TurnStarted():
                iteration.fields["turn"] = event.turn
            case on.TurnEnded() | on.Terminated():
                iteration.end(at)
                if event.reason == "completed":
                    iteration.end_answers(at)
            case _:
                pass

    def _take_question(self, event: on.ApprovalRequested | on.QuestionAsked, iteration: _Iteration) -> None:
        self._questions.add(event.id)
        iteration.phase = "waiting"
        call = self._calls.get(event.place)
        if call and isinstance(event, on.ApprovalRequested) and event.kind == "call":
            call.state = "held"

    def _take_decision(
        self, event: on.ApprovalResolved | on.QuestionAnswered, iteration: _Iteration, at: datetime
    ) -> None:
        self._questions.discard(event.id)
        if not self._questions and iteration.ended is None:
            iteration.phase = "acting" if iteration.calls else "gating"
        call = self._calls.get(event.place)
        if call and isinstance(event, on.QuestionAnswered):
            call.ended = at
        elif call and isinstance(event, on.ApprovalResolved) and call.state == "held":
            call.approver = event.approver or event.by or None
            call.state = "proposed" if event.approved else "denied"
            call.reason = event.reason or call.reason
            if event.arguments:
                size = event.arguments_bytes or len(event.arguments.encode())
                call.arguments = TimelineText(head=event.arguments[:HEAD_CHARS], size=size)
                self._changed_by_people.add(call.id)

    def _begin_calls(self, event: on.ToolsDispatched, at: datetime) -> None:
        for dispatched in event.tools:
            if (call := self._by_call_id.get(dispatched.call_id)) and call.state == "proposed":
                call.begin(at)

    def _take_outcomes(self, event: on.ObservationsCollected) -> None:
        for ended in event.outcomes:
            if call := self._by_call_id.get(ended.call_id):
                call.state = _OUTCOMES.get(ended.outcome, call.state)
                call.failure = ended.error[:HEAD_CHARS] or call.failure

    def _close(self, at: datetime) -> None:
        self.is_closed = True
        for iteration in self._iterations.values():
            iteration.end(at)
            for call in iteration.calls:
                if call.state == "running":
                    call.state = "cancelled"
                elif call.state in {"proposed", "held"}:
                    call.state = "not_run"

    def _iteration(self, number: int) -> _Iteration:
        return self._iterations.setdefault(number, _Iteration(number, {"turn": self._turn}))

    def _texts(self, happening: Happening, texts: Mapping[str, str]) -> dict[str, TimelineText]:
        """Return the texts of an event as records show them."""
        limit = None if self._is_whole else HEAD_CHARS
        return {
            part: TimelineText(
                head=text[:limit],
                size=len(text.encode("utf-8", "replace")),
                reference=None if limit is None or len(text) <= limit else f"{self.run_id}.{happening.event_id}.{part}",
            )
            for part, text in texts.items()
        }
