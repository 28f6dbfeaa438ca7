"""Exported journals: written with their head, and checked against what the history says."""

from datetime import UTC, datetime
from pathlib import Path

from orga.client.cli.audit.keys import signing_key
from orga.client.cli.exit_codes import ExitCode, UsageError
from orga.client.cli.output import note
from orga.client.cli.session import of_run
from orga.client.journal.exports import export_check
from orga.client.journal.file import JournalFile, read_journal_file, write_journal
from orga.client.journal.head import misfits, sealed
from orga.client.journal.reading import read_journal


async def checked(named: str, path: Path, config: Path | None) -> int:
    """Compare the export with the run and return the exit code."""
    found = read_export(path)
    async with of_run(named, config) as (here, run_id):
        entries = [entry async for entry in read_journal(here.client, run_id)]
    check = export_check(run_id, found.entries, entries)
    wrong = [] if check.ok else [check.detail]
    if found.head is not None:
        wrong += misfits(run_id, found.entries, found.head.head)
    for detail in wrong:
        note(f"✗ {path}: {detail}")
    if not wrong:
        note(f"✓ {path} holds the first {len(found.entries)} of {len(entries)} entries of {run_id}, unchanged")
    return ExitCode.FAILED if wrong else 0


def read_export(path: Path) -> JournalFile:
    """Return the file that a command names.

    Raises:
        UsageError: It is no file.
        NoJournal: It is no journal, or none any more.
    """
    if not path.is_file():
        raise UsageError(f"{path} cannot be read: it is no file")
    return read_journal_file(path)


async def written(named: str, path: Path, config: Path | None, *, sign: bool) -> int:
    """Write the journal as it is now and return the exit code."""
    async with of_run(named, config) as (here, run_id):
        key = signing_key(here.loaded.config.audit) if sign else None
        entries = [entry async for entry in read_journal(here.client, run_id)]
    found = sealed(run_id, entries, key, datetime.now(UTC))
    write_journal(path, entries, found)
    by = f"signed by key {found.head.key_id}" if key else "not signed"
    note(f"wrote {len(entries)} entries and their head to {path}, {by}")
    return 0
