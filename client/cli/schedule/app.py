"""`orga schedule`: goals and runs that Temporal starts again and again."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import typer

from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.options import ConfigFile, Json, login_name
from orga.client.cli.schedule.create import create_schedule
from orga.client.cli.schedule.show import list_schedules, show
from orga.client.cli.session import CliContext, cli_context
from orga.client.cli.shown.text import write_json, write_note, write_result
from orga.client.schedules.create import checked_note
from orga.client.schedules.handle import ScheduleHandle, TriggerResult

ScheduleId = Annotated[
    str, typer.Argument(metavar="ID", help="The schedule's id; `orga schedule list` shows them.", show_default=False)
]
Why = Annotated[str, typer.Argument(metavar="WHY", help="Becomes the schedule's note.", show_default=False)]

app = typer.Typer(
    no_args_is_help=True,
    help="Goals and runs that come again and again: Temporal starts them by the clock.",
    epilog="Its runs are in `orga list`, each with its journal. docs/schedules.md is the guide.",
    rich_markup_mode="rich",
)


def trigger(schedule: ScheduleId, *, json: Json = False, config: ConfigFile = None) -> int:
    """Start a run now, by the schedule's overlap policy, and print its id; a paused schedule does so, too.

    Example: orga schedule trigger morning
    """

    async def act(here: CliContext) -> int:
        came = await ScheduleHandle(here.client, schedule).trigger()
        if json:
            write_json({"id": schedule, "outcome": came.outcome, "run": came.run_id or None})
        elif came.run_id:
            write_result(came.run_id)
        write_note(_trigger_text(came))
        return 0

    return run_interruptible(_run_connected(act, config))


def pause(schedule: ScheduleId, why: Why = "", *, json: Json = False, config: ConfigFile = None) -> int:
    """Start no more runs by the clock; one that goes on is left alone.

    Example: orga schedule pause morning "until the docs are moved"
    """
    said = checked_note(why) or f"paused by {login_name() or 'somebody'}"
    return run_interruptible(_change_schedule(schedule, lambda it: it.pause(said), "is paused", config, as_json=json))


def resume(schedule: ScheduleId, why: Why = "", *, json: Json = False, config: ConfigFile = None) -> int:
    """Start runs by the clock again; those that were due meanwhile are not made good.

    Example: orga schedule resume morning
    """
    said = checked_note(why) or f"resumed by {login_name() or 'somebody'}"
    return run_interruptible(_change_schedule(schedule, lambda it: it.resume(said), "goes on", config, as_json=json))


def delete(schedule: ScheduleId, *, json: Json = False, config: ConfigFile = None) -> int:
    """Forget the schedule. Its runs stay; `orga abort` ends one that goes on.

    Example: orga schedule delete morning
    """
    return run_interruptible(
        _change_schedule(schedule, ScheduleHandle.delete, "is deleted; its runs stay", config, as_json=json)
    )


async def _change_schedule(
    schedule: str,
    change: Callable[[ScheduleHandle], Awaitable[None]],
    told: str,
    config: Path | None,
    *,
    as_json: bool,
) -> int:
    async def act(here: CliContext) -> int:
        await change(ScheduleHandle(here.client, schedule))
        if as_json:
            write_json({"id": schedule})
        write_note(f"{schedule} {told}")
        return 0

    return await _run_connected(act, config)


async def _run_connected(act: Callable[[CliContext], Awaitable[int]], config: Path | None) -> int:
    async with cli_context(config) as here:
        return await act(here)


def _trigger_text(came: TriggerResult) -> str:
    match came.outcome:
        case "started":
            return f"follow it with: orga attach {came.run_id}"
        case "skipped":
            return "no run was started: one goes on, and the overlap policy skips others"
        case "buffered":
            return "it starts when the run that goes on has ended"
        case "pending":
            return "the schedule has not started it yet; see: orga schedule show"


app.command("create")(create_schedule)
app.command("list")(list_schedules)
app.command("show")(show)
for _command in (pause, resume, trigger, delete):
    app.command(_command.__name__)(_command)
