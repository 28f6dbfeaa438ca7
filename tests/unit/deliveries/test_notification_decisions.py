"""Notifications of questions are bounded, sent once for each question, and hide nothing."""

import re
from datetime import timedelta
from hashlib import sha256
from string import ascii_lowercase, digits
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from orga.workflows.decisions import continue_as_new, limits
from orga.workflows.decisions.control.interventions import with_pause, with_reopened_end
from orga.workflows.decisions.control.notifications import (
    MAX_CALLS,
    MAX_TEXT_CHARS,
    end_notification,
    question_notification,
    unannounced_questions,
    waiting_lines,
    waiting_text,
    with_announced_question,
)
from orga.workflows.decisions.control.questions import with_question, with_resolution, without_question
from orga.workflows.decisions.tool_calls import call_questions
from orga.workflows.types.control import Intervention, Stop
from orga.workflows.types.input import AgentInput, Lineage
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.past import ForkedFrom
from orga.workflows.types.questions import ANSWER, ItemDecision, Notification, NotifyEvent, Question, Resolution
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.gate import ApprovalTerms, Verdict
from tests.support.values.core import T0, a_call, a_setup, a_state, at
from tests.support.values.strategies import LAW, texts

MAX_MESSAGE_BYTES = 40_000
SOURCE = ForkedFrom(workflow_id="w", run_id="r", iteration=1)
ALL: tuple[NotifyEvent, ...] = ("approval", "escalation", "budget", "ended")


def telling(*events: NotifyEvent, **fields: Any) -> AgentState:
    return a_state(setup=a_setup(notify=events or ALL), **fields)


def an_escalation(question_id: str = "w", **fields: Any) -> Question:
    known: dict[str, Any] = {"kind": "escalation", "since": T0, "text": "what now?"}
    return Question(question_id=question_id, **known | fields)


def held(*calls: ToolCall, **terms: Any) -> tuple[AgentState, Question]:
    verdict = Verdict(decision="approval", version="v1", reason="money", approval=ApprovalTerms(**terms))
    state = telling()
    items = [call_questions.approval_item(state, f"1.{index}", call, verdict, T0) for index, call in enumerate(calls)]
    state = with_question(state, call_questions.approval_question(items, "approval-1", T0), T0)
    return state, state.questions[-1]


def notification(state: AgentState, question: Question) -> Notification:
    return question_notification(state, question, "run")


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param(("escalation",), ["w"], id="this kind is configured"),
        pytest.param(("budget", "ended"), [], id="other kinds are configured"),
        pytest.param((), [], id="no kind is configured"),
    ],
)
def test_only_configured_kinds_are_notified(events: tuple[NotifyEvent, ...], expected: list[str]) -> None:
    state = with_question(a_state(setup=a_setup(notify=events)), an_escalation(), T0)
    assert [each.question_id for each in unannounced_questions(state)] == expected


def test_a_run_without_a_setup_notifies_nobody() -> None:
    state = with_question(a_state(), an_escalation(), T0)
    assert (unannounced_questions(state), state.is_end_notified) == ((), False)


def test_a_question_is_notified_once_even_across_continue_as_new() -> None:
    state = with_question(with_question(telling(), an_escalation("a"), T0), an_escalation("b"), T0)
    state = continue_as_new.continue_as_new_state(with_announced_question(state, "a"), "run-1")
    state = AgentState.model_validate_json(state.model_dump_json(exclude_unset=True))
    assert [each.question_id for each in unannounced_questions(state)] == ["b"]


def test_a_decided_question_is_not_notified() -> None:
    state = with_question(telling(), an_escalation(), T0)
    assert unannounced_questions(with_resolution(state, Resolution(escalation_id="w", choice="skip"), T0)) == ()


def test_closed_questions_are_forgotten() -> None:
    state = with_question(telling(), an_escalation("a"), T0)
    state = without_question(with_announced_question(state, "a"), "a", T0)
    assert with_announced_question(with_question(state, an_escalation("b"), T0), "b").announced == ("b",)


def test_a_message_id_is_derived_from_the_question_and_its_time() -> None:
    """After a rewind the same question is asked again and is not taken for a repetition."""
    state = telling()
    first, again = an_escalation(), an_escalation(since=at(60))
    assert notification(state, first).message_id == notification(state, first).message_id
    assert len({notification(state, question).message_id for question in (first, again, an_escalation("other"))}) == 3


def test_a_held_call_is_notified_with_the_commands_that_decide_it() -> None:
    state, question = held(a_call("pay", amount=7), approvers=("ada",), expires_s=60)
    message = notification(state, question)
    [call] = message.calls
    assert (call.tool, call.arguments, call.reason, call.approvers) == ("pay", '{"amount":7}', "money", ("ada",))
    assert message.commands == (f"orga approve run {call.id}", f"orga deny run {call.id}")
    assert message.expires_at == (T0 + timedelta(seconds=60)).isoformat()
    assert (message.event, message.kind, message.wait_id) == ("waiting", "approval", "approval-1")


LONG: dict[str, Any] = {"note": "pay 9 EUR " + "x" * 5_000, "cents": 9_000_000}


def test_arguments_that_do_not_fit_are_replaced_by_size_and_digest() -> None:
    """Their beginning could be mistaken for the whole."""
    state, question = held(a_call("pay", **LONG), a_call("pay", "c2", cents=900))
    message = notification(state, question)
    long, short = message.calls
    given = to_json(LONG)
    digest = f"sha256:{sha256(given).hexdigest()}"
    assert (long.arguments, long.arguments_bytes, long.arguments_digest) == ("", len(given), digest)
    assert (short.arguments, short.arguments_digest) == ('{"cents":900}', "")
    assert "9 EUR" not in message.model_dump_json()
    assert message.commands[0] == f"orga approve run {long.id} {short.id} --show"


def test_calls_that_fit_on_their_own_share_the_room_of_a_message() -> None:
    state, question = held(*(a_call("pay", f"c{number}", text="x" * 1_500) for number in range(3)))
    message = notification(state, question)
    assert [bool(call.arguments) for call in message.calls] == [True, True, False]
    assert [bool(call.arguments_digest) for call in message.calls] == [False, False, True]
    assert message.commands[0].endswith(" --show")


def test_commands_cover_only_the_shown_calls() -> None:
    state, question = held(*(a_call("pay", f"c{number}", number=number) for number in range(MAX_CALLS + 3)))
    message = notification(state, question)
    assert (len(message.calls), message.calls_left_out) == (MAX_CALLS, 3)
    assert message.commands[0].split()[3:] == [call.id for call in message.calls]


def test_a_reached_limit_is_named() -> None:
    state = telling()
    question = limits.budget_question(state, Stop("max_tokens", "5 of 4 tokens"), T0)
    message = notification(state, question)
    assert message.limit == "max_total_tokens"
    assert message.commands[0] == "orga extend run --max-total-tokens 200000"


def test_invisible_characters_are_escaped() -> None:
    """A right-to-left override makes one amount look like another."""
    state, question = held(a_call("pay", to="bob\u202eeve"))
    assert notification(state, question).calls[0].arguments == '{"to":"bob\\u202eeve"}'


@LAW
@given(st.lists(texts, min_size=1, max_size=30), texts)
def test_a_message_is_bounded_and_each_field_is_one_line(words: list[str], reason: str) -> None:
    state, _ = held(*(a_call("pay", f"c{n}", text=text * 2_000) for n, text in enumerate(words)))
    question = state.questions[-1].model_copy(update={"text": reason * 5_000})
    message = notification(state, question)
    assert len(message.model_dump_json(exclude_unset=True).encode()) <= MAX_MESSAGE_BYTES
    assert len(message.question) <= MAX_TEXT_CHARS
    assert len(message.question.splitlines()) <= 1


@pytest.mark.parametrize(
    ("events", "chain", "source", "expected"),
    [
        pytest.param(("ended",), (), None, True, id="configured"),
        pytest.param(("approval",), (), None, False, id="not configured"),
        pytest.param(("ended",), ("default",), None, False, id="a delegated run"),
        pytest.param(("ended",), ("default",), SOURCE, True, id="a fork of a delegated run"),
    ],
)
def test_the_end_of_a_run_is_notified_if_configured_and_not_delegated(
    events: tuple[NotifyEvent, ...], chain: tuple[str, ...], source: ForkedFrom | None, expected: bool
) -> None:
    state = telling(*events, input=AgentInput(task="t", lineage=Lineage(chain=chain)), forked_from=source)
    assert state.is_end_notified is expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"stop": Stop("completed")}, None, id="continues after its answer"),
        pytest.param({"stop": Stop("timeout", "limit of 5 s")}, "timeout", id="ends at its limit"),
        pytest.param({"stop": Stop("completed"), "aborted": "enough"}, "completed", id="ends if it is aborted"),
        pytest.param({"stop": Stop("completed"), "inbox": ()}, "completed", id="ends without guidance"),
    ],
)
def test_guidance_during_the_end_notification_can_reopen_the_run(fields: dict[str, Any], expected: str | None) -> None:
    stop = with_reopened_end(telling(**{"inbox": (Intervention(kind="steer", text="wait"),), **fields})).stop
    assert (stop and stop.reason) == expected


def test_the_end_of_a_rewound_run_is_a_new_message() -> None:
    ends = [end_notification(telling(), Stop("timeout", "limit of 5 s"), "run", execution) for execution in ("x", "y")]
    assert len({end.message_id for end in ends}) == 2
    assert (ends[0].reason, ends[0].detail, ends[0].event) == ("timeout", "limit of 5 s", "ended")


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (held(a_call("send_letter"))[1], "waiting for approval of send_letter"),
        (held(a_call("pay"), a_call("pay"), a_call("post"))[1], "waiting for approval of pay, pay, post"),
        (held(a_call(ANSWER))[1], "waiting for approval of the answer"),
        (an_escalation(kind="answer", text="Which\none?"), "waiting for an answer: Which one?"),
        (an_escalation(), "waiting for a decision: what now?"),
        (an_escalation(kind="budget", text="max_tokens"), "waiting for more budget: max_tokens"),
    ],
    ids=["a call", "several calls", "an answer of the model", "a question", "an escalation", "a budget"],
)
def test_the_question_of_a_waiting_run_is_shown_on_one_line(question: Question, expected: str) -> None:
    assert waiting_text(question) == expected


def test_a_decided_call_is_no_longer_waited_for() -> None:
    _, question = held(a_call("pay"), a_call("post"))
    first, second = question.items
    decided = question.with_items((first.with_decision(ItemDecision(approved=True, approver="ada")), second))
    assert waiting_text(decided) == "waiting for approval of post"


def test_the_ui_shows_the_held_call_its_deadline_and_the_commands() -> None:
    state, question = held(a_call("pay", to="ada", cents=5), approvers=("grace", "ada"))
    [item] = question.items
    assert waiting_lines(state, "agent-1") == [
        f"- `waiting for approval of pay` since {T0:%Y-%m-%d %H:%M} UTC",
        '  - `pay {"to":"ada","cents":5}`, because `money`, for `grace, ada` to decide',
        f"  - until {item.expires_at:%Y-%m-%d %H:%M} UTC, then it is denied",
        f"  - to decide: `orga approve agent-1 {item.approval_id}`",
        f"  - to decide: `orga deny agent-1 {item.approval_id}`",
    ]


def test_the_ui_shows_the_pause_before_the_questions() -> None:
    state, _ = held(a_call("pay"))
    paused, question, *_ = waiting_lines(with_pause(state, T0), "agent-1")
    assert paused == "- paused: `orga resume agent-1` lets it go on"
    assert question.startswith("- `waiting for approval of pay`")


def test_the_ui_shows_how_to_raise_a_budget() -> None:
    asked_for = an_escalation(kind="budget", data={"limit": "max_iterations", "value": 25}, choices=("skip", "abort"))
    assert waiting_lines(with_question(telling(), asked_for, T0), "agent-1")[1:] == [
        "  - to decide: `orga extend agent-1 --max-iterations 50`",
        "  - to decide: `orga resolve agent-1 w --skip`",
        "  - to decide: `orga resolve agent-1 w --abort`",
    ]


@LAW
@given(texts, texts, texts)
def test_text_in_a_question_cannot_leave_its_code_span_in_the_ui(tool: str, value: str, run_id: str) -> None:
    """Neither a model nor a policy can write a line, a link or a command there."""
    state, _ = held(a_call(tool, value=value))
    for line in waiting_lines(with_pause(state, T0), run_id):
        assert "\n" not in line
        assert set(_CODE.sub("", line)) <= _PLAIN


_CODE = re.compile(r"(`+) ?.*?(?<!`) ?\1(?!`)")
_PLAIN = {*ascii_lowercase, *digits, *"UTC -,:"}
