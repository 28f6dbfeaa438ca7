"""Each shown command that decides a question can be copied and run as it is."""

import shlex
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orga.client.cli.shown.decisions import commands_text, requeue_command
from orga.client.cli.shown.text import age, time_left
from orga.workflows.decisions.control.notifications import decision_commands
from orga.workflows.decisions.control.questions import shown_question
from orga.workflows.decisions.limits import budget_question
from orga.workflows.types.control import Stop
from orga.workflows.types.input import AgentInput, LoopConfig
from orga.workflows.types.limits import Budgets
from orga.workflows.types.messages import ToolCall
from orga.workflows.types.questions import ShownQuestion
from orga.workflows.types.tool_calls.recovery import DeadLetter
from tests.support.values.core import a_state
from tests.support.values.held import a_wait
from tests.support.values.statuses import a_status

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def budgets(**fields: Any) -> Budgets:
    return a_status().budgets.model_copy(update=fields)


def test_an_escalation_is_decided_in_one_of_four_ways() -> None:
    assert decision_commands("run", a_wait("escalation")) == [
        "orga resolve run w-1 --retry",
        "orga resolve run w-1 --skip",
        "orga resolve run w-1 --result TEXT",
        "orga resolve run w-1 --abort",
    ]
    shown = commands_text("run", a_wait("escalation"))
    assert shown == "orga resolve run w-1 --retry (or --skip, --result TEXT, --abort)"


@pytest.mark.parametrize(
    ("stop", "options"),
    [
        pytest.param(Stop("max_iterations", "limit of 25 iterations"), "--max-iterations 50", id="iterations"),
        pytest.param(Stop("max_tokens", "1003 of 1000 tokens"), "--max-total-tokens 2000", id="tokens"),
        pytest.param(Stop("max_cost", "0.3000 of 0.25 USD"), "--max-cost-usd 0.5", id="money"),
        pytest.param(Stop("timeout", "limit of 300 s"), "--timeout-s 600", id="time"),
        pytest.param(Stop("max_iterations", "limit of 3 model calls"), "--max-model-calls 6", id="model calls"),
        pytest.param(Stop("max_iterations", "limit of 4 tool calls"), "--max-tool-calls 8", id="tool calls"),
    ],
)
def test_a_budget_is_decided_by_raising_the_limit_that_was_reached(stop: Stop, options: str) -> None:
    limits = LoopConfig(max_total_tokens=1_000, max_cost_usd=0.25, max_model_calls=3, max_tool_calls=4)
    wait = shown_question(budget_question(a_state(input=AgentInput(task="t", config=limits)), stop, T0))
    assert decision_commands("run", wait)[0] == f"orga extend run {options}"
    assert commands_text("run", wait).endswith("(or orga resolve run budget-0-0 --skip, --abort)")


def test_a_limit_without_a_known_value_is_shown_as_a_placeholder() -> None:
    wait = a_wait("budget", data={"limit": "max_total_tokens"})
    assert decision_commands("run", wait)[0] == "orga extend run --max-total-tokens N"


def test_a_question_without_choices_shows_the_status_command() -> None:
    assert commands_text("run", a_wait("approval")) == "orga status run"


def test_a_free_answer_has_a_command_of_its_own() -> None:
    wait = ShownQuestion(wait_id="question-1", kind="answer", since=T0, question="?", choices=("result", "skip"))
    assert decision_commands("run", wait) == [
        "orga answer run TEXT --question question-1",
        "orga resolve run question-1 --skip",
    ]


def test_an_id_with_shell_characters_is_quoted_as_one_word() -> None:
    run_id = "a run; rm -rf $HOME"
    [words, *_] = [shlex.split(command) for command in decision_commands(run_id, a_wait("escalation"))]
    assert words == ["orga", "resolve", run_id, "w-1", "--retry"]


def test_a_dead_letter_of_an_ended_run_is_requeued_by_a_fork() -> None:
    letter = DeadLetter(letter_id="3.0", call=ToolCall(call_id="c", name="t"), key="k", error="E", at=T0)
    assert requeue_command("run", letter, is_over=False) == "orga requeue run 3.0"
    assert requeue_command("run", letter, is_over=True) == "orga requeue run 3.0 --fork"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        pytest.param(-3, "0 s", id="past"),
        pytest.param(41.2, "42 s", id="seconds"),
        pytest.param(3 * 86_400 - 1, "3 d", id="one second less than three days"),
        pytest.param(3_599, "1 h", id="one second less than an hour"),
        pytest.param(5_400, "1 h 30 min", id="hours and minutes"),
        pytest.param(2 * 86_400 + 14_400, "2 d 4 h", id="days and hours"),
        pytest.param(86_400 + 300, "1 d", id="days and minutes"),
        pytest.param(61, "2 min", id="a minute that has begun"),
    ],
)
def test_a_remaining_time_is_rounded_up(seconds: float, shown: str) -> None:
    assert time_left(T0 + timedelta(seconds=seconds), T0) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        pytest.param(-3, "0 s", id="another clock"),
        pytest.param(59.9, "59 s", id="seconds"),
        pytest.param(60, "1 min", id="minutes"),
        pytest.param(7_199, "1 h", id="an hour and a half is an hour"),
        pytest.param(86_400 * 7, "7 d", id="days"),
    ],
)
def test_an_age_has_the_largest_unit_that_fits(seconds: float, shown: str) -> None:
    assert age(T0, T0 + timedelta(seconds=seconds)) == shown
