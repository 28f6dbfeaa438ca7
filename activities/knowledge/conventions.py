"""The conventions that apply to a file: those of its folder, then of the folders above, then of its language."""

import re
from collections.abc import AsyncIterator, Collection, Sequence
from posixpath import splitext

from orga.activities.knowledge.languages import language_of_path, language_of_settings
from orga.activities.knowledge.ports import KnowledgeStore
from orga.workflows.types.knowledge import KnowledgeItem, Reader, Recall, Recalled

MAX_DEPTH = 32
"""Of directories: nothing that lies deeper has conventions of its own."""

MAX_PER_PLACE = 100
"""Conventions of one directory that are looked at, the surest."""


async def conventions_for(
    store: KnowledgeStore, reader: Reader, directory: str, language: str = "", limit: int = 5
) -> list[Recalled]:
    """Return what holds there, the nearest first: its directory, its parents up to the root, then its language.

    What is said twice counts where it stands nearest. A convention of a language holds for it wherever it lies, and
    for no other one that is named; at the root it comes after those of no language. Within a directory the surest come
    first, those of one file in their order.

    Args:
        store: Who keeps them.
        reader: Who asks; what others own is not found.
        directory: From the root of the project; a file's path stands for the directory that it lies in.
        language: Empty where it is not known.
        limit: At least 1.

    Raises:
        KnowledgeError: The store cannot be read.
    """
    found: dict[str, Recalled] = {}
    async for each in _nearest_first(store, reader, directory, language.strip().lower()):
        found.setdefault(_recalled_text(each), each)
        if len(found) == limit:
            break
    return list(found.values())


def may_hold_for(item: KnowledgeItem, languages: Collection[str]) -> bool:
    """Return whether a convention holds for one of these languages, as far as they are known (not empty).

    Settings of a language that lie below the root are of their folder, and of that language all the same.
    """
    own = item.language or language_of_settings(item.provenance.source)
    known = [language for language in languages if language]
    return not own or not known or own in known


def directories_above(path: str) -> list[str]:
    """Return a path's own directory and all above it, the root, which is empty, last.

    `.` and a leading `/` mean nothing; `..` leads up, and not out of the root.
    """
    parts: list[str] = []
    for part in path.replace("\\", "/").split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in {"", "."}:
            parts.append(part)
    del parts[MAX_DEPTH:]
    return ["/".join(parts[:length]) for length in range(len(parts), -1, -1)]


async def _nearest_first(
    store: KnowledgeStore, reader: Reader, directory: str, language: str
) -> AsyncIterator[Recalled]:
    for place in directories_above(directory):
        for each in await _directory_conventions(store, reader, place, language):
            yield each
    for each in await _recalled_conventions(store, reader, language=language) if language else ():
        yield each


async def _directory_conventions(store: KnowledgeStore, reader: Reader, place: str, language: str) -> list[Recalled]:
    """Return those of a directory; of no other language than one that is named, which may have left no room for it."""
    found = await _recalled_conventions(store, reader, directory=place)
    if language and len(found) == MAX_PER_PLACE:
        both = [await _recalled_conventions(store, reader, directory=place, language=each) for each in ("", language)]
        found = sorted((*both[0], *both[1]), key=_confidence_order)
    found = [each for each in found if may_hold_for(each.item, {language})]
    return found if place else sorted(found, key=lambda each: bool(each.item.language))


async def _recalled_conventions(
    store: KnowledgeStore, reader: Reader, *, directory: str | None = None, language: str | None = None
) -> list[Recalled]:
    wish = Recall(
        text="",
        reader=reader,
        limit=MAX_PER_PLACE,
        threshold=0,
        kinds=("convention",),
        directory=directory,
        language=language,
    )
    return sorted(await store.recall(wish), key=_confidence_order)


def _confidence_order(each: Recalled) -> tuple[float, str]:
    return -each.item.confidence, each.item.key


def _recalled_text(each: Recalled) -> str:
    return " ".join(each.item.text.split()).casefold()


MAX_PLACES = 3
"""Of one talk, the first that it names."""

_PATH = re.compile(r"[\w@+.-]+(?:/[\w@+.-]+)*")
_SUFFIX = re.compile(r"\.[A-Za-z]\w{0,7}")


class NamedPlaces:
    """The files and directories that talk names, with the conventions that hold there."""

    def __init__(self) -> None:
        self.conventions: dict[str, Recalled] = {}
        """By their ids, those of the first place first, and of one place the nearest."""
        self._directories = set[str]()
        self._languages = set[str]()

    def add(self, path: str, found: Sequence[Recalled]) -> None:
        """Take in a place."""
        self._directories.update(directories_above(path))
        self._languages.add(language_of_path(path))
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


def path_from_root(path: str, root: str) -> str:
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
) -> NamedPlaces:
    """Return the places that these words name, absolute ones within the root of the project, too.

    A file is known by its suffix, anything else with a `/` by the conventions that lie there: `and/or` is none.

    Raises:
        KnowledgeError: The store cannot be read.
    """
    places = NamedPlaces()
    for path in _possible_paths(terms, root):
        found = await conventions_for(store, reader, path, language_of_path(path), limit)
        if _is_file(path) or any(each.item.directory for each in found):
            places.add(path, found)
    return places


def _possible_paths(terms: Sequence[str], root: str) -> list[str]:
    """Return what may be a path; a line's number behind it is none of it, and an address is no path."""
    paths = [path_from_root(term.partition(":")[0], root) for term in terms if "://" not in term]
    return [path for path in dict.fromkeys(paths) if _PATH.fullmatch(path) and ("/" in path or _is_file(path))][
        :MAX_PLACES
    ]


def _is_file(path: str) -> bool:
    return bool(language_of_path(path)) or ("/" in path and _SUFFIX.fullmatch(splitext(path)[1]) is not None)
