"""What an OPA policy may answer, and the judgement that it stands for. Whatever else it answers is a denial."""

from typing import Any, Literal

from pydantic import Field, ValidationError

from orga.activities.ports import Judgement
from orga.workflows.types.gate import ApprovalTerms
from orga.workflows.types.record import Border, problems


class OpaAnswer(Border):
    """The document of a rule that says more than true or false. Unknown keys are refused: misspellings."""

    decision: Literal["allow", "deny", "modify", "require_approval"]
    reason: str = ""
    arguments: dict[str, Any] | None = None
    """Of `modify`: the arguments to use, all of them."""
    approvers: tuple[str, ...] = ()
    """Of `require_approval`; empty: anyone who may send updates to the run."""
    expires_s: float = Field(default=86_400.0, gt=0)
    tools: tuple[str, ...] | None = None
    """Of an allowed delegation: the most that the other agent may use."""
    policies: tuple[str, ...] = ()
    version: str = ""


def judgement(result: Any, version: str) -> Judgement:
    """Return the judgement that a result stands for; the version that it names wins over `version`."""
    if isinstance(result, bool):
        return Judgement(allowed=result, reason="" if result else "denied by OPA", version=version)
    try:
        answer = OpaAnswer.model_validate(result, extra="forbid")
    except ValidationError as error:
        said = "; ".join(problems(error))
        return Judgement(allowed=False, reason=f"OPA gave an answer that is none: {said}", version=version)
    if stray := _stray(answer):
        reason = f"OPA allows the call and gives {stray}, which says otherwise"
        return Judgement(allowed=False, reason=reason, version=version)
    if answer.decision == "modify" and answer.arguments is None:
        return Judgement(allowed=False, reason="OPA wants to modify the call and gave no arguments", version=version)
    return Judgement(
        allowed=answer.decision != "deny",
        reason=answer.reason or ("denied by OPA" if answer.decision == "deny" else ""),
        tools=answer.tools,
        arguments=answer.arguments if answer.decision == "modify" else None,
        approval=_terms(answer) if answer.decision == "require_approval" else None,
        policies=answer.policies,
        version=answer.version or version,
    )


def undefined(path: str, version: str) -> Judgement:
    """Return the denial that stands for no answer at all."""
    return Judgement(allowed=False, reason=f"OPA has no decision at {path} for this", version=version)


def _stray(answer: OpaAnswer) -> str:
    """Return what belongs to another decision: whoever wrote it did not mean the call to run just as it is."""
    if answer.decision in {"allow", "require_approval"} and answer.arguments is not None:
        return "arguments"
    if answer.decision not in {"allow", "modify"}:
        return ""
    return "approvers" if answer.approvers else "expires_s" if "expires_s" in answer.model_fields_set else ""


def _terms(answer: OpaAnswer) -> ApprovalTerms:
    return ApprovalTerms(approvers=answer.approvers, expires_s=answer.expires_s)
