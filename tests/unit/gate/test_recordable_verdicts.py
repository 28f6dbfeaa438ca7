"""Verdicts of engines with values that no history can record."""

from typing import Any

import pytest

from orga.activities.gate.gate import MAX_BYTES, MAX_WAIT_S, UNRECORDABLE, recordable_verdicts
from orga.workflows.types.tool_calls.gate import ApprovalTerms, Verdict

GOOD = Verdict(decision="allow", policies=("p",), version="v1")


def nested(levels: int) -> dict[str, Any]:
    value: Any = "x"
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"arguments": nested(101)}, id="arguments that are too deep"),
        pytest.param({"arguments": nested(5_000)}, id="arguments that are too deep to be written"),
        pytest.param({"arguments": {"a": float("nan")}}, id="no number"),
        pytest.param({"arguments": {"a": [float("inf")]}}, id="an endless number"),
        pytest.param({"arguments": {"a": 10**5_000}}, id="a number that cannot be read back"),
        pytest.param({"arguments": {"a": "\ud800"}}, id="a lone surrogate"),
        pytest.param({"arguments": {"a": "x" * MAX_BYTES}}, id="too much"),
        pytest.param({"policies": ("x" * MAX_BYTES,)}, id="too long an id"),
    ],
)
def test_an_unrecordable_verdict_becomes_a_denial_without_affecting_others(fields: dict[str, Any]) -> None:
    odd = Verdict(decision="allow", **fields)
    assert recordable_verdicts([GOOD, odd, GOOD]) == (GOOD, Verdict(decision="deny", reason=UNRECORDABLE), GOOD)


def test_the_total_size_of_verdicts_is_bounded() -> None:
    large = Verdict(decision="allow", arguments={"a": "x" * (MAX_BYTES // 2 - 100)})
    assert [verdict.decision for verdict in recordable_verdicts([large] * 4)] == ["allow", "allow", "deny", "deny"]


@pytest.mark.parametrize("seconds", [1e12, 1e300, float("inf")])
def test_a_call_is_held_for_ten_years_at_most(seconds: float) -> None:
    (verdict,) = recordable_verdicts([Verdict(decision="approval", approval=ApprovalTerms(expires_s=seconds))])
    assert verdict.approval == ApprovalTerms(expires_s=MAX_WAIT_S)


def test_recordable_verdicts_are_unchanged() -> None:
    verdicts = (GOOD, Verdict(decision="allow", arguments=nested(100)), Verdict(decision="deny", reason="no"))
    assert recordable_verdicts(verdicts) == verdicts
