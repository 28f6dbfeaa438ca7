"""Checks the laws that every journal must satisfy, from its entries alone. Also the types for results of checks.

The laws read every entry and not a view of the run, because a journal that somebody has changed may hold anything.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from orga.client.journal import event_types as on
from orga.client.journal.event_types import EVENTS, PAST_MISSING, JournalEvent, read_event
from orga.workflows.decisions.journal.verdicts import (
    VERDICTS_AFTER_GATE,
    ProposalStatuses,
    is_reported_by_stage,
    recorded_verdict,
)
from orga.workflows.decisions.review_stages import ANSWER_STAGES, CALL_STAGES
from orga.workflows.types.status import JournalEntry
from orga.workflows.types.tool_calls.delegation import delegate_activity_id
from orga.workflows.types.tool_calls.gate import SEPARATE_PROPOSALS, call_activity_id

NOT_RUN = "not_run"
DONE = frozenset({"ok", "failed"})
"""Outcomes that show that a call of a recovery or saga was really started."""

_JUDGED_AGAIN = frozenset({"held", "denied"})
"""Statuses of a part of a call after which the gate may judge it again."""


def effect_faults(entries: Sequence[JournalEntry]) -> list[str]:
    """Return the effects without the verdicts that must precede them, and verdicts that cannot follow earlier ones."""
    runs: dict[str, _ReplyState] = {}
    faults: list[str] = []
    for entry in entries:
        event = read_event(entry)
        if isinstance(event, on.ReasoningComplete):
            runs[entry.run] = _ReplyState(entry.iteration, event)
        elif entry.run in runs:
            faults += [f"entry {entry.sequence} {fault}" for fault in runs[entry.run].entry_faults(entry, event)]
    return faults


class _ReplyState:
    """The latest reply of a run, and the status of everything judged since."""

    def __init__(self, iteration: int, reply: on.ReasoningComplete) -> None:
        ids = [action.call_id for action in reply.actions if "call_id" in action.model_fields_set]
        self._places = {call_id: f"{iteration}.{index}" for index, call_id in enumerate(ids)}
        self._answer_place = "" if ids else str(iteration)
        self._calls = ProposalStatuses[str](CALL_STAGES, self._places.values())
        self._answers = ProposalStatuses[str](ANSWER_STAGES)
        self._begun: set[str] = set()
        self._asked_by_critics: set[str] = set()
        """Questions whose answer is not a verdict, because the critic that asked reports the verdict itself."""

    def entry_faults(self, entry: JournalEntry, event: JournalEvent) -> Iterable[str]:
        """Yield the faults of an entry after the reply."""
        match event:
            case on.PolicyEvaluated():
                self._record_verdicts(event)
            case on.ApprovalRequested():
                if is_reported_by_stage(entry.data):
                    self._asked_by_critics.add(event.id)
                # The calls wait for people. A pause is not recorded: a journal does not show if it took any time.
                if event.kind == "budget" or event.place in self._places.values():
                    self._calls.record_pause()
            case on.ApprovalResolved():
                if event.id not in self._asked_by_critics:
                    yield from self._verdict_faults(entry, event.place)
            case on.CritiqueEvaluated():
                yield from self._verdict_faults(entry, event.place)
            case on.Terminated(reason="completed") if self._answer_place:
                if lacks := self._answers.missing_verdict_text(self._answer_place):
                    yield f"ends with the answer of iteration {self._answer_place}, which lacks {lacks}"
            case _:
                for place in _executed_places(event, self._places):
                    yield from self._execution_faults(place)

    def _verdict_faults(self, entry: JournalEntry, place: str) -> Iterable[str]:
        verdict = recorded_verdict(entry.event, entry.data)
        if verdict is None:
            return
        if verdict not in VERDICTS_AFTER_GATE or not self._statuses_for(place).apply_verdict(place, verdict):
            recorded = f"records {verdict!r} for {place or 'nothing'}"
            yield f"{recorded}, which cannot follow what was recorded for it before"

    def _record_verdicts(self, event: on.PolicyEvaluated) -> None:
        has_gate_failed = "error" in event.model_fields_set
        decisions: list[Any] = [verdict.decision for verdict in event.verdicts]
        if has_gate_failed:
            decisions = ["deny"] * len(event.places)
        is_first_judgement = "calls" not in event.model_fields_set  # also if the gate failed
        for place, decision in zip(event.places, decisions, strict=False):
            if place in SEPARATE_PROPOSALS:
                continue
            statuses = self._statuses_for(place)
            is_part = not place.isdecimal() and place not in self._places.values()
            is_judged_again = is_part and statuses.status_of(place) in _JUDGED_AGAIN
            if is_first_judgement or is_judged_again:
                statuses.begin_judging(place)
            statuses.apply_verdict(place, decision)

    def _execution_faults(self, place: str) -> Iterable[str]:
        if place in self._begun:
            return
        self._begun.add(place)
        if lacks := self._calls.missing_verdict_text(place):
            yield f"shows {place} carried out, which lacks {lacks}"

    def _statuses_for(self, place: str) -> ProposalStatuses[str]:
        return self._answers if place.isdecimal() else self._calls


def _executed_places(event: JournalEvent, places: dict[str, str]) -> Iterator[str]:
    match event:
        case on.ToolsDispatched():
            yield from (_call_place(each, places) for each in event.tools)
        case on.ObservationsCollected():
            yield from (_call_place(each, places) for each in event.outcomes if each.outcome != NOT_RUN)
        case on.DelegationStarted():
            yield call_activity_id(delegate_activity_id(event.workflow_id))
        case on.RecoveryTriggered():
            yield from (each.place for each in event.calls if each.outcome in DONE)
        case on.SagaEnded() if "calls" in event.model_fields_set:
            parts = (each.call_id.rpartition(".")[2] for each in event.calls if each.outcome in DONE)
            yield from (f"{event.place}.{part}" for part in parts)
        case on.SagaEnded() | on.DecisionGrounded() | on.QuestionAnswered() if "place" in event.model_fields_set:
            yield event.place
        case _:
            pass


def _call_place(call: on.RecordedCall, places: dict[str, str]) -> str:
    return places.get(call.call_id, f"{call.call_id!r}, a call of no reply")


BEGINNINGS = ("Started", PAST_MISSING)
"""Events with which a journal may begin."""

MAX_FAULTS = 5
"""The most faults in one report."""


def law_faults(entries: Sequence[JournalEntry]) -> list[str]:
    """Return the violations of the laws, one line each, at most `MAX_FAULTS`.

    Nothing follows an end, no question is decided that was not asked, and nothing is executed before it passed all
    stages.
    """
    own = [entry for entry in entries if not entry.run]
    faults: list[str] = []
    if own and own[0].event not in BEGINNINGS:
        first = f"entry {own[0].sequence} is {own[0].event}"
        faults.append(f"{first}: a journal begins with {' or '.join(BEGINNINGS)}")
    faults += _end_faults(entries)
    if not any(entry.event == PAST_MISSING for entry in entries):  # in a cut journal, required entries may be missing
        faults += [*_approval_faults(entries), *_delegate_faults(entries), *_turn_faults(own), *effect_faults(entries)]
    return faults[:MAX_FAULTS]


def has_ended(entries: Sequence[JournalEntry]) -> bool:
    """Return whether the journal's own run has ended. Ends of delegated runs do not count."""
    return any(entry.event == "Terminated" and not entry.run for entry in entries)


def _end_faults(entries: Sequence[JournalEntry]) -> list[str]:
    """Return the entries that follow the end of their own run. Each delegated run has its own end."""
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
    for entry, event in _events(entries, on.ApprovalRequested, on.ApprovalResolved):
        if isinstance(event, on.ApprovalRequested):
            asked.add((entry.run, event.id))
        elif (entry.run, event.id) not in asked:
            faults.append(f"entry {entry.sequence} decides {event.id or 'nothing'}, which was never asked")
    return faults


def _turn_faults(own: Sequence[JournalEntry]) -> list[str]:
    """Check that a session has one turn at a time, and that each begins once and ends at most once."""
    faults: list[str] = []
    begun: set[int] = set()
    under_way: int | None = None
    for entry, event in _events(own, on.TurnStarted, on.TurnEnded):
        if isinstance(event, on.TurnStarted):
            if under_way is not None or event.turn in begun:
                faults.append(f"entry {entry.sequence} begins turn {event.turn} a second time, or within another")
            begun.add(event.turn)
            under_way = event.turn
        else:
            if event.turn != under_way:
                faults.append(f"entry {entry.sequence} ends turn {event.turn}, which was not under way")
            under_way = None
    return faults


def _delegate_faults(entries: Sequence[JournalEntry]) -> list[str]:
    started = {event.workflow_id for _, event in _events(entries, on.DelegationStarted)}
    return [
        f"entry {entry.sequence} ends the delegated run {event.workflow_id or 'without an id'}, which was not started"
        for entry, event in _events(entries, on.DelegationEnded)
        if event.workflow_id not in started
    ]


E = TypeVar("E", bound=JournalEvent)


def _events(entries: Iterable[JournalEntry], *kinds: type[E]) -> Iterator[tuple[JournalEntry, E]]:
    for entry in entries:
        if EVENTS.get(entry.event) in kinds and isinstance(event := read_event(entry), kinds):
            yield entry, event


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    """`replay`, `plan`, `gate`, `permits`, `decisions`, `ending`, `contexts`, `journal`, `counters`, `export`, `head`
    or `delegate`. If only a file is checked: `chain`, `laws` or `head`."""
    workflow_id: str
    ok: bool
    detail: str
    run_id: str = ""
    """The segment. Empty if the check is about the whole chain."""


@dataclass(frozen=True)
class Verification:
    """All checks of a run and of its delegates."""

    workflow_id: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """True if all checks have passed."""
        return all(check.ok for check in self.checks)
