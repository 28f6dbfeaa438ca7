"""A fork sends exactly the requested dead letters again."""

import pytest

from orga.workflows.decisions.fork import fork_state
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.tool_calls.recovery import DeadLetter
from tests.support.values.core import T0
from tests.unit.journal.test_forks import SOURCE, started, the_past, wanting


def a_letter(letter_id: str, *, requeued: bool = False) -> DeadLetter:
    call = ToolCall(call_id="c", name="save", arguments={"n": letter_id})
    return DeadLetter(letter_id=letter_id, call=call, key=f"key of {letter_id}", error="E", at=T0, requeued=requeued)


PAST = the_past(dead_letters=(a_letter("1.0"), a_letter("1.1", requeued=True), a_letter("2.0")))


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param((), id="none, not even letters queued by the source run"),
        pytest.param(("2.0",), id="one"),
        pytest.param(("1.0", "1.1"), id="some, in the order of the run"),
    ],
)
def test_a_fork_requeues_exactly_the_requested_letters_with_their_keys(wanted: tuple[str, ...]) -> None:
    fork = started(fork_state(PAST, SOURCE, wanting(requeue=wanted), T0))
    assert [(letter.letter_id, letter.key) for letter in fork.dead_letters] == [(i, f"key of {i}") for i in wanted]
    assert fork.waiting_letters == fork.dead_letters


def test_an_unknown_letter_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"no dead letter '9\.9' in this run; there are: 1\.0, 1\.1, 2\.0"):
        fork_state(PAST, SOURCE, wanting(requeue=("2.0", "9.9")), T0)
