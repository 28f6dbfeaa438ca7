"""Critique: what follows from a critic's verdict."""

from datetime import datetime
from typing import Any, Literal

from orga.workflows.decisions.conversation import with_message
from orga.workflows.decisions.critics import MAX_DETAIL_CHARS, Assessment, ending, told, tries
from orga.workflows.decisions.limits import stop_reason
from orga.workflows.decisions.observe import with_answer
from orga.workflows.decisions.outcomes import turned_away
from orga.workflows.decisions.steps import with_streaks
from orga.workflows.types.context import MessageRef
from orga.workflows.types.control import StopReason
from orga.workflows.types.critics import Critic
from orga.workflows.types.messages import Message, Reply, ToolCall
from orga.workflows.types.recovery import Outcome
from orga.workflows.types.state import AgentState

Conclusion = Literal["accepted", "revise", "asked", "ended", "skipped"]
"""It counts, the model does it again, a person decides, the run ends; `skipped`: a stand-in for a failed call is not
used."""


def limit_reached(state: AgentState, now: datetime) -> tuple[StopReason, str] | None:
    """Return the budget that leaves no room for one more model call; iterations aside, of which a review takes none."""
    fresh = with_streaks(state.with_control(iteration=0).with_budget(over_budget=0))
    return stop_reason(fresh, state.config, now)


def rounds_used(state: AgentState, critic: Critic) -> int:
    """Return how often in a row the critic has sent the model back."""
    return state.critiques.get(critic.name, 0)


def conclusion(state: AgentState, critic: Critic, found: Assessment) -> Conclusion:
    """Return what follows; once the rounds are used up the config says."""
    if found.approved:
        return "accepted"
    if found.failure:
        return "ended"
    if rounds_used(state, critic) < critic.max_rounds:
        return "revise"
    if critic.on_exhausted == "accept":
        return "accepted"
    return "asked" if critic.on_exhausted == "ask" and not found.is_by_person else "ended"


def with_round(state: AgentState, critic: Critic, *, is_sent_back: bool) -> AgentState:
    """Count one round more, or begin anew."""
    rest = {name: rounds for name, rounds in state.critiques.items() if name != critic.name}
    if is_sent_back:
        rest[critic.name] = rounds_used(state, critic) + 1
    return state if rest == state.critiques else state.with_dialogue(critiques=rest)


def evaluated(
    state: AgentState,
    critic: Critic,
    target: str,
    found: Assessment,
    then: Conclusion,
    *,
    place: str = "",
    call_id: str = "",
) -> AgentState:
    """Note a verdict for the journal: on what it is, by its place; of a call also by its id."""
    data: dict[str, Any] = {
        "kind": "critic",
        "critic": critic.name,
        "place": place,
        "target": target,
        "score": found.score,
        "approved": found.approved and not found.failure,
        "dimensions": found.dimensions,
        "reviewer": found.reviewer,
        "round": rounds_used(state, critic),
        "then": then,
    }
    optional = {"says_approved": found.says_approved, "usage": found.usage and found.usage.model_dump()}
    texts = {"feedback": found.feedback or None, "error": found.failure or None, "call_id": call_id or None}
    more = {key: value for key, value in (optional | texts).items() if value is not None}
    return state.with_note("CritiqueEvaluated", **data, **more)


def with_usage(state: AgentState, reply: Reply) -> AgentState:
    """Count what a verdict used."""
    return state.with_budget(usage=state.usage.plus(reply.usage, reply.cost_usd))


def with_rejected_answer(state: AgentState, reply: Reply, critic: Critic, found: Assessment) -> AgentState:
    """Take in an answer that a critic sent back: the model is told why, so that it can do better."""
    hint = f"Revise your answer and give all of it again. {tries(critic, rounds_used(state, critic))}"
    after = _unaccepted(state, reply, f"{told(critic, found, state.origin)}\n{hint}")
    return with_round(with_streaks(after.with_dialogue(repairs=0)), critic, is_sent_back=True)


def with_unreviewed_answer(state: AgentState, reply: Reply, critic: Critic, found: Assessment) -> AgentState:
    """Take in an answer that a critic did not let through, and end: it is no output."""
    stop = ending(critic, found)
    return _unaccepted(state, reply, stop[1]).with_control(stop=stop)


def with_accepted_answer(state: AgentState, reply: Reply, remarks: tuple[str, ...]) -> AgentState:
    """Take in an answer that the critics let through; that they did so all the same stands in the detail."""
    after = with_answer(state, reply)
    if not remarks or after.stop is None:
        return after
    return after.with_control(stop=(after.stop[0], "; ".join(remarks)[:MAX_DETAIL_CHARS]))


def rejected_call(state: AgentState, call: ToolCall, critic: Critic, found: Assessment) -> Outcome:
    """Return the outcome of a call that a critic turned down; it was not run."""
    hint = f"Call it otherwise, or go on without it. {tries(critic, rounds_used(state, critic))}"
    return turned_away(call, f"[Not run] {told(critic, found, call.call_id)}\n{hint}")


def _unaccepted(state: AgentState, reply: Reply, why: str) -> AgentState:
    conversation = with_message(state.conversation, reply.message(), MessageRef(reply=state.iteration))
    conversation = with_message(conversation, Message.of("user", f"[Answer not accepted] {why}"))
    return state.with_dialogue(conversation=conversation, partial="")
