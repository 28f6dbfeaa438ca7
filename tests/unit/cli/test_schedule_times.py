"""Schedules before any server is asked: times are accepted or refused, and the table fits a terminal."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from inspect import signature
from typing import Any

import pytest

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.main import run_command
from orga.client.cli.options import parse_duration, parse_time
from orga.client.cli.start.run import goal, run
from orga.client.cli.start.schedule import COLUMNS, create_schedule, schedule_table, zoned_time_text
from orga.client.cli.start.schedule import app as schedule_app
from orga.client.schedules.create import MAX_SCHEDULE_ID_BYTES, OVERLAPS, checked_input, checked_schedule_id, timing
from orga.client.schedules.handle import ScheduledRun, ScheduleSummary, duration_text
from orga.workflows.types.goals.goal_input import GoalInput
from orga.workflows.types.input import AgentInput
from orga.workflows.types.record import InvalidInput

CREATE = ["schedule", "create", "nightly"]
TASK, DAILY = ["--task", "x"], ["--cron", "0 7 * * *"]


@pytest.fixture(autouse=True)
def _with_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:9")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param([*CREATE, *DAILY], "--goal TEXT or --task TEXT", id="nothing to do"),
        pytest.param([*CREATE, *DAILY, *TASK, "--goal", "y"], "--goal TEXT or --task TEXT", id="two things to do"),
        pytest.param([*CREATE, *TASK], "a schedule has times", id="no times"),
        pytest.param([*CREATE, *TASK, *DAILY, "--every", "1h"], "one of the two", id="both kinds of times"),
        pytest.param([*CREATE, "--task", "", *DAILY], "task: must not be empty", id="an empty task"),
        pytest.param([*CREATE, "--goal", " ", *DAILY], "goal: must not be empty", id="an empty goal"),
        pytest.param([*CREATE, *TASK, "--cron", "7 * *"], "has 3 fields; must have five", id="too few fields"),
        pytest.param([*CREATE, *TASK, "--cron", ""], "must be an expression of five to seven", id="no expression"),
        pytest.param([*CREATE, *TASK, "--cron", "0 7 * * 1 # a"], "takes no comment", id="a comment"),
        pytest.param([*CREATE, *TASK, "--cron", "TZ=UTC 0 7 * * 1"], "(--tz)", id="a zone in the expression"),
        pytest.param([*CREATE, *TASK, "--cron", "@every 1h"], "(--every)", id="an interval as an expression"),
        pytest.param([*CREATE, *TASK, "--every", "60"], "--every '60': not a duration", id="a number of nothing"),
        pytest.param([*CREATE, *TASK, "--every", "0s"], "every: must be from 1 s", id="all the time"),
        pytest.param([*CREATE, *TASK, *DAILY, "--tz", "Europe/Berln"], "did you mean 'Europe/Berlin'", id="no zone"),
        pytest.param([*CREATE, *TASK, *DAILY, "--tz", ""], "there is no such zone", id="an empty zone"),
        pytest.param([*CREATE, *TASK, *DAILY, "--overlap", "queue"], "'--overlap'", id="no overlap policy"),
        pytest.param([*CREATE, *TASK, *DAILY, "--catch-up", "5s"], "catch_up: must be from 10 s", id="too short"),
        pytest.param(
            [*CREATE, *TASK, *DAILY, "--jitter", "-5m"], "--jitter '-5m': not a duration", id="earlier by chance"
        ),
        pytest.param([*CREATE, *TASK, *DAILY, "--end", "tomorrow"], "--end 'tomorrow': not a time", id="no time"),
        pytest.param([*CREATE, *TASK, *DAILY, "--end", "2020-01-01"], "2020-01-01 00:00 UTC is past", id="a past end"),
        pytest.param([*CREATE, *TASK, *DAILY, "--end", "9999-12-31T23:00-05:00"], "is no time", id="beyond all time"),
        pytest.param([*CREATE, *TASK, *DAILY, "--note", "x" * 1_001], "note: must not be longer", id="a long note"),
        pytest.param(
            [*CREATE, *TASK, *DAILY, "--skills", "a"], "--skills: does not apply to a task. Use --tools", id="skills"
        ),
        pytest.param(
            [*CREATE, *TASK, *DAILY, "--deliver", "a"], "--deliver: does not apply to a task", id="a delivery"
        ),
        pytest.param([*CREATE, "--goal", "x", *DAILY, "--tools", "a"], "a goal. Use --skills", id="tools"),
        pytest.param([*CREATE, "--goal", "x", *DAILY, "--trusted", "a=1"], "--trusted: does not apply", id="facts"),
        pytest.param([*CREATE, *TASK, *DAILY, "--set", "max_iteration=3"], "'max_iterations'", id="a misspelled key"),
        pytest.param(["schedule", "create", "", *TASK, *DAILY], "id '': must be one line", id="an empty id"),
        pytest.param(["schedule", "create", "x" * 971, *TASK, *DAILY], "longer than 970 bytes", id="an endless id"),
        pytest.param(["schedule", "pause", "x", "y" * 1_001], "note: must not be longer", id="a long reason"),
        pytest.param(["schedule", "show"], "Missing argument 'ID'", id="no id"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2_before_a_server_is_asked(
    capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert run_command(arguments) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert shown.err.startswith("orga: ")
    assert says in shown.err


@pytest.mark.parametrize("command", ["list", "show", "pause", "resume", "trigger", "delete", "create"])
def test_without_a_server_the_exit_code_is_7(capsys: pytest.CaptureFixture[str], command: str) -> None:
    given = {"list": [], "create": ["x", *TASK, *DAILY]}.get(command, ["x"])
    assert run_command(["schedule", command, *given]) == 7
    assert "does not answer (connection refused)" in capsys.readouterr().err


def test_the_help_of_every_command_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    names = [str(command.name) for command in schedule_app.registered_commands]
    assert names == ["create", "list", "show", "pause", "resume", "trigger", "delete"]
    for name in names:
        assert run_command(["schedule", name, "--help"]) == 0
        assert "Example: orga schedule" in capsys.readouterr().out, name


@pytest.mark.parametrize("command", [goal, run])
def test_a_schedule_takes_every_option_that_describes_a_run_or_a_goal(command: Callable[..., int]) -> None:
    """It starts each run by itself, under its own ids, and nobody watches."""
    of_the_start = {"id_", "again", "no_worker", "detach", "quiet"}
    options = set(signature(command).parameters) - of_the_start
    assert options <= set(signature(create_schedule).parameters)
    assert len(options) > 10


def test_times_become_temporal_types() -> None:
    """The expression is its own comment. A list of schedules shows it from there as it was written."""
    times = timing(
        cron=["0  7 * * 1-5", "@daily"],
        time_zone="Europe/Berlin",
        overlap="buffer-one",
        catch_up=timedelta(hours=1),
        jitter=timedelta(minutes=5),
        end=datetime(2100, 1, 1),
    )
    assert times.spec.cron_expressions == ["0 7 * * 1-5 # 0 7 * * 1-5", "@daily # @daily"]
    assert times.spec.end_at == datetime(2099, 12, 31, 23, tzinfo=UTC)
    assert (times.spec.time_zone_name, times.spec.jitter) == ("Europe/Berlin", timedelta(minutes=5))
    assert (times.policy.overlap, times.policy.catchup_window) == (OVERLAPS["buffer-one"], timedelta(hours=1))


def test_an_end_with_an_offset_keeps_its_instant() -> None:
    end = datetime.fromisoformat("2100-01-01T00:00+05:00")
    times = timing(every=timedelta(hours=1), time_zone="Europe/Berlin", end=end)
    assert times.spec.end_at == datetime(2099, 12, 31, 19, tzinfo=UTC)
    assert [interval.every for interval in times.spec.intervals] == [timedelta(hours=1)]


def test_an_unknown_overlap_policy_is_refused() -> None:
    with pytest.raises(InvalidInput, match="must be one of skip, buffer-one"):
        timing(cron="@daily", overlap="queue")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("5m", 300), ("1h30m", 5_400), ("2d", 172_800), ("1w", 604_800)],
)
def test_a_duration_is_read(text: str, seconds: int) -> None:
    assert parse_duration(text, "--every") == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "h", "1", "1.5h", "1y", "-1h", "1h30", "9999999999s", "١h"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"not a duration\. Write it as 90s"):
        parse_duration(text, "--every")


def test_a_duration_that_no_date_can_hold_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--every '999999999w': too long\. Give at most 36500d"):
        parse_duration("999999999w", "--every")


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0, "0s"), (90, "1m30s"), (3_600, "1h"), (86_400, "1d"), (90_061, "1d1h1m1s")]
)
def test_a_duration_is_shown_in_the_form_in_which_it_is_read(seconds: int, expected: str) -> None:
    assert duration_text(timedelta(seconds=seconds)) == expected


def test_a_time_is_read_with_or_without_an_offset() -> None:
    assert parse_time("2026-12-31T18:00", "--end").tzinfo is None
    assert parse_time("2026-12-31T18:00+01:00", "--end").astimezone(UTC).hour == 17


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        pytest.param({"task": "x"}, AgentInput, id="a run's"),
        pytest.param({"goal": "x"}, GoalInput, id="a goal's"),
        pytest.param(AgentInput(task="x"), AgentInput, id="a run's, checked before"),
        pytest.param(GoalInput(goal="x"), GoalInput, id="a goal's, checked before"),
    ],
)
def test_an_input_is_checked_as_its_own_type(given: Any, kind: type) -> None:
    assert isinstance(checked_input(given), kind)


@pytest.mark.parametrize("given", [{"goal": ""}, {"task": ""}, {}, {"goal": "x", "task": "y"}])
def test_an_input_that_cannot_start_a_run_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        checked_input(given)


def test_the_longest_id_leaves_room_for_the_time() -> None:
    assert len(f"{checked_schedule_id('x' * MAX_SCHEDULE_ID_BYTES)}-2026-11-23T13:25:22Z") <= 1_000


def a_schedule(schedule_id: str = "nightly", **fields: Any) -> ScheduleSummary:
    values: dict[str, Any] = {
        "workflow": "GoalWorkflow",
        "what": "compare " * 20,
        "times": ("0 7 * * 1-5", "30 18 1 1,4,7,10 *"),
        "time_zone": "America/Argentina/ComodRivadavia",
        "next": (datetime(2099, 11, 24, 6, tzinfo=UTC),),
        "runs": (ScheduledRun("nightly-1", datetime(2020, 11, 23, 6, tzinfo=UTC)),),
        "paused": False,
        "note": "",
        "folder": None,
    }
    return ScheduleSummary(id=schedule_id, **(values | fields))


def test_a_table_fits_a_terminal() -> None:
    lines = schedule_table(
        [a_schedule(), a_schedule("b", runs=(), next=(), paused=True)], {"nightly-1": "max_iterations"}
    )
    assert max(map(len, lines)) <= COLUMNS
    assert lines[0].split() == ["ID", "WHEN", "NEXT", "LAST", "ENDING"]
    assert lines[1].split()[-1] == "max_iterations"
    assert lines[2].startswith("  goal: compare compare")
    assert lines[3].split()[-3:] == ["paused", "-", "-"]


def test_an_id_is_never_cut() -> None:
    """It is copied into the next command."""
    name = "x" * 100
    assert schedule_table([a_schedule(name)], {})[1].startswith(f"{name}  ")


def test_a_run_that_the_server_no_longer_keeps_is_shown_as_gone() -> None:
    assert schedule_table([a_schedule()], {})[1].endswith("gone")


def test_times_are_shown_in_the_schedules_zone() -> None:
    assert zoned_time_text(datetime(2020, 6, 1, 22, tzinfo=UTC), "Europe/Berlin") == "2020-06-02 00:00"
    assert zoned_time_text(datetime(2020, 6, 1, 22, tzinfo=UTC), "No/Such") == "2020-06-01 22:00"
