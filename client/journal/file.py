"""An exported journal as a file: JSON lines, one entry each, and the head as the last one."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from orga.client.errors import OrgaError
from orga.client.journal.head import SealedHead
from orga.client.server.drafts import write_whole
from orga.workflows.decisions.journal_entries import canonical_line
from orga.workflows.types.json_text import each_once
from orga.workflows.types.status import JournalEntry

HOW = "this is no journal; write one with: orga journal ID --export FILE"


class Unwritable(OrgaError):
    """A place where no journal can be written."""


class NoJournal(OrgaError):
    """A file that is no exported journal."""


@dataclass(frozen=True)
class JournalFile:
    """What stands in the file."""

    entries: tuple[JournalEntry, ...]
    head: SealedHead | None = None
    """None in what `orga journal ID --json` wrote."""


def write_journal(path: Path, entries: Sequence[JournalEntry], head: SealedHead) -> None:
    """Write the file, all of it or nothing, for its owner alone.

    Raises:
        Unwritable: It cannot be written there; the text says why.
    """
    lines = [*map(canonical_line, entries), json.dumps(head.model_dump(mode="json")).encode()]
    try:
        write_whole(path, b"".join(line + b"\n" for line in lines))
    except OSError as error:
        raise Unwritable(f"{path} cannot be written: {error.strerror}") from None


def read_journal_file(path: Path) -> JournalFile:
    """Read the file, by its letter: a key that no entry has, or that stands there twice, would be in no hash.

    Raises:
        NoJournal: It is none; the text names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise NoJournal(f"{path} cannot be read: {error}") from None
    entries: list[JournalEntry] = []
    for number, line in enumerate(lines if lines != [""] else [], start=1):
        try:
            keys = json.loads(line, object_pairs_hook=each_once)
            if isinstance(keys, dict) and "head" in keys and number == len(lines):
                return JournalFile(tuple(entries), SealedHead.model_validate_json(line, strict=True, extra="forbid"))
            entries.append(JournalEntry.model_validate_json(line, strict=True, extra="forbid"))
        except (ValidationError, ValueError, RecursionError):
            raise NoJournal(
                f"{path}:{number} is no journal entry: entry {len(entries)} was changed, or {HOW}"
            ) from None
    return JournalFile(tuple(entries))
