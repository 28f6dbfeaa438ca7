"""`orga rewind`: continue a run from the end of an earlier iteration."""

import sys
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from orga.client.cli.connection import run_context
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import interruptible_prompt, run_interruptible
from orga.client.cli.options import ConfigFile, Json, LastIteration, RunId, login_name
from orga.client.cli.shown.text import on_one_line, write_json, write_note
from orga.client.cli.steer.intervene import NOTHING_HAPPENS, missing_worker_text
from orga.client.past.aftermath import ENDING_INTERVENTIONS, Effect, SentIntervention
from orga.client.past.delegates import LiveDelegate
from orga.client.past.rewind import RewindPlan, execute_rewind, plan_rewind
from orga.client.runs.agents import AgentHandle
from orga.client.runs.exchange import sender_fields
from orga.workflows.types.tool_calls.loop_tools import RUN_TOOL, loop_tool


@dataclass(frozen=True)
class _RewindRequest:
    run_id: str
    to_iteration: int
    steer: str | None
    keeps: bool
    is_sure: bool


def rewind(
    run: RunId,
    *,
    to_iteration: LastIteration,
    steer: Annotated[str | None, typer.Option(metavar="TEXT", help="Guidance for the next reasoning step.")] = None,
    without_interventions: Annotated[
        bool, typer.Option("--without-interventions", help="Do not redeliver what people sent to the run later.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """It first lists what people sent to the run later, and what its tools did later, which is not undone. On a
    terminal it asks for confirmation. Elsewhere it discards irreversible calls only with --yes. Delegates that still
    work for the discarded part are aborted. The run continues after they have ended.

    Example: orga rewind ID --to-iteration 3 --steer "Read the tests first."
    """
    request = _RewindRequest(run, to_iteration, steer, keeps=not without_interventions, is_sure=yes)
    return run_interruptible(_rewind(request, config, as_json=json))


async def _rewind(request: _RewindRequest, config: Path | None, *, as_json: bool) -> int:
    async with run_context(request.run_id, config) as (here, run_id):
        request = replace(request, run_id=run_id)
        plan = await plan_rewind(here.client, request.run_id, request.to_iteration)
        for line in rewind_plan_lines(plan, keeps=request.keeps):
            write_note(line)
        if not request.is_sure and plan.irreversible_calls and not sys.stdin.isatty():
            raise UsageError(
                "the rewind would discard irreversible calls, which are not undone. To rewind anyway, add --yes"
            )
        if not request.is_sure and sys.stdin.isatty():
            question = f"rewind {request.run_id} to the end of iteration {request.to_iteration}?"
            with interruptible_prompt():
                typer.confirm(question, abort=True, err=True)
        execution = await execute_rewind(
            here.client,
            plan,
            steer=request.steer,
            keep_interventions=request.keeps,
            sender=sender_fields(login_name()),
        )
        absent = await missing_worker_text(here, AgentHandle(here.client, request.run_id), NOTHING_HAPPENS)
    if as_json:
        write_json(_plan_json(plan, execution, keeps=request.keeps))
    else:
        rewound = f"{request.run_id} goes on from the end of iteration {request.to_iteration}"
        write_note(f"{rewound}; follow it: orga attach {quote(request.run_id)}")
    if absent:
        write_note(absent)
    return 0


def rewind_plan_lines(plan: RewindPlan, *, keeps: bool) -> list[str]:
    """Return the lines that are shown before a rewind: what is redelivered, not undone, or aborted."""
    fate = {True: "delivered again", False: "left out"}
    sent = [
        f"{fate[_is_redelivered(each, keeps=keeps)]}: {_dated_line(each.at, f'{each.kind} {each.text}')}"
        for each in plan.interventions
    ]
    done = [f"{_effect_status(each)}: {_dated_line(each.at, _effect_text(each))}" for each in plan.effects]
    left = [f"aborted first: {_dated_line(each.at, _delegate_text(each))}" for each in plan.delegates]
    return sent + done + left


def _effect_status(effect: Effect) -> str:
    return "done already, NOT UNDONE, irreversible" if effect.is_irreversible else "done already, not undone"


def _effect_text(effect: Effect) -> str:
    if not effect.is_irreversible:
        return f"iteration {effect.iteration}, {effect.text}"
    arguments = f" {effect.arguments}" if effect.arguments else ""
    named = effect.text if loop_tool(effect.tool).is_run else effect.tool
    return f"iteration {effect.iteration}, {named}{arguments}: {effect.outcome}"


def _delegate_text(delegate: LiveDelegate) -> str:
    return f"iteration {delegate.iteration}, {RUN_TOOL} {delegate.workflow_id}, still running"


def _dated_line(at: datetime, text: str) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S} {on_one_line(text)}"


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
