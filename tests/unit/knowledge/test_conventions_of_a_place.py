"""The conventions for a path: the nearest first, each once, and none of another branch."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast

import pytest

from orga.activities.knowledge.conventions import MAX_DEPTH, conventions_for, directories_above, named_places
from orga.activities.knowledge.ports import KnowledgeStore
from orga.workflows.types.knowledge import Provenance, Reader, Recall, Recalled, StoredItem

T0 = datetime(2026, 1, 1, tzinfo=UTC)


class Shelf:
    """A store with fixed items that records each query."""

    def __init__(self, items: Sequence[StoredItem]) -> None:
        self._items = items
        self.queries: list[Recall] = []

    async def recall(self, query: Recall) -> list[Recalled]:
        self.queries.append(query)
        return [Recalled(item=item, score=1) for item in self._items if self._fits(item, query)]

    def _fits(self, item: StoredItem, query: Recall) -> bool:
        return (
            item.kind in query.kinds
            and query.directory in {None, item.directory}
            and query.language in {None, item.language}
        )


def a_convention(
    text: str, directory: str = "", language: str = "", confidence: float = 0.8, source: str = ""
) -> StoredItem:
    return StoredItem(
        kind="convention",
        text=text,
        directory=directory,
        language=language,
        confidence=confidence,
        key=text,
        id=f"{directory}:{text}",
        provenance=Provenance(source=source),
        stored_at=T0,
    )


SHELF = (
    a_convention("a: handlers are thin", "src/api"),
    a_convention("b: Handlers  are thin\n", "src"),
    a_convention("c: no star imports", "src"),
    a_convention("d: sign your commits"),
    a_convention("e: lines have 120 characters", language="python"),
    a_convention("f: no semicolons", "web"),
    a_convention("g: two spaces", "src", "ruby"),
    a_convention("h: await everything", "web", "python"),
    a_convention("a: HANDLERS are  thin", "src"),
)

PLACES = {
    "the directory of the file comes first": ("src/api/users.py", "", ["a", "b", "c", "g", "d", "e"]),
    "another branch": ("web", "", ["f", "h", "d", "e"]),
    "the language comes last, from any directory": ("src", "Python", ["a", "b", "c", "d", "e", "h"]),
    "only the given language": ("src", "go", ["a", "b", "c", "d"]),
    "the root": ("", "", ["d", "e"]),
    "another spelling of the path": ("/src/./api/../", "go", ["a", "b", "c", "d"]),
    "a path cannot leave the root": ("../../web", "", ["f", "h", "d", "e"]),
    "an unknown directory": ("docs", "", ["d", "e"]),
}


async def found(directory: str, language: str = "", limit: int = 9) -> list[str]:
    store = cast(KnowledgeStore, Shelf(SHELF))
    return [each.item.text[0] for each in await conventions_for(store, Reader(), directory, language, limit)]


@pytest.mark.parametrize(("directory", "language", "expected"), PLACES.values(), ids=PLACES)
async def test_conventions_are_ordered_from_the_nearest_directory(
    directory: str, language: str, expected: list[str]
) -> None:
    assert await found(directory, language) == expected


async def test_a_repeated_convention_counts_at_its_nearest_directory() -> None:
    results = await conventions_for(cast(KnowledgeStore, Shelf(SHELF)), Reader(), "src/api")
    assert [each.item.directory for each in results if "thin" in each.item.text] == ["src/api", "src"]


async def test_the_limit_keeps_the_nearest_conventions() -> None:
    shelf = Shelf(SHELF)
    results = await conventions_for(cast(KnowledgeStore, shelf), Reader(user="ada"), "src/api", limit=2)
    assert [each.item.text[0] for each in results] == ["a", "b"]
    assert [query.directory for query in shelf.queries] == ["src/api", "src"], "no query beyond the limit"
    assert {query.reader.user for query in shelf.queries} == {"ada"}


async def test_the_most_confident_conventions_of_a_directory_come_first() -> None:
    shelf = Shelf([a_convention("of a tool"), a_convention("of people", confidence=0.9)])
    results = await conventions_for(cast(KnowledgeStore, shelf), Reader(), "")
    assert [each.item.text for each in results] == ["of people", "of a tool"]


POLYGLOT = (
    a_convention("root: sign your commits", confidence=0.5),
    a_convention("python: lines have 120 characters", language="python", confidence=0.95),
    a_convention("rust: edition 2024", language="rust", confidence=0.99),
    a_convention("native: no unsafe code", "native"),
    a_convention("crate: edition 2021", "native", confidence=0.99, source="native/Cargo.toml"),
    a_convention("types: strict", "native", confidence=0.98, source="native/tsconfig.json"),
    a_convention("lints: all", "native", confidence=0.97, source="native/ruff.toml"),
)

MIXED = {
    "a root's language comes after the root": ("app/a.py", "python", ["root", "python"]),
    "its other languages are left out": ("a.rs", "rust", ["root", "rust"]),
    "settings of a folder apply to their language": (
        "native/build.py",
        "python",
        ["lints", "native", "root", "python"],
    ),
    "the same for another language": ("native/lib.rs", "rust", ["crate", "native", "root", "rust"]),
    "a language without settings": ("native/a.go", "go", ["native", "root"]),
    "a directory gets all, the root's languages last": (
        "native",
        "",
        ["crate", "types", "lints", "native", "root", "rust", "python"],
    ),
}


@pytest.mark.parametrize(("directory", "language", "expected"), MIXED.values(), ids=MIXED)
async def test_a_folder_with_several_languages_gets_the_conventions_of_each(
    directory: str, language: str, expected: list[str]
) -> None:
    store = cast(KnowledgeStore, Shelf(POLYGLOT))
    found = await conventions_for(store, Reader(), directory, language, 9)
    assert [each.item.text.partition(":")[0] for each in found] == expected


async def test_the_limit_keeps_the_convention_of_the_root() -> None:
    found = await conventions_for(cast(KnowledgeStore, Shelf(POLYGLOT)), Reader(), "app/a.py", "python", limit=1)
    assert [each.item.text for each in found] == ["root: sign your commits"]


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        pytest.param(["app/a.py"], ["root", "python"], id="a file of Python"),
        pytest.param(["app/a.py", "README.md"], ["root", "python"], id="a file of Python and a text"),
        pytest.param(
            ["native/README.md", "app/a.py"],
            ["lints", "native", "root", "python"],
            id="a file of Python and a text in a folder",
        ),
        pytest.param(["a.py", "b.rs"], ["root", "python", "rust"], id="files of two languages"),
        pytest.param(
            ["native/README.md"], ["crate", "types", "lints", "native", "root", "rust", "python"], id="a text"
        ),
    ],
)
async def test_a_file_gets_no_convention_of_another_language(named: list[str], expected: list[str]) -> None:
    """This holds even if the text of the convention matches the conversation."""
    shelf = Shelf(POLYGLOT)
    places = await named_places(cast(KnowledgeStore, shelf), Reader(), named, 20)
    talked_of = [Recalled(item=item, score=0.9) for item in POLYGLOT]
    found = [each.item.text.partition(":")[0] for each in places.with_conventions(talked_of, 20)]
    assert sorted(found) == sorted(expected)


def test_a_very_long_path_is_cut() -> None:
    above = directories_above("a/" * 10_000)
    assert (len(above), above[-1]) == (MAX_DEPTH + 1, "")
