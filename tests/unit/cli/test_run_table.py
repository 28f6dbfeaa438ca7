"""The table of runs at the width of a terminal: what tells runs apart is there, and no line is too long."""

from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from rich.cells import cell_len
from temporalio.client import Client, WorkflowExecutionStatus

from orga.client.cli.inspect.runs import run_table, short_ids
from orga.client.runs.listing import ListedRun, StatusQueries, with_details
from orga.workflows.types.status import AgentResult, AgentStatus
from orga.workflows.types.usage import UsageTotals
from tests.support.values.statuses import a_status

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
UUID = "agent-01a20a73-4773-720c-919f-9245270a3b50"
SAME_MILLISECOND = "agent-01a20a73-4773-7fff-919f-9245270a3b50"


def a_row(run_id: str = UUID, **fields: Any) -> ListedRun:
    given: dict[str, Any] = {
        "agent": "default",
        "state": "running",
        "iteration": 3,
        "started": NOW - timedelta(minutes=5),
        "cost_usd": 0.0421,
        "tenant": None,
        "task_queue": "q",
        "folder": "/home/somebody/projects/harbour",
        "task": "Which limits does a run have?",
    }
    return ListedRun(run_id, **{**given, **fields})


def test_eighty_columns_hold_task_agent_state_age_iterations_calls_cost_and_folder() -> None:
    assert run_table([a_row(model_calls=12)], NOW, 80) == [
        "ID             TASK          AGENT    STATE    AGE   ITER  CALLS  USD     FOLDER",
        "01a20a73-4773  Which limit…  default  running  5min  3     12     0.0421  …rbour",
    ]


async def test_a_run_that_has_ended_is_listed_with_its_model_calls() -> None:
    ended = Mock(spec=AgentResult, usage=UsageTotals(model_calls=5))
    run = Mock(static_summary=AsyncMock(return_value="the goal"), status=WorkflowExecutionStatus.COMPLETED)
    client = Mock(spec=Client)
    client.get_workflow_handle.return_value = Mock(describe=AsyncMock(return_value=run), result=AsyncMock())
    client.get_workflow_handle.return_value.result.return_value = ended

    [row] = await with_details(client, [a_row(state="completed")])

    assert (row.task, row.model_calls) == ("the goal", 5)


def test_numbers_that_may_be_old_are_told_as_the_least_that_they_are() -> None:
    [_, line] = run_table([a_row(may_be_more=True)], NOW)
    assert line.split()[-4:-1] == ["3+", "-", "0.0421+"]


@pytest.mark.parametrize(
    ("state", "told", "numbers"),
    [
        pytest.param("running", a_status(iteration=7), (7, 0.25, False), id="it says so itself"),
        pytest.param("running (paused)", None, (3, 0.0421, True), id="nobody answers"),
        pytest.param("completed", None, (3, 0.0421, False), id="it has ended"),
    ],
)
async def test_a_live_run_that_is_not_asked_has_numbers_that_may_be_old(
    monkeypatch: pytest.MonkeyPatch, state: str, told: AgentStatus | None, numbers: tuple[int, float, bool]
) -> None:
    client = Mock(spec=Client)
    client.get_workflow_handle.return_value.describe = AsyncMock(return_value=Mock(static_summary=AsyncMock()))
    monkeypatch.setattr(StatusQueries, "statuses", AsyncMock(return_value=[] if state == "completed" else [told]))

    [row] = await with_details(client, [a_row(state=state)])

    assert (row.iteration, row.cost_usd, row.may_be_more) == numbers


@pytest.mark.parametrize("width", [80, 60, 44])
@pytest.mark.parametrize(
    "row",
    [
        pytest.param(
            a_row(task="日本語のタスクは幅が広いので切られる" * 5, agent="日本語のエージェント"), id="wide characters"
        ),
        pytest.param(a_row(task="word " * 200, agent="a-rather-long-name-of-an-agent"), id="long texts"),
        pytest.param(a_row(task="", agent=None, cost_usd=None, iteration=None, folder=None), id="nothing known"),
        pytest.param(a_row(state="running (waits: escalation)", iteration=1234, cost_usd=1234.5), id="large numbers"),
        pytest.param(a_row(folder="/日本/" + "語" * 90), id="a wide folder"),
    ],
)
def test_no_line_is_wider_than_the_terminal(row: ListedRun, width: int) -> None:
    lines = run_table([row, a_row(SAME_MILLISECOND)], NOW, width)
    assert len(lines) == 3
    assert max(map(cell_len, lines)) <= width
    assert lines[0].startswith("ID ")


def test_two_hundred_runs_have_two_hundred_names_that_tell_them_apart() -> None:
    ids = [f"agent-01a20a73-{at:04x}-720c-919f-9245270a3b50" for at in range(200)]
    lines = run_table([a_row(each, task=f"task {at}") for at, each in enumerate(ids)], NOW, 80)
    names = [line.split()[0] for line in lines[1:]]
    assert len(set(names)) == 200
    assert all(each.removeprefix("agent-").startswith(name) for each, name in zip(ids, names, strict=True))
    assert max(map(cell_len, lines)) <= 80


@pytest.mark.parametrize(
    ("ids", "short"),
    [
        pytest.param([UUID], ["01a20a73-4773"], id="a millisecond is enough for one"),
        pytest.param([UUID, SAME_MILLISECOND], ["01a20a73-4773-72", "01a20a73-4773-7f"], id="as much as parts two"),
        pytest.param(["nightly", "goal-abc"], ["nightly", "goal-abc"], id="what is short stays, and can be typed"),
        pytest.param([UUID, f"{UUID}.3.0"], ["01a20a73-4773", f"{UUID}.3.0"], id="a delegate in full"),
        pytest.param(["agent-nightly", "nightly"], ["agent-nightly", "nightly"], id="the bare name is another's"),
    ],
)
def test_a_short_id_stands_for_one_run(ids: list[str], short: list[str]) -> None:
    assert list(short_ids(ids).values()) == [name for _, name in sorted(zip(ids, short, strict=True))]


def test_what_a_live_run_waits_for_is_said_without_saying_that_it_is_live() -> None:
    [_, line] = run_table([a_row(state="running (waits: approval)")], NOW, 80)
    assert "  waits: approval  " in line
    assert "running" not in line


def test_where_no_terminal_cuts_it_a_line_has_the_whole_id_and_folder() -> None:
    [_, line] = run_table([a_row(state="running (waits: approval)")], NOW)
    assert line.startswith(f"{UUID}  Which limits does a run have?  default  running (waits: approval)  5min  3  ")
    assert line.endswith("/home/somebody/projects/harbour")
