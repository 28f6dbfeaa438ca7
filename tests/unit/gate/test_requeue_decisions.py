"""Dead letters that wait to be requeued: their effect on the end of a run, on keys and on counts."""

from typing import Any

import pytest

from orga.workflows.decisions.control.interventions import guidance, with_abort, with_guidance
from orga.workflows.decisions.observe import termination_text, with_answer, with_termination
from orga.workflows.decisions.tool_calls.recovery import (
    kept_idempotency_key,
    with_dead_letter,
    with_letter_answered,
    with_requeued_letter,
)
from orga.workflows.types.messages import Reply
from orga.workflows.types.state import AgentState
from orga.workflows.types.tool_calls.recovery import DeadLetter, Outcome, OutcomeStatus
from tests.support.values.core import T0, a_call, a_setup, a_spec, a_state


def a_letter(**arguments: Any) -> DeadLetter:
    return DeadLetter(letter_id="1.0", call=a_call(**arguments), key="key-1", error="down", at=T0)


LYING = with_dead_letter(a_state(setup=a_setup(a_spec())), a_letter())
WAITING = with_requeued_letter(LYING, "1.0")


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param(LYING, ("completed", ""), id="a letter that is not requeued does not delay the end"),
        pytest.param(WAITING, None, id="a letter that waits to be sent delays the end"),
    ],
)
def test_a_requeued_letter_delays_the_end(state: AgentState, expected: tuple[str, str] | None) -> None:
    assert with_answer(state, Reply.of("done", finish="stop")).stop == expected
    assert with_termination(state, "", "done").stop == expected


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param(LYING, "[Ended]", id="nothing delays the end"),
        pytest.param(WAITING, "The operator has calls sent again", id="a letter waits to be sent"),
        pytest.param(with_guidance(LYING, guidance("steer", "x")), "Guidance from the operator arrived", id="guidance"),
        pytest.param(with_abort(LYING, "enough"), "[Ended]", id="an abort ends the run"),
    ],
)
def test_the_model_reads_why_the_run_has_not_ended(state: AgentState, expected: str) -> None:
    assert expected in termination_text(with_termination(state, "", "done"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param({"a": 1, "b": {"c": 2, "d": 3}}, "key-1", id="the same"),
        pytest.param({"b": {"d": 3, "c": 2}, "a": 1}, "key-1", id="in another order"),
        pytest.param({"a": True, "b": {"c": 2, "d": 3}}, None, id="equal only in Python"),
        pytest.param({"a": 1}, None, id="others"),
    ],
)
def test_the_key_of_a_letter_is_kept_for_the_same_arguments(arguments: dict[str, Any], expected: str | None) -> None:
    letter = a_letter(a=1, b={"c": 2, "d": 3})
    assert kept_idempotency_key(letter, letter.call.model_copy(update={"arguments": arguments})) == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param("ok", 1, id="answered"),
        pytest.param("failed", 1, id="failed again"),
        pytest.param("cancelled", 1, id="cancelled"),
        pytest.param("denied", 0, id="denied"),
        pytest.param("not_run", 0, id="never started"),
    ],
)
def test_a_letter_is_counted_if_it_was_sent(status: OutcomeStatus, expected: int) -> None:
    letter = a_letter()
    counts = with_letter_answered(WAITING, letter, Outcome(call=letter.call, status=status, text="")).tool_calls
    assert (counts.requeued, counts.spent, counts.run) == (expected, expected, 0)
    assert ("requeued" in counts.model_dump()) is bool(expected)
