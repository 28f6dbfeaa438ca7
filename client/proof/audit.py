"""Audits runs: a policy engine judges every recorded proposal again. No worker, tool or model is needed."""

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from temporalio.client import Client

from orga.activities.adapters.schemas.arguments import find_argument_errors
from orga.activities.gate.gate import GateActivities
from orga.activities.ports import PolicyEngine
from orga.client.errors import HISTORY_GONE, NotAnAgent, OrgaError, RunNotFound
from orga.client.history.chain import RunHistory, histories, run_chain
from orga.client.history.events import read_events
from orga.client.history.values import RunConverters, converters_of
from orga.client.proof.gate_record import GATE, AnsweredRequest, GateRecord, breaches
from orga.client.proof.replay import progress_observer, replay_history
from orga.client.server.endpoint import Report
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.tool_calls.delegation import child_id
from orga.workflows.types.tool_calls.gate import Decision, GateRequest, Purpose, Verdict

SAME = "same"
"""The `change` of a verdict that has not changed."""

ANSWER, PLAN = "(answer)", "(plan)"
"""The `tool` of a proposal that is not a call."""


@dataclass(frozen=True)
class VerdictComparison:
    """One proposal with its recorded verdict and today's."""

    run: str
    iteration: int
    purpose: Purpose
    tool: str
    """`(answer)` for a final answer, `(plan)` for the plan of a goal."""
    call_id: str
    arguments: dict[str, Any]
    approved_by: str
    """The person whose approval led to this judgement, or ""."""
    recorded: Verdict
    now: Verdict

    @property
    def change(self) -> str:
        """`same`, a change such as `allow→deny`, or the parts that differ although the decision is the same."""
        if self.recorded.decision != self.now.decision:
            return f"{self.recorded.decision}→{self.now.decision}"
        parts: dict[Decision, tuple[str, ...]] = {
            "allow": ("arguments", "tools"),
            "approval": ("arguments", "approval"),
        }
        compared = parts.get(self.now.decision, ())
        changed = [name for name in compared if self._part(self.recorded, name) != self._part(self.now, name)]
        return ", ".join(changed) or SAME

    def _part(self, verdict: Verdict, name: str) -> Any:
        part = getattr(verdict, name)
        return self.arguments if name == "arguments" and part is None else part


class Rejudger:
    """Lets an engine judge recorded requests, as the gate does."""

    def __init__(self, engine: PolicyEngine) -> None:
        self._engine = _RecordingEngine(engine)
        self._gate = GateActivities(self._engine, find_argument_errors)

    async def compare_verdicts(self, run: str, recorded: AnsweredRequest) -> list[VerdictComparison]:
        """Return the comparison for each proposal of a request.

        If a person had approved a call and this engine asks for approval, too, the same person is assumed to approve.

        Raises:
            OrgaError: The engine failed. It is raised because a failure would otherwise look like a denial.
        """
        request = recorded.request
        verdicts = await self._verdicts(request)
        return [
            VerdictComparison(
                run=run,
                iteration=request.iteration,
                purpose=request.purpose,
                tool=proposal.name,
                call_id=proposal.call_id,
                arguments=proposal.arguments,
                approved_by=request.approved_by,
                recorded=_effective_verdict(request, old),
                now=new,
            )
            for proposal, old, new in zip(_proposals(request), recorded.decisions, verdicts, strict=True)
        ]

    async def _verdicts(self, request: GateRequest) -> tuple[Verdict, ...]:
        verdicts = await self._judge_once(request.with_approval("", ""))
        if not request.approved_by or verdicts[0].decision != "approval":
            return verdicts
        again = await self._judge_once(request.with_approval(request.approved_by, verdicts[0].version))
        return tuple(_effective_verdict(request, verdict) for verdict in again)

    async def _judge_once(self, request: GateRequest) -> tuple[Verdict, ...]:
        verdicts = (await self._gate.gate(request)).verdicts
        if self._engine.failure is not None:
            failure = self._engine.failure
            raise OrgaError(f"the policy engine failed: {type(failure).__name__}: {failure}") from failure
        return verdicts


def _proposals(request: GateRequest) -> Sequence[ToolCall]:
    """Return the proposed calls. A plan or an answer is returned as a call, too."""
    if request.calls:
        return request.calls
    if request.plan:
        return [ToolCall(call_id="", name=PLAN, arguments={"steps": [step.model_dump() for step in request.plan]})]
    return [ToolCall(call_id="", name=ANSWER, arguments={"answer": request.answer})]


class _RecordingEngine:
    """Keeps an engine's failure, so that it is not taken for a denial."""

    def __init__(self, engine: PolicyEngine) -> None:
        self._engine = engine
        self.is_embedded = engine.is_embedded
        self.failure: Exception | None = None

    async def judge(self, proposal: GateRequest) -> Verdict:
        try:
            return await self._engine.judge(proposal)
        except Exception as error:
            self.failure = error
            return Verdict(decision="deny", reason="the policy engine failed")


def _effective_verdict(request: GateRequest, verdict: Verdict) -> Verdict:
    """Return the verdict as a run uses it. An approved call may no longer be changed, so a change is a denial."""
    if request.approved_by and verdict.decision == "allow" and verdict.arguments is not None:
        return verdict.with_denial()
    return verdict


_ANSWERED = {"finished", "failed"}
"""Events by which the gate answers a request."""


@dataclass(frozen=True)
class RunAudit:
    run: str
    judgements: tuple[VerdictComparison, ...] = ()
    not_rebuilt: tuple[str, ...] = ()
    """The reasons why proposals could not be judged again, one line each."""
    breaches: tuple[str, ...] = ()
    """Calls that were executed without a required verdict, one line each."""

    @property
    def is_same(self) -> bool:
        """True if every proposal was judged again with the same verdict, and no call ran without its verdict."""
        has_same_verdicts = all(judgement.change == SAME for judgement in self.judgements)
        return has_same_verdicts and not self.not_rebuilt and not self.breaches


def change_counts(audits: Iterable[RunAudit]) -> dict[str, int]:
    """Return the number of each change, the most frequent first."""
    counts = Counter(judgement.change for audit in audits for judgement in audit.judgements)
    return dict(counts.most_common())


async def run_audits(
    client: Client,
    runs: Iterable[str],
    rejudge: Rejudger,
    *,
    are_named: bool = True,
    report: Report = lambda _: None,
) -> AsyncGenerator[RunAudit]:
    """Yield the audit of each run and of its delegates, each run once.

    A replay of the history with today's code rebuilds each proposal exactly as the gate got it. If that code cannot
    replay a history, the remaining proposals are reported as not rebuilt.

    Args:
        are_named: True if a person named these runs, so each must exist. Runs that a query found may be gone.
        report: Called often with the progress, also from other threads.

    Raises:
        RunNotFound: No run has one of the named ids.
        NotAnAgent: One of them belongs to a workflow of another type.
        OrgaError: The engine failed.
    """
    waiting = list(runs)
    named = set(waiting) if are_named else set[str]()
    seen = set[str]()
    while waiting:
        run = waiting.pop(0)
        if run in seen:
            continue
        seen.add(run)
        try:
            audited = await _audit(client, run, rejudge, report)
        except (RunNotFound, NotAnAgent) as error:
            if run in named:
                raise
            problem = HISTORY_GONE if isinstance(error, RunNotFound) else str(error)
            audited = _AuditedRun(RunAudit(run, not_rebuilt=(problem,)), delegates=[])
        yield audited.audit
        waiting = [*audited.delegates, *waiting]


class _AuditedRun(NamedTuple):
    audit: RunAudit
    delegates: list[str]


async def _audit(client: Client, run: str, rejudge: Rejudger, report: Report) -> _AuditedRun:
    chain = await run_chain(client, run)
    judgements: list[VerdictComparison] = []
    not_rebuilt = ["the server no longer has the oldest runs of its chain"] if chain.is_cut else []
    delegates: list[str] = []
    found_breaches: list[str] = []
    parts = await histories(client, chain)
    for number, part in enumerate(parts, 1):
        converters = converters_of(client, part.history)
        record = GateRecord(converters.base.payload_converter)
        progress = progress_observer(report, run, number, parts)
        outcome = await replay_history(part.history, converters, record.observe, progress)
        if outcome.failure:
            not_rebuilt.append(await _not_rebuilt_text(part, record, converters, outcome.failure))
        else:
            found_breaches += await breaches(part.history, record, converters)
        for fact in record.facts:
            if isinstance(fact, AnsweredRequest):
                report(f"{run}: {len(judgements):,} proposals judged again")
                judgements += await rejudge.compare_verdicts(run, fact)
            elif fact.kind == "child":
                delegates.append(child_id(run, fact.place))
    return _AuditedRun(RunAudit(run, tuple(judgements), tuple(not_rebuilt), tuple(found_breaches)), delegates)


async def _not_rebuilt_text(part: RunHistory, record: GateRecord, converters: RunConverters, failure: str) -> str:
    """Return how many requests to the gate a failed replay has not rebuilt, and why."""
    rebuilt = sum(isinstance(fact, AnsweredRequest) for fact in record.facts)
    events = read_events(converters, part.events)
    answered = [event async for event in events if event.name == GATE and event.kind in _ANSWERED]
    count = f"{max(len(answered) - rebuilt, 0)} of {len(answered)}"
    why = f"run {part.run_id[:13]}: today's code does not replay it, so {count}"
    return f"{why} requests to the gate are not judged again: {failure}"
