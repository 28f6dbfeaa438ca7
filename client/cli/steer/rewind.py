"""`orga rewind`: continue a run from the end of an earlier iteration. `orga fork`: a new run with the same past."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from shlex import quote
from typing import Annotated, Any

import typer

from orga.client.cli.connection import run_context
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import Command, interruptible_prompt
from orga.client.cli.options import ConfigFile, Json, LastIteration, RunId, login_name, text_or_stdin
from orga.client.cli.shown.text import terminal_line, write_json, write_note, write_result
from orga.client.cli.start.task_input import option_names_in_errors, parse_pair, parse_settings, set_options
from orga.client.cli.steer.intervene import NOTHING_HAPPENS, note_missing_worker
from orga.client.config.environment import parse_setting
from orga.client.config.problems import unknown_key_remedy
from orga.client.past.dropped import ENDING_INTERVENTIONS, Effect, SentIntervention
from orga.client.past.fork import fork as fork_run
from orga.client.past.rewind import RewindPlan, execute_rewind, plan_rewind
from orga.client.runs.agents import new_run_id
from orga.client.runs.exchange import sender_fields
from orga.workflows.types.goals.goal_input import GoalConfig, GoalInput
from orga.workflows.types.input import AgentInput, LoopConfig
from orga.workflows.types.record import CheckedInput, annotation_at
from orga.workflows.types.text import clean_text
from orga.workflows.types.tool_calls.loop_tools import RUN_TOOL, loop_tool


async def rewind(
    run: RunId,
    *,
    to_iteration: LastIteration,
    steer: Annotated[str | None, typer.Option(metavar="TEXT", help="Guidance for the next reasoning step.")] = None,
    without_interventions: Annotated[
        bool, typer.Option("--without-interventions", help="Do not deliver people's messages after iteration N again.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> None:
    """The command first lists messages of people and effects of tools after iteration N. These effects are not undone.
    On a terminal it asks for confirmation. Elsewhere it discards irreversible calls only with --yes. Delegates that
    still work for the discarded part are aborted, and the run continues after they have ended.

    Example: orga rewind ID --to-iteration 3 --steer "Read the tests first."
    """
    keeps = not without_interventions
    async with run_context(run, config) as (context, run_id):
        plan = await plan_rewind(context.client, run_id, to_iteration)
        for line in rewind_plan_lines(plan, keeps=keeps):
            write_note(line)
        if not yes and sys.stdin.isatty():
            with interruptible_prompt():
                typer.confirm(f"rewind {run_id} to the end of iteration {to_iteration}?", abort=True, err=True)
        elif not yes and plan.irreversible_calls:
            raise UsageError(
                "the rewind would discard irreversible calls, which are not undone. To rewind anyway, add --yes"
            )
        execution = await execute_rewind(
            context.client, plan, steer=steer, keep_interventions=keeps, sender=sender_fields(login_name())
        )
        if json:
            write_json(_plan_json(plan, execution, keeps=keeps))
        else:
            rewound = f"{run_id} goes on from the end of iteration {to_iteration}"
            write_note(f"{rewound}; follow it: orga attach {quote(run_id)}")
        await note_missing_worker(context, context.run(run_id), NOTHING_HAPPENS)


def rewind_plan_lines(plan: RewindPlan, *, keeps: bool) -> list[str]:
    """Return the lines that are shown before a rewind: interventions, effects of tools, and delegates to abort."""
    lines = list[str]()
    for sent in plan.interventions:
        fate = "delivered again" if _is_redelivered(sent, keeps=keeps) else "left out"
        lines.append(f"{fate}: {_dated_line(sent.at, f'{sent.kind} {sent.text}')}")
    for effect in plan.effects:
        fate = "NOT UNDONE, irreversible" if effect.is_irreversible else "not undone"
        lines.append(f"done already, {fate}: {_dated_line(effect.at, _effect_text(effect))}")
    for delegate in plan.delegates:
        text = f"iteration {delegate.iteration}, {RUN_TOOL} {delegate.workflow_id}, still running"
        lines.append(f"aborted first: {_dated_line(delegate.at, text)}")
    return lines


def _effect_text(effect: Effect) -> str:
    if not effect.is_irreversible:
        return f"iteration {effect.iteration}, {effect.text}"
    arguments = f" {effect.arguments}" if effect.arguments else ""
    call = effect.text if loop_tool(effect.tool).is_run else effect.tool
    return f"iteration {effect.iteration}, {call}{arguments}: {effect.outcome}"


def _dated_line(at: datetime, text: str) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S} {terminal_line(text)}"


def _is_redelivered(sent: SentIntervention, *, keeps: bool) -> bool:
    return keeps and sent.kind not in ENDING_INTERVENTIONS


def _plan_json(plan: RewindPlan, run_id: str, *, keeps: bool) -> dict[str, Any]:
    return {
        "id": plan.boundary.workflow_id,
        "run_id": run_id,
        "to_iteration": plan.boundary.iteration,
        "interventions": [
            asdict(sent) | {"at": sent.at.isoformat(), "kept": _is_redelivered(sent, keeps=keeps)}
            for sent in plan.interventions
        ],
        "effects": [asdict(effect) | {"at": effect.at.isoformat()} for effect in plan.effects],
        "delegates": [asdict(delegate) | {"at": delegate.at.isoformat()} for delegate in plan.delegates],
    }


_INPUT_KEYS: Mapping[str, type[CheckedInput]] = {
    **dict.fromkeys(("agent", "model", "instructions", "tools"), AgentInput),
    "skills": GoalInput,
}
"""The keys of a run's input that a fork may change, each with the type that has it.

`fork_run` refuses a key that the kind of the run does not have.
"""


def fork(
    run: RunId,
    *,
    to_iteration: LastIteration,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            "-s",
            metavar="KEY=VALUE",
            help="Change a setting, model, agent, instructions or tools. For a goal, also skills.",
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="A message about what to do now. At iteration 0 it replaces the task. For a goal it is guidance.",
        ),
    ] = None,
    id_: Annotated[str | None, typer.Option("--id", help="The fork's id. Default: a new one.")] = None,
    json: Json = False,
    config: ConfigFile = None,
) -> Command:
    """The fork of a goal is a goal. It continues after iteration N, with the plan of that time.

    Example: orga fork ID --to-iteration 3 --set model=openai:gpt-6.1-terra --set max_iterations=50

    Example: orga fork ID --to-iteration 5 --task "Now write the tests for it."
    """
    settings, changes = set_ or (), input_changes(set_ or ())
    message = None if task is None else clean_text(text_or_stdin(task))
    new_id = None if id_ is None else new_run_id(id_)

    async def start_fork() -> None:
        async with run_context(run, config) as (context, run_id):
            with option_names_in_errors(set_options(settings)):
                forked = await fork_run(
                    context.client, run_id, to_iteration, changes=changes, task=message, new_id=new_id
                )
            await note_missing_worker(context, forked, "the fork waits")
            link = context.connection.link(forked.id)
            write_note(f"fork of {run_id} at iteration {to_iteration}" + (f"  {link}" if link else ""))
        if json:
            write_json({"id": forked.id, "forked_from": {"id": run_id, "iteration": to_iteration}, "ui": link})
        else:
            write_result(forked.id)

    return start_fork()


def input_changes(pairs: Sequence[str]) -> dict[str, Any]:
    """Return the changes to the input of a fork from `KEY=VALUE` pairs. Raise UsageError for an unknown key."""
    changed: dict[str, Any] = {}
    pairs_by_config: dict[type[CheckedInput], list[str]] = {LoopConfig: [], GoalConfig: []}
    for pair in pairs:
        key, value = parse_pair(pair, "--set")
        if key in _INPUT_KEYS:
            changed[key] = parse_setting(annotation_at(_INPUT_KEYS[key], (key,)), clean_text(value))
        elif kind := next((kind for kind in pairs_by_config if key.partition(".")[0] in kind.model_fields), None):
            pairs_by_config[kind].append(pair)
        else:
            known = dict.fromkeys([*_INPUT_KEYS, *LoopConfig.model_fields, *GoalConfig.model_fields])
            raise UsageError(f"--set {key}: unknown key; {unknown_key_remedy(key, list(known))}")
    config: dict[str, Any] = {}
    for kind, kind_pairs in pairs_by_config.items():
        config |= parse_settings(kind_pairs, kind)
    return changed | ({"config": config} if config else {})
