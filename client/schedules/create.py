"""The Python API of schedules: Temporal starts goals and runs at set times."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleState,
)
from temporalio.service import RPCError, RPCStatusCode

from orga.client.config.workplace import queue_and_memo
from orga.client.errors import ScheduleTaken
from orga.client.runs.agents import SUMMARY_CHARS, check_by_local_worker, run_id_of
from orga.client.runs.ids import MAX_ID_BYTES
from orga.client.schedules.handle import ScheduleHandle, schedule_error
from orga.client.schedules.timing import CATCH_UP, NO_TIME, Overlap, Timing, timing
from orga.workflows.types.goals.goal_input import GoalInput, parse_goal
from orga.workflows.types.input import AgentInput, parse_input
from orga.workflows.types.names import AGENT_WORKFLOW, GOAL_WORKFLOW
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.text import clean_text, one_line

SUMMARY_MEMO = "orga_summary"
"""The beginning of a schedule's task, in its memo, because a list of schedules shows no input."""

MAX_SCHEDULE_ID_BYTES = MAX_ID_BYTES - 30
"""Temporal's workflow for a schedule, and each of its runs, has an id that is a little longer than the schedule's."""

CRON_FIELDS_HINT = "the fields of an expression are minute, hour, day of month, month, day of week (0 is Sunday)"

MAX_NOTE_CHARS = 1_000


async def create_schedule(
    client: Client,
    schedule_id: str,
    given: AgentInput | GoalInput | Mapping[str, Any],
    *,
    cron: str | Sequence[str] = (),
    every: timedelta | None = None,
    time_zone: str = "UTC",
    overlap: Overlap = "skip",
    catch_up: timedelta = CATCH_UP,
    jitter: timedelta = NO_TIME,
    end: datetime | None = None,
    paused: bool = False,
    note: str = "",
    task_queue: str | None = None,
) -> ScheduleHandle:
    """Create a schedule by which Temporal starts a goal or a run at set times, and return its handle.

    Args:
        client: As for `start_agent`.
        schedule_id: The schedule's id. Its runs have the ids `<schedule_id>-<time in UTC>`.
        given: The input of each run. A mapping with `goal` is a goal's, any other an agent's.
        cron: One or more expressions, such as `0 7 * * 1-5`. Give either this or `every`.
        every: An interval, counted from midnight UTC.
        time_zone: The time zone of `cron`, and of an `end` without one.
        overlap: What happens if a run is due and the previous one has not ended.
        catch_up: How late a run may start that was due while the server was down.
        jitter: Each run starts later by a random time up to this.
        end: No run starts after this time.
        paused: Create the schedule paused.
        note: A note for people.
        task_queue: As for `start_agent`.

    Raises:
        InvalidInput: An argument is invalid. The text names it, and nothing was created.
        ScheduleTaken: A schedule with this id exists.
    """
    times = timing(
        cron=cron, every=every, time_zone=time_zone, overlap=overlap, catch_up=catch_up, jitter=jitter, end=end
    )
    state = ScheduleState(note=checked_note(note) or None, paused=paused)
    checked = checked_input(given)
    return await create_checked(client, checked_schedule_id(schedule_id), checked, times, state, task_queue=task_queue)


async def create_checked(
    client: Client,
    schedule_id: str,
    checked: AgentInput | GoalInput,
    times: Timing,
    state: ScheduleState,
    *,
    task_queue: str | None = None,
) -> ScheduleHandle:
    """Create a schedule from checked values, as `create_schedule` does."""
    check_by_local_worker(client, checked, task_queue)
    queue, home = queue_and_memo(client)
    is_goal = isinstance(checked, GoalInput)
    summary = one_line(checked.goal if is_goal else checked.task, SUMMARY_CHARS)
    action = ScheduleActionStartWorkflow(
        GOAL_WORKFLOW if is_goal else AGENT_WORKFLOW,
        checked.model_dump(mode="json", exclude_unset=True),
        id=schedule_id,
        task_queue=task_queue or queue,
        static_summary=summary,
        memo=home or None,
    )
    schedule = Schedule(action=action, spec=times.spec, policy=times.policy, state=state)
    try:
        await client.create_schedule(schedule_id, schedule, memo={SUMMARY_MEMO: summary, **home})
    except ScheduleAlreadyRunningError:
        raise ScheduleTaken(schedule_id) from None
    except RPCError as error:
        if error.status == RPCStatusCode.INVALID_ARGUMENT:
            raise InvalidInput(f"the server refuses the schedule: {error.message}; {CRON_FIELDS_HINT}") from None
        raise schedule_error(error, schedule_id) from error
    return ScheduleHandle(client, schedule_id)


def checked_input(given: AgentInput | GoalInput | Mapping[str, Any]) -> AgentInput | GoalInput:
    """Return the input of each run, checked as for one that starts now. Raise InvalidInput with each bad key."""
    if isinstance(given, GoalInput):
        return parse_goal(given)
    if isinstance(given, AgentInput):
        return parse_input(given)
    return parse_goal(dict(given)) if "goal" in given else parse_input(dict(given))


def checked_schedule_id(given: str) -> str:
    """Return the id of a schedule, after checking that its runs' ids will be valid too.

    Raises:
        InvalidInput: They would not be valid.
    """
    if len(run_id_of(given).encode(errors="replace")) > MAX_SCHEDULE_ID_BYTES:
        raise InvalidInput(f"id: must not be longer than {MAX_SCHEDULE_ID_BYTES} bytes")
    return given


def checked_note(note: str) -> str:
    """Return a note in the form that is stored.

    Raises:
        InvalidInput: It is too long.
    """
    if len(note) > MAX_NOTE_CHARS:
        raise InvalidInput(f"note: must not be longer than {MAX_NOTE_CHARS} characters")
    return clean_text(note)
