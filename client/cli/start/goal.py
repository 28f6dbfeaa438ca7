"""`orga goal`: start a goal, work for it if nobody does, and follow it to its end."""

from dataclasses import dataclass
from typing import Annotated

import typer

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.options import ConfigFile, Json, NoWorker, Quiet
from orga.client.cli.session import CliContext
from orga.client.cli.shown import text
from orga.client.cli.start.run import start_and_follow, start_detached
from orga.client.cli.start.task_input import GoalOptions, goal_input
from orga.client.config.known_input import requested_names
from orga.client.runs.goals import goal_id_of, start_goal
from orga.workflows.types.goals.input import GoalInput


@dataclass(frozen=True)
class _GoalRequest:
    checked: GoalInput
    run_id: str
    again: bool

    async def start(self, here: CliContext) -> str:
        """Start it and return its id."""
        return (await start_goal(here.client, self.checked, workflow_id=self.run_id, again=self.again)).id


def goal(
    goal: Annotated[str, typer.Argument(metavar="GOAL", help="What to reach; - reads it from standard input.")],
    *,
    agent: Annotated[
        str | None, typer.Option("--agent", "-a", help="Whose tools it has; the default agent's without.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="provider:model or tier:NAME, in place of the agent's own.")
    ] = None,
    skills: Annotated[
        list[str] | None, typer.Option(help="Only these of the agent's tools; repeat it, or part names by commas.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="A setting of the goal, as max_llm_calls=30."),
    ] = None,
    max_iterations: Annotated[int | None, typer.Option(help="Rounds of steps at most.")] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds of its clock; by the length of the plan without.")
    ] = None,
    id_: Annotated[str | None, typer.Option("--id", help="The goal's id; goal-<uuid7> without.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Whom it is for.")] = None,
    deliver: Annotated[
        list[str] | None,
        typer.Option(help="Where its answer goes, by name in goals.deliveries; repeat it. The default ones without."),
    ] = None,
    pipeline: Annotated[
        str | None, typer.Option(help="A plan that stands in orga.toml, by its name; the model plans without.")
    ] = None,
    input_: Annotated[
        list[str] | None, typer.Option("--input", help="One input of a pipeline that maps; repeat it.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="With --id: start even though a run with this id has ended.")
    ] = False,
    no_worker: NoWorker = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Start it, print its id, and leave.")] = False,
    quiet: Quiet = False,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Pursue a goal: plan, carry out, evaluate, decide, until a final answer can be given.

    Steps and their scores go to stderr, the answer to stdout. All that takes a run takes a goal, too: status, journal,
    steer, pause, abort, attach; `orga answer` answers what it asks.

    Exit codes: 0 completed, 2 bad input, 3 a limit, 4 denied, 5 aborted, 6 failed or stuck, 7 no server, 130 detached.

    Example: orga goal "Compare what the README says of limits with the code" --max-iterations 5
    """
    text.set_quiet(quiet=quiet)
    if again and id_ is None:
        raise UsageError("--again: names no goal; add --id ID")
    given = GoalOptions(
        *(goal, agent, model, skills or (), set_ or (), max_iterations, timeout, tenant, deliver or ()),
        pipeline=pipeline,
        inputs=input_ or (),
    )
    checked = goal_input(given)
    wish = _GoalRequest(checked, goal_id_of(id_), again)
    wanted = requested_names(checked)
    if detach:
        return run_interruptible(start_detached(wish.start, config, wanted, as_json=json))
    return run_interruptible(start_and_follow(wish.start, config, wanted, no_worker=no_worker, as_json=json))
