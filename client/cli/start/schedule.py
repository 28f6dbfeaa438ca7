"""The `orga schedule` commands: goals and runs that Temporal starts regularly."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from temporalio.client import Client, ScheduleActionStartWorkflow, ScheduleDescription, ScheduleState

from orga.client.cli.connection import cli_context
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import Command
from orga.client.cli.options import Attach, ConfigFile, Json, login_name, parse_duration, parse_time
from orga.client.cli.shown.text import terminal_line, write_json, write_note, write_result
from orga.client.cli.start.run import warn_of_disabled_policy, warn_of_missing_worker
from orga.client.cli.start.task_input import GoalOptions, RunOptions, agent_input, attached_media, goal_input
from orga.client.config.known_input import refuse_unknown, requested_names
from orga.client.runs.attachments import with_attachments
from orga.client.schedules.create import (
    CATCH_UP,
    NO_TIME,
    OVERLAPS,
    Overlap,
    checked_note,
    checked_schedule_id,
    create_checked,
    timing,
)
from orga.client.schedules.handle import (
    GONE,
    ScheduleHandle,
    ScheduleSummary,
    TriggerResult,
    all_schedules,
    display_zone,
    duration_text,
    run_states,
    schedule_json,
    schedule_summary,
)
from orga.workflows.types.goals.goal_input import GoalInput
from orga.workflows.types.input import AgentInput
from orga.workflows.types.text import full_field_text

ScheduleId = Annotated[
    str, typer.Argument(metavar="ID", help="The schedule's id. `orga schedule list` shows it.", show_default=False)
]
Why = Annotated[str, typer.Argument(metavar="WHY", help="The schedule's new note.", show_default=False)]

app = typer.Typer(
    no_args_is_help=True,
    epilog="The runs appear in `orga list`, each with its journal. The guide is docs/schedules.md.",
    rich_markup_mode="rich",
)


@app.command("create")
def create_schedule(
    id_: Annotated[
        str, typer.Argument(metavar="ID", help="The schedule's id. Its runs have ids ID-<time>.", show_default=False)
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
        typer.Option(help="What to do if the previous run has not ended. cancel-other ends it like an abort."),
    ] = "skip",
    catch_up: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="If the server was down, start runs that are late by up to this. Default: 1d."
        ),
    ] = None,
    jitter: Annotated[
        str | None, typer.Option(metavar="TIME", help="Delay each run by a random time up to this.")
    ] = None,
    end: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Start no run after this time: 2026-12-31T18:00.")
    ] = None,
    paused: Annotated[
        bool, typer.Option("--paused", help="Create a paused schedule. orga schedule resume ID starts it.")
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
        typer.Option(help="With --goal: deliver the answers to this name in goals.deliveries. Repeat it."),
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
) -> Command:
    """Create a schedule that starts a goal or a run regularly, and print its id.

    The input is checked now. The server starts the runs, and a worker of this folder carries them out: keep both
    running. Each run is an ordinary run: it is in `orga list` and has a journal.

    Exit codes: 0 created, 2 bad input or an id in use, 6 failed, 7 no server.

    Example: orga schedule create morning --cron "0 7 * * 1-5" --tz Europe/Berlin --goal "Sum up what is new in docs"

    Example: orga schedule create watch --every 1h --jitter 5m --task "Is the changelog up to date?" --paused
    """
    if (goal is None) == (task is None):
        raise UsageError("name what each run does: either --goal TEXT or --task TEXT")
    if goal is not None:
        _refuse_options("goal", tools=tools, instructions=instructions, trusted=trusted)
        checked: AgentInput | GoalInput = goal_input(
            GoalOptions(
                goal=goal,
                agent=agent,
                model=model,
                skills=skills or (),
                settings=set_ or (),
                max_iterations=max_iterations,
                timeout_s=timeout,
                tenant=tenant,
                deliver=deliver or (),
                pipeline=pipeline,
                inputs=input_ or (),
            )
        )
    else:
        _refuse_options("task", skills=skills, deliver=deliver, pipeline=pipeline, input=input_)
        checked = agent_input(
            RunOptions(
                task=task or "",
                agent=agent,
                model=model,
                instructions=instructions,
                tools=tools or (),
                settings=set_ or (),
                max_iterations=max_iterations,
                timeout_s=timeout,
                tenant=tenant,
                trusted=trusted or (),
            )
        )
    times = timing(
        cron=cron or (),
        every=None if every is None else parse_duration(every, "--every"),
        time_zone=tz,
        overlap=overlap,
        catch_up=CATCH_UP if catch_up is None else parse_duration(catch_up, "--catch-up"),
        jitter=NO_TIME if jitter is None else parse_duration(jitter, "--jitter"),
        end=None if end is None else parse_time(end, "--end"),
    )
    state = ScheduleState(note=checked_note(note_) or None, paused=paused)
    schedule_id, attached, names = checked_schedule_id(id_), attached_media(attach or ()), requested_names(checked)

    async def create() -> None:
        async with cli_context(config, check=partial(refuse_unknown, names)) as context:
            warn_of_disabled_policy(context)
            run_input = await with_attachments(checked, attached, context.client)
            created = await create_checked(context.client, schedule_id, run_input, times, state)
            summary = await schedule_summary(await created.describe())
            write_note(_next_run_text(summary))
            await warn_of_missing_worker(context, names, "its runs wait")
        if json:
            write_json(schedule_json(summary))
        else:
            write_result(summary.id)

    return create()


def _next_run_text(summary: ScheduleSummary) -> str:
    if summary.paused:
        return f"it is paused; start it with: orga schedule resume {summary.id}"
    if not summary.next:
        return "it will never start a run: it has no time between now and its end"
    return f"next run {zoned_time_text(summary.next[0], summary.time_zone)} {summary.time_zone}"


def _refuse_options(what: str, **options: object) -> None:
    """Refuse options of the other kind, which would otherwise be ignored silently."""
    hints = {"tools": ". Use --skills", "skills": ". Use --tools"}
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"--{name}: does not apply to a {what}{hints.get(name, '')}")


COLUMNS = 80
"""Characters of a line, whatever the terminal's width. Lines are longer if WHEN would get less than its minimum."""

_HEADS = ("ID", "WHEN", "NEXT", "LAST", "ENDING")
_WHEN = _HEADS.index("WHEN")
_MIN_WHEN_CELLS = 16
_GAP = "  "
_INDENT = "  "


def schedule_table(shown: Sequence[ScheduleSummary], endings: Mapping[str, str]) -> list[str]:
    """Return the lines of a table with two lines for each schedule: its times, and what it starts.

    Args:
        endings: The state of each schedule's last run, by run id.
    """
    rows = [_HEADS, *(_cells(summary, endings) for summary in shown)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    other_cells = sum(widths) - widths[_WHEN] + len(_GAP) * (len(_HEADS) - 1)
    widths[_WHEN] = min(widths[_WHEN], max(COLUMNS - other_cells, _MIN_WHEN_CELLS))
    lines = [_table_line(_HEADS, widths)]
    for row, summary in zip(rows[1:], shown, strict=True):
        lines += [_table_line(row, widths), _subject_line(summary)]
    return lines


def zoned_time_text(at: datetime, zone: str) -> str:
    """Return a time in the schedule's zone, with the year if it is not the current one."""
    local = at.astimezone(display_zone(zone))
    return f"{local:%m-%d %H:%M}" if local.year == datetime.now(UTC).year else f"{local:%Y-%m-%d %H:%M}"


def schedule_times_text(summary: ScheduleSummary) -> str:
    """Return the schedule's times, with the zone unless it is UTC."""
    return ", ".join(summary.times) + ("" if summary.time_zone == "UTC" else f" {summary.time_zone}")


def _cells(summary: ScheduleSummary, endings: Mapping[str, str]) -> tuple[str, ...]:
    next_run = zoned_time_text(summary.next[0], summary.time_zone) if summary.next else "-"
    last_run, ending = "-", "-"
    if summary.runs:
        last = summary.runs[-1]
        last_run, ending = zoned_time_text(last.at, summary.time_zone), endings.get(last.run_id, GONE)
    times = terminal_line(schedule_times_text(summary))
    return full_field_text(summary.id), times, "paused" if summary.paused else next_run, last_run, ending


def _table_line(cells: Sequence[str], widths: Sequence[int]) -> str:
    sized = (terminal_line(cell, width).ljust(width) for cell, width in zip(cells, widths, strict=True))
    return _GAP.join(sized).rstrip()


def _subject_line(summary: ScheduleSummary) -> str:
    return _INDENT + terminal_line(f"{summary.kind}: {summary.what or summary.workflow}", COLUMNS - len(_INDENT))


_MAX_NEXT_RUNS = 3
"""The next runs that `show` lists."""


@app.command("list")
async def list_schedules(*, json: Json = False, config: ConfigFile = None) -> None:
    """List schedules: their times, each in the schedule's time zone, and the state of the last run.

    Example: orga schedule list --json
    """
    async with cli_context(config) as context:
        summaries = await all_schedules(context.client)
        endings = await run_states(context.client, [summary.runs[-1] for summary in summaries if summary.runs])
    if json:
        write_json([schedule_json(summary, endings) for summary in summaries])
    elif summaries:
        write_result(*schedule_table(summaries, endings))
    else:
        write_note('there is no schedule; create one with: orga schedule create ID --every 1d --task "…"')


@app.command("show")
async def show(
    schedule: ScheduleId,
    *,
    json: Json = False,
    config: ConfigFile = None,
) -> None:
    """Show a schedule: its times, its policies, and its last runs with ids and endings.

    Example: orga schedule show morning
    """
    async with cli_context(config) as context:
        described = await ScheduleHandle(context.client, schedule).describe()
        summary = await schedule_summary(described)
        endings = await run_states(context.client, summary.runs)
        run_input = await _decode_input(context.client, described)
    if json:
        facts = schedule_json(summary, endings) | _settings(described) | _run_counts(described)
        write_json({**facts, "input": run_input})
    else:
        write_result(*_schedule_lines(summary, described, endings))


def _schedule_lines(summary: ScheduleSummary, described: ScheduleDescription, endings: dict[str, str]) -> list[str]:
    settings, counts = _settings(described), _run_counts(described)
    end = described.schedule.spec.end_at
    coming = ", ".join(zoned_time_text(at, summary.time_zone) for at in summary.next[:_MAX_NEXT_RUNS]) or "none"
    times = terminal_line(schedule_times_text(summary), 400)
    if settings["jitter"] != "0s":
        times += f", delayed by up to {settings['jitter']}"
    if end:
        times += f", until {zoned_time_text(end, summary.time_zone)}"
    folder = f", folder: {terminal_line(summary.folder, 400)}" if summary.folder else ""
    return [
        f"{full_field_text(summary.id)}  {summary.kind}" + ("  (paused)" if summary.paused else ""),
        f"  what: {terminal_line(summary.what or summary.workflow, 400)}",
        f"  when: {times}",
        f"  overlap: {settings['overlap']}, catch-up: {settings['catch_up']}",
        f"  queue: {full_field_text(str(settings['task_queue']))}{folder}",
        *([f"  note: {terminal_line(summary.note, 400)}"] if summary.note else []),
        f"  next: {'none while it is paused' if summary.paused else coming}",
        "  runs: " + ", ".join(f"{count} {name}" for name, count in counts.items()),
        *(
            f"  {zoned_time_text(run.at, summary.time_zone)}  {full_field_text(run.run_id)}  {endings[run.run_id]}"
            for run in summary.runs[::-1]
        ),
    ]


def _settings(described: ScheduleDescription) -> dict[str, Any]:
    schedule, action = described.schedule, described.schedule.action
    overlap_names = {policy: name for name, policy in OVERLAPS.items()}
    return {
        "overlap": overlap_names.get(schedule.policy.overlap, "skip"),
        "catch_up": duration_text(schedule.policy.catchup_window or NO_TIME),
        "jitter": duration_text(schedule.spec.jitter or NO_TIME),
        "end": schedule.spec.end_at and schedule.spec.end_at.isoformat(timespec="seconds"),
        "task_queue": action.task_queue if isinstance(action, ScheduleActionStartWorkflow) else "",
    }


def _run_counts(described: ScheduleDescription) -> dict[str, int]:
    info = described.info
    return {
        "started": info.num_actions,
        "skipped": info.num_actions_skipped_overlap,
        "missed": info.num_actions_missed_catchup_window,
    }


async def _decode_input(client: Client, described: ScheduleDescription) -> Any:
    """Return the input of each run, or None if it cannot be read."""
    action = described.schedule.action
    if not isinstance(action, ScheduleActionStartWorkflow) or len(action.args) != 1:
        return None
    return (await client.data_converter.decode(action.args))[0]  # pyright: ignore[reportArgumentType]


@app.command("pause")
async def pause(schedule: ScheduleId, why: Why = "", *, json: Json = False, config: ConfigFile = None) -> None:
    """Pause a schedule: it starts no new runs. Runs that have started continue.

    Example: orga schedule pause morning "until the docs are moved"
    """
    note = checked_note(why) or f"paused by {login_name() or 'somebody'}"
    await _change_schedule(schedule, lambda it: it.pause(note), "is paused", config, as_json=json)


@app.command("resume")
async def resume(schedule: ScheduleId, why: Why = "", *, json: Json = False, config: ConfigFile = None) -> None:
    """Resume a paused schedule. Runs that were due meanwhile are not started later.

    Example: orga schedule resume morning
    """
    note = checked_note(why) or f"resumed by {login_name() or 'somebody'}"
    await _change_schedule(schedule, lambda it: it.resume(note), "goes on", config, as_json=json)


@app.command("trigger")
async def trigger(schedule: ScheduleId, *, json: Json = False, config: ConfigFile = None) -> None:
    """Start a run now, even if the schedule is paused, and print its id. The overlap policy applies.

    Example: orga schedule trigger morning
    """
    async with cli_context(config) as context:
        result = await ScheduleHandle(context.client, schedule).trigger()
    if json:
        write_json({"id": schedule, "outcome": result.outcome, "run": result.run_id or None})
    elif result.run_id:
        write_result(result.run_id)
    write_note(_trigger_text(result))


def _trigger_text(result: TriggerResult) -> str:
    match result.outcome:
        case "started":
            return f"follow it with: orga attach {result.run_id}"
        case "skipped":
            return "no run was started: the previous run has not ended, and the overlap policy skips further runs"
        case "buffered":
            return "it starts when the current run has ended"
        case "pending":
            return "the schedule has not started it yet; see: orga schedule show"


@app.command("delete")
async def delete(schedule: ScheduleId, *, json: Json = False, config: ConfigFile = None) -> None:
    """Delete a schedule. Its runs stay; `orga abort` ends one that has not ended.

    Example: orga schedule delete morning
    """
    await _change_schedule(schedule, ScheduleHandle.delete, "is deleted; its runs stay", config, as_json=json)


async def _change_schedule(
    schedule: str,
    change: Callable[[ScheduleHandle], Awaitable[None]],
    outcome: str,
    config: Path | None,
    *,
    as_json: bool,
) -> None:
    async with cli_context(config) as context:
        await change(ScheduleHandle(context.client, schedule))
    if as_json:
        write_json({"id": schedule})
    write_note(f"{schedule} {outcome}")
