"""Verifying a run: its histories against the code of today, and an exported journal against its histories."""

from collections.abc import AsyncGenerator, Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from client.audit_law import breaches
from client.chain import RunHistory, histories, run_chain
from client.decision_check import DecisionRecord, fault_of, recorded_decisions
from client.errors import NotAnAgent, RunNotFound
from client.exports import export_check
from client.gate_record import GateRecord, Judged
from client.history import read_events
from client.journal import past_missing, read_journal
from client.journal_head import SealedHead, head_check
from client.replay_check import Replayed, difference, recorded_ending, replayed
from client.verified import Check, Verification
from workflows.decisions.context_fold import ContextFold
from workflows.decisions.journal import JournalFold
from workflows.decisions.recount import Recount
from workflows.decisions.summaries import one_line
from workflows.types.history import Happening
from workflows.types.journal import JournalEntry

DETAIL_CHARS = 300
SHOWN_FAULTS = 5


async def verify(
    client: Client,
    workflow_id: str,
    *,
    exported: Sequence[JournalEntry] | None = None,
    head: SealedHead | None = None,
    trusted: Sequence[Ed25519PublicKey] = (),
) -> Verification:
    """Check a run, live or ended, and the runs that it delegated to; no worker is needed.

    Args:
        client: From `connect`.
        workflow_id: The run; all runs of its continue-as-new chain are checked.
        exported: Its journal, as it was written down at some time.
        head: Of that journal.
        trusted: Keys that may have signed the head; with any, it has to be signed.

    Raises:
        RunNotFound: No run has this id.
    """
    chain = await run_chain(client, workflow_id)
    runs = await histories(client, chain)
    checks, entries = await verified_histories(client, workflow_id, runs, is_cut=chain.is_cut)
    if exported is not None:
        has_delegated = bool(_delegated(entries))
        told = [entry async for entry in read_journal(client, workflow_id)] if has_delegated else entries
        checks.append(export_check(workflow_id, exported, told))
        if head is not None or trusted:
            checks.append(head_check(workflow_id, exported, head, trusted))
    for delegated in _delegated(entries):
        checks += await _verified_delegate(client, delegated)
    return Verification(workflow_id, tuple(checks))


async def verified_histories(
    client: Client, workflow_id: str, runs: Sequence[RunHistory], *, is_cut: bool = False
) -> tuple[list[Check], list[JournalEntry]]:
    """Check the histories of a chain, and return the journal that they give."""
    checks: list[Check] = []
    happened: list[Happening] = []
    for run in runs:
        checks += await _replay_checks(client, workflow_id, run)
        of_run, unreadable = await _happenings(client, run)
        happened += of_run
        detail = unreadable or _context_fault(of_run)
        calls = sum(happening.kind == "scheduled" and happening.name == "reason" for happening in of_run)
        checks.append(_check("contexts", workflow_id, detail, f"{calls} model calls have their digests", run.run_id))
    if is_cut and happened:
        happened.insert(1, past_missing(happened[0]))
    entries, unfolded = _journal(happened)
    checks.append(_check("journal", workflow_id, unfolded, f"{len(entries)} entries, {_last_hash(entries)}"))
    if any(happening.kind == "workflow_completed" for happening in happened):
        checks.append(_check("counters", workflow_id, _miscounts(happened), "the result counts what happened"))
    return checks, entries


async def _replay_checks(client: Client, workflow_id: str, run: RunHistory) -> list[Check]:
    record = GateRecord(client.data_converter.payload_converter)
    decisions = DecisionRecord(client.data_converter.payload_converter)
    outcome = await replayed(run.history, client.data_converter, record.observe, decisions.observe)
    replay = _check("replay", workflow_id, outcome.failure, f"{len(run.events)} events", run.run_id)
    if outcome.failure:
        return [replay]
    return [
        replay,
        await _gate_check(client, workflow_id, run, record),
        *await _decision_checks(client, workflow_id, run, decisions),
        *await _ending_checks(client, workflow_id, run, outcome),
    ]


async def _gate_check(client: Client, workflow_id: str, run: RunHistory, record: GateRecord) -> Check:
    faults = await breaches(run.history, record, client.data_converter)
    judged = sum(isinstance(fact, Judged) for fact in record.facts)
    fine = f"{judged} judgements; nothing was carried out without one"
    return _check("gate", workflow_id, "; ".join(faults[:SHOWN_FAULTS]), fine, run.run_id)


async def _decision_checks(client: Client, workflow_id: str, run: RunHistory, decisions: DecisionRecord) -> list[Check]:
    told = await recorded_decisions(run.history, client.data_converter)
    if not told:
        return []
    fine = f"{len(told)} decisions follow from their fields, facts and rules"
    return [_check("decisions", workflow_id, fault_of(told, decisions.made), fine, run.run_id)]


async def _ending_checks(client: Client, workflow_id: str, run: RunHistory, outcome: Replayed) -> list[Check]:
    recorded = await recorded_ending(run.history, client.data_converter)
    if recorded is None:
        return []
    place = difference(recorded, outcome.ending)
    fault = f"the code of today ends it otherwise, first in {place}" if place else ""
    return [_check("ending", workflow_id, fault, "as recorded", run.run_id)]


def _check(name: str, workflow_id: str, fault: str, fine: str, run_id: str = "") -> Check:
    return Check(name, workflow_id, not fault, fault or fine, run_id)


async def _happenings(client: Client, run: RunHistory) -> tuple[list[Happening], str]:
    """Return what the folds read, and why it ends early if it does."""
    found: list[Happening] = []
    try:
        async for happening in read_events(client, _each(run.events)):
            found.append(happening)
    except Exception as error:  # whatever a history holds that is not ours is a finding, no defect
        return found, _fault(f"event {found[-1].event_id + 1 if found else 1} and later", error)
    return found, ""


async def _each(events: Sequence[HistoryEvent]) -> AsyncGenerator[HistoryEvent]:
    for event in events:
        yield event


def _context_fault(happened: Sequence[Happening]) -> str:
    fold = ContextFold()
    for happening in happened:
        try:
            fold.feed(happening)
        except Exception as error:  # see above
            return _fault(f"iteration {fold.iteration + 1}, event {happening.event_id}", error)
    return ""


def _journal(happened: Sequence[Happening]) -> tuple[list[JournalEntry], str]:
    fold = JournalFold()
    entries: list[JournalEntry] = []
    for happening in happened:
        try:
            entries += fold.feed(happening)
        except Exception as error:  # see above
            return entries, _fault(f"event {happening.event_id}", error)
    return entries, ""


def _miscounts(happened: Sequence[Happening]) -> str:
    recount = Recount()
    try:
        return "; ".join(fault for happening in happened for fault in recount.feed(happening))
    except Exception as error:  # see above
        return _fault("the events", error)


def _fault(place: str, error: Exception) -> str:
    return one_line(f"{place}: {type(error).__name__}: {error}", DETAIL_CHARS)


def _last_hash(entries: Sequence[JournalEntry]) -> str:
    return f"last hash {entries[-1].hash}" if entries else "no hash"


def _delegated(entries: Sequence[JournalEntry]) -> list[str]:
    started = [entry.data.get("workflow_id") for entry in entries if entry.event == "DelegationStarted"]
    return [workflow_id for workflow_id in started if isinstance(workflow_id, str)]


async def _verified_delegate(client: Client, workflow_id: str) -> tuple[Check, ...]:
    try:
        return (await verify(client, workflow_id)).checks
    except (RunNotFound, NotAnAgent) as error:
        return (Check("delegate", workflow_id, ok=False, detail=str(error)),)
