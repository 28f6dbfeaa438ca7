"""`orga schedule create`: let Temporal start a goal or a run again and again."""

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from temporalio.client import ScheduleState

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.options import ConfigFile, Json, parse_duration, parse_time
from orga.client.cli.schedule.show import schedule_json as shown
from orga.client.cli.schedule.show import zoned_time_text
from orga.client.cli.session import cli_context
from orga.client.cli.shown.text import write_json, write_note, write_result
from orga.client.cli.start.run import warn_of_disabled_policy, warn_of_missing_worker
from orga.client.cli.start.task_input import GoalOptions, RunOptions, agent_input, goal_input
from orga.client.config.known_input import refuse_unknown, requested_names
from orga.client.schedules.create import checked_note, checked_schedule_id, create_checked
from orga.client.schedules.reading import ScheduleSummary, schedule_summary
from orga.client.schedules.timing import CATCH_UP, NO_TIME, Overlap, Timing, timing
from orga.workflows.types.goals.input import GoalInput
from orga.workflows.types.input import AgentInput


@dataclass(frozen=True)
class _ScheduleRequest:
    schedule_id: str
    checked: AgentInput | GoalInput
    times: Timing
    state: ScheduleState


def create_schedule(
    id_: Annotated[
        str, typer.Argument(metavar="ID", help="The schedule's id; its runs are ID-<time>.", show_default=False)
    ],
    *,
    goal: Annotated[str | None, typer.Option(metavar="TEXT", help="A goal to reach, as in orga goal.")] = None,
    task: Annotated[str | None, typer.Option(metavar="TEXT", help="Or a task for an agent, as in orga run.")] = None,
    cron: Annotated[
        list[str] | None, typer.Option(metavar="EXPR", help="When: '0 7 * * 1-5', '@daily'. Repeat it for more.")
    ] = None,
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="Or how often: 30m, 1h, 1d, counted from midnight UTC.")
    ] = None,
    tz: Annotated[str, typer.Option(metavar="ZONE", help="Of --cron and --end: Europe/Berlin.")] = "UTC",
    overlap: Annotated[
        Overlap, typer.Option(help="When a run is due and the one before goes on. cancel-other ends that as an abort.")
    ] = "skip",
    catch_up: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How late a run may start that no server was up for; 1d without."),
    ] = None,
    jitter: Annotated[str | None, typer.Option(metavar="TIME", help="Start each later by up to this.")] = None,
    end: Annotated[str | None, typer.Option(metavar="WHEN", help="No run starts after it: 2026-12-31T18:00.")] = None,
    paused: Annotated[bool, typer.Option("--paused", help="Begin paused: orga schedule resume ID.")] = False,
    note_: Annotated[str, typer.Option("--note", help="For people.")] = "",
    agent: Annotated[str | None, typer.Option(help="An agent of orga.toml; the default one without.")] = None,
    model: Annotated[str | None, typer.Option(help="provider:model, in place of the agent's own.")] = None,
    skills: Annotated[
        list[str] | None, typer.Option(help="Of a goal: only these tools; repeat it, or part names by commas.")
    ] = None,
    deliver: Annotated[
        list[str] | None, typer.Option(help="Of a goal: where its answers go, by name in goals.deliveries; repeat it.")
    ] = None,
    pipeline: Annotated[str | None, typer.Option(help="Of a goal: a plan that stands in orga.toml.")] = None,
    input_: Annotated[
        list[str] | None, typer.Option("--input", help="Of a goal: an input of its pipeline; repeat it.")
    ] = None,
    tools: Annotated[
        list[str] | None, typer.Option(help="Of a task: only these tools; repeat it, or part names by commas.")
    ] = None,
    instructions: Annotated[str | None, typer.Option(help="Of a task: in place of the agent's own.")] = None,
    trusted: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Of a task: a fact that policies may rely on.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of the goal, or of the loop.")
    ] = None,
    max_iterations: Annotated[int | None, typer.Option(help="Rounds of a goal, reasoning steps of a run.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds of each run's clock at most.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Whom it is for.")] = None,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Create a schedule that starts a goal or a run again and again, and print its id.

    The input is checked now. Runs start while the server is up, and are carried out while a worker of this folder is:
    keep `orga worker` running. Each is a run as any other, in `orga list`, with its journal.

    Exit codes: 0 created, 2 bad input or an id that is taken, 6 failed, 7 no server.

    Example: orga schedule create morning --cron "0 7 * * 1-5" --tz Europe/Berlin --goal "Sum up what is new in docs"

    Example: orga schedule create watch --every 1h --jitter 5m --task "Is the changelog up to date?" --paused
    """
    if (goal is None) == (task is None):
        raise UsageError("say what each run does: --goal TEXT or --task TEXT, one of the two")
    if goal is not None:
        _refuse_options("goal", tools=tools, instructions=instructions, trusted=trusted)
        told = (skills or (), set_ or (), max_iterations, timeout, tenant, deliver or ())
        given = GoalOptions(goal, agent, model, *told, pipeline=pipeline, inputs=input_ or ())
        checked: AgentInput | GoalInput = goal_input(given)
    else:
        _refuse_options("task", skills=skills, deliver=deliver, pipeline=pipeline, input=input_)
        given_too = (tools or (), set_ or (), max_iterations, timeout, tenant, trusted or ())
        checked = agent_input(RunOptions(task or "", agent, model, instructions, *given_too))
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
    return run_interruptible(
        _create(_ScheduleRequest(checked_schedule_id(id_), checked, times, state), config, as_json=json)
    )


async def _create(wish: _ScheduleRequest, config: Path | None, *, as_json: bool) -> int:
    wanted = requested_names(wish.checked)
    async with cli_context(config, check=partial(refuse_unknown, wanted)) as here:
        warn_of_disabled_policy(here)
        made = await create_checked(here.client, wish.schedule_id, wish.checked, wish.times, wish.state)
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
        return "it will never start a run: no time that it names lies ahead, before its end"
    return f"next run {zoned_time_text(one.next[0], one.time_zone)} {one.time_zone}"


def _refuse_options(what: str, **options: object) -> None:
    """Refuse options that are another kind's; left out they would be lost unseen."""
    for name, given in options.items():
        if given is not None:
            hint = "; it takes --skills" if name == "tools" else "; it takes --tools" if name == "skills" else ""
            raise UsageError(f"--{name}: no option of a {what}{hint}")


def _duration_or_default(text: str | None, option: str, otherwise: timedelta) -> timedelta:
    return otherwise if text is None else parse_duration(text, option)
