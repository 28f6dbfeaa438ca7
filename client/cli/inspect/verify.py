"""`orga verify`: check that today's code replays a run, and that its journal agrees."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from orga.activities.gate.permits import PermitKeys, permit_keys
from orga.client.cli.connection import run_context
from orga.client.cli.exit_codes import ExitCode, UsageError, usage_errors
from orga.client.cli.inspect.journal import Key, read_export, trusted_keys
from orga.client.cli.interrupts import Command
from orga.client.cli.live.screens import progress_line
from orga.client.cli.options import ConfigFile, Json
from orga.client.cli.shown.text import terminal_line, write_json, write_note, write_result
from orga.client.config.file import load_config
from orga.client.journal.file import JournalFile
from orga.client.journal.laws import Check, Verification
from orga.client.proof.verify import verify as verify_run
from orga.client.proof.verify import verify_file
from orga.workflows.types.text import full_field_text

DETAIL_CHARS = 600


def verify(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="The run's id or its first characters. Default: only --journal FILE is checked.",
            show_default=False,
        ),
    ] = None,
    *,
    journal: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also check this export (orga journal ID --export FILE).")
    ] = None,
    key: Key = None,
    json: Json = False,
    config: ConfigFile = None,
) -> int | Command:
    """Verification fails if a call was carried out that the gate had not allowed before, exactly as it was made. If
    ORGA_PERMIT_KEY is set, each call must also have the gate's signature. Delegates are verified too. Exit code 6 means
    that something is wrong.

    Without an ID only the file is checked, with no run and no server. Exit code 8 means that no trusted key vouches for
    the file.

    Example: orga verify ID --journal run.jsonl --key audit.key.pub

    Example: orga verify --journal run.jsonl --key audit.key.pub
    """
    if journal is None and key:
        raise UsageError("--key: checks an export. Name it with --journal FILE")
    exported = None if journal is None else read_export(journal)
    if run is None:
        if exported is None:
            raise UsageError("ID: is missing. Name a run, or an exported journal with --journal FILE")
        return _verify_export(exported, trusted_keys(load_config(config).audit, key or []), as_json=json)
    with usage_errors():
        permits = permit_keys(os.environ)
    return _verify_run(run, exported, key or [], permits, config, as_json=json)


async def _verify_run(
    name: str,
    exported: JournalFile | None,
    keys: list[str],
    permits: PermitKeys | None,
    config: Path | None,
    *,
    as_json: bool,
) -> int:
    async with run_context(name, config) as (context, run_id):
        with progress_line() as report:
            verification = await verify_run(
                context.client,
                run_id,
                exported=exported.entries if exported else None,
                head=exported.head if exported else None,
                trusted=trusted_keys(context.config.audit, keys) if exported else [],
                permits=permits,
                report=report,
            )
    if as_json:
        write_json({"id": run_id, "ok": verification.ok, "checks": [asdict(check) for check in verification.checks]})
    else:
        write_result(*(_check_line(check, of_child=check.workflow_id != run_id) for check in verification.checks))
    write_note(_checks_text(verification))
    return ExitCode.COMPLETED if verification.ok else ExitCode.FAILED


def _verify_export(exported: JournalFile, keys: list[Ed25519PublicKey], *, as_json: bool) -> int:
    """Show what could be checked from the file alone and what could not, and return the exit code."""
    verified = verify_file(exported, keys)
    verification, unchecked = verified.found, verified.unchecked
    if as_json:
        write_json(
            {
                "id": verification.workflow_id,
                "ok": verification.ok,
                "checks": [asdict(check) for check in verification.checks],
                "not_checked": [asdict(check) for check in unchecked],
                "vouched_for": verified.is_vouched_for,
            }
        )
    else:
        write_result(f"journal of run {full_field_text(verification.workflow_id) or 'unknown'}, from the file alone")
        write_result(*(_check_line(check, of_child=False) for check in verification.checks))
        write_result(*(f"– {each.name:<9} not checked: {terminal_line(each.why, DETAIL_CHARS)}" for each in unchecked))
    write_note(f"{_checks_text(verification)}; {len(unchecked)} other checks were not possible")
    if not verification.ok:
        return ExitCode.FAILED
    return ExitCode.COMPLETED if verified.is_vouched_for else ExitCode.UNPROVEN


def _check_line(check: Check, *, of_child: bool) -> str:
    workflow = full_field_text(check.workflow_id) if of_child else ""
    execution = f"run {check.run_id[:13]}" if check.run_id else ""
    source = " ".join(filter(None, (workflow, execution)))
    detail = terminal_line(check.detail, DETAIL_CHARS)
    return f"{'✓' if check.ok else '✗'} {check.name:<9} {f'{source}: ' if source else ''}{detail}"


def _checks_text(verification: Verification) -> str:
    failed = sum(not check.ok for check in verification.checks)
    outcome = f"{failed} failed" if failed else "nothing is wrong"
    return f"{len(verification.checks)} checks, {outcome}"
