"""Goals and runs that Temporal starts on schedule, on a real server: at set times, or triggered."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleIntervalSpec,
    ScheduleSpec,
    WorkflowExecutionStatus,
    WorkflowFailureError,
)
from temporalio.exceptions import TerminatedError

from orga.client.config.sections import OrgaConfig
from orga.client.config.workplace import own_queue, recorded_workplace, set_client_home, workplace
from orga.client.errors import NotAnAgent, ScheduleNotFound, ScheduleTaken
from orga.client.runs.agents import AgentHandle
from orga.client.schedules.create import create_schedule
from orga.client.schedules.handle import ScheduleHandle, ScheduleSummary, all_schedules, schedule_summary
from orga.testing import FakeTool, answers
from orga.workflows.types.record import InvalidInput
from tests.support.hold import Hold, wait_until
from tests.support.model.goals import GoalModel, a_step, evaluation_reply, says
from tests.support.parts.time_skipping import time_skipping
from tests.support.runs.loop import Loop, a_loop

DAY = timedelta(days=1)


@asynccontextmanager
async def a_schedule(loop: Loop, given: dict[str, Any] | None = None, **times: Any) -> AsyncGenerator[ScheduleHandle]:
    """Yield a schedule that the loop's worker serves, and delete it at the end."""
    usual: dict[str, Any] = {"every": DAY, "task_queue": loop.task_queue}
    task = given or {"task": "look around"}
    made = await create_schedule(loop.client, f"nightly-{uuid4().hex}", task, **(usual | times))
    try:
        yield made
    finally:
        await made.delete()


async def summary_of(handle: ScheduleHandle) -> ScheduleSummary:
    return await schedule_summary(await handle.describe())


async def another_second() -> None:
    """Wait for the next second. The id of a run contains its second, so two runs in one second would share an id."""
    this = datetime.now(UTC).replace(microsecond=0)

    async def has_come() -> bool:
        return datetime.now(UTC) >= this + timedelta(seconds=1)

    await wait_until(has_come)


async def test_a_triggered_run_is_like_any_other_run(client: Client) -> None:
    async with a_loop(client, [answers("all is well")]) as loop, a_schedule(loop, cron="0 7 * * *", every=None) as made:
        came = await made.trigger()
        ran = await loop.ended(client.get_workflow_handle(came.run_id))
        one = await summary_of(made)
        memo = await (await AgentHandle(client, came.run_id).describe()).memo()

    assert came.outcome == "started"
    assert came.run_id.startswith(f"{made.id}-20")
    assert (ran.result.output, ran.journal[0].event) == ("all is well", "Started")
    assert (one.kind, one.what, one.times, one.time_zone) == ("run", "look around", ("0 7 * * *",), "UTC")
    assert [run.run_id for run in one.runs] == [came.run_id]
    assert len(one.next) == 10
    assert memo == {}


async def test_a_scheduled_goal_runs_each_time(client: Client) -> None:
    model = GoalModel(
        plan=says(goal_type="research", steps=[a_step("s1")]),
        evaluate=evaluation_reply("s1"),
        decide=says(status="done"),
    )
    async with a_loop(client, model, FakeTool("look")) as loop, a_schedule(loop, {"goal": "find out"}) as made:
        result = await AgentHandle(client, (await made.trigger()).run_id).result()
        assert (await summary_of(made)).kind == "goal"

    assert (result.termination.reason, result.output) == ("completed", "the final answer")


async def test_runs_start_on_schedule_until_it_is_paused(client: Client) -> None:
    replies = [answers("all is well")] * 50
    async with a_loop(client, replies) as loop, a_schedule(loop, every=timedelta(seconds=1), paused=True) as made:
        assert (await summary_of(made)).runs == ()
        await made.resume("go")

        async def has_started_two() -> bool:
            return len((await summary_of(made)).runs) >= 2

        await wait_until(has_started_two)
        await made.pause("enough")
        one = await summary_of(made)
        for run in one.runs:
            assert (await AgentHandle(client, run.run_id).result()).output == "all is well"
        assert (one.paused, one.note) == (True, "enough")
        assert (await made.trigger()).outcome == "started"
        assert len(set(one.runs)) == len(one.runs)


async def test_a_run_due_during_another_one_is_skipped(client: Client) -> None:
    hold = Hold()
    async with a_loop(client, [hold.step(answers("late"))]) as loop, a_schedule(loop) as made:
        first = await made.trigger()
        await hold.reached()
        assert (await made.trigger()).outcome == "skipped"
        hold.go.set()
        assert (await AgentHandle(client, first.run_id).result()).output == "late"
        assert len((await summary_of(made)).runs) == 1


async def test_a_buffered_run_starts_when_the_other_has_ended(client: Client) -> None:
    hold = Hold()
    replies = [hold.step(answers("first")), answers("second")]
    async with a_loop(client, replies) as loop, a_schedule(loop, overlap="buffer-one") as made:
        await made.trigger()
        await hold.reached()
        assert (await made.trigger()).outcome == "buffered"
        hold.go.set()

        async def has_started_two() -> bool:
            return len((await summary_of(made)).runs) == 2

        await wait_until(has_started_two)
        last = (await summary_of(made)).runs[-1]
        assert (await AgentHandle(client, last.run_id).result()).output == "second"


async def test_a_run_cancelled_for_the_next_one_ends_with_a_result(client: Client) -> None:
    hold = Hold()
    replies = [hold.step(answers("first")), answers("second")]
    async with a_loop(client, replies) as loop, a_schedule(loop, overlap="cancel-other") as made:
        first = await made.trigger()
        await hold.reached()
        await another_second()
        second = await made.trigger()
        assert second.outcome == "started"
        assert (await AgentHandle(client, first.run_id).result()).termination.reason == "aborted"
        assert (await AgentHandle(client, second.run_id).result()).output == "second"


async def test_a_run_terminated_for_the_next_one_has_no_result(client: Client) -> None:
    hold = Hold()
    replies = [hold.step(answers("first")), answers("second")]
    async with a_loop(client, replies) as loop, a_schedule(loop, overlap="terminate-other") as made:
        first = await made.trigger()
        await hold.reached()
        await another_second()
        second = await made.trigger()
        assert second.outcome == "started"
        with pytest.raises(WorkflowFailureError) as failed:
            await client.get_workflow_handle(first.run_id).result()
        assert isinstance(failed.value.cause, TerminatedError)
        assert (await AgentHandle(client, second.run_id).result()).output == "second"


async def test_a_schedule_that_allows_all_runs_them_in_parallel(client: Client) -> None:
    hold = Hold()
    replies = [hold.step(answers("first")), answers("second")]
    async with a_loop(client, replies) as loop, a_schedule(loop, overlap="allow-all") as made:
        first = await made.trigger()
        await hold.reached()
        await another_second()
        second = await made.trigger()
        assert (await AgentHandle(client, second.run_id).result()).output == "second"
        assert (await AgentHandle(client, first.run_id).describe()).status == WorkflowExecutionStatus.RUNNING
        hold.go.set()
        assert (await AgentHandle(client, first.run_id).result()).output == "first"


async def test_all_buffered_runs_start_one_after_the_other(client: Client) -> None:
    hold = Hold()
    replies = [hold.step(answers("1")), answers("2"), answers("3")]
    async with a_loop(client, replies) as loop, a_schedule(loop, overlap="buffer-all") as made:
        await made.trigger()
        await hold.reached()
        await another_second()
        assert (await made.trigger()).outcome == "buffered"
        await another_second()
        assert (await made.trigger()).outcome == "buffered"
        hold.go.set()

        async def has_started_three() -> bool:
            return len((await summary_of(made)).runs) == 3

        await wait_until(has_started_three)
        ended = [(await AgentHandle(client, run.run_id).result()).output for run in (await summary_of(made)).runs]
    assert ended == ["1", "2", "3"]


async def test_the_server_uses_the_time_zone_and_starts_nothing_after_the_end(client: Client) -> None:
    """Seven in the morning is a different UTC hour in summer than in winter."""
    times: dict[str, Any] = {"cron": "0 7 1 1,7 *", "every": None, "time_zone": "Europe/Berlin"}
    async with a_loop(client, []) as loop:
        async with a_schedule(loop, **times) as made:
            coming = (await summary_of(made)).next
        async with a_schedule(loop, **times, end=coming[1] + timedelta(hours=1)) as made:
            assert (await summary_of(made)).next == coming[:2]
    assert {(each.month, each.astimezone(UTC).hour) for each in coming} == {(1, 6), (7, 5)}


async def test_scheduled_runs_use_the_folder_of_their_schedule(client: Client) -> None:
    """The server starts the runs, so the schedule has to store the queue and the workplace."""
    place = workplace(OrgaConfig())
    set_client_home(client, own_queue(OrgaConfig(), place, embedded=True), place)
    try:
        made = await create_schedule(client, f"here-{uuid4().hex}", {"task": "x"}, every=DAY)
    finally:
        set_client_home(client, "orga", None)
    run = await AgentHandle(client, (await made.trigger()).run_id).describe()
    assert (run.task_queue, (await summary_of(made)).folder) == (f"orga-{place.mark}", place.folder)
    assert await recorded_workplace(run) == place
    await client.get_workflow_handle(run.id).terminate()
    await made.delete()


async def test_a_schedule_is_listed_until_it_is_deleted(client: Client) -> None:
    made = await create_schedule(client, f"listed-{uuid4().hex}", {"task": "x"}, every=DAY, note="for the team")

    async def is_listed() -> bool:
        return made.id in [one.id for one in await all_schedules(client)]

    await wait_until(is_listed)
    one = next(one for one in await all_schedules(client) if one.id == made.id)
    assert (one.what, one.times, one.note, one.paused) == ("x", ("every 1d",), "for the team", False)
    with pytest.raises(ScheduleTaken, match="orga schedule delete"):
        await create_schedule(client, made.id, {"task": "x"}, every=DAY)
    await made.delete()
    for act in (made.describe, made.trigger, made.delete):
        with pytest.raises(ScheduleNotFound, match="`orga schedule list` shows"):
            await act()


@pytest.mark.parametrize(
    ("times", "says"),
    [
        pytest.param(
            {"cron": "0 77 * * 1"}, "Hour is not in range .*; the fields of an expression", id="an invalid hour"
        ),
        pytest.param({"cron": "@evry"}, "the server refuses the schedule: ", id="an unknown name"),
    ],
)
async def test_a_refusal_by_the_server_is_reported(client: Client, times: dict[str, Any], says: str) -> None:
    name = f"bad-{uuid4().hex}"
    with pytest.raises(InvalidInput, match=says):
        await create_schedule(client, name, {"task": "x"}, **times)
    with pytest.raises(ScheduleNotFound):
        await ScheduleHandle(client, name).describe()


async def test_a_schedule_of_another_program_is_not_touched(client: Client) -> None:
    action = ScheduleActionStartWorkflow("Billing", id="billing", task_queue="billing")
    spec = ScheduleSpec(intervals=[ScheduleIntervalSpec(every=DAY)])
    other = await client.create_schedule(f"billing-{uuid4().hex}", Schedule(action=action, spec=spec))
    with pytest.raises(NotAnAgent, match="schedule of Billing"):
        await ScheduleHandle(client, other.id).delete()
    await other.delete()


async def test_a_server_without_schedules_is_reported() -> None:
    async with time_skipping() as environment:
        with pytest.raises(Exception, match="CreateSchedule, which this server does not support"):
            await create_schedule(environment.client, "x", {"task": "x"}, every=DAY)
