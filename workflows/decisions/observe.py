"""Observe: what happened becomes what the model sees next. Pure; the last phase of an iteration."""

from collections.abc import Sequence

from workflows.decisions.conversation import with_message
from workflows.decisions.critic_scope import answer_critics
from workflows.decisions.denials import denial_of_answer, streaks
from workflows.decisions.estimate import size_of
from workflows.decisions.outcomes import counted
from workflows.decisions.recovery import waiting_letters
from workflows.decisions.replies import MAX_REPAIRS_IN_A_ROW, ClassifiedReply, left_out_text
from workflows.decisions.room import news_room, room_beside
from workflows.decisions.shares import shares
from workflows.decisions.taint import tainted
from workflows.types.answer_json import answer_json
from workflows.types.clipped import clip_json
from workflows.types.context import MessageRef
from workflows.types.gate import Verdict
from workflows.types.messages import Message, Reply
from workflows.types.outcome import Outcome
from workflows.types.result import StopReason
from workflows.types.state import AgentState, Conversation
from workflows.types.usage import ToolCallCounts

MAX_OUTPUT_BYTES = 600_000
"""Of JSON, so that a result fits a payload beside the rest."""


def with_reply(state: AgentState, reply: Reply, conversation: Conversation) -> AgentState:
    """Count a reply: its tokens, its cost, its iteration. `conversation` is what the model has seen by now."""
    return state.model_copy(
        update={
            "iteration": state.iteration + 1,
            "usage": state.usage.plus(reply.usage, reply.cost_usd),
            "conversation": conversation,
        }
    )


def with_outcomes(
    state: AgentState, reply: Reply, outcomes: tuple[Outcome, ...], denied: Sequence[str], invalid: Sequence[str] = ()
) -> AgentState:
    """Take in the calls of a reply and their outcomes: one result for each call, in call order.

    `denied` and `invalid` name those of them that the gate turned down. What the results are shown of is
    what the context budget has room for, shared among them.
    """
    said, room = reply.message(), news_room(state)
    conversation = with_message(state.conversation, said, MessageRef(reply=state.iteration), room)
    results = [outcome.message() for outcome in outcomes]
    most = shares([size_of(result) for result in results], room_beside(said, room))
    for outcome, result, size in zip(outcomes, results, most, strict=True):
        news = MessageRef(result=outcome.result) if outcome.result is not None else None
        conversation = with_message(conversation, result, news, size)
    if reply.left_out:
        conversation = with_message(conversation, _told(f"[Not run] {left_out_text(reply)}"))
    return state.model_copy(
        update={
            "conversation": conversation,
            "tool_calls": _counted(state, reply, outcomes),
            "under_way": 0,
            "taint": tainted(state, outcomes),
            "repairs": 0,
            "partial": "",
            **streaks(state, denied, invalid),
        }
    )


def with_unjudged(state: AgentState, reply: Reply, outcomes: tuple[Outcome, ...]) -> AgentState:
    """Take in a reply that no gate has seen because the run is being ended: nothing of it counts as output."""
    if reply.calls:
        return with_outcomes(state, reply, outcomes, [])
    if not reply.text.strip():
        return state
    conversation = with_message(state.conversation, reply.message(), MessageRef(reply=state.iteration))
    return state.model_copy(update={"conversation": conversation})


def with_answer(state: AgentState, reply: Reply) -> AgentState:
    """Take in an answer that the gate let through; it goes on where a cut one stopped.

    It ends the run, unless guidance arrived while it was written, or an operator had a dead letter sent again: then the
    model takes that into account.
    """
    conversation = with_message(state.conversation, reply.message(), MessageRef(reply=state.iteration))
    update: dict[str, object] = {
        "conversation": conversation,
        "output": _answer(state, reply),
        "partial": "",
        "repairs": 0,
        **streaks(state),
    }
    if state.aborted is None and not _has_news(state):
        update["stop"] = ("completed", "")
    if state.setup is not None and state.setup.output_schema is not None:
        update["data"] = _data(state.partial + reply.text)
    return state.model_copy(update=update)


def with_misfit(state: AgentState, judged: ClassifiedReply, verdict: Verdict) -> AgentState:
    """Take in an answer that does not fit the output schema: the model is told what is wrong, the third ends it."""
    conversation = with_message(state.conversation, judged.reply.message(), MessageRef(reply=state.iteration))
    conversation = with_message(conversation, _told(f"[Reply not usable] {verdict.reason}"))
    update: dict[str, object] = {"conversation": conversation, "partial": "", **streaks(state)}
    update["repairs"] = state.repairs + 1
    if state.repairs >= MAX_REPAIRS_IN_A_ROW:
        update["stop"] = ("error", verdict.reason)
    return state.model_copy(update=update)


def with_termination(state: AgentState, reason: str, output: str) -> AgentState:
    """Take in the end that the model asked for by `terminate`, unless an operator has news for it."""
    update: dict[str, object] = {"output": clip_json(output, MAX_OUTPUT_BYTES, "the conversation has all of it")}
    if state.aborted is None and state.stop is None and not _has_news(state):
        update["stop"] = ("completed", reason)
    return state.model_copy(update=update)


def with_stop(state: AgentState, reason: StopReason, detail: str) -> AgentState:
    """Return the state whose ending is decided."""
    return state.model_copy(update={"stop": (reason, detail)})


def with_denied_answer(state: AgentState, reply: Reply, verdict: Verdict) -> AgentState:
    """Take in an answer that the gate denied: the model is told why, so that it can answer otherwise."""
    conversation = with_message(state.conversation, reply.message(), MessageRef(reply=state.iteration))
    conversation = with_message(conversation, _told(f"[Policy denied] {verdict.reason}"))
    denied = streaks(state, [denial_of_answer(verdict)])
    return state.model_copy(update={"conversation": conversation, "repairs": 0, "partial": "", **denied})


def with_repair(state: AgentState, judged: ClassifiedReply) -> AgentState:
    """Take in a reply that is no use as it is: what can be sent back is kept, the model is told, the third ends it.

    A cut answer has passed the gate before it comes here; guidance that waits gives it another chance. It is output at
    once only where no critic has to see all of it first.
    """
    reply, conversation = judged.reply, state.conversation
    update: dict[str, object] = {}
    if judged.kind == "cut_calls":
        text = f"[Not run] {judged.feedback}"
        outcomes = tuple(Outcome(call=call, status="not_run", text=text) for call in reply.calls)
        conversation = with_message(conversation, reply.message(), MessageRef(reply=state.iteration))
        for outcome in outcomes:
            conversation = with_message(conversation, outcome.message())
        update["tool_calls"] = _counted(state, reply, outcomes)
    elif reply.text.strip():
        kept = reply.model_copy(update={"calls": ()}).message()
        news = None if reply.calls else MessageRef(reply=state.iteration)
        conversation = with_message(conversation, kept, news)
    conversation = with_message(conversation, _told(judged.feedback))
    update |= {"conversation": conversation, "repairs": state.repairs + 1, **streaks(state)}
    is_answer = judged.kind == "cut_answer"
    is_output = is_answer and not (state.setup and answer_critics(state.setup))
    if is_answer:
        update["partial"] = _answer(state, reply)
    if is_output:
        update["output"] = update["partial"]
    if state.repairs >= MAX_REPAIRS_IN_A_ROW and not (is_answer and _has_news(state)):
        unreviewed = ", and was not reviewed" if is_answer and not is_output else ""
        update["stop"] = ("completed" if is_output else "error", judged.detail + unreviewed)
    return state.model_copy(update=update)


def _has_news(state: AgentState) -> bool:
    """Return whether an operator has sent what the model has yet to see."""
    return bool(state.inbox or waiting_letters(state))


def _data(text: str) -> object:
    try:
        return answer_json(text)
    except ValueError:
        return None


def _answer(state: AgentState, reply: Reply) -> str:
    return clip_json(state.partial + reply.text, MAX_OUTPUT_BYTES, "the conversation has all of it")


def _told(text: str) -> Message:
    return Message(role="user", text=text)


def _counted(state: AgentState, reply: Reply, outcomes: Sequence[Outcome]) -> ToolCallCounts:
    """Count the calls of a reply, those with it that were too many."""
    counts, more = counted(state.tool_calls, outcomes), reply.left_out
    return counts.model_copy(update={"proposed": counts.proposed + more, "not_run": counts.not_run + more})
