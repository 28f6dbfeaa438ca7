"""Converts the conventions of one file to items of a store."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from orga.activities.adapters.knowledge.conventions.readers import (
    ConventionRule,
    FileReader,
    convention_directory,
    find_reader,
)
from orga.activities.adapters.knowledge.project_files import UnreadableFile, read_project_file
from orga.workflows.types.knowledge import KnowledgeItem, Provenance, Reader, ScopeLevel
from orga.workflows.types.text import clean_text

MAX_BYTES = 256 * 1024
"""Bytes of a file. People keep no conventions in longer files."""
MAX_ITEMS = 300
"""Conventions of one file."""

MAX_PATH_CHARS = 700

KEY_PREFIX = "convention"


@dataclass(frozen=True)
class ConventionTarget:
    """The place and the owner of a project's conventions in a store."""

    project: str
    """The project's name. A directory of a store holds conventions of one project only."""
    at: str
    """The directory of the project's root in the store. Empty for the store's root."""
    scope: ScopeLevel
    owner: Reader
    taint: tuple[str, ...] = ()
    """The taint of the conventions."""

    def stored_path(self, path: str) -> str:
        """Return the path in the store of a path from the project's root."""
        return clean_text("/".join(filter(None, (self.at, path))))

    def key(self, path: str, number: int) -> str:
        """Return the key of a file's convention."""
        return f"{KEY_PREFIX}:{self.project}:{self.stored_path(path)}#{number:03}"


def convention_items(root: Path, path: str, place: ConventionTarget) -> list[KnowledgeItem]:
    """Return the conventions of a file, in order.

    At the root, a language's conventions hold for that language everywhere. Below it they hold for their folder only.

    Raises:
        UnreadableFile: It cannot be read, or is not what its name promises. The text gives the reason.
    """
    kind = find_reader(path)
    assert kind is not None, path
    directory = place.stored_path(convention_directory(path))
    if "\\" in directory or len(path) > MAX_PATH_CHARS:
        raise UnreadableFile(f"no path of at most {MAX_PATH_CHARS} characters without a backslash")
    return [
        KnowledgeItem(
            kind="convention",
            text=rule.text,
            scope=place.scope,
            owner=place.owner,
            key=place.key(path, number),
            directory=directory,
            language="" if directory else rule.language,
            confidence=kind.confidence,
            provenance=Provenance(source=place.stored_path(path), taint=place.taint),
        )
        for number, rule in enumerate(_bounded_rules(read_project_file(root, path, MAX_BYTES), kind))
    ]


def _bounded_rules(text: str, kind: FileReader) -> list[ConventionRule]:
    try:
        return list(islice(kind.rules(text), MAX_ITEMS))
    except RecursionError:
        raise UnreadableFile("it is nested too deeply") from None
