"""Observe: every call is answered once, in order, and everything is counted."""

from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orga.workflows.decisions.observe import (
    classify_reply,
    with_answer,
    with_denied_answer,
    with_outcomes,
    with_repair,
    with_reply,
    with_unjudged_reply,
)
from orga.workflows.decisions.tool_calls.repeated_calls import refusal_names
from orga.workflows.types.control import Intervention
from orga.workflows.types.messages import Message, Reply, ToolCall
from orga.workflows.types.models.usage import ToolCallCounts, Usage
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.gate import Verdict
from orga.workflows.types.tool_calls.recovery import Outcome, OutcomeStatus
from tests.support.values.core import a_call, a_state, user
from tests.support.values.strategies import LAW
from tests.support.values.strategies import replies as replies_of_models

DENY = Verdict(decision="deny", reason="not today")
statuses: st.SearchStrategy[OutcomeStatus] = st.sampled_from(get_args(OutcomeStatus))


def outcome(call: ToolCall, status: OutcomeStatus = "ok") -> Outcome:
    return Outcome(call=call, status=status, text=status, result="1.0" if status == "ok" else None)


def assert_every_call_is_answered_once_in_order(messages: tuple[Message, ...]) -> None:
    for index, message in enumerate(messages):
        answers = messages[index + 1 : index + 1 + len(message.calls)]
        assert [a.call_id for a in answers] == [c.call_id for c in message.calls]
        assert all(a.role == "tool" for a in answers)
    assert sum(m.role == "tool" for m in messages) == sum(len(m.calls) for m in messages)


replies_seen = st.lists(st.tuples(replies_of_models, st.lists(statuses, min_size=4, max_size=4)), max_size=4)


@LAW
@given(replies_seen, st.booleans())
def test_every_call_of_any_reply_is_answered_once_in_order(
    replies: list[tuple[Reply, list[OutcomeStatus]]], is_interrupted: bool
) -> None:
    state, by_iteration = a_state(), dict[int | None, Reply]()
    for reply, wanted in replies:
        found = classify_reply(reply)
        state = with_reply(state, reply, state.conversation)
        outcomes = tuple(outcome(call, status) for call, status in zip(reply.calls, wanted, strict=False))
        if is_interrupted:
            state = with_unjudged_reply(state, reply, outcomes)
        elif found.kind == "calls":
            state = with_outcomes(state, reply, outcomes, [])
        elif found.kind == "answer":
            state = with_answer(state, reply)
        else:
            state = with_repair(state, found)
        assert_every_call_is_answered_once_in_order(state.conversation.messages)
        by_iteration[state.iteration] = reply
        for news, message in zip(state.conversation.news, state.conversation.messages, strict=True):
            assert news.result is not None or (news.message or by_iteration[news.reply].message()) == message
        counts = state.tool_calls
        assert counts.proposed == counts.run + counts.denied + counts.invalid + counts.not_run


def test_an_unusable_reply_is_counted() -> None:
    reply = Reply(usage=Usage(input_tokens=7, output_tokens=3, cached_input_tokens=2), cost_usd=0.5)
    state = with_reply(a_state(), reply, a_state().conversation)
    assert (state.iteration, state.usage.total_tokens, state.usage.model_calls) == (1, 10, 1)
    assert (state.usage.cached_input_tokens, state.usage.cost_usd) == (2, 0.5)


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        pytest.param((None, None), None, id="no price is known"),
        pytest.param((0.25, None), 0.25, id="a call without a price after a priced one"),
        pytest.param((None, 0.25), 0.25, id="a priced call after one without a price"),
        pytest.param((0.0, None), 0.0, id="a call that is free"),
        pytest.param((0.25, 0.5), 0.75, id="both"),
    ],
)
def test_costs_add_up(costs: tuple[float | None, ...], expected: float | None) -> None:
    state = a_state()
    for cost in costs:
        state = with_reply(state, Reply.of("a", cost_usd=cost), state.conversation)
    assert state.usage.cost_usd == expected


@pytest.mark.parametrize(
    ("status", "counts"),
    [
        pytest.param("ok", ToolCallCounts(proposed=1, run=1), id="ok"),
        pytest.param("failed", ToolCallCounts(proposed=1, run=1, failed=1), id="failed"),
        pytest.param("cancelled", ToolCallCounts(proposed=1, run=1, failed=1), id="cancelled while it ran"),
        pytest.param("denied", ToolCallCounts(proposed=1, denied=1), id="denied by policy"),
        pytest.param("invalid", ToolCallCounts(proposed=1, invalid=1), id="refused before the policy"),
        pytest.param("not_run", ToolCallCounts(proposed=1, not_run=1), id="never started"),
    ],
)
def test_an_outcome_is_counted_and_reported_to_the_model(status: OutcomeStatus, counts: ToolCallCounts) -> None:
    call = a_call()
    state = with_outcomes(a_state(), Reply.of(calls=(call,)), (outcome(call, status),), [])
    reported = state.conversation.messages[-1]
    assert state.tool_calls == counts
    assert (reported.call_id, reported.tool, reported.text, reported.is_error) == ("c1", "read", status, status != "ok")


def test_a_recorded_result_is_sent_by_reference_and_a_failure_in_full() -> None:
    calls = (a_call(call_id="a"), a_call(call_id="b"))
    state = with_outcomes(
        a_state(iteration=4), Reply.of(calls=calls), (outcome(calls[0]), outcome(calls[1], "failed")), []
    )
    task, reply, ok, failed = state.conversation.news
    assert task.message is not None
    assert (reply.reply, ok.result, ok.message) == (4, "1.0", None)
    assert failed.message == state.conversation.messages[-1]


def test_dropped_calls_are_reported_to_the_model() -> None:
    state = with_outcomes(a_state(), Reply.of(calls=(a_call(),), left_out=3), (outcome(a_call()),), [])
    assert state.conversation.messages[-1] == user("[Not run] 3 more calls of your reply: a reply has at most 1 calls.")
    assert (state.tool_calls.proposed, state.tool_calls.not_run) == (4, 3)


def test_each_denial_is_listed_once_without_invalid_calls() -> None:
    calls = [a_call("rm", "a"), a_call("rm", "b"), a_call("read", "c"), a_call("ls", "d")]
    verdicts = (DENY, DENY, Verdict(decision="invalid", reason="not today"), Verdict(decision="allow"))
    wanted: tuple[OutcomeStatus, ...] = ("denied", "denied", "invalid", "ok")
    outcomes = tuple(outcome(call, status) for call, status in zip(calls, wanted, strict=True))
    assert refusal_names(outcomes, verdicts, "denied") == ["rm: not today"]


def test_an_answer_is_the_output_and_clears_denials_and_repairs() -> None:
    state = with_answer(a_state(denials={"rm: no": 2}, repairs=2), Reply.of("done"))
    assert (state.output, state.denials, state.repairs) == ("done", {}, 0)


def test_a_denied_answer_is_no_output_and_the_model_gets_the_reason() -> None:
    state = with_denied_answer(a_state(), Reply.of("secret"), DENY)
    assert state.output == ""
    assert [m.text for m in state.conversation.messages[1:]] == ["secret", "[Policy denied] not today"]
    assert state.denials == {"final answer: not today": 1}


def test_an_interrupted_answer_is_kept_in_the_conversation_only() -> None:
    state = with_unjudged_reply(a_state(), Reply.of("secret"), ())
    assert (state.output, state.conversation.messages[-1].text) == ("", "secret")


def cut(state: AgentState, text: str) -> AgentState:
    return with_repair(state, classify_reply(Reply.of(text, finish="length")))


def test_a_cut_answer_continues_where_it_stopped() -> None:
    state = with_answer(cut(cut(a_state(), "one, "), "two, "), Reply.of("three"))
    assert (state.output, state.partial) == ("one, two, three", "")


def test_calls_after_a_cut_answer_restart_the_answer() -> None:
    state = with_outcomes(cut(a_state(), "one, "), Reply.of(calls=(a_call(),)), (outcome(a_call()),), [])
    assert with_answer(state, Reply.of("new")).output == "new"


@pytest.mark.parametrize(
    ("reply", "reason", "detail"),
    [
        pytest.param(Reply(), "error", "blank reply", id="blank"),
        pytest.param(Reply.of("no", finish="refusal"), "error", "refusal: the model declined: no", id="refusal"),
        pytest.param(Reply(finish="content_filter"), "error", "content filter", id="content filter"),
        pytest.param(Reply.of(calls=(a_call(),), finish="length"), "error", "truncated tool call", id="cut calls"),
        pytest.param(Reply.of("a", finish="length"), "completed", "the answer is cut", id="a cut answer is an answer"),
    ],
)
def test_the_third_repair_ends_the_run(reply: Reply, reason: str, detail: str) -> None:
    states = [a_state()]
    for _ in range(3):
        states.append(with_repair(states[-1], classify_reply(reply)))
    assert [state.stop is None for state in states] == [True, True, True, False]
    assert states[3].stop is not None
    assert states[3].stop.reason == reason
    assert states[3].stop.detail.startswith(detail)
    assert all(len(b.conversation.messages) > len(a.conversation.messages) for a, b in pairwise(states))
    assert states[3].output == ("aaa" if reason == "completed" else "")


def test_waiting_guidance_allows_a_cut_answer_another_repair() -> None:
    state = cut(cut(a_state(), "a"), "b")
    waiting = state.model_copy(update={"inbox": (Intervention(kind="steer", text="shorter"),)})
    assert cut(state, "c").stop == ("completed", "the answer is cut at the output limit")
    assert cut(waiting, "c").stop is None


def test_a_usable_reply_resets_the_count_of_repairs() -> None:
    state = with_repair(with_repair(a_state(), classify_reply(Reply())), classify_reply(Reply()))
    state = with_outcomes(state, Reply.of(calls=(a_call(),)), (outcome(a_call()),), [])
    assert with_repair(state, classify_reply(Reply())).stop is None


def test_cut_calls_are_not_run_and_each_gets_a_result() -> None:
    calls = (a_call(call_id="a"), a_call(call_id="b"))
    state = with_repair(a_state(), classify_reply(Reply.of(calls=calls, finish="length")))
    reported = state.conversation.messages[2:4]
    assert [(m.call_id, m.is_error) for m in reported] == [("a", True), ("b", True)]
    assert all(m.text.startswith("[Not run] ") for m in reported)


def test_a_refusal_keeps_its_text_and_drops_its_calls() -> None:
    state = with_repair(a_state(), classify_reply(Reply.of("no", calls=(a_call(),), finish="refusal")))
    assert [(m.role, m.text, m.calls) for m in state.conversation.messages[1:2]] == [("assistant", "no", ())]
