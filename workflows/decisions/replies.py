"""What a model's reply is: calls to judge, an answer, or something that needs repair."""

from typing import Literal

from orga.workflows.types.messages import Reply
from orga.workflows.types.value import Value

MAX_REPAIRS_IN_A_ROW = 2
"""Unusable replies in a row that get feedback; one more ends the run as `error`."""

Kind = Literal["calls", "answer", "cut_answer", "cut_data", "cut_calls", "blank", "refusal", "content_filter"]

_FEEDBACK: dict[Kind, str] = {
    "cut_answer": "Your reply was cut at the output limit. Go on exactly where it stops; repeat nothing.",
    "cut_data": "Your reply was cut at the output limit, so its JSON is not whole. Answer again, shorter.",
    "cut_calls": "Your reply was cut at the output limit, so none of its calls was run. Make fewer or shorter calls.",
    "blank": "Your reply was empty. Either call a tool or give the final answer as text.",
    "refusal": "You declined. If a part of the task can be done, do that part; else say what stands against it.",
    "content_filter": "Your reply was withheld by the provider's content filter. Put it another way.",
}

_DETAIL: dict[Kind, str] = {
    "cut_answer": "the answer is cut at the output limit",
    "cut_data": "the answer is cut at the output limit, again and again, so it fits no output schema",
    "cut_calls": "truncated tool call: the model's reply was cut at the output limit, again and again",
    "blank": "blank reply: the model returned neither text nor a tool call, again and again",
    "refusal": "refusal: the model declined",
    "content_filter": "content filter: the provider withheld the model's reply",
}


class ClassifiedReply(Value):
    """A reply with what it is."""

    reply: Reply
    kind: Kind

    @property
    def is_usable(self) -> bool:
        """Whether the loop can go on with it without feedback."""
        return self.kind in {"calls", "answer"}

    @property
    def feedback(self) -> str:
        """Tell the model what was wrong with its reply."""
        return f"[Reply not usable] {_FEEDBACK[self.kind]}"

    @property
    def detail(self) -> str:
        """Name the ending when repairs did not help; the model's own words are quoted."""
        said = " ".join(self.reply.text.split())[:200]
        return _DETAIL[self.kind] + (f": {said}" if said and self.kind == "refusal" else "")


def classify_reply(reply: Reply, *, wants_data: bool = False) -> ClassifiedReply:
    """Return what `reply` is. A finish reason that says "no" wins over what the reply holds.

    With `wants_data` the answer is JSON, which a model begins anew rather than go on where it was cut.
    """
    kind = _kind(reply)
    return ClassifiedReply(reply, "cut_data" if wants_data and kind == "cut_answer" else kind)


def _kind(reply: Reply) -> Kind:
    if reply.finish in {"refusal", "content_filter"}:
        return "refusal" if reply.finish == "refusal" else "content_filter"
    if reply.calls:
        return "cut_calls" if reply.finish == "length" else "calls"
    if not reply.text.strip():
        return "blank"
    return "cut_answer" if reply.finish == "length" else "answer"


def left_out_text(reply: Reply) -> str:
    """Return what the model is told of the calls of its reply that were not taken in."""
    named = ", ".join(f"{name} {count}" for name, count in reply.left_out_tools.items())
    which = f" ({named})" if named else ""
    return f"{reply.left_out} more calls of your reply{which}: a reply has at most {len(reply.calls)} calls."
