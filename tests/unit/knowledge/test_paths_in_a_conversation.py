"""The paths in a conversation, and the conventions that are shown for them."""

from collections.abc import Sequence
from typing import cast

import pytest

from orga.activities.knowledge.conventions import MAX_PLACES, named_places
from orga.activities.knowledge.ports import KnowledgeStore
from orga.workflows.types.knowledge import Reader, Recalled, StoredItem
from tests.unit.knowledge.test_conventions_of_a_place import T0, Shelf, a_convention

SHELF = (
    a_convention("api", "src/api"),
    a_convention("src", "src"),
    a_convention("root"),
    a_convention("python", "lib", "python"),
    a_convention("ruby", "src", "ruby"),
    a_convention("web", "web"),
)


def by_words(*texts: str, kind: str = "fact") -> list[Recalled]:
    items = {item.text: item for item in SHELF}
    plain = {"kind": kind, "stored_at": T0}
    return [
        Recalled(item=items.get(text) or StoredItem.model_validate({**plain, "text": text, "id": text}), score=0.5)
        for text in texts
    ]


async def shown(terms: Sequence[str], found: Sequence[Recalled] = (), limit: int = 9, root: str = "") -> list[str]:
    places = await named_places(cast(KnowledgeStore, Shelf(SHELF)), Reader(), terms, limit, root)
    return [each.item.text for each in places.with_conventions(found, limit)]


NAMED: dict[str, tuple[list[str], list[str]]] = {
    "a file": (["invoice", "src/api/users.py"], ["api", "src", "root", "python"]),
    "a file with its line": (["src/api/users.py:12:4"], ["api", "src", "root", "python"]),
    "a file of the root": (["setup.py"], ["root", "python"]),
    "a file of no language": (["web/README.md"], ["web", "root"]),
    "a directory with conventions": (["src/api"], ["api", "ruby", "src", "root"]),
    "a directory without": (["docs/pictures"], []),
    "two words that are not a path": (["and/or", "TCP/IP", "3.4/5"], []),
    "an address": (["https://example.com/src/api/users.py"], []),
    "a pattern": (["src/api/*.py", "(src/api)|x.py"], []),
    "a sentence's end": (["users", "README.md"], []),
    "several places": (["web/a.css", "src/b.go"], ["web", "root", "src"]),
    "no more than the first": ([f"none/{n}.go" for n in range(MAX_PLACES)] + ["src/api/x.go"], ["root"]),
}


@pytest.mark.parametrize(("terms", "expected"), NAMED.values(), ids=NAMED)
async def test_conventions_are_shown_for_the_paths_in_the_conversation(terms: list[str], expected: list[str]) -> None:
    assert await shown(terms) == expected


ABSOLUTE: dict[str, tuple[str, list[str]]] = {
    "within the root": ("/home/ada/shop/src/api/users.py", ["api", "src", "root", "python", "one"]),
    "a search term without its leading slash": (
        "home/ada/shop/src/api/users.py",
        ["api", "src", "root", "python", "one"],
    ),
    "elsewhere": ("/home/ada/other/src/api/users.py", ["one", "python"]),
    "a sibling folder with the same prefix": ("/home/ada/shopping/src/api/users.py", ["one", "python"]),
    "the same path relative to the root": ("src/api/users.py", ["api", "src", "root", "python", "one"]),
}


@pytest.mark.parametrize(("path", "expected"), ABSOLUTE.values(), ids=ABSOLUTE)
async def test_an_absolute_path_is_taken_relative_to_the_root(path: str, expected: list[str]) -> None:
    assert await shown([path], by_words("one", "python", "api"), root="/home/ada/shop") == expected


async def test_conventions_take_half_of_the_limit_and_any_free_room() -> None:
    facts = by_words("one", "two", "three")
    assert await shown(["src/api/x.go"], facts, limit=4) == ["api", "src", "one", "two"]
    assert await shown(["src/api/x.go"], facts[:1], limit=4) == ["api", "src", "root", "one"]
    assert await shown(["src/api/x.go"], facts, limit=1) == ["one"]
    assert await shown(["src/api/x.go"], limit=1) == ["api"]


async def test_conventions_of_other_places_are_left_out() -> None:
    found = by_words("one", "web", "ruby", "api", "python")
    assert await shown(["src/api/x.py"], found) == ["api", "src", "root", "python", "one"]
    assert await shown(["invoice"], found) == ["one", "ruby", "python"], "no path, so no convention of a folder"
