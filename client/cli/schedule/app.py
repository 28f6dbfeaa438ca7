"""The `orga schedule` commands: goals and runs that Temporal starts regularly."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import typer

from orga.client.cli.connection import CliContext, cli_context
from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.options import ConfigFile, Json, login_name
from orga.client.cli.schedule.create import create_schedule
from orga.client.cli.schedule.show import list_schedules, show
from orga.client.cli.shown.text import write_json, write_note, write_result
from orga.client.schedules.create import checked_note
from orga.client.schedules.handle import ScheduleHandle, TriggerResult

ScheduleId = Annotated[
    str, typer.Argument(metavar="ID", help="The schedule's id. `orga schedule list` shows it.", show_default=False)
]
Why = Annotated[str, typer.Argument(metavar="WHY", help="The schedule's new note.", show_default=False)]

app = typer.Typer(
    no_args_is_help=True,
    epilog="The runs appear in `orga list`, each with its journal. The guide is docs/schedules.md.",
    rich_markup_mode="rich",
)


def trigger(schedule: ScheduleId, *, json: Json = False, config: ConfigFile = None) -> int:
    """Start a run now, even if the schedule is paused, and print its id. The overlap policy applies.

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
    """Pause a schedule: it starts no more runs. Runs that have started continue.

    Example: orga schedule pause morning "until the docs are moved"
    """
    note = checked_note(why) or f"paused by {login_name() or 'somebody'}"
    return run_interruptible(_change_schedule(schedule, lambda it: it.pause(note), "is paused", config, as_json=json))


def resume(schedule: ScheduleId, why: Why = "", *, json: Json = False, config: ConfigFile = None) -> int:
    """Resume a paused schedule. Runs that were due meanwhile are not started later.

    Example: orga schedule resume morning
    """
    note = checked_note(why) or f"resumed by {login_name() or 'somebody'}"
    return run_interruptible(_change_schedule(schedule, lambda it: it.resume(note), "goes on", config, as_json=json))


def delete(schedule: ScheduleId, *, json: Json = False, config: ConfigFile = None) -> int:
    """Delete a schedule. Its runs stay; `orga abort` ends one that has not ended.

    Example: orga schedule delete morning
    """
    return run_interruptible(
        _change_schedule(schedule, ScheduleHandle.delete, "is deleted; its runs stay", config, as_json=json)
    )


async def _change_schedule(
    schedule: str,
    change: Callable[[ScheduleHandle], Awaitable[None]],
    done: str,
    config: Path | None,
    *,
    as_json: bool,
) -> int:
    async def act(here: CliContext) -> int:
        await change(ScheduleHandle(here.client, schedule))
        if as_json:
            write_json({"id": schedule})
        write_note(f"{schedule} {done}")
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
            return "no run was started: one has not ended yet, and the overlap policy skips others"
        case "buffered":
            return "it starts when the current run has ended"
        case "pending":
            return "the schedule has not started it yet; see: orga schedule show"


app.command("create")(create_schedule)
app.command("list")(list_schedules)
app.command("show")(show)
for _command in (pause, resume, trigger, delete):
    app.command(_command.__name__)(_command)
