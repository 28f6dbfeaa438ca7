"""The `orga schedule` commands: goals and runs that Temporal starts regularly."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from temporalio.client import ScheduleState

from orga.activities.media import Media
from orga.client.cli.connection import CliContext, cli_context
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.options import Attach, ConfigFile, Json, login_name, parse_duration, parse_time
from orga.client.cli.schedule.show import list_schedules, show, zoned_time_text
from orga.client.cli.shown.text import write_json, write_note, write_result
from orga.client.cli.start.run import warn_of_disabled_policy, warn_of_missing_worker
from orga.client.cli.start.task_input import GoalOptions, RunOptions, agent_input, attached_media, goal_input
from orga.client.config.known_input import refuse_unknown, requested_names
from orga.client.runs.attachments import with_attachments
from orga.client.schedules.create import (
    CATCH_UP,
    NO_TIME,
    Overlap,
    Timing,
    checked_note,
    checked_schedule_id,
    create_checked,
    timing,
)
from orga.client.schedules.handle import ScheduleHandle, TriggerResult
from orga.client.schedules.reading import ScheduleSummary, schedule_summary
from orga.client.schedules.reading import schedule_json as shown
from orga.workflows.types.goals.goal_input import GoalInput
from orga.workflows.types.input import AgentInput


@dataclass(frozen=True)
class _ScheduleRequest:
    schedule_id: str
    checked: AgentInput | GoalInput
    attached: list[Media]
    times: Timing
    state: ScheduleState


def create_schedule(
    id_: Annotated[
        str, typer.Argument(metavar="ID", help="The schedule's id. Its runs are ID-<time>.", show_default=False)
    ],
    *,
    goal: Annotated[str | None, typer.Option(metavar="TEXT", help="Start this goal, as in orga goal.")] = None,
    task: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Start an agent on this task, as in orga run.")
    ] = None,
    cron: Annotated[
        list[str] | None,
        typer.Option(metavar="EXPR", help="A cron expression: '0 7 * * 1-5', '@daily'. Repeat it for more times."),
    ] = None,
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="An interval: 30m, 1h, 1d, counted from midnight UTC.")
    ] = None,
    tz: Annotated[
        str, typer.Option(metavar="ZONE", help="The time zone of --cron and --end, such as Europe/Berlin.")
    ] = "UTC",
    overlap: Annotated[
        Overlap,
        typer.Option(help="What to do if the run before has not ended. cancel-other ends it like an abort."),
    ] = "skip",
    catch_up: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Start a run up to this late if the server was down. Default: 1d."),
    ] = None,
    jitter: Annotated[
        str | None, typer.Option(metavar="TIME", help="Delay each run by a random time up to this.")
    ] = None,
    end: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Start no run after this time: 2026-12-31T18:00.")
    ] = None,
    paused: Annotated[
        bool, typer.Option("--paused", help="Create it paused. orga schedule resume ID starts it.")
    ] = False,
    note_: Annotated[str, typer.Option("--note", help="A note for people.")] = "",
    agent: Annotated[str | None, typer.Option(help="An agent of orga.toml. Default: the default agent.")] = None,
    model: Annotated[str | None, typer.Option(help="provider:model. Default: the agent's own.")] = None,
    attach: Attach = None,
    skills: Annotated[
        list[str] | None, typer.Option(help="With --goal: only these tools. Repeat it, or separate names by commas.")
    ] = None,
    deliver: Annotated[
        list[str] | None,
        typer.Option(help="With --goal: a delivery of the answers, by its name in goals.deliveries. Repeat it."),
    ] = None,
    pipeline: Annotated[str | None, typer.Option(help="With --goal: a plan from orga.toml.")] = None,
    input_: Annotated[
        list[str] | None, typer.Option("--input", help="With --goal: an input of the pipeline. Repeat it.")
    ] = None,
    tools: Annotated[
        list[str] | None, typer.Option(help="With --task: only these tools. Repeat it, or separate names by commas.")
    ] = None,
    instructions: Annotated[
        str | None, typer.Option(help="With --task: instructions that replace the agent's own.")
    ] = None,
    trusted: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="With --task: a fact that policies may rely on.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of the goal, or of the loop.")
    ] = None,
    max_iterations: Annotated[
        int | None, typer.Option(help="Maximum number of rounds of a goal, or reasoning steps of a run.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(help="Time limit in seconds of each run's clock.")] = None,
    tenant: Annotated[str | None, typer.Option(help="The tenant that the runs are for.")] = None,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Create a schedule that starts a goal or a run regularly, and print its id.

    The input is checked now. Runs start while the server is up, and are carried out while a worker of this folder runs:
    keep `orga worker` running. Each is an ordinary run, in `orga list` and with its journal.

    Exit codes: 0 created, 2 bad input or an id in use, 6 failed, 7 no server.

    Example: orga schedule create morning --cron "0 7 * * 1-5" --tz Europe/Berlin --goal "Sum up what is new in docs"

    Example: orga schedule create watch --every 1h --jitter 5m --task "Is the changelog up to date?" --paused
    """
    if (goal is None) == (task is None):
        raise UsageError("name what each run does with either --goal TEXT or --task TEXT, one of the two")
    if goal is not None:
        _refuse_options("goal", tools=tools, instructions=instructions, trusted=trusted)
        others = (skills or (), set_ or (), max_iterations, timeout, tenant, deliver or ())
        goal_options = GoalOptions(goal, agent, model, *others, pipeline=pipeline, inputs=input_ or ())
        checked: AgentInput | GoalInput = goal_input(goal_options)
    else:
        _refuse_options("task", skills=skills, deliver=deliver, pipeline=pipeline, input=input_)
        options = (tools or (), set_ or (), max_iterations, timeout, tenant, trusted or ())
        checked = agent_input(RunOptions(task or "", agent, model, instructions, *options))
    times = timing(
        cron=cron or (),
        every=None if every is None else parse_duration(every, "--every"),
        time_zone=tz,
        overlap=overlap,
        catch_up=_duration_or_default(catch_up, "--catch-up", CATCH_UP),
        jitter=_duration_or_default(jitter, "--jitter", NO_TIME),
        end=None if end is None else parse_time(end, "--end"),
    )
    state = ScheduleState(note=checked_note(note_) or None, paused=paused)
    request = _ScheduleRequest(checked_schedule_id(id_), checked, attached_media(attach or ()), times, state)
    return run_interruptible(_create(request, config, as_json=json))


async def _create(request: _ScheduleRequest, config: Path | None, *, as_json: bool) -> int:
    wanted = requested_names(request.checked)
    async with cli_context(config, check=partial(refuse_unknown, wanted)) as here:
        warn_of_disabled_policy(here)
        checked = await with_attachments(request.checked, request.attached, here.client)
        made = await create_checked(here.client, request.schedule_id, checked, request.times, request.state)
        described = await made.describe()
        one = await schedule_summary(described)
        write_note(_next_run_text(one))
        await warn_of_missing_worker(here, wanted, "its runs wait")
    if as_json:
        write_json(shown(one))
    else:
        write_result(one.id)
    return 0


def _next_run_text(one: ScheduleSummary) -> str:
    if one.paused:
        return f"it is paused; start it with: orga schedule resume {one.id}"
    if not one.next:
        return "it will never start a run: none of its times is between now and its end"
    return f"next run {zoned_time_text(one.next[0], one.time_zone)} {one.time_zone}"


def _refuse_options(what: str, **options: object) -> None:
    """Refuse options of the other kind, which would otherwise be ignored silently."""
    for name, given in options.items():
        if given is not None:
            hint = ". Use --skills" if name == "tools" else ". Use --tools" if name == "skills" else ""
            raise UsageError(f"--{name}: does not apply to a {what}{hint}")


def _duration_or_default(text: str | None, option: str, otherwise: timedelta) -> timedelta:
    return otherwise if text is None else parse_duration(text, option)


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
