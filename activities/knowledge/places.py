"""The conventions of the places that talk names: they hold for who works there, whatever words they share."""

import re
from collections.abc import Sequence
from posixpath import splitext

from orga.activities.knowledge.conventions import conventions_for, directories_above, may_hold_for
from orga.activities.knowledge.languages import language_of
from orga.activities.knowledge.ports import KnowledgeStore
from orga.workflows.types.knowledge import Reader, Recalled

MAX_PLACES = 3
"""Of one talk, the first that it names."""

_PATH = re.compile(r"[\w@+.-]+(?:/[\w@+.-]+)*")
_SUFFIX = re.compile(r"\.[A-Za-z]\w{0,7}")


class Places:
    """The files and directories that talk names, with the conventions that hold there."""

    def __init__(self) -> None:
        self.conventions: dict[str, Recalled] = {}
        """By their ids, those of the first place first, and of one place the nearest."""
        self._directories = set[str]()
        self._languages = set[str]()

    def add(self, path: str, found: Sequence[Recalled]) -> None:
        """Take in a place."""
        self._directories.update(directories_above(path))
        self._languages.add(language_of(path))
        for each in found:
            self.conventions.setdefault(each.item.id, each)

    def with_conventions(self, found: Sequence[Recalled], limit: int) -> list[Recalled]:
        """Return what was found by its words, ahead of it the conventions: half of all, more where there is room.

        A convention that holds for other places alone is left out; where none is named, so is any of a directory.
        """
        fits = [each for each in found if self._may_hold(each)]
        held = [each for each in self.conventions.values() if self._may_hold(each)]
        taken = held[: max(limit // 2, limit - len(fits))]
        ids = {each.item.id for each in taken}
        return [*taken, *(each for each in fits if each.item.id not in ids)][:limit]

    def _may_hold(self, each: Recalled) -> bool:
        item = each.item
        if item.kind != "convention":
            return True
        if not may_hold_for(item, self._languages):
            return False
        if not self._directories:
            return not item.directory or bool(item.language)
        return item.directory in self._directories or item.language in self._languages - {""}


def from_root(path: str, root: str) -> str:
    """Return a path as conventions have it, from the root of the project, "" for an absolute one that leads elsewhere.

    Args:
        path: As calls have it, or as a word of talk, which has lost its first `/`.
        root: Absolute; empty where it is not known.
    """
    if not root:
        return path
    start = f"{root}/".lstrip("/")
    if (whole := path.lstrip("/")).startswith(start):
        return whole[len(start) :]
    return "" if path.startswith("/") else path


async def named_places(
    store: KnowledgeStore, reader: Reader, terms: Sequence[str], limit: int, root: str = ""
) -> Places:
    """Return the places that these words name, absolute ones within the root of the project, too.

    A file is known by its suffix, anything else with a `/` by the conventions that lie there: `and/or` is none.

    Raises:
        KnowledgeError: The store cannot be read.
    """
    places = Places()
    for path in _paths(terms, root):
        found = await conventions_for(store, reader, path, language_of(path), limit)
        if _is_file(path) or any(each.item.directory for each in found):
            places.add(path, found)
    return places


def _paths(terms: Sequence[str], root: str) -> list[str]:
    """Return what may be a path; a line's number behind it is none of it, and an address is no path."""
    paths = [from_root(term.partition(":")[0], root) for term in terms if "://" not in term]
    return [path for path in dict.fromkeys(paths) if _PATH.fullmatch(path) and ("/" in path or _is_file(path))][
        :MAX_PLACES
    ]


def _is_file(path: str) -> bool:
    return bool(language_of(path)) or ("/" in path and _SUFFIX.fullmatch(splitext(path)[1]) is not None)
