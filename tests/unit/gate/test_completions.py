"""Calls of deferred tools are completed once, by exactly one end, under their own key."""

from typing import Any

import pytest

from orga.workflows.decisions.control.questions import with_expired_decisions, without_question
from orga.workflows.decisions.tool_calls.call_questions import (
    MAX_COMPLETIONS,
    parsed_completion,
    result_question,
    with_awaited_result,
    with_completion,
    with_result_expired,
)
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.questions import Completion
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.tools import Deferral
from tests.support.values.core import T0, a_state, at

CALL = ToolCall(call_id="c1", name="check", arguments={"person": "ada"})


def waiting(*keys: str, state: AgentState | None = None) -> AgentState:
    found = state or a_state()
    for key in keys or ("k",):
        question = result_question(CALL, Deferral(expires_s=60), key, "1.0", T0)
        found = with_awaited_result(found, question, T0)
    return found


def given(key: str = "k", **end: Any) -> dict[str, Any]:
    return {"idempotency_key": key, "by": "bureau", **(end or {"result": 1})}


def end_of(state: AgentState, key: str = "k") -> Completion | None:
    return next(each.completion for each in state.questions if each.question_id == key)


@pytest.mark.parametrize(
    ("end", "found"),
    [
        ({"result": {"b": 1, "a": [2]}}, Completion(result='{"b":1,"a":[2]}', by="bureau")),
        ({"result": "fine"}, Completion(result='"fine"', by="bureau")),
        ({"result": False}, Completion(result="false", by="bureau")),
        ({"result": 0}, Completion(result="0", by="bureau")),
        ({"result_json": "[1]"}, Completion(result="[1]", by="bureau")),
        ({"error": "no\x00"}, Completion(error="no\ufffd", by="bureau")),
        ({"error": "no", "nothing_done": True}, Completion(error="no", nothing_done=True, by="bureau")),
    ],
)
def test_a_waiting_call_takes_one_end(end: dict[str, Any], found: Completion) -> None:
    state = with_completion(waiting(), given(**end), at(1))
    taken = end_of(state)
    assert taken is not None
    assert (taken.result, taken.nothing_done, taken.by) == (found.result, found.nothing_done, "bureau")
    assert taken.error[:2] == found.error[:2]
    assert state.open_questions == ()
    assert state.clock.paused_seconds(at(9)) == 1


@pytest.mark.parametrize(
    "end",
    [
        {"result": None},
        {"result": "  "},
        {"error": " "},
        {"result_json": ""},
        {"result_json": "null"},
        {"result_json": '""'},
        {"result_json": "{"},
        {"result_json": "NaN"},
        {"result_json": "[" * 1_000},
        {"result_json": "[" * 80 + "]" * 80},
        {"result": 1, "result_json": "1"},
        {"result": 1, "error": "no"},
        {"result": 1, "nothing_done": True},
        {"result": "\U0001f600" * 30_000},
        {"error": "x" * 2_001},
        {"result": 1, "score": 2},
    ],
    ids=lambda end: str(end)[:40],
)
def test_no_other_end_is_taken(end: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        parsed_completion(waiting(), given(**end))
    assert len(str(refused.value)) < 1_000


def test_the_same_end_again_changes_nothing_whoever_sends_it() -> None:
    state = with_completion(waiting(), given(result={"a": 1}), at(1))
    closed = without_question(state, "k", at(2))
    for now in (state, closed):
        assert with_completion(now, given(result_json='{"a":1}') | {"by": "another"}, at(3)) == now
        with pytest.raises(ValueError, match="k is completed already, with another result"):
            parsed_completion(now, given(result={"a": 2}))


def test_an_expired_call_takes_nothing_more() -> None:
    state = with_expired_decisions(waiting(), at(60), at(60))
    assert state.open_questions == ()
    late = with_result_expired(without_question(state, "k", at(60)), "k")
    with pytest.raises(ValueError, match="k has expired: no result arrived in time"):
        parsed_completion(late, given())


def test_a_call_that_is_made_again_waits_again() -> None:
    done = without_question(with_completion(waiting(), given(error="no"), at(1)), "k", at(1))
    again = waiting("k", state=done)
    assert end_of(with_completion(again, given(result=2), at(2))) == Completion(result="2", by="bureau")


def test_each_call_has_its_own_end_and_an_unknown_key_names_those_that_wait() -> None:
    state = with_completion(waiting("k1", "k2"), given("k2"), at(1))
    assert (end_of(state, "k1"), end_of(state, "k2") is not None) == (None, True)
    with pytest.raises(ValueError, match="no call waits for a result under 'k3'; waiting: k1"):
        parsed_completion(state, given("k3"))


def test_only_the_newest_completions_are_remembered() -> None:
    state = a_state()
    for number in range(MAX_COMPLETIONS + 5):
        state = with_result_expired(state, f"k{number}")
    assert list(state.completions)[:2] == ["k5", "k6"]
    assert len(state.completions) == MAX_COMPLETIONS
