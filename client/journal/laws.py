"""The laws that every journal must satisfy, as far as the journal itself can show it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from orga.workflows.decisions.review_stages import (
    ANSWER_STAGES,
    CALL_STAGES,
    VERDICTS_AFTER_GATE,
    ProposalStatuses,
    is_reported_by_stage,
    recorded_verdict,
)
from orga.workflows.types.sessions.result import TURN_ENDED, TURN_STARTED
from orga.workflows.types.status import JournalEntry
from orga.workflows.types.tool_calls.delegation import delegate_activity_id
from orga.workflows.types.tool_calls.gate import SEPARATE_PROPOSALS, call_activity_id
from orga.workflows.types.tool_calls.loop_tools import CALL_ENDS

NOT_RUN = "not_run"
DONE = frozenset({"ok", "failed"})
"""Outcomes of a call that recovery tried instead of another. They show that the call was really started."""

_JUDGED_AGAIN = frozenset({"held", "denied"})


def effect_faults(entries: Sequence[JournalEntry]) -> list[str]:
    """Return the effects that lack what must precede them, and the verdicts that cannot follow the earlier ones."""
    runs: dict[str, _ReplyState] = {}
    faults: list[str] = []
    for entry in entries:
        run = entry.run
        if entry.event == "ReasoningComplete":
            runs[run] = _ReplyState(entry)
        elif run in runs:
            faults += [f"entry {entry.sequence} {fault}" for fault in runs[run].entry_faults(entry)]
    return faults


class _ReplyState:
    """The latest reply of a run, and the status of everything judged since."""

    def __init__(self, entry: JournalEntry) -> None:
        ids = [str(each["call_id"]) for each in _objects(entry.data.get("actions")) if "call_id" in each]
        self._places = {call_id: f"{entry.iteration}.{index}" for index, call_id in enumerate(ids)}
        self._answer = "" if ids else str(entry.iteration)
        self._calls = ProposalStatuses[str](CALL_STAGES, self._places.values())
        self._answers = ProposalStatuses[str](ANSWER_STAGES)
        self._begun: set[str] = set()
        self._reported_by_askers: set[str] = set()

    def entry_faults(self, entry: JournalEntry) -> Iterable[str]:
        """Check an entry after the reply, and yield its faults."""
        data = entry.data
        match entry.event:
            case "PolicyEvaluated":
                self._record_verdicts(data)
            case "ApprovalRequested":
                self._record_question(data)
            case "ApprovalResolved" if str(data.get("id")) in self._reported_by_askers:
                pass
            case event if (verdict := recorded_verdict(event, data)) is not None:
                yield from self._stage_faults(data, verdict)
            case "Terminated" if data.get("reason") == "completed" and self._answer:
                if lacks := self._answers.missing_verdict_text(self._answer):
                    yield f"ends with the answer of iteration {self._answer}, which lacks {lacks}"
            case _:
                for place in _executed_places(entry, self._places):
                    yield from self._execution_faults(place)

    def _record_verdicts(self, data: dict[str, Any]) -> None:
        places = [str(place) for place in data.get("places", ())]
        verdicts: list[Any] = ["deny"] * len(places) if "error" in data else _decisions(data)
        for place, decision in zip(places, verdicts, strict=False):
            if place in SEPARATE_PROPOSALS:
                continue
            standings = self._standings_for(place)
            if "calls" not in data or (self._is_part(place) and standings.status_of(place) in _JUDGED_AGAIN):
                standings.begin_judging(place)
            standings.apply_verdict(place, decision)

    def _record_question(self, data: dict[str, Any]) -> None:
        """Note that people delay the calls. A journal does not show whether a pause took any time."""
        if is_reported_by_stage(data):
            self._reported_by_askers.add(str(data.get("id")))
        if data.get("kind") == "budget" or data.get("place") in self._places.values():
            self._calls.record_pause()

    def _stage_faults(self, data: dict[str, Any], verdict: Any) -> Iterable[str]:
        place = str(data.get("place", ""))
        if verdict not in VERDICTS_AFTER_GATE or not self._standings_for(place).apply_verdict(place, verdict):
            yield f"records {verdict!r} for {place or 'nothing'}, which cannot follow what was recorded for it before"

    def _execution_faults(self, place: str) -> Iterable[str]:
        if place in self._begun:
            return
        self._begun.add(place)
        if lacks := self._calls.missing_verdict_text(place):
            yield f"shows {place} carried out, which lacks {lacks}"

    def _standings_for(self, place: str) -> ProposalStatuses[str]:
        return self._answers if place.isdecimal() else self._calls

    def _is_part(self, place: str) -> bool:
        return not place.isdecimal() and place not in self._places.values()


def _executed_places(entry: JournalEntry, places: dict[str, str]) -> Iterator[str]:
    """Yield the places of the calls, or parts of calls, that an entry shows as executed."""
    data = entry.data
    match entry.event:
        case "ToolsDispatched":
            yield from (_call_place(each, places) for each in _objects(data.get("tools")))
        case "ObservationsCollected":
            yield from (
                _call_place(each, places) for each in _objects(data.get("outcomes")) if each.get("outcome") != NOT_RUN
            )
        case "DelegationStarted":
            yield call_activity_id(delegate_activity_id(str(data.get("workflow_id"))))
        case "RecoveryTriggered":
            yield from (str(each.get("place")) for each in _finished_calls(data))
        case event if event in CALL_ENDS and "calls" in data:
            yield from (
                f"{data.get('place')}.{str(each.get('call_id')).rpartition('.')[2]}" for each in _finished_calls(data)
            )
        case event if event in CALL_ENDS and "place" in data:
            yield str(data.get("place"))
        case _:
            pass


def _finished_calls(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in _objects(data.get("calls")) if each.get("outcome") in DONE]


def _call_place(call: dict[str, Any], places: dict[str, str]) -> str:
    call_id = str(call.get("call_id"))
    return places.get(call_id, f"{call_id!r}, a call of no reply")


def _decisions(data: dict[str, Any]) -> list[Any]:
    return [each.get("decision") for each in _objects(data.get("verdicts"))]


def _objects(value: Any) -> list[dict[str, Any]]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [each for each in items if isinstance(each, dict)]


PAST_MISSING = "PastMissing"
BEGINNINGS = ("Started", PAST_MISSING)
MAX_FAULTS = 5


def law_faults(entries: Sequence[JournalEntry]) -> list[str]:
    """Return the violations of the laws, one line each, at most `MAX_FAULTS`.

    Nothing follows an end, no question is decided that was not asked, and nothing is executed before it passed all
    stages.
    """
    own = [entry for entry in entries if not entry.run]
    faults = [*_beginning_faults(own), *_end_faults(entries)]
    if not any(entry.event == PAST_MISSING for entry in entries):  # earlier questions are missing here
        faults += [*_approval_faults(entries), *_delegate_faults(entries), *_turn_faults(own), *effect_faults(entries)]
    return faults[:MAX_FAULTS]


def has_ended(entries: Sequence[JournalEntry]) -> bool:
    """Return whether the journal's own run has ended. Then an earlier export of it is incomplete."""
    return any(entry.event == "Terminated" and not entry.run for entry in entries)


def _beginning_faults(own: Sequence[JournalEntry]) -> list[str]:
    if not own or own[0].event in BEGINNINGS:
        return []
    return [f"entry {own[0].sequence} is {own[0].event}: a journal begins with {' or '.join(BEGINNINGS)}"]


def _end_faults(entries: Sequence[JournalEntry]) -> list[str]:
    """Return entries after the end of their run. Entries of a delegate may follow the end of its parent's part."""
    ended: dict[str, int] = {}
    faults: list[str] = []
    for entry in entries:
        run = entry.run
        if run in ended:
            faults.append(f"entry {entry.sequence} comes after the end of its run, which is entry {ended[run]}")
        elif entry.event == "Terminated":
            ended[run] = entry.sequence
    return faults


def _approval_faults(entries: Sequence[JournalEntry]) -> list[str]:
    asked: set[tuple[str, str]] = set()
    faults: list[str] = []
    for entry in entries:
        question = entry.run, str(entry.data.get("id"))
        if entry.event == "ApprovalRequested":
            asked.add(question)
        elif entry.event == "ApprovalResolved" and question not in asked:
            faults.append(f"entry {entry.sequence} decides {question[1]}, which was never asked")
    return faults


def _turn_faults(own: Sequence[JournalEntry]) -> list[str]:
    """Check that a session has one turn at a time, and that each begins once and ends at most once."""
    faults, begun, under_way = list[str](), set[object](), None
    for entry in own:
        turn = entry.data.get("turn")
        if entry.event == TURN_STARTED:
            if under_way is not None or turn in begun:
                faults.append(f"entry {entry.sequence} begins turn {turn} a second time, or within another")
            begun.add(turn)
            under_way = turn
        elif entry.event == TURN_ENDED:
            if turn != under_way:
                faults.append(f"entry {entry.sequence} ends turn {turn}, which was not under way")
            under_way = None
    return faults


def _delegate_faults(entries: Sequence[JournalEntry]) -> list[str]:
    started = {entry.data.get("workflow_id") for entry in entries if entry.event == "DelegationStarted"}
    ended = [entry for entry in entries if entry.event == "DelegationEnded"]
    return [
        f"entry {entry.sequence} ends the delegated run {entry.data.get('workflow_id')}, which was not started"
        for entry in ended
        if entry.data.get("workflow_id") not in started
    ]


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    """`replay`, `gate`, `permits`, `decisions`, `ending`, `contexts`, `journal`, `counters`, `export`, `head`,
    `delegate`."""
    workflow_id: str
    ok: bool
    detail: str
    run_id: str = ""
    """Empty if the check is about the whole chain."""


@dataclass(frozen=True)
class Verification:
    """All checks of a run and of its delegates."""

    workflow_id: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """True if all checks have passed."""
        return all(check.ok for check in self.checks)
