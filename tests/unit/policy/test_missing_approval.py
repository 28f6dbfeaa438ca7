"""A proposal needs no approval any more once a permitted person has approved it under the same policy set."""

from itertools import count

import pytest

from orga.client.policies.cases import CaseFile, PolicyCase, case_results
from orga.workflows.types.tool_calls.gate import ApprovalTerms, GateRequest, Verdict
from tests.support.values.policies import a_tool_proposal

ANYONE, ADA = ApprovalTerms(), ApprovalTerms(approvers=("ada", "alan"), expires_s=60)


def asks(terms: ApprovalTerms | None = ANYONE, version: str = "v1") -> Verdict:
    return Verdict(decision="approval", approval=terms, version=version)


@pytest.mark.parametrize(
    ("verdict", "approver", "version", "missing"),
    [
        pytest.param(Verdict(decision="allow"), "", "", None, id="an allowed call needs none"),
        pytest.param(asks(), "", "", ANYONE, id="nobody has approved it"),
        pytest.param(asks(), "", "v1", ANYONE, id="a version without a person is no approval"),
        pytest.param(asks(version=""), "", "", ANYONE, id="nor are two empty versions"),
        pytest.param(asks(), "eve", "v1", None, id="anyone may approve it"),
        pytest.param(asks(version=""), "eve", "", None, id="also under policies without a version"),
        pytest.param(asks(ADA), "ada", "v1", None, id="a named approver approved it"),
        pytest.param(asks(ADA), "eve", "v1", ADA, id="the terms do not name the approver"),
        pytest.param(asks(ADA), "Ada", "v1", ADA, id="names are compared exactly"),
        pytest.param(asks(ADA), "ada", "v0", ADA, id="it was approved under another policy set"),
        pytest.param(asks(), "eve", "", ANYONE, id="it was approved under an unknown policy set"),
        pytest.param(asks(None), "", "", ANYONE, id="a verdict without terms asks anyone"),
        pytest.param(
            Verdict(decision="allow", approval=ADA, version="v1"), "eve", "v1", ADA, id="terms count with any decision"
        ),
    ],
)
def test_a_permitted_person_has_to_approve_under_the_same_policies(
    verdict: Verdict, approver: str, version: str, missing: ApprovalTerms | None
) -> None:
    request = a_tool_proposal().with_approval(approver, version)
    assert verdict.missing_approval(request) == missing


class Unversioned:
    """Allows an answer that ada approved, and asks for an approval of all others."""

    is_embedded = True

    async def judge(self, proposal: GateRequest) -> Verdict:
        return Verdict(decision="allow" if proposal.approved_by == "ada" else "approval")


class EverChanging:
    """Has another version for each proposal."""

    is_embedded = True

    def __init__(self) -> None:
        self._numbers = count()

    async def judge(self, proposal: GateRequest) -> Verdict:
        return asks(version=f"v{next(self._numbers)}")


@pytest.mark.parametrize(
    ("engine", "approver", "outcome"),
    [
        pytest.param(Unversioned(), "", "approval", id="a verdict without terms"),
        pytest.param(Unversioned(), "ada", "allow", id="policies without a version see the approver"),
        pytest.param(EverChanging(), "ada", "approval", id="policies that change after the approval"),
    ],
)
async def test_a_case_has_the_outcome_of_a_run(engine: Unversioned | EverChanging, approver: str, outcome: str) -> None:
    case = PolicyCase(name="answers", answer="done", approved_by=approver, expect="allow")
    assert [each.outcome async for each in case_results(engine, CaseFile({}, (case,)))] == [outcome]
