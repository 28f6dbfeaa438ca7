"""The conventions that hold for a place in a project: of its directory, of those above it, of its language."""

from collections.abc import AsyncIterator, Collection

from orga.activities.knowledge.languages import language_of_settings
from orga.activities.knowledge.ports import KnowledgeStore
from orga.workflows.types.knowledge import KnowledgeItem, Reader, Recall, Recalled

MAX_DEPTH = 32
"""Of directories: nothing that lies deeper has conventions of its own."""

PER_PLACE = 100
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
        found.setdefault(_content(each), each)
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
        for each in await _in(store, reader, place, language):
            yield each
    for each in await _of(store, reader, language=language) if language else ():
        yield each


async def _in(store: KnowledgeStore, reader: Reader, place: str, language: str) -> list[Recalled]:
    """Return those of a directory; of no other language than one that is named, which may have left no room for it."""
    found = await _of(store, reader, directory=place)
    if language and len(found) == PER_PLACE:
        both = [await _of(store, reader, directory=place, language=each) for each in ("", language)]
        found = sorted((*both[0], *both[1]), key=_surest_first)
    found = [each for each in found if may_hold_for(each.item, {language})]
    return found if place else sorted(found, key=lambda each: bool(each.item.language))


async def _of(
    store: KnowledgeStore, reader: Reader, *, directory: str | None = None, language: str | None = None
) -> list[Recalled]:
    wish = Recall(
        text="",
        reader=reader,
        limit=PER_PLACE,
        threshold=0,
        kinds=("convention",),
        directory=directory,
        language=language,
    )
    return sorted(await store.recall(wish), key=_surest_first)


def _surest_first(each: Recalled) -> tuple[float, str]:
    return -each.item.confidence, each.item.key


def _content(each: Recalled) -> str:
    return " ".join(each.item.text.split()).casefold()
