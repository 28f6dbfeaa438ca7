"""A recorded request judged anew by another engine, and what would have been otherwise; nothing is carried out."""

from dataclasses import dataclass
from typing import Any

from orga.activities.adapters.schemas.arguments import find_argument_errors
from orga.activities.gate import GateActivities
from orga.activities.ports import Judgement, PolicyEngine, Proposal
from orga.client.errors import OrgaError
from orga.client.proof.gate_record import Judged
from orga.workflows.types.gate import Decision, GateRequest, Purpose, Verdict

SAME = "same"
ANSWER, PLAN = "(answer)", "(plan)"


@dataclass(frozen=True)
class Rejudged:
    """One proposal, as it was judged then and would be now."""

    run: str
    iteration: int
    purpose: Purpose
    tool: str
    """`(answer)` for a final answer, `(plan)` for the plan of a goal."""
    call_id: str
    arguments: dict[str, Any]
    """As they were proposed."""
    approved_by: str
    """Who had approved it, where this is the judgement that followed."""
    recorded: Verdict
    now: Verdict

    @property
    def change(self) -> str:
        """`same`, `allow→deny` and its like, or what is otherwise about a decision that stays."""
        if self.recorded.decision != self.now.decision:
            return f"{self.recorded.decision}→{self.now.decision}"
        changed = [name for name in _parts(self.now.decision) if self._part(name, 0) != self._part(name, 1)]
        return ", ".join(changed) or SAME

    def _part(self, name: str, which: int) -> Any:
        verdict = (self.recorded, self.now)[which]
        found = getattr(verdict, name)
        return self.arguments if name == "arguments" and found is None else found


class Rejudge:
    """Puts recorded requests to an engine, as the gate does it."""

    def __init__(self, engine: PolicyEngine) -> None:
        self._engine = _Heard(engine)
        self._gate = GateActivities(self._engine, find_argument_errors)

    async def judged(self, run: str, recorded: Judged) -> list[Rejudged]:
        """Return what each proposal of a request would have come to.

        What a person had approved is taken to be approved by the same person under the other policies, too, where
        these would ask for it.

        Raises:
            OrgaError: The engine failed: that would look like a denial.
        """
        request = recorded.request
        found = await self._verdicts(request)
        calls = [(call.name, call.call_id, call.arguments) for call in request.calls]
        other: tuple[str, str, dict[str, Any]] = (ANSWER, "", {"answer": request.answer})
        if request.plan:
            other = (PLAN, "", {"steps": [step.model_dump() for step in request.plan]})
        return [
            Rejudged(
                run, request.iteration, request.purpose, *proposed, request.approved_by, _taken(request, then), now
            )
            for proposed, then, now in zip(calls or [other], recorded.decisions, found, strict=True)
        ]

    async def _verdicts(self, request: GateRequest) -> tuple[Verdict, ...]:
        verdicts = await self._ask(request.with_approval("", ""))
        if not request.approved_by or verdicts[0].decision != "approval":
            return verdicts
        again = await self._ask(request.with_approval(request.approved_by, verdicts[0].version))
        return tuple(_taken(request, verdict) for verdict in again)

    async def _ask(self, request: GateRequest) -> tuple[Verdict, ...]:
        verdicts = (await self._gate.gate(request)).verdicts
        if self._engine.failure is not None:
            failure = self._engine.failure
            raise OrgaError(f"the policy engine failed: {type(failure).__name__}: {failure}") from failure
        return verdicts


class _Heard:
    """An engine whose failure is kept, not taken for a denial."""

    def __init__(self, engine: PolicyEngine) -> None:
        self._engine = engine
        self.is_embedded = engine.is_embedded
        self.failure: Exception | None = None

    async def judge(self, proposal: Proposal) -> Judgement:
        try:
            return await self._engine.judge(proposal)
        except Exception as error:
            self.failure = error
            return Judgement(allowed=False, reason="the policy engine failed")


def _taken(request: GateRequest, verdict: Verdict) -> Verdict:
    """Return the verdict as a run takes it: what a person has approved may not be changed any more."""
    if request.approved_by and verdict.decision == "allow" and verdict.arguments is not None:
        return verdict.with_denial()
    return verdict


def _parts(decision: Decision) -> tuple[str, ...]:
    parts: dict[Decision, tuple[str, ...]] = {"allow": ("arguments", "tools"), "approval": ("arguments", "approval")}
    return parts.get(decision, ())
