"""A decision follows from its fields, facts and rules. No other text changes it."""

from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.workflows.decisions.conversation import with_message
from orga.workflows.decisions.tool_calls.decision import (
    decide_by_rules,
    decision_of_call,
    fact_problems,
    fitted_fields,
    rule_outcome,
)
from orga.workflows.types.input import AgentInput
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.decision import Decided, GroundedDecision
from tests.support.runs.decisions import (
    ALL_CASES,
    FREE,
    decisions,
    proposal,
    routing_decision,
    triage_facts,
    triage_fields,
)
from tests.support.values.core import a_call, a_setup, a_state, user
from tests.support.values.strategies import LAW, json_values, texts

ROUTE = routing_decision()
READ = ("read_file",)


def made(fields: dict[str, Any], context: dict[str, Any], taint: tuple[str, ...] = ()) -> Decided:
    return decide_by_rules(ROUTE, fields, AgentInput(task="t", trusted_context=context), taint, 1)


def a_run(task: str = "triage", context: dict[str, Any] = FREE, **fields: Any) -> AgentState:
    state = a_state(setup=a_setup(decisions={"route": ROUTE}), **fields)
    return state.model_copy(update={"input": AgentInput(task=task, trusted_context=context)})


@pytest.mark.parametrize(
    ("fields", "context", "taint", "rule", "severity", "page"),
    [
        pytest.param(
            triage_fields("critical"),
            triage_facts(),
            READ,
            "capped",
            "high",
            "support",
            id="untrusted text cannot make it critical",
        ),
        pytest.param(
            triage_fields("critical"),
            triage_facts(alert=True),
            READ,
            "an alert confirms it",
            "critical",
            "on-call",
            id="an alert can make it critical",
        ),
        pytest.param(
            triage_fields("critical"),
            triage_facts(),
            (),
            "nobody's text was read",
            "critical",
            "on-call",
            id="no taint",
        ),
        pytest.param(
            triage_fields("high", 100),
            triage_facts("enterprise"),
            READ,
            "many users of a customer who pays",
            "high",
            "on-call",
            id="the lower bound belongs to the rule",
        ),
        pytest.param(
            triage_fields("high", 99),
            triage_facts("enterprise"),
            READ,
            "capped",
            "high",
            "support",
            id="just below the bound",
        ),
        pytest.param(
            triage_fields("high", 10**6),
            triage_facts(),
            READ,
            "capped",
            "high",
            "support",
            id="no field changes the customer tier",
        ),
        pytest.param(
            triage_fields("medium"), triage_facts(), READ, "5", "medium", "nobody", id="a rule without a name"
        ),
        pytest.param(triage_fields("low"), triage_facts(alert=True), READ, "default", "low", "nobody", id="no rule"),
    ],
)
def test_the_triage_rules_give_these_outcomes(
    fields: dict[str, Any], context: dict[str, Any], taint: tuple[str, ...], rule: str, severity: str, page: str
) -> None:
    found = made(fields, context, taint)
    assert (found.rule, found.outcome) == (rule, {"severity": severity, "page": page})


def test_the_grounds_record_the_source_of_each_fact() -> None:
    found = made(triage_fields("medium"), triage_facts("enterprise"), ("read_file", "fetch_url"))
    assert {name: (ground.value, ground.source) for name, ground in found.facts.items()} == {
        "tier": ("enterprise", "trusted_context.customer.tier"),
        "alert": (False, "trusted_context.monitoring.alert"),
        "tainted": (True, "read_file, fetch_url"),
    }
    assert found.declaration.startswith("sha256:")
    assert found.declaration == made(triage_fields(), triage_facts()).declaration
    other = ROUTE.model_copy(update={"rules": ROUTE.rules[1:]})
    assert (
        decide_by_rules(other, triage_fields(), AgentInput(task="t", trusted_context=FREE), (), 1).declaration
        != found.declaration
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        pytest.param({"severity": "catastrophic"}, "severity: 'catastrophic' is not one of low", id="out of the enum"),
        pytest.param({"severity": "Critical"}, "severity: 'Critical' is not one of", id="another case"),
        pytest.param({"severity": "critical "}, "is not one of", id="a trailing blank"),
        pytest.param({"severity": ["critical"]}, "is not one of", id="a list"),
        pytest.param({"severity": None}, "severity: None is not", id="null"),
        pytest.param({"workaround": "true"}, "workaround: 'true' is not true or false", id="a boolean as a string"),
        pytest.param({"workaround": 1}, "workaround: 1 is not true or false", id="a boolean as a number"),
        pytest.param({"users_affected": True}, "True is not an integer from 0 to 1000000", id="a number as a boolean"),
        pytest.param({"users_affected": "5"}, "'5' is not an integer", id="a number as a string"),
        pytest.param({"users_affected": -1}, "-1 is not", id="below the bounds"),
        pytest.param({"users_affected": 1_000_001}, "1000001 is not", id="above the bounds"),
        pytest.param({"users_affected": 1.5}, "1.5 is not", id="a fraction"),
        pytest.param({"users_affected": nan}, "nan is not", id="not a number"),
        pytest.param({"users_affected": inf}, "inf is not", id="infinity"),
        pytest.param({"page": "on-call"}, "page: there is no such field", id="an outcome as a field"),
        pytest.param({"alert": True}, "alert: there is no such field", id="a fact as a field"),
        pytest.param({"tainted": False}, "tainted: there is no such field", id="the taint as a field"),
    ],
)
def test_an_invalid_field_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        made(triage_fields() | changes, triage_facts())
    assert says in str(caught.value)


@pytest.mark.parametrize("users", [0, 1_000_000, 3.0], ids=["lower bound", "upper bound", "JSON's whole number"])
def test_numbers_at_their_bounds_are_accepted(users: float) -> None:
    assert made(triage_fields(users=users), triage_facts()).fields["users_affected"] == users  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("missing", ["severity", "users_affected", "workaround"])
def test_a_missing_field_is_refused(missing: str) -> None:
    fields = {name: value for name, value in triage_fields("critical").items() if name != missing}
    with pytest.raises(ValueError, match=f"^{missing}: is missing$"):
        made(fields, triage_facts())


@pytest.mark.parametrize(
    ("context", "says"),
    [
        pytest.param({}, "trusted_context.customer.tier: is missing, give one of free, enterprise", id="nothing"),
        pytest.param(
            {**FREE, "monitoring": {}}, "trusted_context.monitoring.alert: is missing", id="a missing boolean"
        ),
        pytest.param({**FREE, "monitoring": {"alert": None}}, "alert: is missing", id="null"),
        pytest.param({**FREE, "monitoring": True}, "alert: is missing", id="no table"),
        pytest.param({**FREE, "monitoring": {"alert": "false"}}, "'false' is not true or false", id="a string"),
        pytest.param({**FREE, "monitoring": {"alert": 0}}, "0 is not true or false", id="zero"),
        pytest.param({**FREE, "customer": {"tier": "gold"}}, "'gold' is not one of free, enterprise", id="no tier"),
        pytest.param({"customer.tier": "free", "monitoring.alert": False}, "customer.tier: is missing", id="dots"),
    ],
)
def test_a_missing_fact_is_an_error_and_never_false(context: dict[str, Any], says: str) -> None:
    found = fact_problems({"route": ROUTE}, AgentInput(task="t", trusted_context=context))
    assert any(says in line for line in found)
    with pytest.raises(ValueError, match=r"."):
        made(triage_fields(), context)


def test_the_tenant_can_be_a_fact() -> None:
    written: dict[str, Any] = {
        "facts": {"who": {"source": "tenant", "enum": ["acme"]}},
        "rules": [],
        "default": {"go": 1},
    }
    decision = GroundedDecision.model_validate(written)
    assert decide_by_rules(decision, {}, AgentInput(task="t", tenant="acme"), (), 1).facts["who"].value == "acme"
    for tenant in ("other", None):
        assert fact_problems({"d": decision}, AgentInput(task="t", tenant=tenant))


@LAW
@given(st.lists(texts, max_size=3), texts, texts, st.sampled_from(["low", "medium", "high", "critical"]))
def test_no_text_changes_an_outcome(rationales: list[str], task: str, rationale: str, severity: str) -> None:
    """Neither the task, the conversation, the model's reasons nor the call id matter."""
    state = a_run(task=f"triage {task}", taint=READ)
    for text in rationales:
        state = state.model_copy(update={"conversation": with_message(state.conversation, user(text))})
    call = a_call("decide", task, **proposal(triage_fields(severity), rationale=rationale))
    name, found = decision_of_call(state, call)
    plain = made(triage_fields(severity), FREE, READ)
    assert (name, found.model_copy(update={"rationale": "", "iteration": 1})) == ("route", plain)


@LAW
@given(st.sampled_from(ROUTE.fields["severity"].enum), st.integers(0, 10**6), st.booleans())
def test_valid_fields_are_accepted_unchanged(severity: str, users: int, workaround: bool) -> None:
    fields = triage_fields(severity, users, workaround=workaround)
    assert fitted_fields(ROUTE, fields) == fields


@LAW
@given(st.dictionaries(st.sampled_from([*ROUTE.fields, "other"]) | texts, json_values, max_size=4))
def test_fields_are_accepted_or_refused(fields: dict[str, Any]) -> None:
    try:
        found = fitted_fields(ROUTE, triage_fields() | fields)
    except ValueError:
        return
    assert found == triage_fields() | fields
    assert found.keys() == ROUTE.fields.keys()


@LAW
@given(decisions)
def test_every_case_has_exactly_one_outcome(decision: GroundedDecision) -> None:
    outcomes = [rule.then for rule in decision.rules] + [decision.default]
    for case in ALL_CASES:
        rule, outcome = rule_outcome(decision, case)
        holding = [r for r in decision.rules if all(c.is_met_by(case[name]) for name, c in r.when.items())]
        assert outcome in outcomes
        assert outcome == (holding[0].then if holding else decision.default)
        assert (rule == "default") == (not holding)


@pytest.mark.parametrize("severity", ROUTE.fields["severity"].enum)
@pytest.mark.parametrize("tier", ["free", "enterprise"])
@pytest.mark.parametrize("workaround", [True, False])
@pytest.mark.parametrize("users", [0, 99, 100, 10**6])
def test_untrusted_text_never_makes_a_ticket_critical(severity: str, tier: str, workaround: bool, users: int) -> None:
    found = made(triage_fields(severity, users, workaround=workaround), triage_facts(tier), READ)
    assert found.outcome["severity"] != "critical"
    assert found.outcome["page"] != "on-call" or tier == "enterprise"
