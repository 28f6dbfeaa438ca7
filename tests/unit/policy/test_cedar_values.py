"""Cedar decides on any arguments, or the call is denied, and a forbid is never bypassed."""

import math
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.activities.adapters.policy.cedar import CedarSet, cedar_verdict, compile_policies
from orga.activities.adapters.policy.cedar_files import policy_files
from orga.activities.adapters.policy.cedar_types import (
    UnrepresentableValue,
    cedar_decimal,
    cedar_record,
    cedar_value,
    wanted_value,
)
from tests.support.values.policies import PERMIT_ALL, a_folder, a_tool_proposal
from tests.support.values.strategies import LAW, any_json, any_text

NAMES = st.sampled_from(["n", "s", "o", "x", "__entity", "__extn", "__expr", "fn", "arg", "type", "id"]) | any_text
ARGUMENTS = st.dictionaries(NAMES, st.dictionaries(NAMES, any_json, max_size=3) | any_json, max_size=5)
LAWS = """
forbid (principal, action, resource) when { context.arguments has n && context.arguments.n > 100 };
forbid (principal, action, resource) when { context.arguments has s && context.arguments.s like "*rm*" };
forbid (principal, action, resource) when { context.arguments has o.x && context.arguments.o.x };
"""


@cache
def the_set() -> CedarSet:
    with TemporaryDirectory() as folder:
        return compile_policies(policy_files(a_folder(Path(folder), a=PERMIT_ALL + LAWS)))


def is_fine(arguments: dict[str, Any]) -> bool:
    """Return whether no forbid applies and all named values have the expected type. Null counts as absent."""
    n, s, o = arguments.get("n"), arguments.get("s"), arguments.get("o")
    x = o.get("x") if isinstance(o, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return (
        (n is None or (type(n) is int and -(2**63) < n <= 100))
        and (s is None or (isinstance(s, str) and "rm" not in s and s.isprintable()))
        and (o is None or (isinstance(o, dict) and (x is None or x is False)))
    )


@LAW
@given(ARGUMENTS)
def test_any_arguments_get_a_decision(arguments: dict[str, Any]) -> None:
    found = cedar_verdict(the_set(), a_tool_proposal(arguments=arguments))
    if found.decision != "deny":
        assert is_fine({**arguments, "s": None if arguments.get("s") is None else clean(arguments["s"])})
    elif is_fine(arguments):
        raise AssertionError(found.reason)


def clean(value: Any) -> Any:
    """Texts without `rm` that Cedar can represent are fine, printable or not."""
    return "" if isinstance(value, str) and "rm" not in value else value


@LAW
@given(ARGUMENTS, any_text, st.lists(any_text), any_text)
def test_any_facts_get_a_decision(trusted: dict[str, Any], agent: str, taint: list[str], tenant: str) -> None:
    proposal = a_tool_proposal(agent=agent, trusted_context=trusted, taint=tuple(taint), tenant=tenant)
    assert cedar_verdict(the_set(), proposal).version == the_set().version


@LAW
@given(any_json)
def test_a_value_is_represented_or_refused(value: Any) -> None:
    try:
        found = cedar_value(value)
    except UnrepresentableValue:
        return
    assert flat(found) == flat(value)


def flat(value: Any) -> Any:
    """Return a value without nulls in objects, with decimals as numbers, and sets as lists."""
    match value:
        case {"__extn": {"fn": "decimal", "arg": str(arg)}}:
            return float(arg)
        case dict():
            return {key: flat(part) for key, part in value.items() if part is not None}  # pyright: ignore[reportUnknownVariableType]
        case list():
            return [flat(part) for part in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(None, id="null"),
        pytest.param(math.inf, id="infinity"),
        pytest.param(10.0**15, id="a decimal too large"),
        pytest.param(0.00005, id="a decimal too fine"),
        pytest.param({"a": {"__expr": "principal"}}, id="an expression for Cedar"),
        pytest.param(object(), id="no JSON"),
    ],
)
def test_values_that_cedar_cannot_represent_are_refused(value: Any) -> None:
    with pytest.raises(UnrepresentableValue):
        cedar_value(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "nan", "sNaN", "ten", 10.0**15, "1e999999"])
@pytest.mark.parametrize("is_rounded", [True, False])
def test_a_decimal_that_cedar_cannot_represent_is_refused(value: float | str, is_rounded: bool) -> None:
    with pytest.raises(UnrepresentableValue, match=r"^left is .*; decimals of Cedar have four places"):
        cedar_decimal(value, "left", is_rounded=is_rounded)


def test_only_a_rounded_decimal_may_have_more_than_four_places() -> None:
    assert cedar_decimal(0.12349, "left", is_rounded=True)["__extn"]["arg"] == "0.1234"
    with pytest.raises(UnrepresentableValue):
        cedar_decimal(0.12349, "left")


def test_the_nesting_is_bounded() -> None:
    deep: Any = 1
    for _ in range(2_000):
        deep = [deep]
    with pytest.raises(UnrepresentableValue, match="nested deeper than 20"):
        cedar_value(deep)


def test_only_named_values_are_passed_to_cedar() -> None:
    want = wanted_value([(("a", "b"), "Long"), (("c",), ""), (("d",), "String")])
    value = {"a": {"b": 1, "x": 2**99}, "c": [None], "d": {"e": 1}, "f": "secret"}
    assert cedar_record(value, want, None, "arguments") == {"a": {"b": 1}, "c": True, "d": {"e": 1}}
