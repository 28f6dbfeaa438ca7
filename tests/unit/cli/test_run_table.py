"""The table of runs fits the width of a terminal and still tells runs apart."""

from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from rich.cells import cell_len
from temporalio.client import Client, WorkflowExecutionStatus

from orga.client.cli.inspect.runs import run_table, short_ids
from orga.client.history.values import data_converter
from orga.client.runs.listing import ListedRun, StatusQueries, read_task, with_details
from orga.workflows.types.models.usage import UsageTotals
from orga.workflows.types.status import AgentResult, AgentStatus, Termination
from tests.replay.test_histories import HISTORIES, history_in
from tests.support.parts.served_histories import HistoryClient
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


def test_eighty_columns_show_task_agent_state_age_iterations_calls_cost_and_folder() -> None:
    assert run_table([a_row(model_calls=12)], NOW, 80) == [
        "ID             TASK          AGENT    STATE    AGE   ITER  CALLS  USD     FOLDER",
        "01a20a73-4773  Which limit…  default  running  5min  3     12     0.0421  …rbour",
    ]


async def test_a_run_that_has_ended_is_listed_with_its_ending_and_its_model_calls() -> None:
    """Its search attributes lack the ending if it was aborted before a worker took it."""
    ended = Mock(spec=AgentResult, usage=UsageTotals(model_calls=5), termination=Termination(reason="aborted"))
    run = Mock(static_summary=AsyncMock(return_value="the goal"), status=WorkflowExecutionStatus.COMPLETED)
    client = Mock(spec=Client)
    client.get_workflow_handle.return_value = Mock(describe=AsyncMock(return_value=run), result=AsyncMock())
    client.get_workflow_handle.return_value.result.return_value = ended

    [row] = await with_details(client, [a_row(state="completed")])

    assert (row.task, row.state, row.model_calls) == ("the goal", "aborted", 5)


@pytest.mark.parametrize(
    ("summary", "expected"),
    [
        pytest.param("", "word " * 39 + "word…", id="no summary, as after continue-as-new"),
        pytest.param("word word…", "word " * 39 + "word…", id="a summary that is cut"),
        pytest.param("the task", "the task", id="a whole summary is not read again"),
    ],
)
async def test_the_first_200_characters_of_a_task_are_listed(summary: str, expected: str) -> None:
    client = HistoryClient(history_in(next(path for path in HISTORIES if path.stem == "answer")))
    started = client.segments["segment-0"][0].workflow_execution_started_event_attributes
    del started.input.payloads[:]
    started.input.payloads.extend(data_converter.payload_converter.to_payloads([{"task": "word " * 1_000}]))
    described = Mock(id=client.workflow_id, run_id="segment-0", static_summary=AsyncMock(return_value=summary))
    described.raw_description.workflow_execution_info.first_run_id = ""

    assert await read_task(client, described) == expected

    client.segments.clear()
    if summary:
        assert await read_task(client, described) == summary


def test_numbers_that_may_be_outdated_are_shown_with_a_plus() -> None:
    [_, line] = run_table([a_row(may_be_more=True)], NOW)
    assert line.split()[-4:-1] == ["3+", "-", "0.0421+"]


@pytest.mark.parametrize(
    ("state", "expected", "numbers"),
    [
        pytest.param("running", a_status(iteration=7), (7, 0.25, False), id="the run answers"),
        pytest.param("running (paused)", None, (3, 0.0421, True), id="no worker answers"),
        pytest.param("completed", None, (3, 0.0421, False), id="the run has ended"),
    ],
)
async def test_numbers_of_a_live_run_without_an_answer_may_be_outdated(
    monkeypatch: pytest.MonkeyPatch, state: str, expected: AgentStatus | None, numbers: tuple[int, float, bool]
) -> None:
    client = Mock(spec=Client)
    client.get_workflow_handle.return_value.describe = AsyncMock(
        return_value=Mock(static_summary=AsyncMock(return_value="the task"))
    )
    monkeypatch.setattr(StatusQueries, "statuses", AsyncMock(return_value=[] if state == "completed" else [expected]))

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


def test_two_hundred_runs_have_distinct_short_ids() -> None:
    ids = [f"agent-01a20a73-{at:04x}-720c-919f-9245270a3b50" for at in range(200)]
    lines = run_table([a_row(each, task=f"task {at}") for at, each in enumerate(ids)], NOW, 80)
    names = [line.split()[0] for line in lines[1:]]
    assert len(set(names)) == 200
    assert all(each.removeprefix("agent-").startswith(name) for each, name in zip(ids, names, strict=True))
    assert max(map(cell_len, lines)) <= 80


@pytest.mark.parametrize(
    ("ids", "short"),
    [
        pytest.param([UUID], ["01a20a73-4773"], id="the millisecond is enough for one run"),
        pytest.param(
            [UUID, SAME_MILLISECOND], ["01a20a73-4773-72", "01a20a73-4773-7f"], id="as long as needed to tell two apart"
        ),
        pytest.param(["nightly", "goal-abc"], ["nightly", "goal-abc"], id="a short id stays whole"),
        pytest.param([UUID, f"{UUID}.3.0"], ["01a20a73-4773", f"{UUID}.3.0"], id="a delegate in full"),
        pytest.param(
            ["agent-nightly", "nightly"], ["agent-nightly", "nightly"], id="the bare name belongs to another run"
        ),
    ],
)
def test_each_short_id_is_unique(ids: list[str], short: list[str]) -> None:
    assert list(short_ids(ids).values()) == [name for _, name in sorted(zip(ids, short, strict=True))]


def test_the_state_of_a_waiting_run_shows_only_what_it_waits_for() -> None:
    [_, line] = run_table([a_row(state="running (waits: approval)")], NOW, 80)
    assert "  waits: approval  " in line
    assert "running" not in line


def test_without_a_terminal_a_line_has_the_whole_id_and_folder() -> None:
    [_, line] = run_table([a_row(state="running (waits: approval)")], NOW)
    assert line.startswith(f"{UUID}  Which limits does a run have?  default  running (waits: approval)  5min  3  ")
    assert line.endswith("/home/somebody/projects/harbour")
