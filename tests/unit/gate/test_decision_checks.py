"""An invalid decision is refused when the file is read, with its place and the remedy."""

from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from pydantic import ValidationError

from orga.workflows.decisions.tool_calls.decision import rule_outcome
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.tool_calls.decision import (
    CheckedDecision,
    GroundedDecision,
    TooManyCombinations,
    unreachable_rules,
)
from tests.support.runs.decisions import ALL_CASES, TRIAGE, a_decision, decisions
from tests.support.values.configured import config_error_at
from tests.support.values.strategies import LAW

NUMBER = {"type": "number", "minimum": 0.0, "maximum": 1.0}


def rule(when: dict[str, Any], **then: Any) -> dict[str, Any]:
    return {"when": when, "then": then or {"go": "yes"}}


def rules(*whens: dict[str, Any]) -> dict[str, Any]:
    return a_decision(rules=[rule(when) for when in whens])


def problem(written: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        CheckedDecision.model_validate(written, extra="forbid")
    return "; ".join(error["msg"].removeprefix("Value error, ") for error in caught.value.errors())


@pytest.mark.parametrize(
    ("written", "says"),
    [
        pytest.param(
            rules({"colour": "red"}),
            "rules.0.when.colour: there is no such field or fact; there are: size, count, paid, tainted",
            id="an unknown field",
        ),
        pytest.param(
            rules({"size": "xl"}), "rules.0.when.size: 'xl' is not one of s, m, l", id="a value outside the enum"
        ),
        pytest.param(
            rules({"size": {"at_least": 1}}),
            "rules.0.when.size: bounds are for numbers, this is one of s, m, l",
            id="bounds on an enum",
        ),
        pytest.param(
            rules({"paid": "true"}), "rules.0.when.paid: 'true' is not true or false", id="a boolean as a string"
        ),
        pytest.param(rules({"count": True}), "True is not an integer from 0 to 10", id="a boolean for a number"),
        pytest.param(rules({"count": 11}), "11 is not an integer from 0 to 10", id="a number beyond its bounds"),
        pytest.param(rules({"count": {"at_least": 1.5}}), "1.5 is not an integer", id="a fraction of an integer"),
        pytest.param(
            rules({"count": {"at_least": 5, "at_most": 4}}), "at_least 5 is above at_most 4", id="reversed bounds"
        ),
        pytest.param(rules({"count": {}}), "asks for nothing", id="an empty condition"),
        pytest.param(rules({"size": []}), "asks for nothing", id="an empty list"),
        pytest.param(
            rules({"size": "l"}, {"size": ["m", "s"]}, {"size": "m", "paid": True}),
            "rules.2 (3): it never decides, the rules before it take all its cases; move it up, or leave it out",
            id="a rule that never decides",
        ),
        pytest.param(rules({}, {"size": "l"}), "rules.1 (2): it never decides", id="a rule after a catch-all"),
        pytest.param(
            rules({"count": {"at_most": 4}}, {"count": {"at_least": 5}}, {"paid": True}),
            "rules.2 (3): it never decides",
            id="integers leave no gap between 4 and 5",
        ),
        pytest.param(
            a_decision(rules=[rule({"size": "l"}, went="yes")]),
            "rules.0.then.go: it is missing; each rule sets what the default sets; "
            "rules.0.then.went: the default does not set it; add it there, or leave it out",
            id="another outcome than the default's",
        ),
        pytest.param(
            a_decision(rules=[rule({"size": "l"}, go=True)]),
            "rules.0.then.go: True is true or false, in the default it is a word",
            id="an outcome of another type",
        ),
        pytest.param(a_decision(default={}), "default: it is missing, or sets nothing", id="an empty default"),
        pytest.param(a_decision(fields={}, rules=[]), "fields: there are none", id="no fields"),
        pytest.param(
            a_decision(fields={"why": {"description": "in words"}}, rules=[]),
            "fields.why: give either enum = [...], or type",
            id="free text",
        ),
        pytest.param(
            a_decision(fields={"n": {"type": "number", "minimum": 0}}, rules=[]),
            "fields.n: a number needs minimum and maximum",
            id="a number without bounds",
        ),
        pytest.param(
            a_decision(fields={"n": {"type": "integer", "minimum": 2, "maximum": 1}}, rules=[]),
            "fields.n: minimum 2 is above maximum 1",
            id="reversed bounds of a number",
        ),
        pytest.param(
            a_decision(fields={"n": {"type": "integer", "minimum": 0, "maximum": 2**54}}, rules=[]),
            "have to stay within",
            id="integers that JSON readers round",
        ),
        pytest.param(
            a_decision(fields={"tainted": {"type": "boolean"}}, rules=[]), "by itself", id="a field named tainted"
        ),
        pytest.param(
            a_decision(fields={"paid": {"type": "boolean"}}, rules=[]), "facts.paid: a field has", id="one name twice"
        ),
        pytest.param(a_decision(fields={"size": {"enum": ["s", "s"]}}, rules=[]), "is listed twice", id="a word twice"),
        pytest.param(
            a_decision(rules=[{"name": "1", "when": {}, "then": {"go": "yes"}}]), "no name", id="a number as a name"
        ),
        pytest.param(a_decision(facts={"x": {"source": "answer.x", "type": "boolean"}}), "pattern", id="a source"),
        pytest.param(
            {key: value for key, value in a_decision().items() if key != "default"}, "default: it is missing", id="none"
        ),
        pytest.param(a_decision(rules=[rule({"size": {"is": "l"}})]), "not permitted", id="an unknown condition"),
    ],
)
def test_an_invalid_decision_is_refused(written: dict[str, Any], says: str) -> None:
    assert says in problem(written)


@pytest.mark.parametrize("number", [nan, inf, -inf])
def test_bounds_and_outcomes_must_be_finite(number: float) -> None:
    assert problem(a_decision(default={"go": number}, rules=[]))
    assert problem(a_decision(fields={"n": NUMBER | {"maximum": number}}, rules=[]))
    assert problem(a_decision(fields={"n": NUMBER}, rules=[rule({"n": {"at_least": number}})]))


@pytest.mark.parametrize(
    "whens",
    [
        pytest.param([{"n": {"at_least": 0.5}}, {"n": {"at_most": 0.4}}, {"n": {"at_least": 0.4}}], id="a gap"),
        pytest.param([{"n": {"at_least": 0.5}}, {"n": {"at_most": 0.5}}], id="a bound that both hold"),
    ],
)
def test_a_rule_for_a_gap_between_numbers_is_reached(whens: list[dict[str, Any]]) -> None:
    CheckedDecision.model_validate(a_decision(fields={"n": NUMBER}, rules=[rule(when) for when in whens]))


def test_the_place_in_the_file_is_reported(tmp_path: Path) -> None:
    text = (TRIAGE / "orga.toml").read_text().replace('{ severity = "medium" }', '{ severity = "middling" }')
    line = text.splitlines().index("[agents.triage.decisions.route]") + 1
    assert config_error_at(tmp_path, text, line) == (
        "agents.triage.decisions.route: rules.4.when.severity: 'middling' is not one of low, medium, high, critical"
    )


def test_recorded_decisions_are_not_checked_again() -> None:
    written = rules({}, {"size": "l"})
    assert problem(written)
    assert GroundedDecision.model_validate(written).rules


def test_a_decision_is_read_back_from_a_history_unchanged() -> None:
    sound = AgentConfig.model_validate({"decisions": {"d": a_decision()}}).decisions["d"]
    assert GroundedDecision.model_validate_json(sound.model_dump_json(exclude_unset=True)) == GroundedDecision(
        **dict(sound)
    )


@LAW
@given(decisions)
def test_a_rule_is_unreachable_if_no_case_reaches_it(decision: GroundedDecision) -> None:
    reached = {rule_outcome(decision, case)[0] for case in ALL_CASES}
    never = tuple(index for index in range(len(decision.rules)) if decision.rule_name(index) not in reached)
    assert unreachable_rules(decision) == never


def test_too_many_overlapping_rules_are_refused_quickly() -> None:
    """Each rule covers a part that overlaps many others among twenty three-way switches."""
    names = [f"f{index}" for index in range(20)]
    steps = [(1, 2), (3, 7), (5, 11), (6, 13)]
    triples = [{names[i]: "x", names[i - a]: "y", names[i - b]: "z"} for i in range(20) for a, b in steps]
    written = {
        "fields": {name: {"enum": ["x", "y", "z"]} for name in names},
        "rules": [*map(rule, triples), rule({})],
        "default": {"go": "no"},
    }
    with pytest.raises(TooManyCombinations):
        unreachable_rules(GroundedDecision.model_validate(written))
    assert "overlap in too many ways" in problem(written)
