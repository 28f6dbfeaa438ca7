"""Result and status have every key that users rely on in scripts."""

import json
from typing import get_args

import pytest

from orga.workflows.decisions.control.interventions import with_guidance, with_pause
from orga.workflows.decisions.conversation import with_message
from orga.workflows.decisions.observe import with_answer
from orga.workflows.decisions.result import agent_result, agent_status, shown_conversation
from orga.workflows.types.context import messages_digest
from orga.workflows.types.control import Intervention, Stop, StopReason
from orga.workflows.types.conversation import Conversation
from orga.workflows.types.messages import Message, Reply
from orga.workflows.types.models.usage import ToolCallCounts, UsageTotals
from orga.workflows.types.record import Record
from tests.support.values.core import T0, a_call, a_setup, a_state, at, user


def as_sent(record: Record) -> dict[str, object]:
    """Return the JSON that a client gets, without unset fields."""
    return json.loads(record.model_dump_json(exclude_unset=True))


def test_the_result_has_every_key_of_the_contract() -> None:
    assert as_sent(agent_result(a_state(), Stop("completed"), T0)) == {
        "output": "",
        "data": None,
        "iterations": 0,
        "termination": {"reason": "completed", "detail": ""},
        "duration_s": 0.0,
        "usage": {
            "input_tokens": 0,
            "output_tokens": 0,
            "cached_input_tokens": 0,
            "total_tokens": 0,
            "model_calls": 0,
            "cost_usd": None,
        },
        "tool_calls": {"proposed": 0, "run": 0, "denied": 0, "failed": 0},
        "conversation_digest": "sha256:" + messages_digest((user("count the files", pinned=True),)),
    }


def test_the_result_contains_output_usage_and_counts() -> None:
    state = with_answer(a_state(iteration=3, usage=UsageTotals(total_tokens=9, model_calls=3)), Reply.of("42"))
    state = state.model_copy(update={"tool_calls": ToolCallCounts(proposed=2, run=1, denied=1)})
    found = agent_result(with_pause(state, at(1.23456)), Stop("max_tokens", "9 of 9 tokens"), at(500))
    assert (found.output, found.iterations, found.duration_s) == ("42", 3, 1.235)
    assert (found.termination.reason, found.termination.detail) == ("max_tokens", "9 of 9 tokens")
    assert (found.usage.total_tokens, found.tool_calls.denied) == (9, 1)
    assert found.conversation_digest == "sha256:" + messages_digest(state.conversation.messages)


@pytest.mark.parametrize(
    "reason", [pytest.param(reason, id=f"{reason} is a result") for reason in get_args(StopReason)]
)
def test_every_reason_of_the_contract_is_a_result(reason: StopReason) -> None:
    assert agent_result(a_state(), Stop(reason, "why"), T0).termination.reason == reason


def test_a_run_without_messages_has_no_digest() -> None:
    assert agent_result(a_state(conversation=Conversation()), Stop("error", ""), T0).conversation_digest == ""


def test_a_new_run_has_every_key_of_the_status() -> None:
    shown = as_sent(agent_status(a_state(), T0))
    assert shown.keys() == {
        *("agent", "model", "phase", "paused", "iteration", "usage", "tool_calls", "budgets", "pending_approvals"),
        *("plan", "question", "breakers", "unread_interventions", "termination", "waiting", "dead_letters", "children"),
        *("workplace", "tiers", "knowledge"),
    }
    assert (shown["phase"], shown["model"], shown["termination"]) == ("preparing", None, None)


def test_the_status_shows_a_paused_run_and_its_unread_interventions_in_order() -> None:
    state = with_pause(a_state(setup=a_setup(), phase="paused", iteration=2), at(10))
    state = with_guidance(state, Intervention(kind="steer", text="left"))
    state = with_guidance(state, Intervention(kind="add_context", text="right"))
    shown = agent_status(state, at(1_000))
    assert (shown.paused, shown.iteration, shown.model) == (True, 2, "scripted:model")
    assert shown.budgets.time_s == 290.0
    assert shown.unread_interventions == [
        {"kind": "steer", "text": "left"},
        {"kind": "add_context", "text": "right"},
    ]


def test_the_status_of_an_ended_run_shows_its_ending() -> None:
    found = agent_status(a_state(stop=Stop("aborted", "enough")), T0).termination
    assert found is not None
    assert (found.reason, found.detail) == ("aborted", "enough")


def test_the_conversation_is_shown_with_instructions_first_roles_and_call_ids() -> None:
    state = a_state(setup=a_setup(instructions="be short"))
    for message in (
        Message.of("assistant", calls=(a_call(),)),
        Message.of_result(text="no", call_id="c1", tool="read", is_error=True),
    ):
        state = state.model_copy(update={"conversation": with_message(state.conversation, message)})
    shown = shown_conversation(state)
    assert [(m.role, m.text, m.call_id, m.is_error) for m in shown] == [
        ("system", "be short", None, False),
        ("user", "count the files", None, False),
        ("assistant", "", None, False),
        ("tool", "no", "c1", True),
    ]
    assert shown[2].calls == (a_call(),)
    assert all(as_sent(m).keys() == {"role", "text", "calls", "call_id", "tool", "is_error"} for m in shown)


def test_without_instructions_the_conversation_starts_with_the_task() -> None:
    assert [m.role for m in shown_conversation(a_state())] == ["user"]
