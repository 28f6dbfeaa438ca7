"""Each reply has exactly one kind. The model gets feedback about an unusable reply."""

from typing import get_args

import pytest
from hypothesis import given

from orga.activities.adapters.models.kept_fields import block_part
from orga.workflows.decisions.observe import ReplyKind, classify_reply
from orga.workflows.types.messages import FinishReason, Reply
from tests.support.values.core import a_call
from tests.support.values.strategies import LAW, any_replies

CALLS = (a_call(),)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        pytest.param(Reply.of("done"), "answer", id="text is an answer"),
        pytest.param(Reply.of(calls=CALLS, finish="tool_calls"), "calls", id="calls are calls"),
        pytest.param(Reply.of("I will look", calls=CALLS, finish="tool_calls"), "calls", id="text next to calls"),
        pytest.param(Reply.of(calls=CALLS, finish="stop"), "calls", id="calls despite finish reason stop"),
        pytest.param(Reply.of("done", finish="tool_calls"), "answer", id="no calls despite finish reason tool_calls"),
        pytest.param(Reply.of("don", finish="length"), "cut_answer", id="a cut answer"),
        pytest.param(Reply.of(calls=CALLS, finish="length"), "cut_calls", id="cut calls, whose arguments may be cut"),
        pytest.param(Reply(), "blank", id="nothing at all"),
        pytest.param(Reply.of(" \n\t"), "blank", id="only white space"),
        pytest.param(Reply.of(blocks=(block_part({"type": "thinking"}),)), "blank", id="only thinking"),
        pytest.param(Reply(finish="length"), "cut_thinking", id="all output went into thinking"),
        pytest.param(Reply.of("I can't", finish="refusal"), "refusal", id="a refusal"),
        pytest.param(Reply.of(calls=CALLS, finish="refusal"), "refusal", id="a refusal wins over calls"),
        pytest.param(Reply.of("so", finish="content_filter"), "content_filter", id="a filter wins over text"),
        pytest.param(Reply(finish="content_filter"), "content_filter", id="a filter wins over blank"),
    ],
)
def test_a_reply_has_this_kind(reply: Reply, kind: ReplyKind) -> None:
    assert classify_reply(reply).kind == kind


@LAW
@given(any_replies)
def test_every_reply_has_exactly_one_kind_and_is_usable_or_gets_feedback(reply: Reply) -> None:
    found = classify_reply(reply)
    assert found.kind in get_args(ReplyKind)
    assert found.reply is reply
    if found.is_usable:
        assert found.kind == ("calls" if reply.calls else "answer")
    else:
        assert found.feedback.startswith("[Reply not usable] ")
        assert found.detail


@pytest.mark.parametrize("finish", [pytest.param(f, id=f"finish {f}") for f in get_args(FinishReason)])
def test_a_blank_reply_is_never_usable(finish: FinishReason) -> None:
    """An empty success would end a run that has done nothing."""
    assert not classify_reply(Reply.of(" ", finish=finish)).is_usable


def test_only_a_refusal_is_quoted_on_one_line_and_cut() -> None:
    text = "I cannot\nhelp " + "x" * 500
    assert (
        classify_reply(Reply.of(text, finish="refusal")).detail
        == "refusal: the model declined: " + ("I cannot help " + "x" * 500)[:200]
    )
    assert text not in classify_reply(Reply.of(text, finish="length")).detail
