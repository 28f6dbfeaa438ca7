"""Checking an exported journal: its own chain, and that it is what the history says."""

from pathlib import Path

from pydantic import ValidationError

from client.cli.exit_codes import ExitCode, UsageError
from client.cli.output import note
from client.cli.session import session
from client.journal import read_journal
from workflows.decisions.journal import first_break
from workflows.types.journal import JournalEntry


async def checked(run_id: str, path: Path, config: Path | None) -> int:
    """Compare the export with the run and return the exit code."""
    entries = read_export(path)
    broken = first_break(entries)
    if broken is not None:
        note(f"✗ the chain of {path} breaks at entry {broken}: it or one before it was changed")
        return ExitCode.FAILED
    async with session(config) as here:
        hashes = [entry.hash async for entry in read_journal(here.client, run_id)]
    for index, entry in enumerate(entries):
        if index >= len(hashes) or entry.hash != hashes[index]:
            note(f"✗ {path} and the history of {run_id} part at entry {index}")
            return ExitCode.FAILED
    note(f"✓ {path} holds the first {len(entries)} of {len(hashes)} entries of {run_id}, unchanged")
    return 0


def read_export(path: Path) -> list[JournalEntry]:
    """Return the entries of a file of JSON lines.

    Raises:
        UsageError: It is no journal.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    entries: list[JournalEntry] = []
    for number, line in enumerate(lines, start=1):
        try:
            entries.append(JournalEntry.model_validate_json(line))
        except ValidationError:
            raise UsageError(f"{path}:{number} is no journal entry; write one with: orga journal ID --json") from None
    return entries
