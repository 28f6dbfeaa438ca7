"""A boolean instead of a number is refused everywhere, and a number instead of a boolean."""

from typing import Any

import pytest
from pydantic import ValidationError

from orga.client.config.sections import OrgaConfig
from orga.workflows.decisions.limits import parsed_extension
from orga.workflows.types.input import parse_input
from orga.workflows.types.record import CheckedInput, InvalidInput
from tests.support.values.core import a_state

NUMBERS = ["max_iterations", "max_total_tokens", "timeout_s", "tool_timeout_s", "max_cost_usd", "temperature"]


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("key", NUMBERS)
def test_a_boolean_is_refused_as_a_limit(key: str, value: bool) -> None:
    with pytest.raises(InvalidInput, match=f"config.{key}: must be a number, not true or false"):
        parse_input({"task": "t", "config": {key: value}})


@pytest.mark.parametrize(
    "given",
    [
        {"recovery": {"max_attempts": True}},
        {"step_iteration": {"max_reattempts": True}},
        {"pre_hydration": {"timeout_s": True}},
    ],
)
def test_a_boolean_is_refused_in_nested_settings(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="must be a number"):
        parse_input({"task": "t", "config": given})


@pytest.mark.parametrize(
    "given",
    [
        {"tools": {"options": {"pay": {"timeout_s": True}}}},
        {"temporal": {"roll_over_events": True}},
        {"agents": {"a": {"config": {"max_iterations": True}}}},
    ],
)
def test_a_boolean_is_refused_in_the_configuration(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="must be a number"):
        OrgaConfig.model_validate(given)


def test_a_boolean_is_refused_as_an_extension_of_a_live_run() -> None:
    with pytest.raises(ValueError, match="max_iterations: must be a number"):
        parsed_extension(a_state(), {"max_iterations": True})


def test_fields_for_booleans_still_accept_them() -> None:
    class Written(CheckedInput):
        flag: bool = False
        either: bool | int = 0
        codes: tuple[int, ...] = ()
        rates: dict[str, float] = {}
        anything: Any = None
        name: str | None = None

    fine = {"flag": True, "either": True, "codes": [1], "rates": {"a": 1}, "anything": True, "name": "true"}
    assert Written.model_validate(fine).either is True
    for number in (0, 1, 1.0):
        with pytest.raises(ValidationError, match="must be true or false, not a number"):
            Written.model_validate({"flag": number})
    for key, value in {"codes": [1, True], "rates": {"a": True}}.items():
        with pytest.raises(ValidationError, match="must be a number"):
            Written.model_validate({key: value})
