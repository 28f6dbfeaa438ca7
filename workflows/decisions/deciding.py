"""Deciding: what a `decide` call comes to, and that no answer ends a run whose required decision is not made."""

from typing import Any, cast

from workflows.decisions.conversation import with_message
from workflows.decisions.denials import streaks
from workflows.decisions.grounding import decided
from workflows.decisions.notes import MAX_TEXT_CHARS, with_note
from workflows.decisions.replies import MAX_REPAIRS_IN_A_ROW
from workflows.types.context import MessageRef
from workflows.types.decision import DECISION_GROUNDED, Decided, GroundedDecision
from workflows.types.loop_tools import DECIDE
from workflows.types.messages import Message, Reply, ToolCall
from workflows.types.state import AgentState


def decision_of(state: AgentState, call: ToolCall) -> tuple[str, Decided]:
    """Return what a `decide` call decides, and its name.

    Raises:
        ValueError: It decides nothing, or nothing anew; the text tells the model why.
    """
    name, declared = call.arguments.get("decision"), _declared(state)
    if not isinstance(name, str) or name not in declared:
        raise ValueError(f"there is no such decision; there are: {', '.join(declared)}")
    before = state.decided.get(name)
    if before is not None and not declared[name].revisable:
        raise ValueError(f"the decision {name!r} is made already, and stands: {in_words(before)}")
    fields: object = call.arguments.get("fields")
    proposed = cast("dict[str, Any]", fields) if isinstance(fields, dict) else {}
    made = decided(declared[name], proposed, state.input, state.taint, state.iteration)
    extra: dict[str, Any] = {} if before is None else {"revision": before.revision + 1}
    rationale = call.arguments.get("rationale")
    if isinstance(rationale, str) and rationale:
        extra["rationale"] = rationale[:MAX_TEXT_CHARS]
    return name, made.model_copy(update=extra)


def with_decision(state: AgentState, place: str, name: str, made: Decided) -> AgentState:
    """Take in a decision, for the result and the journal."""
    state = state.model_copy(update={"decided": {**state.decided, name: made}})
    told = made.model_dump(mode="json", exclude_unset=True, exclude={"iteration"})
    return with_note(state, DECISION_GROUNDED, place=place, decision=name, **told)


def in_words(made: Decided) -> str:
    """Return the outcome and the rule behind it, for the model."""
    outcome = ", ".join(f"{name} = {value}" for name, value in made.outcome.items())
    return f"{outcome} (rule: {made.rule})"


def due(state: AgentState) -> tuple[str, ...]:
    """Return the required decisions that are not made."""
    return tuple(name for name, each in _declared(state).items() if each.required and name not in state.decided)


def reminder(names: tuple[str, ...]) -> str:
    """Return what the model is told that wants to end without them."""
    listed = ", ".join(map(repr, names))
    return f"No answer ends this run before the decision {listed} is made: call `{DECIDE}` first, then answer."


def with_undecided_answer(state: AgentState, reply: Reply) -> AgentState:
    """Take in an answer that comes before a required decision: the model is told, the third end of this kind is one."""
    told = Message(role="user", text=f"[Reply not usable] {reminder(due(state))}")
    conversation = with_message(state.conversation, reply.message(), MessageRef(reply=state.iteration))
    update: dict[str, object] = {"conversation": with_message(conversation, told), "partial": "", **streaks(state)}
    return with_undecided(state.model_copy(update=update))


def with_undecided(state: AgentState) -> AgentState:
    """Count an end that came before a required decision, over the whole run."""
    update: dict[str, object] = {"undecided": state.undecided + 1}
    if state.undecided >= MAX_REPAIRS_IN_A_ROW and state.stop is None:
        update["stop"] = ("error", f"the required decision was not made: {', '.join(due(state))}")
    return state.model_copy(update=update)


def result_data(state: AgentState) -> Any:
    """Return the `data` of a result: with decisions they stand there, beside an answer that has a schema."""
    if not _declared(state):
        return state.data
    made = {name: each.model_dump(mode="json") for name, each in state.decided.items()}
    has_schema = state.setup is not None and state.setup.output_schema is not None
    return {**({"answer": state.data} if has_schema else {}), "decisions": made}


def _declared(state: AgentState) -> dict[str, GroundedDecision]:
    return state.setup.decisions if state.setup else {}
