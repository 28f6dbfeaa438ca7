"""`orga verify`: is the history of a run what the code of today makes of it, and its journal what the history says?"""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from client.cli.audit_keys import Key, trusted
from client.cli.exit_codes import ExitCode, UsageError
from client.cli.exported_journal import read_export
from client.cli.interrupts import completed
from client.cli.options import ConfigFile, Json, RunId
from client.cli.output import json_result, note, result
from client.cli.session import session
from client.cli.terminal_text import on_one_line
from client.journal_file import JournalFile
from client.verified import Check, Verification
from client.verify import verify as verify_run

DETAIL_CHARS = 600


def verify(
    run: RunId,
    *,
    journal: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Check this export (orga journal ID --export FILE), too.")
    ] = None,
    key: Key = None,
    json: Json = False,
    config: ConfigFile = None,
) -> int:
    """Replay every history of a run, rebuild contexts and journal from it, count its result anew; no worker is needed.

    Nothing may have been carried out without the gate's earlier yes to exactly that call. Runs that it delegated to are
    verified with it. Exit code 6 when anything is wrong.

    Example: orga verify ID --journal run.jsonl --key audit.key.pub
    """
    if journal is None and key:
        raise UsageError("--key is for an export: name it with --journal FILE")
    exported = None if journal is None else read_export(journal)
    return completed(_verify(run, exported, key or [], config, as_json=json))


async def _verify(
    run_id: str, exported: JournalFile | None, keys: list[str], config: Path | None, *, as_json: bool
) -> int:
    async with session(config) as here:
        if exported is None:
            found = await verify_run(here.client, run_id)
        else:
            keys_to_trust = trusted(here.loaded.config.audit, keys)
            found = await verify_run(
                here.client, run_id, exported=exported.entries, head=exported.head, trusted=keys_to_trust
            )
    if as_json:
        checks = [asdict(check) for check in found.checks]
        json_result({"id": run_id, "ok": found.ok, "checks": checks})
    else:
        result("\n".join(_line(check, of_child=check.workflow_id != run_id) for check in found.checks))
    note(_summary(found))
    return 0 if found.ok else ExitCode.FAILED


def _line(check: Check, *, of_child: bool) -> str:
    whose = [check.workflow_id] if of_child else []
    place = " ".join([*whose, *([f"run {check.run_id[:13]}"] if check.run_id else [])])
    detail = on_one_line(check.detail, DETAIL_CHARS)
    return f"{'✓' if check.ok else '✗'} {check.name:<9} {place + ': ' if place else ''}{detail}"


def _summary(found: Verification) -> str:
    wrong = sum(not check.ok for check in found.checks)
    return f"{len(found.checks)} checks, {f'{wrong} failed' if wrong else 'nothing is wrong'}"
