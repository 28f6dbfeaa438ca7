"""Annotations of a policy: what orga reads beside the rule itself."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from orga.activities.adapters.policy.problems import nearest
from orga.workflows.types.gate import ApprovalTerms

KNOWN = ("id", "description", "reason", "approval", "expires", "tools", "inactive")

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"(\d{1,6})([smhd])")
_NAME = re.compile(r"[^\s,][^,]*")


@dataclass(frozen=True)
class Annotations:
    """The annotations that orga knows."""

    policy_id: str = ""
    reason: str = ""
    approval: ApprovalTerms | None = None
    tools: tuple[str, ...] | None = None
    is_inactive: bool = False


class BadAnnotation(ValueError):
    """An annotation that says nothing orga could follow. `name` is its own."""

    def __init__(self, name: str, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.name = name
        self.remedy = remedy


def annotations(given: Mapping[str, str | None], effect: str, action: str) -> Annotations:
    """Return what the annotations of a policy say.

    Args:
        given: As Cedar reads them; None stands for one without a value.
        effect: `permit` or `forbid`.
        action: The only action that the policy is about; empty when it is about more.

    Raises:
        BadAnnotation: One that is unknown or cannot stand here: a misspelled `@approval` would let the call through.
    """
    for name in given:
        if name not in KNOWN:
            raise BadAnnotation(name, f"there is no annotation @{name}", nearest(name, KNOWN))
    if "tools" in given and (effect, action) != ("permit", "delegate"):
        raise BadAnnotation(
            "tools",
            "@tools narrows delegations only",
            'put it on permit(principal, action == Action::"delegate", resource)',
        )
    if given.get("inactive"):
        raise BadAnnotation(
            "inactive", "@inactive takes no text: it switches off, whatever it says", "remove one of both"
        )
    return Annotations(
        policy_id=given.get("id") or "",
        reason=given.get("reason") or "",
        approval=_approval(given),
        tools=_names(given["tools"] or "") if "tools" in given else None,
        is_inactive="inactive" in given,
    )


def _approval(given: Mapping[str, str | None]) -> ApprovalTerms | None:
    if "approval" not in given:
        if "expires" in given:
            raise BadAnnotation("expires", "@expires without @approval", 'add @approval("") or the approvers\' names')
        return None
    approvers = _names(given["approval"] or "")
    if given["approval"] and not approvers:
        raise BadAnnotation("approval", f"{given['approval']!r} names nobody", 'write names, or "" for anyone')
    if "expires" not in given:
        return ApprovalTerms(approvers=approvers)
    found = _DURATION.fullmatch(given["expires"] or "")
    if found is None or int(found[1]) == 0:
        raise BadAnnotation(
            "expires", f"{given['expires']!r} is no time", 'write a number and a unit: "30m", "24h", "7d"'
        )
    return ApprovalTerms(approvers=approvers, expires_s=float(int(found[1]) * _UNITS[found[2]]))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in _NAME.findall(text))
