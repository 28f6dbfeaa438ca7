"""`orga resolve`, `answer`, `extend` and `complete`: decide what a run waits for, or give a call its result."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter, Signature, signature
from json import loads
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from orga.client.cli.connection import run_context
from orga.client.cli.exit_codes import UsageError
from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.options import ConfigFile, DecidedBy, Json, Reason, RunId, login_name, text_or_file
from orga.client.cli.shown.decisions import commands_text
from orga.client.cli.shown.text import on_one_line, write_json, write_note
from orga.client.runs.agents import AgentHandle
from orga.workflows.decisions.control.questions import MAX_RESULT_BYTES
from orga.workflows.types.json_text import unique_keys_object
from orga.workflows.types.limits import LIMITS, BudgetExtension
from orga.workflows.types.questions import Choice
from orga.workflows.types.record import kinds_of, validation_problems


@dataclass(frozen=True)
class _Resolution:
    choice: Choice
    result: str
    by: str
    reason: str


def resolve(
    run: RunId,
    escalation: Annotated[
        str | None,
        typer.Argument(metavar="ESCALATION", help="The question's id. `orga inbox` shows it.", show_default=False),
    ] = None,
    *,
    retry: Annotated[bool, typer.Option("--retry", help="Try again.")] = False,
    skip: Annotated[
        bool, typer.Option("--skip", help="Go on without a result. For a budget: end the run at the limit.")
    ] = False,
    result: Annotated[
        str | None, typer.Option(metavar="TEXT|@FILE", help="Go on with this result; @FILE reads it from a file.")
    ] = None,
    abort: Annotated[bool, typer.Option("--abort", help="End the run.")] = False,
    reason: Reason = "",
    by: DecidedBy = None,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """The first decision counts. `orga extend` raises a budget; resolve ends the run at its limit (--skip, --abort).

    Example: orga resolve ID call-3.0-0 --retry --reason "The disk has room again."

    Example: orga resolve ID --result @answer.txt
    """
    choices: dict[Choice, bool] = {"retry": retry, "skip": skip, "result": result is not None, "abort": abort}
    chosen: list[Choice] = [choice for choice, is_wanted in choices.items() if is_wanted]
    if len(chosen) != 1:
        raise UsageError("choose one of --retry, --skip, --result TEXT, --abort")
    decision = _Resolution(chosen[0], _checked_result(result or ""), login_name() if by is None else by, reason)
    return run_interruptible(_resolve(run, escalation, decision, config, as_json=json))


async def _resolve(
    named: str, escalation: str | None, decision: _Resolution, config: Path | None, *, as_json: bool
) -> int:
    async with run_context(named, config) as (here, run_id):
        run = here.run(run_id)
        escalation = escalation or await _only_wait_id(run)
        await run.resolve_escalation(escalation, decision.choice, decision.result, decision.by, decision.reason)
    if as_json:
        shown = {"id": run_id, "escalation": escalation, "choice": decision.choice, "by": decision.by}
        write_json(shown | ({"reason": decision.reason} if decision.reason else {}))
    else:
        write_note(f"{escalation} of {run_id}: {decision.choice}; follow it: orga attach {quote(run_id)}")
    return 0


async def _only_wait_id(run: AgentHandle) -> str:
    status = await run.live_status()
    if len(status.waiting) == 1:
        return status.waiting[0].wait_id
    if not status.waiting:
        raise UsageError(f"nothing waits for a person in run {run.id!r}. `orga inbox` shows what does")
    waiting = "; ".join(f"{on_one_line(wait.question)}: {commands_text(run.id, wait)}" for wait in status.waiting)
    raise UsageError(f"{len(status.waiting)} questions wait in run {run.id!r}. Name one: {waiting}")


def _checked_result(result: str) -> str:
    text = text_or_file("--result", result)
    if len(text.encode("utf-8", "surrogateescape")) > MAX_RESULT_BYTES:
        raise UsageError(f"--result: is longer than {MAX_RESULT_BYTES} bytes")
    return text


def answer(
    run: RunId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The answer that the model reads.")],
    *,
    question: Annotated[str, typer.Option(metavar="ID", help="The question's id. Default: the only open one.")] = "",
    by: Annotated[str | None, typer.Option(metavar="NAME", help="Who answers. Default: your login name.")] = None,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Example: orga answer ID "The report of 1999." """
    return run_interruptible(_answer(run, text, question, by or login_name(), config, as_json=json))


async def _answer(named: str, text: str, question: str, by: str, config: Path | None, *, as_json: bool) -> int:
    async with run_context(named, config) as (here, run_id):
        answered = await here.run(run_id).answer(text, question, by)
    if as_json:
        write_json({"id": run_id, "question": answered})
    else:
        write_note(f"answered {on_one_line(answered)}")
    return 0


def _with_limit_options(command: Callable[..., int]) -> Callable[..., int]:
    """Replace the parameter `**given` of the command by an option for each limit, those of most runs first."""
    options: list[Parameter] = []
    for limit in sorted(LIMITS, key=lambda each: each.key != "max_total_tokens"):
        kind = kinds_of(BudgetExtension.model_fields[limit.key].annotation)[0]
        metavar = "N" if kind is int else "S" if limit.key.endswith("_s") else "X"
        option = typer.Option(None, metavar=metavar, help=limit.help)
        options.append(Parameter(limit.key, Parameter.KEYWORD_ONLY, default=option, annotation=kind | None))
    run, json, config, _ = signature(command).parameters.values()
    vars(command)["__signature__"] = Signature([run, *options, json, config])
    return command


@_with_limit_options
def extend(run: RunId, *, json: Json = False, config: ConfigFile = None, **given: float | None) -> int:
    """Each number is the new limit, counted from the start of the run. It is not added to the old one.

    Example: orga extend ID --max-iterations 50 --timeout-s 900
    """
    limits = {name: limit for name, limit in given.items() if limit is not None}
    try:
        BudgetExtension.model_validate(limits)
    except ValidationError as error:
        raise UsageError("; ".join(validation_problems(error))) from None
    if not limits:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in BudgetExtension.model_fields)
        raise UsageError(f"name a limit to raise: {options}")
    return run_interruptible(_extend(run, limits, config, as_json=json))


async def _extend(named: str, limits: dict[str, float], config: Path | None, *, as_json: bool) -> int:
    async with run_context(named, config) as (here, run_id):
        raised = await here.run(run_id).extend_budget(by=login_name(), **limits)
    if as_json:
        write_json({"id": run_id, "limits": raised})
    else:
        limits_text = ", ".join(f"{name} {limit:.12g}" for name, limit in raised.items())
        write_note(f"raised limits of {run_id}: {limits_text}")
    return 0


def complete(
    run: RunId,
    call: Annotated[
        str | None,
        typer.Argument(
            metavar="CALL", help="The idempotency key of the call. `orga inbox` shows it.", show_default=False
        ),
    ] = None,
    *,
    result: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE", help="The result; @FILE reads it from a file.")
    ] = None,
    error: Annotated[str, typer.Option(metavar="TEXT", help="The failure instead, which the model reads.")] = "",
    nothing_done: Annotated[
        bool, typer.Option("--nothing-done", help="The call failed and had no effect, so it may be made again.")
    ] = False,
    by: Annotated[str | None, typer.Option(metavar="NAME", help="Who completes it. Default: your login name.")] = None,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """The result is checked by the output schema of the tool, if it has one. The first one counts, and the same again
    changes nothing.

    Example: orga complete ID 3f29c5d27a4b91e0c6d8f7130a5b62e4 --result '{"score": 640}'

    Example: orga complete ID --error "The bureau has no such person." --nothing-done
    """
    if (result is None) == (not error):
        raise UsageError("give one of --result JSON, --error TEXT")
    if nothing_done and not error:
        raise UsageError("--nothing-done: belongs to --error")
    if not (who := login_name() if by is None else by):
        raise UsageError("--by: cannot determine your user name. Add --by NAME")
    value = None if result is None else _parsed_result(text_or_file("--result", result))
    given: dict[str, Any] = {"result": value, "error": error, "nothing_done": nothing_done, "by": who}
    return run_interruptible(_complete(run, call, given, config, as_json=json))


async def _complete(named: str, key: str | None, given: dict[str, Any], config: Path | None, *, as_json: bool) -> int:
    async with run_context(named, config) as (here, run_id):
        run = here.run(run_id)
        key = key or await _only_waiting_call(run)
        await run.complete_tool_call(key, **given)
    if as_json:
        write_json({"id": run_id, "call": key, "by": given["by"]})
    else:
        write_note(f"completed {on_one_line(key)} of {run_id}; follow it: orga attach {quote(run_id)}")
    return 0


async def _only_waiting_call(run: AgentHandle) -> str:
    waits = [wait for wait in (await run.live_status()).waiting if wait.kind == "result"]
    if len(waits) == 1:
        return waits[0].wait_id
    if not waits:
        raise UsageError(f"no call of run {run.id!r} waits for its result. `orga inbox` shows what waits")
    waiting = ", ".join(f"{wait.wait_id} ({on_one_line(str(wait.data.get('tool')))})" for wait in waits)
    raise UsageError(f"{len(waits)} calls of run {run.id!r} wait for their results. Name one: {waiting}")


def _parsed_result(text: str) -> Any:
    try:
        value = loads(text, object_pairs_hook=unique_keys_object)
    except (ValueError, RecursionError) as error:
        hint = """A text is JSON in quotes: --result '"done"'"""
        raise UsageError(f"--result: this is no valid JSON ({error}). {hint}") from None
    if value is None or value == "":
        raise UsageError("--result: is empty. Give a value, or --error TEXT")
    return value
