"""Auditing runs: every recorded proposal, rebuilt from the history, is judged anew; no worker, no tool, no model."""

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from orga.client.errors import NotAnAgent, RunNotFound
from orga.client.history.chain import RunHistory, histories, run_chain
from orga.client.history.events import read_events
from orga.client.history.values import values_of
from orga.client.proof.gate_law import breaches
from orga.client.proof.gate_record import GATE, GateRecord, Judged
from orga.client.proof.rejudged import SAME, Rejudge, Rejudged
from orga.client.proof.replay import progress, replayed
from orga.client.runners.wrapped import Observer
from orga.client.server.endpoint import Report
from orga.workflows.types.delegation import child_id

_ANSWERED = {"finished", "failed"}


@dataclass(frozen=True)
class RunAudit:
    """What came of one run."""

    run: str
    judgements: tuple[Rejudged, ...] = ()
    not_rebuilt: tuple[str, ...] = ()
    """Why some proposals could not be judged anew, one line a cause."""
    breaches: tuple[str, ...] = ()
    """What was carried out without what has to stand before it, one line each."""

    @property
    def is_same(self) -> bool:
        """Whether all that was proposed is known, would be decided as it was, and nothing was done before its yes."""
        return not (self.not_rebuilt or self.breaches) and all(
            judgement.change == SAME for judgement in self.judgements
        )


def counts(audits: Iterable[RunAudit]) -> dict[str, int]:
    """Return how often each change would come about, the most frequent first."""
    found = Counter(judgement.change for audit in audits for judgement in audit.judgements)
    return dict(found.most_common())


async def audited(
    client: Client,
    runs: Iterable[str],
    rejudge: Rejudge,
    *,
    are_named: bool = True,
    report: Report = lambda _: None,
) -> AsyncGenerator[RunAudit]:
    """Yield the audit of each run, and of the runs that it delegated to; each run once.

    A proposal is rebuilt by replaying the history through the code of today, up to the last bit of what the gate was
    asked; where that code does not replay it, the proposals from there on are told of, not guessed.

    Args:
        client: From `connect`.
        runs: Their ids.
        rejudge: With the engine that judges anew.
        are_named: Whether somebody named just these: then each has to be there. What a query has found may be gone.
        report: Is told how far it is, often, from another thread too.

    Raises:
        RunNotFound: No run has one of the ids that are named.
        NotAnAgent: One of them belongs to a workflow of another type.
        OrgaError: The engine failed.
    """
    waiting, seen = [(run, are_named) for run in runs], set[str]()
    while waiting:
        run, is_named = waiting.pop(0)
        if run in seen:
            continue
        seen.add(run)
        try:
            audit, delegated = await _audit(client, run, rejudge, report)
        except (RunNotFound, NotAnAgent) as error:
            if is_named:
                raise
            audit, delegated = RunAudit(run, not_rebuilt=(str(error),)), []
        yield audit
        waiting = [*((child, False) for child in delegated), *waiting]


async def _audit(client: Client, run: str, rejudge: Rejudge, report: Report) -> tuple[RunAudit, list[str]]:
    chain = await run_chain(client, run)
    judgements: list[Rejudged] = []
    lacking = ["the server has the oldest runs of its chain no longer"] if chain.is_cut else []
    delegated: list[str] = []
    broken: list[str] = []
    parts = await histories(client, chain)
    for number, part in enumerate(parts, 1):
        record, lacks = await _record(client, part, progress(report, run, number, parts))
        lacking += lacks
        broken += [] if lacks else await breaches(part.history, record, values_of(client, part.history))
        for fact in record.facts:
            if isinstance(fact, Judged):
                report(f"{run}: {len(judgements):,} proposals judged anew")
                judgements += await rejudge.judged(run, fact)
            elif fact.kind == "child":
                delegated.append(child_id(run, fact.place))
    return RunAudit(run, tuple(judgements), tuple(lacking), tuple(broken)), delegated


async def _record(client: Client, part: RunHistory, observe: Observer) -> tuple[GateRecord, list[str]]:
    values = values_of(client, part.history)
    record = GateRecord(values.converter.payload_converter)
    outcome = await replayed(part.history, values, record.observe, observe)
    if not outcome.failure:
        return record, []
    rebuilt = sum(isinstance(fact, Judged) for fact in record.facts)
    told = [h async for h in read_events(values, _each(part.events)) if h.name == GATE and h.kind in _ANSWERED]
    why = (
        f"run {part.run_id[:13]}: the code of today does not replay it, so {max(len(told) - rebuilt, 0)} of {len(told)}"
    )
    return record, [f"{why} requests to the gate are not judged anew: {outcome.failure}"]


async def _each(events: Sequence[HistoryEvent]) -> AsyncGenerator[HistoryEvent]:
    for event in events:
        yield event
