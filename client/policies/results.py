"""Running the tests of policies against an engine."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

from orga.activities.adapters.tools.catalog import builtin_specs
from orga.activities.ports import Judgement, PolicyEngine
from orga.client.policies.cases import Case, CaseFile, Outcome, proposal_of
from orga.workflows.types.tools import ToolSpec


@dataclass(frozen=True)
class CaseResult:
    """What came of one test. `faults` is empty where that is what was expected."""

    name: str
    outcome: Outcome
    judgement: Judgement
    faults: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the test has passed."""
        return not self.faults


async def results(engine: PolicyEngine, cases: CaseFile) -> AsyncGenerator[CaseResult]:
    """Judge each case in order. What the engine raises is a denial, as it is at the gate."""
    known = builtin_specs()
    for case in cases.test:
        judgement = await _judge(engine, case, cases, known)
        outcome = _outcome(case, judgement)
        yield CaseResult(case.name, outcome, judgement, tuple(_faults(case, outcome, judgement)))


async def _judge(engine: PolicyEngine, case: Case, cases: CaseFile, known: Mapping[str, ToolSpec]) -> Judgement:
    """Return the judgement; a case that is approved is judged twice, as in a run."""
    first = await _ask(engine, case, cases, known, "")
    return await _ask(engine, case, cases, known, first.version) if case.approved_by else first


async def _ask(
    engine: PolicyEngine, case: Case, cases: CaseFile, known: Mapping[str, ToolSpec], version: str
) -> Judgement:
    proposal = proposal_of(case, cases.tools, known, version)
    try:
        return await engine.judge(proposal)
    except Exception as error:  # whatever an engine raises is a denial
        return Judgement(allowed=False, reason=f"the policy engine failed: {type(error).__name__}: {error}")


def _outcome(case: Case, judgement: Judgement) -> Outcome:
    if not judgement.allowed:
        return "deny"
    terms = judgement.approval
    if terms is None:
        return "allow"
    is_met = case.approved_by and (not terms.approvers or case.approved_by in terms.approvers)
    return "allow" if is_met else "approval"


def _faults(case: Case, outcome: Outcome, judgement: Judgement) -> list[str]:
    approvers = judgement.approval.approvers if judgement.approval else ()
    expectations = [
        ("", case.expect, outcome),
        ("policies ", _set(case.expect_policies), _set(judgement.policies)),
        ("approvers ", _set(case.expect_approvers), _set(approvers)),
        ("tools ", _set(case.expect_tools), _set(judgement.tools or ())),
    ]
    faults = [
        f"{what}{expected}, not {found}" for what, expected, found in expectations if expected not in (None, found)
    ]
    if case.expect_reason not in judgement.reason:
        faults.append(f"a reason with {case.expect_reason!r}, not {judgement.reason!r}")
    return faults


def _set(names: tuple[str, ...] | None) -> str | None:
    return None if names is None else ", ".join(sorted(names)) or "none"
