"""`orga fork`: a new run with the same past."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from orga.client.cli.connection import run_context
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.options import ConfigFile, Json, LastIteration, RunId, task_text
from orga.client.cli.shown.text import write_json, write_note, write_result
from orga.client.cli.start.task_input import option_names_in_errors, parse_pair, parse_settings
from orga.client.cli.steer.intervene import missing_worker_text
from orga.client.config.environment import parse_setting
from orga.client.config.problems import unknown_key_remedy
from orga.client.past.fork import fork as fork_run
from orga.client.runs.agents import run_id_of
from orga.workflows.types.goals.goal_input import GoalConfig, GoalInput
from orga.workflows.types.input import AgentInput, LoopConfig
from orga.workflows.types.record import CheckedInput, annotation_at
from orga.workflows.types.text import clean_text

INPUT_KEYS: Mapping[str, type[CheckedInput]] = {
    **dict.fromkeys(("agent", "model", "instructions", "tools"), AgentInput),
    "skills": GoalInput,
}
"""Keys of the input that a fork may change, by the type that has them.

Keys that the run's kind does not have are refused once the kind is known.
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
            help="A changed setting, model, agent, instructions or tools; for a goal, skills.",
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="A message with what to do now; at iteration 0 it replaces the task. A goal takes it as guidance.",
        ),
    ] = None,
    id_: Annotated[str | None, typer.Option("--id", help="The fork's id. Default: a new one.")] = None,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """The fork of a goal is a goal. It continues after iteration N, with the plan of that time.

    Example: orga fork ID --to-iteration 3 --set model=openai:gpt-6.1-terra --set max_iterations=50

    Example: orga fork ID --to-iteration 5 --task "Now write the tests for it."
    """
    settings = set_ or ()
    request = _ForkRequest(
        run_id=run,
        at_iteration=to_iteration,
        settings=settings,
        changes=input_changes(settings),
        task=None if task is None else clean_text(task_text(task)),
        new_id=None if id_ is None else run_id_of(id_),
    )
    return run_interruptible(_fork(request, config, as_json=json))


def input_changes(pairs: Sequence[str]) -> dict[str, Any]:
    """Return the changes of `--set` to the input of a fork. Raise UsageError if there is no such key."""
    changed: dict[str, Any] = {}
    pairs_by_config: dict[type[CheckedInput], list[str]] = {LoopConfig: [], GoalConfig: []}
    for pair in pairs:
        key, value = parse_pair(pair, "--set")
        if key in INPUT_KEYS:
            changed[key] = parse_setting(annotation_at(INPUT_KEYS[key], (key,)), clean_text(value))
        elif kind := next((each for each in pairs_by_config if key.partition(".")[0] in each.model_fields), None):
            pairs_by_config[kind].append(pair)
        else:
            known = dict.fromkeys([*INPUT_KEYS, *LoopConfig.model_fields, *GoalConfig.model_fields])
            raise UsageError(f"--set {key}: unknown key; {unknown_key_remedy(key, list(known))}")
    config: dict[str, Any] = {}
    for kind, of_kind in pairs_by_config.items():
        config |= parse_settings(of_kind, kind)
    return changed | ({"config": config} if config else {})


@dataclass(frozen=True)
class _ForkRequest:
    run_id: str
    at_iteration: int
    settings: Sequence[str]
    """The pairs as typed. `changes` holds them parsed."""
    changes: dict[str, Any]
    task: str | None
    new_id: str | None


async def _fork(request: _ForkRequest, config: Path | None, *, as_json: bool) -> int:
    async with run_context(request.run_id, config) as (here, run_id):
        with option_names_in_errors(request.settings):
            forked = await fork_run(
                here.client,
                run_id,
                request.at_iteration,
                changes=request.changes,
                task=request.task,
                new_id=request.new_id,
            )
        if absent := await missing_worker_text(here, forked, "the fork waits"):
            write_note(absent)
        link = here.connection.link(forked.id)
        write_note(f"fork of {run_id} at iteration {request.at_iteration}" + (f"  {link}" if link else ""))
    if as_json:
        write_json({"id": forked.id, "forked_from": {"id": run_id, "iteration": request.at_iteration}, "ui": link})
    else:
        write_result(forked.id)
    return 0
