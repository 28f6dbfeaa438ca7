"""Grounded decisions: rules compute them from fields and facts. No run ends without its required decisions."""

from collections.abc import Mapping

from orga.workflows.decisions.conversation import with_message_to_model, with_recorded_reply
from orga.workflows.decisions.observe import MAX_REPAIRS_IN_A_ROW
from orga.workflows.decisions.tool_calls.repeated_calls import with_streaks
from orga.workflows.types.context import record_digest
from orga.workflows.types.control import MAX_NOTE_CHARS, Stop
from orga.workflows.types.input import AgentInput
from orga.workflows.types.json_text import as_object
from orga.workflows.types.messages import UNUSABLE_MARKER, Reply, ToolCall
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.decision import (
    DECISION_GROUNDED,
    DEFAULT_RULE,
    TAINTED,
    Decided,
    Fact,
    Ground,
    GroundedDecision,
    Value,
)
from orga.workflows.types.tool_calls.loop_tools import tool_needing

SOURCE_CHARS = 300


def decide_by_rules(
    decision: GroundedDecision,
    fields: Mapping[str, object],
    run_input: AgentInput,
    taint: tuple[str, ...],
    iteration: int,
) -> Decided:
    """Return the decision. Raise ValueError if a field or a fact is missing, unknown, or has a bad value.

    `taint` are the tools whose untrusted content has entered the conversation.
    """
    proposed = fitted_fields(decision, fields)
    grounds = decision_grounds(decision, run_input, taint)
    rule, outcome = rule_outcome(decision, {**proposed, **{name: ground.value for name, ground in grounds.items()}})
    return Decided(
        outcome=outcome,
        rule=rule,
        fields=proposed,
        facts=grounds,
        declaration=f"sha256:{record_digest(decision)}",
        iteration=iteration,
    )


def rule_outcome(decision: GroundedDecision, values: Mapping[str, Value]) -> tuple[str, dict[str, Value]]:
    """Return the name and the outcome of the first rule whose conditions all hold, or of the default."""
    for index, rule in enumerate(decision.rules):
        if all(condition.is_met_by(values[name]) for name, condition in rule.when.items()):
            return decision.rule_name(index), rule.then
    return DEFAULT_RULE, decision.default


def fitted_fields(decision: GroundedDecision, fields: Mapping[str, object]) -> dict[str, Value]:
    """Return the fields as values of their declared types. Raise ValueError with every missing, unknown or bad one."""
    wrong = [f"{name}: there is no such field" for name in fields if name not in decision.fields]
    found: dict[str, Value] = {}
    for name, kind in decision.fields.items():
        try:
            found[name] = kind.fit_value(_proposed_value(fields, name))
        except ValueError as error:
            wrong.append(f"{name}: {error}")
    if wrong:
        raise ValueError("; ".join(wrong))
    return found


def decision_grounds(decision: GroundedDecision, run_input: AgentInput, taint: tuple[str, ...]) -> dict[str, Ground]:
    """Return the facts with their sources. Raise ValueError if one is missing or has a value that is not allowed."""
    facts = {
        name: Ground(value=fact.fit_value(fact_value(fact, run_input)), source=fact.source)
        for name, fact in decision.facts.items()
    }
    source = ", ".join(taint)[:SOURCE_CHARS]
    return {**facts, TAINTED: Ground(value=bool(taint), source=source)}


def fact_problems(decisions: Mapping[str, GroundedDecision], run_input: AgentInput) -> list[str]:
    """Return one line for each fact that the run lacks, or that has a value that is not allowed."""
    found: list[str] = []
    for decision_name, decision in decisions.items():
        for name, fact in decision.facts.items():
            try:
                fact.fit_value(fact_value(fact, run_input))
            except ValueError as error:
                found.append(f"{fact.source}: {error}; it is the fact {name!r} of the decision {decision_name!r}")
    return found


def fact_value(fact: Fact, run_input: AgentInput) -> object:
    """Return the starter's value of a fact. Raise ValueError if there is none, because it must not count as false."""
    given = {"tenant": run_input.tenant, "trusted_context": run_input.trusted_context}
    value: object = given
    for key in fact.source.split("."):
        value = as_object(value).get(key)
    if value is None:
        raise ValueError(f"is missing, give {fact.expected_value_text}")
    return value


def _proposed_value(fields: Mapping[str, object], name: str) -> object:
    if name not in fields:
        raise ValueError("is missing")
    return fields[name]


def decision_of_call(state: AgentState, call: ToolCall) -> tuple[str, Decided]:
    """Return the name and value of a call's decision. Raise ValueError, with a text for the model, if it is invalid."""
    name, declared = call.arguments.get("decision"), state.declared_decisions
    if not isinstance(name, str) or name not in declared:
        raise ValueError(f"there is no such decision; there are: {', '.join(declared)}")
    before = state.decided.get(name)
    if before is not None and not declared[name].revisable:
        raise ValueError(f"the decision {name!r} is final: {decision_text(before)}")
    fields: object = call.arguments.get("fields")
    proposed = as_object(fields)
    made = decide_by_rules(declared[name], proposed, state.input, state.taint, state.iteration)
    made = made if before is None else made.with_revision(before.revision + 1)
    rationale = call.arguments.get("rationale")
    if isinstance(rationale, str) and rationale:
        made = made.with_rationale(rationale[:MAX_NOTE_CHARS])
    return name, made


def with_decision(state: AgentState, activity_id: str, name: str, made: Decided) -> AgentState:
    state = state.with_task(decided={**state.decided, name: made})
    data = made.model_dump(mode="json", exclude_unset=True, exclude={"iteration"})
    return state.with_note(DECISION_GROUNDED, place=activity_id, decision=name, **data)


def decision_text(made: Decided) -> str:
    outcome = ", ".join(f"{name} = {value}" for name, value in made.outcome.items())
    return f"{outcome} (rule: {made.rule})"


def undecided_text(names: tuple[str, ...]) -> str:
    listed, decide = ", ".join(map(repr, names)), tool_needing("decisions")
    return f"No answer ends this run before the decision {listed} is made: call `{decide}` first, then answer."


def with_undecided_answer(state: AgentState, reply: Reply) -> AgentState:
    """Add an answer that comes before a required decision. The model learns why. The third attempt ends the run."""
    feedback = f"{UNUSABLE_MARKER}{undecided_text(state.due_decisions)}"
    answered = with_message_to_model(with_recorded_reply(state, reply), feedback).with_dialogue(partial="")
    return with_undecided_end(with_streaks(answered))


def with_undecided_end(state: AgentState) -> AgentState:
    """Count an attempt to end before a required decision. The third attempt of the whole run ends it."""
    counted = state.with_task(undecided=state.undecided + 1)
    if counted.undecided <= MAX_REPAIRS_IN_A_ROW or state.stop is not None:
        return counted
    detail = f"the required decision was not made: {', '.join(state.due_decisions)}"
    return counted.with_control(stop=Stop("error", detail))
