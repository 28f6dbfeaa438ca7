"""`orga goal`: start a goal and follow it to its end. If no worker is running, the command starts one."""

from dataclasses import dataclass
from typing import Annotated

import typer

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.options import Again, ConfigFile, Detach, Json, Model, NoWorker, Quiet
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
        return (await start_goal(here.client, self.checked, workflow_id=self.run_id, again=self.again)).id


def goal(
    goal: Annotated[str, typer.Argument(metavar="GOAL", help="What to reach; - reads it from standard input.")],
    *,
    agent: Annotated[
        str | None,
        typer.Option("--agent", "-a", help="The agent whose tools the goal uses. Default: the default agent."),
    ] = None,
    model: Model = None,
    skills: Annotated[
        list[str] | None,
        typer.Option(help="Only these of the agent's tools. Repeat it, or separate names by commas."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="A setting of the goal, such as max_llm_calls=30."),
    ] = None,
    max_iterations: Annotated[int | None, typer.Option(help="Maximum number of rounds of steps.")] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Time limit in seconds. Default: depends on the length of the plan.")
    ] = None,
    id_: Annotated[str | None, typer.Option("--id", help="The goal's id. Default: goal-<uuid7>.")] = None,
    tenant: Annotated[str | None, typer.Option(help="The tenant that the goal runs for.")] = None,
    deliver: Annotated[
        list[str] | None,
        typer.Option(
            help="A delivery of the answer, by its name in goals.deliveries. Repeat it. Default: the defaults."
        ),
    ] = None,
    pipeline: Annotated[
        str | None, typer.Option(help="A plan from orga.toml, by its name. Default: the model plans.")
    ] = None,
    input_: Annotated[
        list[str] | None, typer.Option("--input", help="One input of a pipeline that maps. Repeat it.")
    ] = None,
    again: Again = False,
    no_worker: NoWorker = False,
    detach: Detach = False,
    quiet: Quiet = False,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Pursue a goal: plan, carry out, evaluate and decide until there is a final answer.

    Steps and their scores go to stderr, the answer to stdout. Every command that takes a run also takes a goal: status,
    journal, steer, pause, abort, attach. `orga answer` answers its questions.

    Exit codes: 0 completed, 2 bad input, 3 a limit, 4 denied, 5 aborted, 6 failed or stuck, 7 no server, 130 detached.

    Example: orga goal "Compare what the README says about limits with the code" --max-iterations 5
    """
    text.set_quiet(quiet=quiet)
    if again and id_ is None:
        raise UsageError("--again: it needs a goal's id. Add --id ID")
    options = GoalOptions(
        *(goal, agent, model, skills or (), set_ or (), max_iterations, timeout, tenant, deliver or ()),
        pipeline=pipeline,
        inputs=input_ or (),
    )
    checked = goal_input(options)
    request = _GoalRequest(checked, goal_id_of(id_), again)
    wanted = requested_names(checked)
    if detach:
        return run_interruptible(start_detached(request.start, config, wanted, as_json=json))
    return run_interruptible(start_and_follow(request.start, config, wanted, no_worker=no_worker, as_json=json))
