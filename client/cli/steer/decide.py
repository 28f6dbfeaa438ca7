"""`orga approve`, `deny`, `resolve`, `answer`, `extend` and `complete`: decide what a run waits for."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from inspect import Parameter, Signature, signature
from json import loads
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal, cast

import typer
from pydantic import ValidationError

from orga.client.cli.connection import run_context
from orga.client.cli.exit_codes import ExitCode, UsageError
from orga.client.cli.interrupts import Command
from orga.client.cli.options import ConfigFile, DecidedBy, Json, Reason, RunId, login_name, text_or_file
from orga.client.cli.shown.decisions import (
    approval_blocks,
    approval_json,
    commands_text,
    held_call_table,
    held_calls,
)
from orga.client.cli.shown.text import (
    hanging_lines,
    separated_blocks,
    terminal_line,
    write_json,
    write_note,
    write_result,
)
from orga.client.errors import Refused
from orga.client.runs.agents import AgentHandle
from orga.workflows.decisions.control.questions import MAX_RESULT_BYTES
from orga.workflows.types.json_text import unique_keys_object
from orga.workflows.types.limits import LIMITS, BudgetExtension
from orga.workflows.types.questions import Choice
from orga.workflows.types.record import kinds_of, validation_problems

Approvals = Annotated[
    list[str] | None,
    typer.Argument(metavar="APPROVAL", help="The ids of the calls. `orga inbox` shows them.", show_default=False),
]
All = Annotated[bool, typer.Option("--all", help="Decide all calls that the run holds now.")]


def _decider_name(by: str | None) -> str:
    if who := login_name() if by is None else by:
        return who
    raise UsageError("--by: cannot determine your user name. Add --by NAME")


def approve(
    run: RunId,
    approval: Approvals = None,
    *,
    all_: All = False,
    show: Annotated[bool, typer.Option("--show", help="Only show the calls, with all of their arguments.")] = False,
    arguments: Annotated[
        str | None,
        typer.Option(
            metavar="JSON|@FILE", help="Approve the call with these arguments instead; @FILE reads them from a file."
        ),
    ] = None,
    by: DecidedBy = None,
    reason: Reason = "",
    json: Json = False,
    config: ConfigFile = None,
) -> Command:
    """An approval is valid once, for exactly the call that was shown. With --arguments it is for the changed call, and
    policy judges that call again. The first decision counts.

    Example: orga approve ID 3f29c5d27a4b91e0c6d8f713 --reason "Agreed with the customer."

    Example: orga approve ID --arguments '{"amount": 40}'

    Example: orga approve ID --show
    """
    approvals = list(dict.fromkeys(approval or ()))
    if show:
        return _show_held_calls(run, approvals, config, as_json=json)
    changed = None if arguments is None else _parse_arguments(arguments)
    if changed is not None and (all_ or len(approvals) > 1):
        raise UsageError("--arguments: apply to one call. Name only that call, without --all")
    return _decide_calls("approved", run, approvals, changed, config, all_=all_, by=by, reason=reason, as_json=json)


def _parse_arguments(text: str) -> dict[str, Any]:
    try:
        value = loads(text_or_file("--arguments", text), object_pairs_hook=unique_keys_object)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--arguments: give a JSON object; this is no valid JSON ({error})") from None
    if not isinstance(value, dict):
        raise UsageError("--arguments: give a JSON object with all arguments of the call")
    return cast("dict[str, Any]", value)


def deny(
    run: RunId,
    approval: Approvals = None,
    *,
    all_: All = False,
    by: DecidedBy = None,
    reason: Annotated[str, typer.Option(help="The reason, which the model reads.")] = "",
    json: Json = False,
    config: ConfigFile = None,
) -> Command:
    """Example: orga deny ID 3f29c5d27a4b91e0c6d8f713 --reason "Too much, ask for half." """
    approvals = list(dict.fromkeys(approval or ()))
    return _decide_calls("denied", run, approvals, None, config, all_=all_, by=by, reason=reason, as_json=json)


async def _show_held_calls(name: str, approvals: Sequence[str], config: Path | None, *, as_json: bool) -> None:
    """Show these calls, or all held calls if none is named."""
    async with run_context(name, config) as (context, run_id):
        held = (await context.run(run_id).live_status()).pending_approvals
    if missing := set(approvals) - {question.approval_id for question in held}:
        raise UsageError(f"run {run_id!r} holds no call {', '.join(sorted(missing))}. `orga inbox` shows what waits")
    shown = [question for question in held if not approvals or question.approval_id in approvals]
    if not shown:
        raise _no_held_call(run_id)
    if as_json:
        write_json([approval_json(question) for question in shown])
    else:
        write_result(*separated_blocks(approval_blocks(run_id, shown)))


def _no_held_call(run_id: str) -> UsageError:
    return UsageError(f"run {run_id!r} holds no call for a person. `orga inbox` shows what waits")


async def _decide_calls(
    verdict: Literal["approved", "denied"],
    name: str,
    approvals: Sequence[str],
    arguments: Mapping[str, Any] | None,
    config: Path | None,
    *,
    all_: bool,
    by: str | None,
    reason: str,
    as_json: bool,
) -> ExitCode:
    who = _decider_name(by)
    if approvals and all_:
        raise UsageError("--all: cannot be combined with APPROVAL. Give one of them")
    decided, refused = list[str](), dict[str, str]()
    async with run_context(name, config) as (context, run_id):
        run = context.run(run_id)
        for approval_id in approvals or await _held_call_ids(run, all_=all_):
            try:
                if verdict == "denied":
                    await run.deny(approval_id, who, reason)
                else:
                    await run.approve(approval_id, who, reason, arguments=arguments)
                decided.append(approval_id)
            except Refused as error:
                refused[approval_id] = str(error)
    if as_json:
        shown = {"id": run_id, verdict: decided, "by": who} | ({"reason": reason} if reason else {})
        write_json(shown | ({"refused": refused} if refused else {}))
    elif decided:
        write_note(f"{verdict} by {who}: {', '.join(decided)} of {run_id}; follow it: orga attach {quote(run_id)}")
    for why in refused.values():
        write_note(*hanging_lines("orga: ", why))
    return ExitCode.USAGE if refused else ExitCode.COMPLETED


async def _held_call_ids(run: AgentHandle, *, all_: bool) -> list[str]:
    """Return the ids of the held calls, for a command that names none. Raise UsageError for several without `all_`."""
    calls = [call for wait in (await run.live_status()).waiting for call in held_calls(wait)]
    if not calls:
        raise _no_held_call(run.id)
    if len(calls) > 1 and not all_:
        write_note(*held_call_table(calls, datetime.now(UTC)))
        raise UsageError(f"run {run.id!r} holds {len(calls)} calls. Name some, or add --all")
    return [str(call["id"]) for call in calls]


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
) -> Command:
    """The first decision counts. If the run waits for more budget, --skip or --abort ends it at its limit, and `orga
    extend` raises the limit instead.

    Example: orga resolve ID call-3.0-0 --retry --reason "The disk has room again."

    Example: orga resolve ID --result @answer.txt
    """
    choices: dict[Choice, bool] = {"retry": retry, "skip": skip, "result": result is not None, "abort": abort}
    chosen: list[Choice] = [choice for choice, is_wanted in choices.items() if is_wanted]
    if len(chosen) != 1:
        raise UsageError("choose one of --retry, --skip, --result TEXT, --abort")
    [choice] = chosen
    text = text_or_file("--result", result or "")
    if len(text.encode("utf-8", "surrogateescape")) > MAX_RESULT_BYTES:
        raise UsageError(f"--result: is longer than {MAX_RESULT_BYTES} bytes")
    who = login_name() if by is None else by

    async def decide() -> None:
        async with run_context(run, config) as (context, run_id):
            handle = context.run(run_id)
            wait_id = escalation or await _only_wait_id(handle)
            await handle.resolve_escalation(wait_id, choice, text, who, reason)
        if json:
            shown = {"id": run_id, "escalation": wait_id, "choice": choice, "by": who}
            write_json(shown | ({"reason": reason} if reason else {}))
        else:
            write_note(f"{wait_id} of {run_id}: {choice}; follow it: orga attach {quote(run_id)}")

    return decide()


async def _only_wait_id(run: AgentHandle) -> str:
    status = await run.live_status()
    if len(status.waiting) == 1:
        return status.waiting[0].wait_id
    if not status.waiting:
        raise UsageError(f"nothing waits for a person in run {run.id!r}. `orga inbox` shows what does")
    waiting = "; ".join(f"{terminal_line(wait.question)}: {commands_text(run.id, wait)}" for wait in status.waiting)
    raise UsageError(f"{len(status.waiting)} questions wait in run {run.id!r}. Name one: {waiting}")


async def answer(
    run: RunId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The answer that the model reads.")],
    *,
    question: Annotated[str, typer.Option(metavar="ID", help="The question's id. Default: the only open one.")] = "",
    by: Annotated[str | None, typer.Option(metavar="NAME", help="Who answers. Default: your login name.")] = None,
    json: Json = False,
    config: ConfigFile = None,
) -> None:
    """Example: orga answer ID "The report of 1999." """
    async with run_context(run, config) as (context, run_id):
        answered = await context.run(run_id).answer(text, question, by or login_name())
    if json:
        write_json({"id": run_id, "question": answered})
    else:
        write_note(f"answered {terminal_line(answered)}")


def _with_limit_options(command: Callable[..., Command]) -> Callable[..., Command]:
    """Replace the command's parameter `**limits` by an option for each limit. `--max-total-tokens` comes first."""
    options: list[Parameter] = []
    for limit in sorted(LIMITS, key=lambda limit: limit.key != "max_total_tokens"):
        kind = kinds_of(BudgetExtension.model_fields[limit.key].annotation)[0]
        metavar = "S" if limit.key.endswith("_s") else "X"
        if kind is int:
            metavar = "N"
        option = typer.Option(None, metavar=metavar, help=limit.help)
        options.append(Parameter(limit.key, Parameter.KEYWORD_ONLY, default=option, annotation=kind | None))
    run, json, config, _ = signature(command).parameters.values()
    vars(command)["__signature__"] = Signature([run, *options, json, config])
    return command


@_with_limit_options
async def extend(run: RunId, *, json: Json = False, config: ConfigFile = None, **limits: float | None) -> None:
    """Each number is the new limit, counted from the start of the run. It is not added to the old limit.

    Example: orga extend ID --max-iterations 50 --timeout-s 900
    """
    raised = {name: limit for name, limit in limits.items() if limit is not None}
    try:
        BudgetExtension.model_validate(raised)
    except ValidationError as error:
        raise UsageError("; ".join(validation_problems(error))) from None
    if not raised:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in BudgetExtension.model_fields)
        raise UsageError(f"name a limit to raise: {options}")
    async with run_context(run, config) as (context, run_id):
        new_limits = await context.run(run_id).extend_budget(by=login_name(), **raised)
    if json:
        write_json({"id": run_id, "limits": new_limits})
    else:
        limits_text = ", ".join(f"{name} {limit:.12g}" for name, limit in new_limits.items())
        write_note(f"raised limits of {run_id}: {limits_text}")


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
    error: Annotated[str, typer.Option(metavar="TEXT", help="Report this failure, which the model reads.")] = "",
    nothing_done: Annotated[
        bool, typer.Option("--nothing-done", help="The call failed and had no effect, so it may be made again.")
    ] = False,
    by: Annotated[str | None, typer.Option(metavar="NAME", help="Who completes it. Default: your login name.")] = None,
    json: Json = False,
    config: ConfigFile = None,
) -> Command:
    """The result is checked by the output schema of the tool, if it has one. The first result counts. Giving the same
    result again changes nothing.

    Example: orga complete ID 3f29c5d27a4b91e0c6d8f7130a5b62e4 --result '{"score": 640}'

    Example: orga complete ID --error "The bureau has no such person." --nothing-done
    """
    if (result is None) == (not error):
        raise UsageError("give one of --result JSON, --error TEXT")
    if nothing_done and not error:
        raise UsageError("--nothing-done: belongs to --error")
    who = _decider_name(by)
    value = None if result is None else _parse_result(text_or_file("--result", result))

    async def give_result() -> None:
        async with run_context(run, config) as (context, run_id):
            handle = context.run(run_id)
            key = call or await _only_waiting_call(handle)
            await handle.complete_tool_call(key, result=value, error=error, nothing_done=nothing_done, by=who)
        if json:
            write_json({"id": run_id, "call": key, "by": who})
        else:
            write_note(f"completed {terminal_line(key)} of {run_id}; follow it: orga attach {quote(run_id)}")

    return give_result()


async def _only_waiting_call(run: AgentHandle) -> str:
    waits = [wait for wait in (await run.live_status()).waiting if wait.kind == "result"]
    if len(waits) == 1:
        return waits[0].wait_id
    if not waits:
        raise UsageError(f"no call of run {run.id!r} waits for its result. `orga inbox` shows what waits")
    waiting = ", ".join(f"{wait.wait_id} ({terminal_line(str(wait.data.get('tool')))})" for wait in waits)
    raise UsageError(f"{len(waits)} calls of run {run.id!r} wait for their results. Name one: {waiting}")


def _parse_result(text: str) -> Any:
    try:
        value = loads(text, object_pairs_hook=unique_keys_object)
    except (ValueError, RecursionError) as error:
        hint = """A text is JSON in quotes: --result '"done"'"""
        raise UsageError(f"--result: this is no valid JSON ({error}). {hint}") from None
    if value is None or value == "":
        raise UsageError("--result: is empty. Give a value, or --error TEXT")
    return value
