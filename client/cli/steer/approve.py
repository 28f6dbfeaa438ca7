"""`orga approve` and `orga deny`: a person's word on calls that policy lets through only with it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from orga.client.cli.exit_codes import ExitCode, UsageError
from orga.client.cli.interrupts import run_interruptible
from orga.client.cli.options import ConfigFile, Json, RunId, login_name
from orga.client.cli.session import run_context
from orga.client.cli.shown import decisions
from orga.client.cli.shown.decisions import held_call_table, held_calls
from orga.client.cli.shown.text import hanging_lines, separated_blocks, write_json, write_note, write_result
from orga.client.errors import Refused
from orga.client.runs.agents import AgentHandle

Approvals = Annotated[
    list[str] | None,
    typer.Argument(metavar="APPROVAL", help="Which calls; `orga inbox` shows them.", show_default=False),
]
All = Annotated[bool, typer.Option("--all", help="All calls that the run holds now.")]
By = Annotated[
    str | None, typer.Option(metavar="NAME", help="Who decides; your login name without.", show_default=False)
]


@dataclass(frozen=True)
class _ApprovalDecision:
    word: str
    run_id: str
    approvals: tuple[str, ...]
    all: bool
    by: str
    reason: str


def approve(
    run: RunId,
    approval: Approvals = None,
    *,
    all_: All = False,
    show: Annotated[bool, typer.Option("--show", help="Only show the calls, with all of their arguments.")] = False,
    by: By = None,
    reason: Annotated[str, typer.Option(help="Why; stands in the journal.")] = "",
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Let calls run that wait for a yes; APPROVAL may be left out where the run holds only one.

    A yes is for exactly the call that was shown, once; the first decision counts.

    Example: orga approve ID 3f29c5d27a4b91e0c6d8f713 --reason "Agreed with the customer."

    Example: orga approve ID --show
    """
    if show:
        return run_interruptible(_show_held_calls(run, _distinct_ids(approval), config, as_json=json))
    return _run_decision(
        _ApprovalDecision("approved", run, _distinct_ids(approval), all_, _decider_name(by), reason),
        config,
        as_json=json,
    )


def deny(
    run: RunId,
    approval: Approvals = None,
    *,
    all_: All = False,
    by: By = None,
    reason: Annotated[str, typer.Option(help="Why; the model reads it.")] = "",
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Turn calls down that wait for a yes; the model reads the reason and goes on.

    Example: orga deny ID 3f29c5d27a4b91e0c6d8f713 --reason "Too much, ask for half."
    """
    return _run_decision(
        _ApprovalDecision("denied", run, _distinct_ids(approval), all_, _decider_name(by), reason), config, as_json=json
    )


async def _show_held_calls(named: str, approvals: tuple[str, ...], config: Path | None, *, as_json: bool) -> int:
    """Show these calls, or all that are held, and decide nothing."""
    async with run_context(named, config) as (here, run_id):
        held = (await here.run(run_id).live_status()).pending_approvals
    if missing := set(approvals) - {question.approval_id for question in held}:
        raise UsageError(f"run {run_id!r} holds no call {', '.join(sorted(missing))}; `orga inbox` shows what waits")
    shown = [question for question in held if not approvals or question.approval_id in approvals]
    if not shown:
        raise UsageError(f"run {run_id!r} holds no call for a person; `orga inbox` shows what waits")
    if as_json:
        write_json([decisions.approval_json(question) for question in shown])
    else:
        write_result(*separated_blocks(decisions.approval_blocks(run_id, shown)))
    return ExitCode.COMPLETED


def _distinct_ids(approvals: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(approvals or ()))


def _decider_name(by: str | None) -> str:
    if who := login_name() if by is None else by:
        return who
    raise UsageError("nobody knows who decides: give --by NAME")


def _run_decision(decision: _ApprovalDecision, config: Path | None, *, as_json: bool) -> int:
    if decision.approvals and decision.all:
        raise UsageError("give an APPROVAL or --all, not both")
    return run_interruptible(_send_decisions(decision, config, as_json=as_json))


async def _send_decisions(decision: _ApprovalDecision, config: Path | None, *, as_json: bool) -> int:
    taken, refused = list[str](), dict[str, str]()
    async with run_context(decision.run_id, config) as (here, run_id):
        decision = replace(decision, run_id=run_id)
        run = here.run(run_id)
        tell = run.approve if decision.word == "approved" else run.deny
        for approval_id in decision.approvals or await _held_call_ids(run, decision):
            try:
                await tell(approval_id, decision.by, decision.reason)
                taken.append(approval_id)
            except Refused as error:
                refused[approval_id] = str(error)
    if as_json:
        write_json(_decision_json(decision, taken, refused))
    elif taken:
        told = f"{decision.word} by {decision.by}: {', '.join(taken)} of {run.id}"
        write_note(f"{told}; follow it: orga attach {quote(run.id)}")
    for why in refused.values():
        write_note(*hanging_lines("orga: ", why))
    return ExitCode.USAGE if refused else ExitCode.COMPLETED


async def _held_call_ids(run: AgentHandle, decision: _ApprovalDecision) -> list[str]:
    """Return which calls are meant where none is named; which there are is shown when that is not clear."""
    status = await run.live_status()
    calls = [call for wait in status.waiting for call in held_calls(wait)]
    if not calls:
        raise UsageError(f"run {run.id!r} holds no call for a person; `orga inbox` shows what waits")
    if len(calls) > 1 and not decision.all:
        write_note(*held_call_table(calls, datetime.now(UTC)))
        raise UsageError(f"run {run.id!r} holds {len(calls)} calls: name some, or give --all")
    return [str(call["id"]) for call in calls]


def _decision_json(decision: _ApprovalDecision, taken: list[str], refused: dict[str, str]) -> dict[str, Any]:
    shown: dict[str, Any] = {"id": decision.run_id, decision.word: taken, "by": decision.by}
    reason = {"reason": decision.reason} if decision.reason else {}
    return shown | reason | ({"refused": refused} if refused else {})
