"""The journal's knowledge of the current iteration: its reply, the outcome and the duration of each call."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from orga.workflows.decisions.journal.verdicts import JournalVerdicts, recorded_verdict
from orga.workflows.decisions.review_stages import is_call_in_question
from orga.workflows.types.control import Note
from orga.workflows.types.messages import Reply
from orga.workflows.types.names import OWN_ACTIVITIES
from orga.workflows.types.setup import Setup
from orga.workflows.types.status import Happening
from orga.workflows.types.tool_calls.delegation import delegate_activity_id
from orga.workflows.types.tool_calls.gate import (
    START_SUFFIX,
    Verdict,
    activity_id_before_input,
    is_one_place,
    several_calls_of,
)

_ACTIVITY_ID = re.compile(r"(?P<iteration>\d{1,9})\.(?P<index>\d{1,9})(?:\.[a-pr-z]\d+)*")
"""The place of a call or of a part of it. Places with a `q` do not match: they are those of requeued calls."""


class JournalIteration:
    """Collects outcomes until every allowed call has one."""

    def __init__(self, iteration: int = 0, setup: Setup | None = None, *, is_paused: bool = False) -> None:
        self.reply: Reply | None = None
        self._iteration = iteration
        self._setup = setup
        self._is_paused = is_paused
        self._verdicts: JournalVerdicts | None = None
        self._expected: set[int] | None = None
        self._is_collected = False
        self._scheduled: set[int] = set()
        self._outcomes: dict[int, dict[str, Any]] = {}
        self._effect_texts: dict[int, str] = {}

    @property
    def proposal_count(self) -> int:
        """The number of proposals: the calls of the reply, else its answer."""
        return len(self.reply.calls) if self.reply and self.reply.calls else 1

    @property
    def undispatched_verdicts(self) -> JournalVerdicts | None:
        """The verdicts, until an entry reports that calls are carried out. Then None."""
        return self._verdicts if self._expected is None else None

    def take_reply(self, reply: Reply) -> None:
        self.reply = reply

    def take_verdicts(self, verdicts: Mapping[str, Verdict]) -> list[str] | None:
        """Apply verdicts by place. Return the ids of the reply's calls among them, None if they are the first."""
        indexes = {place: self._index_of_whole_call(place) for place in verdicts}
        own = {index: verdicts[place] for place, index in indexes.items() if index is not None}
        is_about_answer = bool(self._answer_activity_id) and self._answer_activity_id in verdicts
        is_first = self._verdicts is None and (bool(own) or is_about_answer)
        if is_first:
            self._verdicts = self._new_verdicts()
        if undispatched := self.undispatched_verdicts:
            for index, verdict in own.items():
                undispatched.take_verdict(index, verdict.decision)
        return None if is_first else [str(self._call_data_at(index).get("call_id")) for index in own]

    def take_gate_failure(self, about: str) -> list[str]:
        """Record that the gate failed. Return the denied places that are known.

        If a reply has no verdicts yet, no entry will report on its calls.
        """
        index = self._index_of_whole_call(about)
        is_about_reply = index is not None or about in {self._answer_activity_id, several_calls_of(self._iteration)}
        if self._verdicts is None and is_about_reply:
            self._verdicts, self._expected, self._is_collected = self._new_verdicts(), set(), True
        if self._verdicts is not None and is_about_reply and about != self._answer_activity_id:
            return [f"{self._iteration}.{each}" for each in self._verdicts.take_gate_failure(index)]
        return [about] if is_one_place(about) else []

    def verdicts_in_call_order(self, verdicts: Mapping[str, Verdict]) -> dict[str, Verdict]:
        """Return the verdicts, those on the reply's calls in call order."""
        indexes = {place: self._index_of_whole_call(place) for place in verdicts}
        return dict(sorted(verdicts.items(), key=lambda pair: indexes[pair[0]] or 0))

    def take_note(self, note: Note) -> None:
        verdicts = self.undispatched_verdicts
        if verdicts is None:
            return
        data, index = note.data, self._index_of_whole_call(str(note.data.get("place", "")))
        if note.event == "ApprovalRequested" and (data.get("kind") == "budget" or index is not None):
            verdicts.record_wait()
        elif index is None:
            return
        elif (verdict := recorded_verdict(note.event, data)) is not None:
            verdicts.take_verdict(index, verdict)

    def note_with_arguments(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return a note's data. A recovery's call without arguments gets those of the reply's call."""
        calls = data.get("calls")
        if not isinstance(calls, list):
            return data
        return {**data, "calls": [self._with_known_arguments(each) for each in cast("list[dict[str, Any]]", calls)]}

    def record_pause(self, is_paused: bool) -> None:
        self._is_paused = is_paused
        if self._verdicts:
            self._verdicts.record_pause(is_paused)

    def record_activity(self, key: str) -> bool:
        """Record an activity. Return True if it is the first sign that the reply's calls are carried out.

        The place may be that of a part of a call, or of a fallback, which is another call. A requeued call does not
        belong to this reply.
        """
        index = self._call_index(key)
        if index is None:
            return False
        if ".f" not in key:
            self._scheduled.add(index)
        if self._expected is None:
            self._verdicts = self._verdicts or self._new_verdicts()
            self._verdicts.record_start(index)
            return True
        if index not in self._expected:  # no verdict allowed it, but it has an outcome
            self._expected.add(index)
            self._is_collected = False
        return False

    def record_dispatch(self, *, is_begun: bool) -> dict[str, Any]:
        """Record that calls are carried out, and return them. Return none if the history shows no start of a call."""
        verdicts = self._verdicts
        self._expected = set(verdicts.allowed_indexes if verdicts else ())
        tools = [self._call_data_at(index) for index in verdicts.passed_indexes] if verdicts and is_begun else []
        return {"tool_count": len(tools), "tools": tools}

    def record_end(self, key: str, outcome: str, error: str, value: Any = None, effect_text: str = "") -> None:
        """Record the outcome of a call. Calls that a recovery makes have other keys and are ignored.

        A deferred call goes on after its work has been started. If a call is repeated with input, the last time counts.
        """
        key = activity_id_before_input(key)
        if key.endswith(START_SUFFIX):
            if outcome == "ok":
                return
            key = key.removesuffix(START_SUFFIX)
        index = self._call_index(key)
        if index is not None and _is_whole_call(key):
            self._outcomes[index] = {
                **self._call_data_at(index),
                "outcome": outcome,
                **({"error": error} if error else {}),
                **({"value": value} if value is not None else {}),
            }
            self._effect_texts[index] = effect_text

    @property
    def effect_texts(self) -> dict[str, str]:
        """The effects of the calls that may have acted without success, by call id."""
        return {self._call_data_at(index)["call_id"]: text for index, text in self._effect_texts.items() if text}

    @property
    def is_complete(self) -> bool:
        """True if every call has succeeded. A failed one may still be recovered."""
        return self.is_open and all(self._outcomes.get(i, {}).get("outcome") == "ok" for i in self._expected or ())

    @property
    def is_open(self) -> bool:
        """True after the entry that calls are carried out, and before the entry with their outcomes."""
        return self._expected is not None and not self._is_collected

    def collect_outcomes(self) -> dict[str, Any]:
        self._is_collected = True
        outcomes = [
            self._outcomes.get(index) or {**self._call_data_at(index), "outcome": self._missing_outcome_text(index)}
            for index in sorted(self._expected or ())
        ]
        return {"observation_count": len(self.reply.calls) if self.reply else 0, "outcomes": outcomes}

    def call_data(self, key: str) -> dict[str, Any]:
        index = self._call_index(key)
        return self._call_data_at(index) if index is not None and _is_whole_call(key) else {"call_id": key}

    @property
    def _answer_activity_id(self) -> str:
        return str(self._iteration) if self.reply is not None and not self.reply.calls else ""

    def _new_verdicts(self) -> JournalVerdicts:
        size = len(self.reply.calls) if self.reply else 0
        return JournalVerdicts(size, in_question=self._indexes_in_question(), is_paused=self._is_paused)

    def _indexes_in_question(self) -> list[int]:
        calls = self.reply.calls if self.reply else ()
        return [index for index, call in enumerate(calls) if is_call_in_question(self._setup, call)]

    def _with_known_arguments(self, data: dict[str, Any]) -> dict[str, Any]:
        index = self._call_index(str(data.get("place", "")))
        known = {} if index is None or self.reply is None else {"arguments": self.reply.calls[index].arguments}
        return {**known, **data}

    def _index_of_whole_call(self, place: str) -> int | None:
        """Return the index of the reply's call at this place, or None if it is a part of a call."""
        return self._call_index(place) if _is_whole_call(place) else None

    def _call_data_at(self, index: int) -> dict[str, Any]:
        call = self.reply.calls[index] if self.reply else None
        return {"tool": call.name, "call_id": call.call_id} if call else {}

    def _missing_outcome_text(self, index: int) -> str:
        return "unfinished" if index in self._scheduled else "not_run"

    def _call_index(self, key: str) -> int | None:
        """Return the index of the reply's call at this place, even for a part of it."""
        found = _ACTIVITY_ID.fullmatch(key)
        if found is None or int(found["iteration"]) != self._iteration:
            return None
        index, calls = int(found["index"]), self.reply.calls if self.reply else ()
        return index if index < len(calls) else None


def _is_whole_call(key: str) -> bool:
    return key.count(".") == 1


_END_KINDS = {"finished", "failed", "cancelled", "child_finished", "child_failed"}


class CallTimes:
    """Measures each call, including its recovery, from events in order.

    A call inside a workflow task has no duration, because the history does not show when it began.
    """

    def __init__(self) -> None:
        self._begun: dict[str, datetime] = {}
        self._ended: dict[str, datetime] = {}

    def take_event(self, happening: Happening) -> None:
        key = delegate_activity_id(happening.key) if happening.kind.startswith("child_") else happening.key
        found = None if happening.name in OWN_ACTIVITIES else _ACTIVITY_ID.fullmatch(key)
        if found is None:
            return
        place = f"{found['iteration']}.{found['index']}"
        if happening.kind in {"scheduled", "child_started"}:
            self._begun.setdefault(place, happening.at)
        elif happening.kind in _END_KINDS:
            self._ended[place] = happening.at

    def call_seconds(self, iteration: int, reply: Reply | None) -> dict[str, float]:
        """Return the seconds of a reply's calls by their ids, if beginning and end are known."""
        places = {call.call_id: f"{iteration}.{index}" for index, call in enumerate(reply.calls if reply else ())}
        return {
            call_id: (self._ended[place] - self._begun[place]).total_seconds()
            for call_id, place in places.items()
            if place in self._ended and place in self._begun
        }
