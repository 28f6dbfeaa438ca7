"""Observe: adds replies, results and guidance to the conversation for the model's next step, or ends the run."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from orga.workflows.decisions.control.interventions import with_applied
from orga.workflows.decisions.conversation import (
    MIN_NEWS_BYTES,
    fair_shares,
    message_size,
    news_bytes_left,
    with_message,
    with_message_to_model,
    with_recorded_reply,
)
from orga.workflows.decisions.limits import with_thinking_cut
from orga.workflows.decisions.review_stages import are_answers_in_question
from orga.workflows.decisions.tool_calls.calls import (
    answered_unrun_outcome,
    taint_with_outcomes,
    with_counted_calls,
)
from orga.workflows.decisions.tool_calls.repeated_calls import answer_denial_name, with_streaks
from orga.workflows.types.context import MessageRef
from orga.workflows.types.control import Intervention, Stop
from orga.workflows.types.conversation import Conversation
from orga.workflows.types.json_text import parsed_answer_json
from orga.workflows.types.messages import UNUSABLE_MARKER, Message, Reply
from orga.workflows.types.models.usage import ToolCallCounts
from orga.workflows.types.state import AgentState
from orga.workflows.types.text import clip_json
from orga.workflows.types.tool_calls.gate import Verdict
from orga.workflows.types.tool_calls.recovery import Outcome

MAX_REPAIRS_IN_A_ROW = 2
"""Unusable replies in a row that get feedback. One more ends the run as `error`."""

ReplyKind = Literal[
    "calls", "answer", "cut_answer", "cut_data", "cut_calls", "cut_thinking", "blank", "refusal", "content_filter"
]

_FEEDBACK: dict[ReplyKind, str] = {
    "cut_answer": "Your reply was cut at the output limit. Go on exactly where it stops; repeat nothing.",
    "cut_data": "Your reply was cut at the output limit, so its JSON is not whole. Answer again, shorter.",
    "cut_calls": "Your reply was cut at the output limit, so none of its calls was run. Make fewer or shorter calls.",
    "cut_thinking": "Your reply was only thinking, until it was cut at the output limit. Think less, and then call a "
    "tool or give the final answer as text.",
    "blank": "Your reply was empty. Either call a tool or give the final answer as text.",
    "refusal": "You declined. If a part of the task can be done, do that part; else say what prevents it.",
    "content_filter": "Your reply was withheld by the provider's content filter. Put it another way.",
}

_DETAIL: dict[ReplyKind, str] = {
    "cut_answer": "the answer is cut at the output limit",
    "cut_data": "the answer is cut at the output limit, again and again, so it fits no output schema",
    "cut_calls": "truncated tool call: the model's reply was cut at the output limit, again and again",
    "cut_thinking": "the model only thinks until its reply is cut at the output limit, again and again; raise "
    "max_output_tokens, or set a lower effort",
    "blank": "blank reply: the model returned neither text nor a tool call, again and again",
    "refusal": "refusal: the model declined",
    "content_filter": "content filter: the provider withheld the model's reply",
}


class ClassifiedReply(NamedTuple):
    reply: Reply
    kind: ReplyKind

    @property
    def is_usable(self) -> bool:
        """True if the reply needs no feedback."""
        return self.kind in {"calls", "answer"}

    @property
    def feedback(self) -> str:
        return f"{UNUSABLE_MARKER}{_FEEDBACK[self.kind]}"

    @property
    def detail(self) -> str:
        """The detail of the run's ending if repairs do not help. It quotes a refusal."""
        quoted = " ".join(self.reply.text.split())[:200]
        return _DETAIL[self.kind] + (f": {quoted}" if self.kind == "refusal" and quoted else "")


def classify_reply(reply: Reply, *, wants_data: bool = False) -> ClassifiedReply:
    """Return the reply with its kind. A refusal or a content filter overrides the reply's content.

    With `wants_data` the answer is JSON. If it is cut, the model starts over instead of continuing.
    """
    kind = _reply_kind(reply)
    return ClassifiedReply(reply, "cut_data" if wants_data and kind == "cut_answer" else kind)


def _reply_kind(reply: Reply) -> ReplyKind:
    if reply.finish == "refusal":
        return "refusal"
    if reply.finish == "content_filter":
        return "content_filter"
    is_cut = reply.finish == "length"
    if reply.calls:
        return "cut_calls" if is_cut else "calls"
    if reply.text.strip():
        return "cut_answer" if is_cut else "answer"
    return "cut_thinking" if reply.is_only_thinking else "blank"


def left_out_text(reply: Reply) -> str:
    named = ", ".join(f"{name} {count}" for name, count in reply.left_out_tools.items())
    in_brackets = f" ({named})" if named else ""
    return f"{reply.left_out} more calls of your reply{in_brackets}: a reply has at most {len(reply.calls)} calls."


MAX_OUTPUT_BYTES = 600_000
"""Bytes of the output as JSON. A result has to fit a payload."""


def with_reply(state: AgentState, reply: Reply, conversation: Conversation) -> AgentState:
    """Count a reply: its tokens, cost and iteration. `conversation` includes everything that the model has seen."""
    state = with_thinking_cut(state, reply)
    state = state.with_control(iteration=state.iteration + 1).with_dialogue(conversation=conversation)
    return state.with_usage_of(reply)


def with_outcomes(
    state: AgentState, reply: Reply, outcomes: tuple[Outcome, ...], denied: Sequence[str], invalid: Sequence[str] = ()
) -> AgentState:
    """Add the calls of a reply and their outcomes: one result for each call, in call order.

    The results share the room that the context budget leaves. `denied` and `invalid` name calls for the streaks.
    """
    assistant, room = reply.message(), news_bytes_left(state)
    conversation = with_message(state.conversation, assistant, MessageRef(reply=state.iteration), room)
    results = [outcome.message() for outcome in outcomes]
    room_for_results = max(room - message_size(assistant), MIN_NEWS_BYTES)
    shares = fair_shares([message_size(result) for result in results], room_for_results)
    for outcome, result, share in zip(outcomes, results, shares, strict=True):
        news = MessageRef(result=outcome.result) if outcome.result is not None else None
        conversation = with_message(conversation, result, news, share)
    if reply.left_out:
        conversation = with_message(conversation, Message.of("user", f"[Not run] {left_out_text(reply)}"))
    taint = taint_with_outcomes(state, outcomes)
    state = state.with_budget(tool_calls=_call_counts(state, reply, outcomes), under_way=0)
    state = state.with_dialogue(conversation=conversation, taint=taint, repairs=0, partial="")
    return with_streaks(state, denied, invalid)


def with_unjudged_reply(state: AgentState, reply: Reply, outcomes: tuple[Outcome, ...]) -> AgentState:
    """Add a reply that no gate has seen because the run is ending. Nothing in it becomes output."""
    if reply.calls:
        return with_outcomes(state, reply, outcomes, [])
    return with_recorded_reply(state, reply) if reply.text.strip() else state


def with_answer(state: AgentState, reply: Reply) -> AgentState:
    """Add an answer that the gate allowed. If the previous answer was cut, this one continues it.

    The answer ends the run, unless guidance arrived meanwhile or an operator requeued a dead letter. Then the model
    gets these in its next step.
    """
    after = with_recorded_reply(state, reply).with_task(output=_joined_answer(state, reply))
    if state.setup is not None and state.setup.output_schema is not None:
        after = after.with_task(data=_parsed_data(state.partial + reply.text))
    if state.aborted is None and not _has_new_guidance(state):
        after = with_stop(after, Stop("completed"))
    return with_streaks(after).with_dialogue(partial="", repairs=0)


def with_schema_mismatch(state: AgentState, reply: Reply, verdict: Verdict) -> AgentState:
    """Add an answer that does not fit the output schema. The model learns why. The third one in a row ends the run."""
    after = with_message_to_model(with_recorded_reply(state, reply), f"{UNUSABLE_MARKER}{verdict.reason}")
    after = with_streaks(after.with_dialogue(partial="", repairs=state.repairs + 1))
    return with_stop(after, Stop("error", verdict.reason)) if after.repairs > MAX_REPAIRS_IN_A_ROW else after


def with_termination(state: AgentState, reason: str, output: str) -> AgentState:
    """Apply the model's `terminate` call. The run ends, unless there is new guidance for the model."""
    after = state.with_task(output=clip_json(output, MAX_OUTPUT_BYTES, "the conversation has all of it"))
    is_end = state.aborted is None and state.stop is None and not _has_new_guidance(state)
    return with_stop(after, Stop("completed", reason)) if is_end else after


def termination_text(state: AgentState) -> str:
    """Return what the model reads after its `terminate` call. Guidance and requeued letters delay the ending."""
    if state.stop is not None or state.aborted is not None:
        return "[Ended]"
    news = "Guidance from the operator arrived" if state.inbox else "The operator has calls sent again"
    return f"[Not ended] {news}; take it into account."


def with_stop(state: AgentState, stop: Stop) -> AgentState:
    return state.with_control(stop=stop)


def with_denied_answer(state: AgentState, reply: Reply, verdict: Verdict) -> AgentState:
    """Add an answer that the gate denied. The model learns why, so that it can answer differently."""
    after = with_message_to_model(with_recorded_reply(state, reply), f"[Policy denied] {verdict.reason}")
    return with_streaks(after.with_dialogue(repairs=0, partial=""), [answer_denial_name(verdict)])


def with_repair(state: AgentState, classified: ClassifiedReply) -> AgentState:
    """Add the part of an unusable reply that can be sent back, and feedback. The third one in a row ends the run."""
    after = with_message_to_model(_with_sendable_part(state, classified), classified.feedback)
    after = with_streaks(after.with_dialogue(repairs=state.repairs + 1))
    if classified.kind == "cut_answer":
        return _with_partial_answer(after, classified)
    return with_stop(after, Stop("error", classified.detail)) if after.repairs > MAX_REPAIRS_IN_A_ROW else after


def _with_sendable_part(state: AgentState, classified: ClassifiedReply) -> AgentState:
    reply = classified.reply
    if classified.kind == "cut_calls":
        outcomes = tuple(answered_unrun_outcome(call, f"[Not run] {classified.feedback}") for call in reply.calls)
        after = with_recorded_reply(state, reply)
        conversation = after.conversation
        for outcome in outcomes:
            conversation = with_message(conversation, outcome.message())
        after = after.with_dialogue(conversation=conversation)
        return after.with_budget(tool_calls=_call_counts(state, reply, outcomes))
    if not reply.text.strip():
        return state
    if not reply.calls:
        return with_recorded_reply(state, reply)
    without_calls = reply.without_calls().message()  # not by reference, because the history has the calls too
    return state.with_dialogue(conversation=with_message(state.conversation, without_calls))


def _with_partial_answer(state: AgentState, classified: ClassifiedReply) -> AgentState:
    """Add a cut answer to its earlier parts. It has passed the gate. After too many cuts, it ends the run as it is.

    It becomes output at once, unless a review stage must see the whole answer first. New guidance delays the end.
    """
    after = state.with_dialogue(partial=_joined_answer(state, classified.reply))
    is_unreviewed = are_answers_in_question(state.setup)
    if not is_unreviewed:
        after = after.with_task(output=after.partial)
    if after.repairs <= MAX_REPAIRS_IN_A_ROW or _has_new_guidance(state):
        return after
    if is_unreviewed:
        return with_stop(after, Stop("error", f"{classified.detail}, and was not reviewed"))
    return with_stop(after, Stop("completed", classified.detail))


def _has_new_guidance(state: AgentState) -> bool:
    """Return True if an operator has sent something that the model has not seen yet."""
    return bool(state.inbox or state.waiting_letters)


def _parsed_data(text: str) -> object:
    try:
        return parsed_answer_json(text)
    except ValueError:
        return None


def _joined_answer(state: AgentState, reply: Reply) -> str:
    return clip_json(state.partial + reply.text, MAX_OUTPUT_BYTES, "the conversation has all of it")


def _call_counts(state: AgentState, reply: Reply, outcomes: Sequence[Outcome]) -> ToolCallCounts:
    return with_counted_calls(state.tool_calls, outcomes).plus(proposed=reply.left_out, not_run=reply.left_out)


_GUIDANCE_TEXTS = {
    "steer": "[Guidance from the operator] {}",
    "add_context": "[Context from the operator]\n{}",
}

LOST_GUIDANCE_TEXT = "[Guidance lost] {} more messages of the operator arrived while too many waited; they are lost."


def with_inbox_drained(state: AgentState, phase: str = "") -> AgentState:
    """Move guidance from the inbox into the conversation, in order of arrival. What is too long for one step waits.

    `phase` is the phase in which the model reads it, by default the current one.
    """
    if not state.inbox:
        return state
    taken = _guidance_for_one_step(state)
    waiting, conversation = state.inbox[len(taken) :], state.conversation
    for item in taken:
        message = Message.of("user", _guidance_text(item), pinned=item.kind == "add_context")
        conversation = with_message(conversation, message)
        state = with_applied(state, item, phase=phase, iteration=state.iteration + 1)
    state = state.with_dialogue(conversation=conversation)
    if state.unheard and not waiting:
        state = with_message_to_model(state, LOST_GUIDANCE_TEXT.format(state.unheard)).with_control(unheard=0)
    return state.with_control(inbox=waiting, inbox_bytes=sum(len(item.text.encode()) for item in waiting))


def _guidance_for_one_step(state: AgentState) -> tuple[Intervention, ...]:
    """Return the oldest guidance, at least one item, and at most as much as fits half of the room for news."""
    room = news_bytes_left(state) // 2
    for index, item in enumerate(state.inbox):
        room -= len(_guidance_text(item).encode())
        if index and room < 0:
            return state.inbox[:index]
    return state.inbox


def _guidance_text(item: Intervention) -> str:
    return _GUIDANCE_TEXTS[item.kind].format(item.text)
