"""What must hold in every journal, as far as the journal itself can show it."""

from collections.abc import Sequence

from orga.client.journal.effects import effect_faults
from orga.workflows.types.sessions.result import TURN_ENDED, TURN_STARTED
from orga.workflows.types.status import JournalEntry

PAST_MISSING = "PastMissing"
BEGINNINGS = ("Started", PAST_MISSING)
MAX_FAULTS = 5


def law_faults(entries: Sequence[JournalEntry]) -> list[str]:
    """Return what cannot be so, one line each: nothing follows an end, nothing is decided that was not asked,
    and nothing is carried out before the stages have let it through.
    """
    own = [entry for entry in entries if "run" not in entry.data]
    faults = [*_of_beginning(own), *_of_end(entries)]
    if not any(entry.event == PAST_MISSING for entry in entries):  # what was asked then is not here
        faults += [*_of_approvals(entries), *_of_delegates(entries), *_of_turns(own), *effect_faults(entries)]
    return faults[:MAX_FAULTS]


def has_ended(entries: Sequence[JournalEntry]) -> bool:
    """Return whether the journal's own run has; an earlier export of it can stand for no later one."""
    return any(entry.event == "Terminated" and "run" not in entry.data for entry in entries)


def _of_beginning(own: Sequence[JournalEntry]) -> list[str]:
    if not own or own[0].event in BEGINNINGS:
        return []
    return [f"entry {own[0].sequence} is {own[0].event}: a journal begins with {' or '.join(BEGINNINGS)}"]


def _of_end(entries: Sequence[JournalEntry]) -> list[str]:
    """What a delegated run did may be told behind the end of its parent's part, but nothing of a run behind its own."""
    ended: dict[str, int] = {}
    faults: list[str] = []
    for entry in entries:
        run = str(entry.data.get("run", ""))
        if run in ended:
            faults.append(f"entry {entry.sequence} stands behind the end of its run, which is entry {ended[run]}")
        elif entry.event == "Terminated":
            ended[run] = entry.sequence
    return faults


def _of_approvals(entries: Sequence[JournalEntry]) -> list[str]:
    asked: set[tuple[str, str]] = set()
    faults: list[str] = []
    for entry in entries:
        question = str(entry.data.get("run", "")), str(entry.data.get("id"))
        if entry.event == "ApprovalRequested":
            asked.add(question)
        elif entry.event == "ApprovalResolved" and question not in asked:
            faults.append(f"entry {entry.sequence} decides {question[1]}, which nobody was asked about")
    return faults


def _of_turns(own: Sequence[JournalEntry]) -> list[str]:
    """One turn of a session at a time, each begun once, and ended at most once."""
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


def _of_delegates(entries: Sequence[JournalEntry]) -> list[str]:
    started = {entry.data.get("workflow_id") for entry in entries if entry.event == "DelegationStarted"}
    ended = [entry for entry in entries if entry.event == "DelegationEnded"]
    return [
        f"entry {entry.sequence} ends the delegated run {entry.data.get('workflow_id')}, which was not started"
        for entry in ended
        if entry.data.get("workflow_id") not in started
    ]
