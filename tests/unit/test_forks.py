"""What a fork takes from the run whose past it shares, and what it does not."""

from typing import Any

import pytest

from tests.support.core import T0, a_setup, a_state, at, conversation_of, user
from workflows.decisions.begin import begun, first_state
from workflows.decisions.conversation import full_digest
from workflows.decisions.forks import fork_of, is_fork
from workflows.types.breaker import Breaker
from workflows.types.digest import digest_of
from workflows.types.input import AgentInput, InvalidInput, LoopConfig
from workflows.types.state import AgentState, Child, Clock, ForkedFrom, Intervention
from workflows.types.waits import Wait

SOURCE = ForkedFrom(workflow_id="w", run_id="r", iteration=2)


def the_past(**fields: Any) -> AgentState:
    setup = a_setup(instructions="Be long.", config=LoopConfig(max_iterations=9, temperature=0.7))
    past = {"iteration": 2, "setup": setup, "conversation": conversation_of(user("t", pinned=True), user("a"), sent=1)}
    return a_state("t", **(past | fields))


def started(state: AgentState, seconds: float = 50) -> AgentState:
    """Return the first state of the run that is started with this one, through a payload as in life."""
    given = state.model_dump(mode="json", exclude_unset=True)
    return first_state(given["input"], given, None, "fork", at(seconds))


def forked(past: AgentState, changes: dict[str, Any] | None = None, task: str | None = None) -> AgentState:
    return started(fork_of(past, SOURCE, changes=changes or {}, task=task, ended_at=at(5)))


def test_the_conversation_and_what_was_spent_are_shared() -> None:
    fork = forked(the_past())
    assert fork.conversation.messages == the_past().conversation.messages
    assert fork.conversation.sent == 2
    assert fork.conversation.digest == full_digest(fork.conversation) == digest_of(fork.conversation.messages)
    assert (fork.iteration, fork.forked_from) == (2, SOURCE)


def test_its_effects_and_its_clock_are_its_own_and_the_time_goes_on() -> None:
    fork = forked(the_past(clock=Clock(started_at=T0, stopped_s=1)))
    assert fork.origin == "fork"
    assert fork.clock.elapsed_s(at(50)) == 4
    assert fork.clock.elapsed_s(at(52)) == 6


def test_the_time_of_a_run_that_ended_paused_is_that_of_its_pause() -> None:
    assert forked(the_past(clock=Clock(started_at=T0, stopped_at=at(3)))).clock.elapsed_s(at(50)) == 3


def test_nothing_of_what_the_other_run_waits_for_comes_with_it() -> None:
    fork = forked(
        the_past(
            waits=(Wait(wait_id="1", kind="escalation", since=T0, question="?"),),
            paused=True,
            aborted="enough",
            stop=("aborted", "enough"),
            children=(Child(workflow_id="c", agent="a", task="t"),),
            breakers={"look": Breaker(state="open", opened_at=T0)},
            phase="done",
        )
    )
    assert (fork.waits, fork.paused, fork.aborted, fork.stop, fork.children, fork.breakers) == (
        (),
        False,
        None,
        None,
        (),
        {},
    )
    assert fork.phase == "preparing"


def test_streaks_that_end_a_run_begin_anew() -> None:
    """The limit may be another one, and so may the task."""
    past = the_past(over_budget=1, denials={"bad: forbidden": 3}, repairs=2, critiques={"editor": 2})
    fork = forked(past)
    assert (fork.over_budget, fork.denials, fork.repairs, fork.critiques) == (0, {}, 0, {})


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        pytest.param(None, ("old half, ", "old half, ", {"n": 42}), id="of the same task is kept"),
        pytest.param("something else", ("", "", None), id="of another task is left behind"),
    ],
)
def test_what_was_answered_so_far(task: str | None, expected: tuple[str, str, Any]) -> None:
    fork = forked(the_past(partial="old half, ", output="old half, ", data={"n": 42}), task=task)
    assert (fork.partial, fork.output, fork.data) == expected


def test_it_is_prepared_anew_with_the_settings_that_its_past_had() -> None:
    fork = forked(the_past())
    assert fork.setup is None
    assert (fork.input.model, fork.input.instructions) == ("scripted:model", "Be long.")
    assert (fork.config.max_iterations, fork.config.temperature) == (9, 0.7)


def test_limits_that_were_raised_stay_raised_unless_they_are_set() -> None:
    past = the_past(extended={"max_iterations": 20, "timeout_s": 900})
    fork = forked(past, {"config": {"timeout_s": 60}})
    assert (fork.config.max_iterations, fork.config.timeout_s, fork.extended) == (20, 60, {})


def test_settings_win_over_the_past_key_by_key() -> None:
    past = the_past(setup=a_setup(config=LoopConfig.model_validate({"recovery": {"max_attempts": 7}})))
    fork = forked(past, {"model": "m:x", "config": {"recovery": {"base_delay_ms": 9}}})
    assert fork.input.model == "m:x"
    assert (fork.config.recovery.max_attempts, fork.config.recovery.base_delay_ms) == (7, 9)


def test_another_agent_brings_its_own_model_and_instructions() -> None:
    fork = forked(the_past(), {"agent": "other"})
    assert (fork.input.agent, fork.input.model, fork.input.instructions) == ("other", None, None)


def test_a_task_is_asked_behind_the_conversation_and_its_references_are_looked_up() -> None:
    fork = forked(the_past(hydrated=True), task="and now?")
    assert [message.text for message in fork.conversation.messages] == ["t", "a", "and now?"]
    assert fork.conversation.messages[-1].pinned
    assert (fork.input.task, fork.hydrated, forked(the_past(hydrated=True)).hydrated) == ("and now?", False, True)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({"forked_from": {"workflow_id": "w"}}, True, id="a fork"),
        pytest.param({"forked_from": {"workflow_id": "w"}, "carried_by": "r"}, False, id="a fork that goes on as new"),
        pytest.param({"carried_by": ""}, False, id="a carried state"),
        pytest.param({"forked_from": None}, False, id="no fork"),
        pytest.param(["forked_from"], False, id="no object"),
        pytest.param(None, False, id="nothing"),
    ],
)
def test_what_a_starter_may_send(given: object, expected: bool) -> None:
    assert is_fork(given) is expected


def test_any_other_state_of_a_starter_is_left_alone() -> None:
    assert first_state({"task": "t"}, {"iteration": 5}, None, "o", T0) == begun(AgentInput(task="t"), "o", T0)


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param({"clock": {"started_at": "2026-01-01T00:00:00"}}, id="a time without a zone"),
        pytest.param({"clock": {"started_at": T0.isoformat(), "stopped_s": -1e300}}, id="more time than there is"),
        pytest.param({"clock": None}, id="no clock"),
        pytest.param({"conversation": {"messages": "none"}}, id="no messages"),
    ],
)
def test_a_state_that_cannot_be_used_is_bad_input_and_hangs_nothing(bad: dict[str, Any]) -> None:
    past = fork_of(the_past(), SOURCE, changes={}, task=None, ended_at=at(5))
    good = past.model_dump(mode="json", exclude_unset=True)
    with pytest.raises(InvalidInput, match="forked state: "):
        first_state({"task": "t"}, good | bad, None, "fork", at(50))


def test_a_made_up_state_cannot_bring_what_a_loop_would_trip_over() -> None:
    past = the_past(inbox=(Intervention(kind="pause"), Intervention(kind="steer", text="x")), calibration=float("inf"))
    fork = started(fork_of(past, SOURCE, changes={}, task=None, ended_at=at(5)))
    assert [item.kind for item in fork.inbox] == ["steer"]
    assert fork.calibration == 1.0


def test_a_bad_setting_names_its_key() -> None:
    with pytest.raises(InvalidInput, match=r"config\.max_iteration: unknown key"):
        fork_of(the_past(), SOURCE, changes={"config": {"max_iteration": 3}}, task=None, ended_at=at(5))
