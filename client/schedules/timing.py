"""The times of a schedule, and what happens if two runs meet, checked before anything is created."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from temporalio.client import (
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
)

from orga.workflows.types.record import InvalidInput
from orga.workflows.types.text import can_be_typed, escaped_line, similar_name_hint

Overlap = Literal["skip", "buffer-one", "buffer-all", "cancel-other", "terminate-other", "allow-all"]
"""The handling of a run that is due before the previous one has ended. `cancel-other` aborts the previous run, which
then has a result. `terminate-other` ends it without one."""

OVERLAPS: dict[Overlap, ScheduleOverlapPolicy] = {
    "skip": ScheduleOverlapPolicy.SKIP,
    "buffer-one": ScheduleOverlapPolicy.BUFFER_ONE,
    "buffer-all": ScheduleOverlapPolicy.BUFFER_ALL,
    "cancel-other": ScheduleOverlapPolicy.CANCEL_OTHER,
    "terminate-other": ScheduleOverlapPolicy.TERMINATE_OTHER,
    "allow-all": ScheduleOverlapPolicy.ALLOW_ALL,
}

CATCH_UP = timedelta(days=1)
MIN_CATCH_UP = timedelta(seconds=10)
"""The server replaces shorter times by this."""

MIN_INTERVAL = timedelta(seconds=1)
MAX_DURATION = timedelta(days=3_650)
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
    """Return the times in Temporal's form. The server checks the fields of cron expressions.

    Args:
        cron: One or more expressions of five to seven fields, or `@daily` and the like.
        every: An interval, counted from midnight UTC of 1970-01-01, so that hourly runs start at the full hour.
        time_zone: The time zone of the expressions, and of an `end` that names none.
        overlap: What happens if a run is due and the previous one has not ended.
        catch_up: How late a run may start that was due while the server was down.
        jitter: Each run starts later by a random time up to this.
        end: No run starts after this time.

    Raises:
        InvalidInput: An argument is invalid. The text names it.
    """
    expressions = [_expression(each) for each in ([cron] if isinstance(cron, str) else cron)]
    if bool(expressions) == (every is not None):
        raise InvalidInput("a schedule has times: give cron (as '0 7 * * 1-5') or every (as 1h), one of the two")
    if every is not None:
        _check_duration("every", every, MIN_INTERVAL)
    _check_duration("catch_up", catch_up, MIN_CATCH_UP)
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


def display_zone(name: str | None) -> ZoneInfo:
    """Return the zone for displayed times, or UTC if this machine does not know it."""
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")


def _expression(text: str) -> str:
    """Return the expression with itself as comment, because the server keeps only comments and parsed times."""
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
    if not least <= length <= MAX_DURATION:
        raise InvalidInput(f"{name}: must be from {least.total_seconds():g} s to {MAX_DURATION.days} days")


def _check_zone(name: str) -> None:
    """Refuse an unknown name, as far as this machine knows the zones."""
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
