"""`orga fork`: a new run with the same past."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.options import ConfigFile, Json, LastIteration, RunId, task_text
from orga.client.cli.session import run_context
from orga.client.cli.shown.text import write_json, write_note, write_result
from orga.client.cli.start.task_input import option_names_in_errors, parse_pair, parse_settings
from orga.client.config.environment import parse_setting
from orga.client.config.problems import unknown_key_remedy
from orga.client.config.workplace import recorded_workplace, worker_command
from orga.client.past.fork import fork as fork_run
from orga.client.runs.agents import run_id_of
from orga.client.server.pollers import may_be_polled
from orga.workflows.types.goals.input import GoalConfig, GoalInput
from orga.workflows.types.input import AgentInput, LoopConfig
from orga.workflows.types.record import CheckedInput, annotation_at
from orga.workflows.types.text import clean_text

INPUT_KEYS: Mapping[str, type[CheckedInput]] = {
    **dict.fromkeys(("agent", "model", "instructions", "tools"), AgentInput),
    "skills": GoalInput,
}
"""Keys of the input that may be other, and whose they are; what the run has not is refused when its kind is known."""


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
            help="A setting; or model, agent, instructions, tools; of a goal skills.",
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="What the fork shall do, at iteration 0 in place of the old task; to a goal it is guidance.",
        ),
    ] = None,
    id_: Annotated[str | None, typer.Option("--id", help="The fork's id; one of its own without.")] = None,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Start a run that shares another's past up to an iteration, print its id, and leave; the other is left alone.

    The fork of a goal is a goal: it goes on from the end of turn N with the plan that was.

    Example: orga fork ID --to-iteration 3 --set model=openai:gpt-6.1-terra --set max_iterations=50

    Example: orga fork ID --to-iteration 5 --task "Now write the tests for it."
    """
    asked = None if task is None else clean_text(task_text(task))
    given = set_ or ()
    wish = _ForkRequest(run, to_iteration, given, input_changes(given), asked, None if id_ is None else run_id_of(id_))
    return run_interruptible(_fork(wish, config, as_json=json))


def input_changes(pairs: Sequence[str]) -> dict[str, Any]:
    """Return the keys of the input that are other in the fork.

    Raises:
        UsageError: There is no such key.
    """
    changed: dict[str, Any] = {}
    of_config: dict[type[CheckedInput], list[str]] = {LoopConfig: [], GoalConfig: []}
    for pair in pairs:
        key, value = parse_pair(pair, "--set")
        if key in INPUT_KEYS:
            changed[key] = parse_setting(annotation_at(INPUT_KEYS[key], (key,)), clean_text(value))
        elif whose := next((each for each in of_config if key.partition(".")[0] in each.model_fields), None):
            of_config[whose].append(pair)
        else:
            known = dict.fromkeys([*INPUT_KEYS, *LoopConfig.model_fields, *GoalConfig.model_fields])
            raise UsageError(f"--set {key}: unknown key; {unknown_key_remedy(key, list(known))}")
    config = {key: value for whose, given in of_config.items() for key, value in parse_settings(given, whose).items()}
    return changed | ({"config": config} if config else {})


@dataclass(frozen=True)
class _ForkRequest:
    run_id: str
    at_iteration: int
    settings: Sequence[str]
    """As they were typed; `changes` is what they mean."""
    changes: dict[str, Any]
    task: str | None
    new_id: str | None


async def _fork(wish: _ForkRequest, config: Path | None, *, as_json: bool) -> int:
    async with run_context(wish.run_id, config) as (here, run_id):
        wish = replace(wish, run_id=run_id)
        with option_names_in_errors(wish.settings):
            forked = await fork_run(
                here.client, wish.run_id, wish.at_iteration, changes=wish.changes, task=wish.task, new_id=wish.new_id
            )
        described = await forked.describe()
        if not await may_be_polled(here.client, described.task_queue):
            start = worker_command(await recorded_workplace(described))
            write_note(f"no worker polls task queue {described.task_queue!r}: the run waits; start one with: {start}")
        link = here.connection.link(forked.id)
        write_note(f"fork of {wish.run_id} at iteration {wish.at_iteration}" + (f"  {link}" if link else ""))
    if as_json:
        write_json({"id": forked.id, "forked_from": {"id": wish.run_id, "iteration": wish.at_iteration}, "ui": link})
    else:
        write_result(forked.id)
    return 0
