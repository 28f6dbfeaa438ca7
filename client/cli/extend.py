"""`orga extend`: raise limits of a live run."""

from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import completed
from orga.client.cli.options import ConfigFile, Json, RunId
from orga.client.cli.output import json_result, note
from orga.client.cli.session import of_run
from orga.workflows.types.record import problems
from orga.workflows.types.usage import BudgetExtension


def extend(
    run: RunId,
    *,
    max_total_tokens: Annotated[int | None, typer.Option(metavar="N", help="Tokens of all model calls.")] = None,
    max_iterations: Annotated[int | None, typer.Option(metavar="N", help="Reasoning steps.")] = None,
    max_cost_usd: Annotated[float | None, typer.Option(metavar="X", help="US dollars.")] = None,
    timeout_s: Annotated[float | None, typer.Option(metavar="S", help="Seconds of the run's clock.")] = None,
    max_model_calls: Annotated[int | None, typer.Option(metavar="N", help="Model calls, delegates' too.")] = None,
    max_tool_calls: Annotated[int | None, typer.Option(metavar="N", help="Tool calls, delegates' too.")] = None,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Raise limits of a live run; one that waits for more budget goes on.

    Each number is the new limit, counted from the start of the run, not what is added to the old one.

    Example: orga extend ID --max-iterations 50 --timeout-s 900
    """
    given = {
        "max_total_tokens": max_total_tokens,
        "max_iterations": max_iterations,
        "max_cost_usd": max_cost_usd,
        "timeout_s": timeout_s,
        "max_model_calls": max_model_calls,
        "max_tool_calls": max_tool_calls,
    }
    limits = {name: limit for name, limit in given.items() if limit is not None}
    try:
        BudgetExtension.model_validate(limits)
    except ValidationError as error:
        raise UsageError("; ".join(problems(error))) from None
    if not limits:
        raise UsageError(f"name a limit to raise: {', '.join(map(_option, BudgetExtension.model_fields))}")
    return completed(_extend(run, limits, config, as_json=json))


async def _extend(named: str, limits: dict[str, float], config: Path | None, *, as_json: bool) -> int:
    async with of_run(named, config) as (here, run_id):
        raised = await here.run(run_id).extend_budget(**limits)
    if as_json:
        json_result({"id": run_id, "limits": raised})
    else:
        told = ", ".join(f"{name} {limit:.12g}" for name, limit in raised.items())
        note(f"limits of {run_id} that were raised: {told}")
    return 0


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
