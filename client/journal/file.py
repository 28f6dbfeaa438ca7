"""An exported journal as a file: JSON lines, one per entry, and the head as the last line."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from orga.activities.adapters.shared_files import write_atomically
from orga.client.errors import OrgaError
from orga.client.journal.head import SealedHead, head_mismatches
from orga.client.journal.laws import Check
from orga.workflows.decisions.journal.entries import canonical_line, first_break
from orga.workflows.types.json_text import unique_keys_object
from orga.workflows.types.status import JournalEntry

NO_JOURNAL_HINT = "this is no journal; write one with: orga journal ID --export FILE"


class UnwritableJournal(OrgaError):
    """The journal cannot be written to this place."""


class NoJournal(OrgaError):
    """The file is not an exported journal."""


@dataclass(frozen=True)
class JournalFile:
    """The content of the file."""

    entries: tuple[JournalEntry, ...]
    head: SealedHead | None = None
    """None in the output of `orga journal ID --json`."""


def write_journal(path: Path, entries: Sequence[JournalEntry], head: SealedHead) -> None:
    """Write the whole file or nothing, readable only for its owner. Raise UnwritableJournal if that is impossible."""
    try:
        write_atomically(path, journal_content(entries, head))
    except OSError as error:
        raise UnwritableJournal(f"{path} cannot be written: {error.strerror}") from None


def journal_content(entries: Sequence[JournalEntry], head: SealedHead) -> bytes:
    return b"".join(line + b"\n" for line in _lines(entries, head))


def read_journal_file(path: Path) -> JournalFile:
    """Read the file strictly: an unknown key, or one that occurs twice, would not be covered by any hash.

    Raises:
        NoJournal: It is no journal, or not written in the canonical bytes. The text names the line.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise NoJournal(f"{path} cannot be read: {error}") from None
    lines = content.removesuffix(b"\n").split(b"\n")
    entries: list[JournalEntry] = []
    for number, line in enumerate(lines if lines != [b""] else []):
        try:
            keys = json.loads(line.decode(), object_pairs_hook=unique_keys_object)
            if isinstance(keys, dict) and "head" in keys and number == len(lines) - 1:
                head = SealedHead.model_validate_json(line, strict=True, extra="forbid")
                file = JournalFile(tuple(entries), head)
                _require_canonical(path, content, file)
                return file
            entries.append(JournalEntry.model_validate_json(line, strict=True, extra="forbid"))
        except (ValidationError, ValueError, RecursionError):
            raise _changed_line_error(path, number) from None
    return JournalFile(tuple(entries))


def _lines(entries: Sequence[JournalEntry], head: SealedHead) -> list[bytes]:
    return [*map(canonical_line, entries), json.dumps(head.model_dump(mode="json")).encode()]


def _require_canonical(path: Path, content: bytes, file: JournalFile) -> None:
    """Refuse other bytes with the same meaning. If the meaning differs, later checks report it.

    Raises:
        NoJournal: A line is not written in the canonical bytes.
        ValueError: The last line is not terminated.
    """
    assert file.head is not None
    if first_break(file.entries) is None and not head_mismatches(file.head.head.run, file.entries, file.head.head):
        canonical_lines = (*_lines(file.entries, file.head), b"")
        for number, (line, canonical) in enumerate(zip(content.split(b"\n"), canonical_lines, strict=True)):
            if line != canonical:
                raise _changed_line_error(path, number)


def _changed_line_error(path: Path, number: int) -> NoJournal:
    return NoJournal(f"{path}:{number + 1} is no journal entry: entry {number} was changed, or {NO_JOURNAL_HINT}")


def export_check(workflow_id: str, exported: Sequence[JournalEntry], entries: Sequence[JournalEntry]) -> Check:
    """Compare entry by entry. The export of a live run may end early, but not that of an ended run."""

    def found(ok: bool, detail: str) -> Check:
        return Check("export", workflow_id, ok, detail)

    if (broken := first_break(exported)) is not None:
        return found(False, f"its chain breaks at entry {broken}: it or one before it was changed")
    for entry, recorded in zip(exported, entries, strict=False):
        if entry.hash != recorded.hash:
            return found(
                False, f"entry {entry.sequence} differs from the history in {_differing_fields(entry, recorded)}"
            )
    if len(exported) > len(entries):
        return found(False, f"it has {len(exported)} entries, the run {len(entries)}")
    has_ended = bool(entries) and entries[-1].event == "Terminated"
    if len(exported) < len(entries) and has_ended:
        return found(False, f"it ends after {len(exported)} of {len(entries)} entries: the tail is missing")
    return found(True, f"{len(exported)} of {len(entries)} entries, unchanged")


def _differing_fields(entry: JournalEntry, recorded: JournalEntry) -> str:
    fields = [name for name in JournalEntry.model_fields if name != "hash"]
    return ", ".join(name for name in fields if getattr(entry, name) != getattr(recorded, name)) or "hash"
