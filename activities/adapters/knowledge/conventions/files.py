"""The conventions of one file, as items of a store."""

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
"""Of a file: a longer one is none that people keep conventions in."""
MAX_ITEMS = 300
"""Of a file."""

MAX_PATH_CHARS = 700

KEY_PREFIX = "convention"


@dataclass(frozen=True)
class ConventionTarget:
    """Where the conventions of a project go, and whose they become."""

    project: str
    """Its name: in the same directories of one store, conventions of one project stand."""
    at: str
    """The directory that its root has there; empty for the root of all."""
    scope: ScopeLevel
    owner: Reader
    taint: tuple[str, ...] = ()
    """What they are marked with."""

    def inside(self, path: str) -> str:
        """Return what a path from the root of the project is called there."""
        return clean_text("/".join(filter(None, (self.at, path))))

    def key(self, path: str, number: int) -> str:
        """Return the key of one of its conventions."""
        return f"{KEY_PREFIX}:{self.project}:{self.inside(path)}#{number:03}"


def convention_items(root: Path, path: str, place: ConventionTarget) -> list[KnowledgeItem]:
    """Return the conventions of a file, in order; none for one that says none.

    At the root those of a language hold for that language wherever it lies; further down, for their folder alone.

    Raises:
        Unreadable: It cannot be read, or is not what its name says. The text says why.
    """
    kind = find_reader(path)
    assert kind is not None, path
    directory = place.inside(convention_directory(path))
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
            provenance=Provenance(source=place.inside(path), taint=place.taint),
        )
        for number, rule in enumerate(_bounded_rules(read_project_file(root, path, MAX_BYTES), kind))
    ]


def _bounded_rules(text: str, kind: FileReader) -> list[ConventionRule]:
    try:
        return list(islice(kind.rules(text), MAX_ITEMS))
    except RecursionError:
        raise UnreadableFile("it is nested too deeply") from None
