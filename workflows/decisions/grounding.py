"""Grounding: a decision follows from its fields and its facts by its rules, and from nothing else."""

from collections.abc import Mapping
from typing import Any, cast

from workflows.types.decision import DEFAULT_RULE, TAINTED, Decided, Ground, GroundedDecision
from workflows.types.decision_values import Fact, Value
from workflows.types.digest import record_digest
from workflows.types.input import AgentInput

SOURCE_CHARS = 300


def decided(
    decision: GroundedDecision,
    fields: Mapping[str, object],
    run_input: AgentInput,
    taint: tuple[str, ...],
    iteration: int,
) -> Decided:
    """Return the decision.

    Args:
        decision: Its declaration.
        fields: As the model proposed them.
        run_input: Where the facts are.
        taint: Tools whose untrusted content has entered the conversation.
        iteration: Of the proposal.

    Raises:
        ValueError: A field is missing, unknown, or none of the values that it can have; or a fact is.
    """
    proposed = fitted_fields(decision, fields)
    grounds = grounds_of(decision, run_input, taint)
    rule, outcome = settled(decision, {**proposed, **{name: ground.value for name, ground in grounds.items()}})
    return Decided(
        outcome=outcome,
        rule=rule,
        fields=proposed,
        facts=grounds,
        declaration=f"sha256:{record_digest(decision)}",
        iteration=iteration,
    )


def settled(decision: GroundedDecision, values: Mapping[str, Value]) -> tuple[str, dict[str, Value]]:
    """Return the name of the first rule whose conditions all hold, and its outcome."""
    for index, rule in enumerate(decision.rules):
        if all(condition.holds(values[name]) for name, condition in rule.when.items()):
            return decision.rule_name(index), rule.then
    return DEFAULT_RULE, decision.default


def fitted_fields(decision: GroundedDecision, fields: Mapping[str, object]) -> dict[str, Value]:
    """Return the fields, each as its kind has it.

    Raises:
        ValueError: Naming every field that is missing, unknown or none of its values.
    """
    wrong = [f"{name}: there is no such field" for name in fields if name not in decision.fields]
    found: dict[str, Value] = {}
    for name, kind in decision.fields.items():
        try:
            found[name] = kind.fitted(_given(fields, name))
        except ValueError as error:
            wrong.append(f"{name}: {error}")
    if wrong:
        raise ValueError("; ".join(wrong))
    return found


def grounds_of(decision: GroundedDecision, run_input: AgentInput, taint: tuple[str, ...]) -> dict[str, Ground]:
    """Return the facts with their sources.

    Raises:
        ValueError: A fact is missing or none of its values.
    """
    facts = {
        name: Ground(value=fact.fitted(fact_value(fact, run_input)), source=fact.source)
        for name, fact in decision.facts.items()
    }
    source = ", ".join(taint)[:SOURCE_CHARS]
    return {**facts, TAINTED: Ground(value=bool(taint), source=source)}


def unfounded(decisions: Mapping[str, GroundedDecision], run_input: AgentInput) -> list[str]:
    """Return one line for each fact that a run does not have, or that is none of its values."""
    found: list[str] = []
    for decision_name, decision in decisions.items():
        for name, fact in decision.facts.items():
            try:
                fact.fitted(fact_value(fact, run_input))
            except ValueError as error:
                found.append(f"{fact.source}: {error}; it is the fact {name!r} of the decision {decision_name!r}")
    return found


def fact_value(fact: Fact, run_input: AgentInput) -> object:
    """Return what the starter said.

    Raises:
        ValueError: Nothing; a fact that is missing is never taken for false.
    """
    given = {"tenant": run_input.tenant, "trusted_context": run_input.trusted_context}
    value: object = given
    for key in fact.source.split("."):
        value = cast("dict[str, Any]", value).get(key) if isinstance(value, dict) else None
    if value is None:
        raise ValueError(f"is missing, give {fact.told}")
    return value


def _given(fields: Mapping[str, object], name: str) -> object:
    if name not in fields:
        raise ValueError("is missing")
    return fields[name]
