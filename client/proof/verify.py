"""Verifies a run or the file of an exported journal, for `orga verify` and `orga.runs`.

A run is checked with its histories: today's code must decide the same, and each call must have the gate's permit. A
file alone shows less, so its result lists the checks that need the history.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.client import Client

from orga.activities.gate.permits import ActivityIdentity, PermitKeys, SignedCall
from orga.client.errors import HISTORY_GONE, NotAnAgent, RunNotFound
from orga.client.history.chain import RunHistory, histories, run_chain
from orga.client.history.events import read_events
from orga.client.history.values import converters_of
from orga.client.journal.event_types import DelegationStarted, read_event
from orga.client.journal.file import JournalFile, SealedHead, export_check, head_check
from orga.client.journal.laws import Check, Verification, has_ended, law_faults
from orga.client.journal.reading import past_missing, read_journal
from orga.client.proof.gate_record import AnsweredRequest, GateFact, GateRecord, StartedCall, breaches, started_calls
from orga.client.proof.replay import (
    DecisionRecord,
    PlanRecord,
    computed_ending,
    decision_fault,
    first_difference,
    progress_observer,
    recorded_decisions,
    recorded_ending,
    replay_history,
)
from orga.client.runners.workflows import Observer
from orga.client.server.endpoint import Report
from orga.workflows.decisions.journal.entries import first_break
from orga.workflows.decisions.journal.fold import JournalFold
from orga.workflows.decisions.recount import ContextFold, ResultRecount
from orga.workflows.types.names import PROMPT_ACTIVITIES
from orga.workflows.types.status import Happening, JournalEntry
from orga.workflows.types.text import one_line
from orga.workflows.types.tool_calls.gate import call_activity_id

DETAIL_CHARS = 300

T = TypeVar("T")


class GuardedFold(Generic[T]):
    """Feeds events to a fold until it fails at one of them.

    A history may hold anything, so an error of the fold is a finding, not a defect.
    """

    def __init__(self, feed: Callable[[Happening], Iterable[T] | None]) -> None:
        self.found: list[T] = []
        self.fault = ""
        """The event at which the fold failed, and the error, or ""."""
        self._feed = feed

    def feed(self, happening: Happening, event: str) -> None:
        """Add the next event. A fault begins with the text `event`."""
        if self.fault:
            return
        try:
            self.found += self._feed(happening) or ()
        except Exception as error:  # see the class
            self.fault = fault_at(event, error)


class ChainFolds:
    """Folds the histories of a chain, oldest first. No event is kept."""

    def __init__(self, *, is_cut: bool) -> None:
        """Begin a chain. If `is_cut` is True, the server no longer has its oldest segments."""
        self.journal = GuardedFold[JournalEntry](JournalFold().feed)
        self.miscounts = GuardedFold[str](ResultRecount().feed)
        self.is_completed = False
        """True if the run has a result whose counts can be checked."""
        self._lacks_note = is_cut
        """True until the note about the deleted segments is fed."""

    async def feed(self, client: Client, run: RunHistory) -> "_CheckedCalls":
        """Add the next segment, and check the contexts of its model calls."""
        fold = ContextFold()
        contexts = GuardedFold[None](fold.feed)
        calls, last = 0, 0
        try:
            async for happening in read_events(converters_of(client, run.history), run.events):
                last = happening.event_id
                if happening.kind == "scheduled" and happening.name in PROMPT_ACTIVITIES:
                    calls += 1
                contexts.feed(happening, f"iteration {fold.iteration + 1}, event {last}")
                self._feed(happening)
                if self._lacks_note:  # the note follows the start of the run, as in `read_journal`
                    self._lacks_note = False
                    self._feed(past_missing(happening))
        except Exception as error:  # the events cannot be decoded, which is a finding, too
            return _CheckedCalls(calls, fault_at(f"event {last + 1} and later", error))
        return _CheckedCalls(calls, contexts.fault)

    def _feed(self, happening: Happening) -> None:
        self.journal.feed(happening, f"event {happening.event_id}")
        self.miscounts.feed(happening, "the events")
        self.is_completed = self.is_completed or happening.kind == "workflow_completed"


class _CheckedCalls(NamedTuple):
    checked: int
    fault: str
    """The calls that did not pass the check, on one line, or ""."""


def fault_at(event: str, error: Exception) -> str:
    return one_line(f"{event}: {type(error).__name__}: {error}", DETAIL_CHARS)


_RESET_CAUSE = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW


async def _check_permits(client: Client, run: RunHistory, facts: Sequence[GateFact], keys: PermitKeys) -> _CheckedCalls:
    started = await started_calls(run.history, converters_of(client, run.history))
    calls = [call for call in started if call.kind == "activity"]
    calls += [fact for fact in facts if isinstance(fact, StartedCall) and fact.kind == "local"]  # not in the history
    # After a reset, the history begins with calls of the run that was reset. Their permits name that run.
    failed_tasks = (event.workflow_task_failed_event_attributes for event in run.events)
    run_ids = [run.run_id]
    run_ids += [task.base_run_id for task in failed_tasks if task.cause == _RESET_CAUSE and task.base_run_id]

    def is_signed(call: StartedCall) -> bool:
        signed, activity_id = SignedCall(call.name, call.arguments, call.caller), call_activity_id(call.place)
        identity = partial(ActivityIdentity, client.namespace, run.history.workflow_id)
        return any(keys.is_valid(call.permit, identity(run_id, activity_id), signed) for run_id in run_ids)

    faults = [f"{call.place} {call.name}: no valid permit" for call in calls if not is_signed(call)]
    return _CheckedCalls(len(calls), "; ".join(faults))


MAX_SHOWN_FAULTS = 5


async def verify(
    client: Client,
    workflow_id: str,
    *,
    exported: Sequence[JournalEntry] | None = None,
    head: SealedHead | None = None,
    trusted: Sequence[Ed25519PublicKey] = (),
    permits: PermitKeys | None = None,
    report: Report = lambda _: None,
) -> Verification:
    """Check a run, live or ended, and its delegates. No worker is needed.

    Args:
        client: From `connect`.
        workflow_id: The id of the run. All its segments are checked.
        exported: An exported journal of the run.
        head: The head of that journal.
        trusted: Keys that may have signed the head. If there are any, the head must be signed.
        permits: The keys of the workers. If given, each call must have the gate's permit.
        report: Called often with the progress, also from other threads.

    Raises:
        RunNotFound: No run has this id.
    """
    chain = await run_chain(client, workflow_id)
    runs = await histories(client, chain)
    checks, entries = await check_histories(
        client, workflow_id, runs, is_cut=chain.is_cut, permits=permits, report=report
    )
    events = [event for event in map(read_event, entries) if isinstance(event, DelegationStarted)]
    delegates = [event.workflow_id for event in events if event.workflow_id]
    if exported is not None:
        # an exported journal includes the entries of delegated runs, which `entries` lacks
        recorded = [entry async for entry in read_journal(client, workflow_id)] if delegates else entries
        checks.append(export_check(workflow_id, exported, recorded))
        if head is not None or trusted:
            checks.append(head_check(workflow_id, exported, head, trusted))
    for delegated in delegates:
        try:
            checks += (await verify(client, delegated, permits=permits, report=report)).checks
        except RunNotFound:
            checks.append(Check("delegate", delegated, ok=False, detail=HISTORY_GONE))
        except NotAnAgent as error:
            checks.append(Check("delegate", delegated, ok=False, detail=str(error)))
    return Verification(workflow_id, tuple(checks))


async def check_histories(
    client: Client,
    workflow_id: str,
    runs: Sequence[RunHistory],
    *,
    is_cut: bool = False,
    permits: PermitKeys | None = None,
    report: Report = lambda _: None,
) -> tuple[list[Check], list[JournalEntry]]:
    """Check the histories of a chain. Return the checks and the journal, without entries of delegated runs."""
    checks: list[Check] = []
    folds = ChainFolds(is_cut=is_cut)
    for number, run in enumerate(runs, 1):
        observe = progress_observer(report, workflow_id, number, runs)
        checks += await _replay_checks(client, workflow_id, run, permits, observe)
        calls = await folds.feed(client, run)
        success = f"{calls.checked} model calls have their digests"
        checks.append(_check("contexts", workflow_id, calls.fault, success, run.run_id))
    entries = folds.journal.found
    faults = folds.journal.fault or "; ".join(law_faults(entries))
    last = f"last hash {entries[-1].hash}" if entries else "no hash"
    checks.append(_check("journal", workflow_id, faults, f"{len(entries)} entries, {last}"))
    if folds.is_completed:
        miscounts = folds.miscounts.fault or "; ".join(folds.miscounts.found)
        checks.append(_check("counters", workflow_id, miscounts, "the result counts what happened"))
    return checks, entries


async def _replay_checks(
    client: Client, workflow_id: str, run: RunHistory, permits: PermitKeys | None, observe: Observer
) -> list[Check]:
    converters = converters_of(client, run.history)
    record = GateRecord(converters.base.payload_converter)
    decisions = DecisionRecord(converters.base.payload_converter)
    plan = PlanRecord(converters.base.payload_converter)
    outcome = await replay_history(run.history, converters, record.observe, decisions.observe, plan.observe, observe)
    checks: list[Check] = []

    def add(name: str, fault: str, success: str) -> None:
        checks.append(_check(name, workflow_id, fault, success, run.run_id))

    add("replay", outcome.failure, f"{len(run.events)} events")
    if plan.rounds:
        add("plan", plan.fault, f"{plan.rounds} rounds of steps have the arguments of the plan")
    if outcome.failure:
        return checks
    faults = await breaches(run.history, record, converters)
    judged = sum(isinstance(fact, AnsweredRequest) for fact in record.facts)
    add("gate", "; ".join(faults[:MAX_SHOWN_FAULTS]), f"{judged} judgements; nothing was carried out without one")
    if permits:
        calls = await _check_permits(client, run, record.facts, permits)
        add("permits", calls.fault, f"{calls.checked} calls bear the gate's signature")
    if recorded := await recorded_decisions(run.history, converters):
        success = f"{len(recorded)} decisions follow from their fields, facts and rules"
        add("decisions", decision_fault(recorded, decisions.made), success)
    if (ending := await recorded_ending(run.history, converters)) is not None:
        path = first_difference(ending, computed_ending(outcome, run.run_id))
        add("ending", f"today's code ends it otherwise, first in {path}" if path else "", "as recorded")
    return checks


def _check(name: str, workflow_id: str, fault: str, success: str, run_id: str = "") -> Check:
    """Return the result of a check, which has failed if there is a fault."""
    return Check(name, workflow_id, not fault, fault or success, run_id)


HISTORY_HINT = "only the run's history on its server shows it: orga verify ID --journal FILE"
UNCHECKABLE = (
    ("replay", "whether the code, given this history, decides the same"),
    ("gate", "whether nothing was carried out without an earlier yes to exactly that call"),
    ("contexts", "whether the digests are those of the messages that the model was sent"),
    ("counters", "whether the result counts what happened"),
)
"""The checks of `verify` that need the history, and what each would show."""


@dataclass(frozen=True)
class Unchecked:
    """A check for which the file alone is not enough."""

    name: str
    why: str


@dataclass(frozen=True)
class FileVerification:
    """The result of all checks that need only the file."""

    found: Verification
    unchecked: tuple[Unchecked, ...]
    is_vouched_for: bool
    """True if all checks passed and a trusted key has signed the file. Otherwise anybody may have written it."""


def verify_file(file: JournalFile, trusted: Sequence[Ed25519PublicKey]) -> FileVerification:
    """Check the chain of hashes, the numbers, the laws of every journal, the head, and its signature.

    If there are trusted keys, one of them must have signed the head.
    """
    run = file.head.head.run if file.head else ""
    broken = first_break(file.entries)
    chain_fault = f"it breaks at entry {broken}: it or one before it was changed" if broken is not None else ""
    faults = "; ".join(law_faults(file.entries))
    checks = [
        _check("chain", run, chain_fault, f"{len(file.entries)} entries, each follows from those before it"),
        _check("laws", run, faults, "it begins, asks, decides and acts as a journal does"),
    ]
    unchecked = [Unchecked(name, f"{what}: {HISTORY_HINT}") for name, what in UNCHECKABLE]
    if not has_ended(file.entries):
        unchecked.append(
            Unchecked("ending", "the run had not ended when this was written: later entries are not in the file")
        )
    if trusted:
        checks.append(head_check(run, file.entries, file.head, trusted))
    elif file.head is None:
        unchecked.append(Unchecked("head", "it has none: whether entries followed the last one is unknown"))
    else:
        checks.append(head_check(run, file.entries, file.head, trusted=None))
        unchecked.append(Unchecked("signature", _missing_signature(file)))
    found = Verification(run, tuple(checks))
    return FileVerification(found, tuple(unchecked), is_vouched_for=bool(trusted) and found.ok)


def _missing_signature(file: JournalFile) -> str:
    if file.head is None or not file.head.signature:
        return "nobody signed it: whoever can change the file can forge all of it"
    key = file.head.head.key_id
    return f"it is signed by key {key}, and no key is trusted here: give it with --key, or [audit] trusted_keys"
