"""Creates schedules: Temporal then starts goals or runs at set times. All values are checked before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from zoneinfo import available_timezones

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleState,
)
from temporalio.service import RPCError, RPCStatusCode

from orga.client.config.workplace import client_memo, client_queue
from orga.client.errors import ScheduleTaken
from orga.client.runs.agents import SUMMARY_CHARS, check_by_local_worker, new_run_id
from orga.client.runs.attachments import Attachable, with_attachments
from orga.client.runs.ids import MAX_ID_BYTES
from orga.client.schedules.handle import SUMMARY_MEMO, ScheduleHandle, display_zone, schedule_error
from orga.workflows.types.goals.goal_input import GoalInput, parse_goal
from orga.workflows.types.input import AgentInput, parse_input
from orga.workflows.types.names import AGENT_WORKFLOW, GOAL_WORKFLOW
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.text import can_be_typed, clean_text, escaped_line, one_line, similar_name_hint

Overlap = Literal["skip", "buffer-one", "buffer-all", "cancel-other", "terminate-other", "allow-all"]
"""The handling of a run that is due before the previous one has ended. `cancel-other` aborts the previous run, so that
it has a result. `terminate-other` ends the previous run without a result."""

OVERLAPS: dict[Overlap, ScheduleOverlapPolicy] = {
    "skip": ScheduleOverlapPolicy.SKIP,
    "buffer-one": ScheduleOverlapPolicy.BUFFER_ONE,
    "buffer-all": ScheduleOverlapPolicy.BUFFER_ALL,
    "cancel-other": ScheduleOverlapPolicy.CANCEL_OTHER,
    "terminate-other": ScheduleOverlapPolicy.TERMINATE_OTHER,
    "allow-all": ScheduleOverlapPolicy.ALLOW_ALL,
}

CATCH_UP = timedelta(days=1)
"""By default, a run that was due while the server was down starts up to a day later."""
_MIN_CATCH_UP = timedelta(seconds=10)
"""The server would replace a shorter time by this one."""

_MIN_INTERVAL = timedelta(seconds=1)
_MAX_DURATION = timedelta(days=3_650)
NO_TIME = timedelta(0)


@dataclass(frozen=True)
class Timing:
    """The times and the policy of a schedule."""

    spec: ScheduleSpec
    policy: SchedulePolicy


def timing(
    *,
    cron: str | Sequence[str] = (),
    every: timedelta | None = None,
    time_zone: str = "UTC",
    overlap: Overlap = "skip",
    catch_up: timedelta = CATCH_UP,
    jitter: timedelta = NO_TIME,
    end: datetime | None = None,
) -> Timing:
    """Return the times of `create_schedule` in Temporal's form. Later the server checks the fields of expressions.

    Raises:
        InvalidInput: An argument is invalid. The text names it.
    """
    expressions = [_expression(each) for each in ([cron] if isinstance(cron, str) else cron)]
    if bool(expressions) == (every is not None):
        raise InvalidInput("a schedule has times: give cron (as '0 7 * * 1-5') or every (as 1h), one of the two")
    if every is not None:
        _check_duration("every", every, _MIN_INTERVAL)
    _check_duration("catch_up", catch_up, _MIN_CATCH_UP)
    _check_duration("jitter", jitter, NO_TIME)
    _check_zone(time_zone)
    return Timing(
        ScheduleSpec(
            cron_expressions=expressions,
            intervals=[] if every is None else [ScheduleIntervalSpec(every=every)],
            time_zone_name=time_zone,
            jitter=jitter or None,
            end_at=None if end is None else _end_time(end, time_zone),
        ),
        SchedulePolicy(overlap=_overlap_policy(overlap), catchup_window=catch_up),
    )


def _expression(text: str) -> str:
    """Return the expression with itself as its comment, because the server keeps only comments and parsed times."""
    cron = " ".join(text.split())
    where = f"cron {escaped_line(text)!r}"
    if not can_be_typed(cron):
        raise InvalidInput(f"{where}: must be an expression of five to seven fields, as '0 7 * * 1-5'")
    if "#" in cron:
        raise InvalidInput(f"{where}: takes no comment; give it as the note")
    if "TZ=" in cron:
        raise InvalidInput(f"{where}: the zone is given apart, as time_zone (--tz)")
    if cron.startswith("@every"):
        raise InvalidInput(f"{where}: an interval is given as every (--every)")
    if not cron.startswith("@") and not 5 <= len(cron.split()) <= 7:
        raise InvalidInput(f"{where}: has {len(cron.split())} fields; must have five to seven, as '0 7 * * 1-5'")
    return f"{cron} # {cron}"


def _check_duration(name: str, length: timedelta, least: timedelta) -> None:
    if not least <= length <= _MAX_DURATION:
        raise InvalidInput(f"{name}: must be from {least.total_seconds():g} s to {_MAX_DURATION.days} days")


def _check_zone(name: str) -> None:
    """Refuse an unknown name. A machine without a list of zones accepts every name."""
    known = available_timezones()
    if known and name not in known:
        hint = similar_name_hint(name, sorted(known))
        raise InvalidInput(f"time_zone {escaped_line(name)!r}: there is no such zone; {hint}write one as Europe/Berlin")


def _end_time(end: datetime, time_zone: str) -> datetime:
    in_zone = end if end.tzinfo is not None else end.replace(tzinfo=display_zone(time_zone))
    try:
        at = in_zone.astimezone(UTC)
    except (OverflowError, ValueError):
        raise InvalidInput(f"end: {end} is no time that a schedule can end at") from None
    if at <= datetime.now(UTC):
        raise InvalidInput(f"end: {at:%Y-%m-%d %H:%M} UTC is past")
    return at


def _overlap_policy(name: str) -> ScheduleOverlapPolicy:
    for known, policy in OVERLAPS.items():
        if known == name:
            return policy
    raise InvalidInput(f"overlap {escaped_line(name)!r}: must be one of {', '.join(OVERLAPS)}")


MAX_SCHEDULE_ID_BYTES = MAX_ID_BYTES - 30
"""Temporal's workflow for a schedule, and each run of it, has the schedule's id with up to 30 more bytes."""

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
    attachments: Sequence[Attachable] = (),
) -> ScheduleHandle:
    """Create a schedule, so that Temporal starts a goal or a run at set times. Return the handle of the schedule.

    Args:
        client: As for `start_agent`.
        schedule_id: The schedule's id. Its runs have the ids `<schedule_id>-<time in UTC>`.
        given: The input of each run. A mapping with `goal` is a goal's, any other an agent's.
        cron: One or more expressions, such as `0 7 * * 1-5`. Give either this or `every`.
        every: An interval, counted from midnight UTC of 1970-01-01, so that hourly runs start at the full hour.
        time_zone: The time zone of `cron`, and of an `end` without one.
        overlap: The handling of a run that is due before the previous one has ended.
        catch_up: The longest delay of a run that was due while the server was down. Later it is not started.
        jitter: The longest random delay of each run.
        end: No run starts after this time.
        paused: Create the schedule paused.
        note: A note for people.
        task_queue: As for `start_agent`.
        attachments: As for `start_agent`. All runs get the same ones.

    Raises:
        InvalidInput: An argument is invalid. The text names it, and nothing was created.
        ScheduleTaken: A schedule with this id exists.
    """
    times = timing(
        cron=cron, every=every, time_zone=time_zone, overlap=overlap, catch_up=catch_up, jitter=jitter, end=end
    )
    state = ScheduleState(note=checked_note(note) or None, paused=paused)
    checked, schedule_id = checked_input(given), checked_schedule_id(schedule_id)
    checked = await with_attachments(checked, attachments, client)
    return await create_checked(client, schedule_id, checked, times, state, task_queue=task_queue)


async def create_checked(
    client: Client,
    schedule_id: str,
    checked: AgentInput | GoalInput,
    times: Timing,
    state: ScheduleState,
    *,
    task_queue: str | None = None,
) -> ScheduleHandle:
    """Create a schedule from values that are checked already. The errors are those of `create_schedule`."""
    check_by_local_worker(client, checked, task_queue)
    run_memo = client_memo(client)
    is_goal = isinstance(checked, GoalInput)
    summary = one_line(checked.goal if is_goal else checked.task, SUMMARY_CHARS)
    action = ScheduleActionStartWorkflow(
        GOAL_WORKFLOW if is_goal else AGENT_WORKFLOW,
        checked.model_dump(mode="json", exclude_unset=True),
        id=schedule_id,
        task_queue=task_queue or client_queue(client),
        static_summary=summary,
        memo=run_memo or None,
    )
    schedule = Schedule(action=action, spec=times.spec, policy=times.policy, state=state)
    try:
        await client.create_schedule(schedule_id, schedule, memo={SUMMARY_MEMO: summary, **run_memo})
    except ScheduleAlreadyRunningError:
        raise ScheduleTaken(schedule_id) from None
    except RPCError as error:
        if error.status == RPCStatusCode.INVALID_ARGUMENT:
            raise InvalidInput(f"the server refuses the schedule: {error.message}; {CRON_FIELDS_HINT}") from None
        raise schedule_error(error, schedule_id) from error
    return ScheduleHandle(client, schedule_id)


def checked_input(given: AgentInput | GoalInput | Mapping[str, Any]) -> AgentInput | GoalInput:
    """Return the input of each run, checked as for a run that starts now. Raise InvalidInput with each bad key."""
    if isinstance(given, Mapping):
        return parse_goal(dict(given)) if "goal" in given else parse_input(dict(given))
    return parse_goal(given) if isinstance(given, GoalInput) else parse_input(given)


def checked_schedule_id(given: str) -> str:
    """Return the id of a schedule. Raise InvalidInput if it is invalid, or makes the ids of its runs invalid."""
    if len(new_run_id(given).encode(errors="replace")) > MAX_SCHEDULE_ID_BYTES:
        raise InvalidInput(f"id: must not be longer than {MAX_SCHEDULE_ID_BYTES} bytes")
    return given


def checked_note(note: str) -> str:
    """Return a note in the form that is stored. Raise InvalidInput if it is too long."""
    if len(note) > MAX_NOTE_CHARS:
        raise InvalidInput(f"note: must not be longer than {MAX_NOTE_CHARS} characters")
    return clean_text(note)
