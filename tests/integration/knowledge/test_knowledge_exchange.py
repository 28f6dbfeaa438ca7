"""Export from one store and import into another, and the errors of lines that are not items."""

import io
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

from orga.activities.adapters.knowledge.embedders import HashingEmbedder
from orga.activities.adapters.knowledge.sqlite.sqlite_store import SqliteStore
from orga.activities.knowledge.exchange import (
    MAX_LINE_CHARS,
    export_lines,
    file_lines,
    import_items,
    read_items,
)
from orga.activities.knowledge.ports import KnowledgeError, KnowledgeStore
from orga.workflows.types.knowledge import KnowledgeItem
from tests.support.knowledge.items import T0, Clock, a_fact, a_text, owned, tainted


def no_progress(done: int, total: int) -> None:
    pass


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncGenerator[tuple[KnowledgeStore, KnowledgeStore, Clock]]:
    clock = Clock()
    one, other = (SqliteStore(tmp_path / name, HashingEmbedder(), now=clock) for name in ("one.db", "other.db"))
    yield one, other, clock
    await one.close()
    await other.close()


async def test_a_store_is_the_same_after_export_and_import(
    stores: tuple[KnowledgeStore, KnowledgeStore, Clock],
) -> None:
    """Contradictions are the same for any order of the lines."""
    one, other, clock = stores
    for number in range(6):
        await one.store([a_fact(f"x{number % 2}", "is", str(number), **owned("user", "acme", "anna"))])
        clock.advance(1)
    await one.store([a_text("two\nlines \u2028 and more", provenance=tainted("fetch_url"), expires_at=T0, key="k")])
    lines = [line async for line in export_lines(one)]
    assert all("\n" not in line for line in lines)
    clock.advance(1000)
    imported = await import_items(other, read_items(iter(lines)), no_progress)
    assert imported == {"added": 7, "updated": 0, "unchanged": 0}
    assert [item async for item in other.items()] == [item async for item in one.items()]
    again = await import_items(other, read_items(iter(lines)), no_progress)
    assert again == {"added": 0, "updated": 0, "unchanged": 7}


async def test_progress_is_reported_and_items_are_read_only_when_needed(
    stores: tuple[KnowledgeStore, KnowledgeStore, Clock],
) -> None:
    read = 0
    reported: list[tuple[int, int]] = []

    def items() -> Iterator[KnowledgeItem]:
        nonlocal read
        for number in range(600):
            read += 1
            yield a_text(f"text {number}")

    def progress(done: int, total: int) -> None:
        reported.append((done, total))
        assert read == done

    await import_items(stores[0], items(), progress, total=600)
    assert reported == [(256, 600), (512, 600), (600, 600)]


async def test_a_bad_line_is_named_and_the_items_before_it_are_kept(
    stores: tuple[KnowledgeStore, KnowledgeStore, Clock],
) -> None:
    good = [a_text(f"text {number}").model_dump_json() for number in range(300)]
    with pytest.raises(KnowledgeError, match="line 301 cannot be imported: it is no JSON") as caught:
        await import_items(stores[0], read_items([*good, good[0][:20]]), no_progress)
    assert caught.value.kind == "InvalidItem"
    assert (await stores[0].facts()).counts == {"document": 256}
    with pytest.raises(
        KnowledgeError, match=r"text is empty \(256 items were imported before; import again to go on\)"
    ):
        await import_items(stores[0], read_items([*good, '{"kind": "document", "text": ""}']), no_progress)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1]", "line 2 cannot be imported: the line: "),
        ("{}", "line 2 cannot be imported: kind: Field required"),
        ('{"kind": "rumour", "text": "x"}', "line 2 cannot be imported: kind: Input should be"),
        ('{"kind": "document", "text": "x", "tennant": "a"}', "line 2 cannot be imported: tennant: Extra inputs"),
        ('{"kind": "document", "text": "x", "confidence": NaN}', "line 2 cannot be imported: "),
        ('{"kind": "document", "text": "x", "owner": {"users": "a"}}', "line 2 cannot be imported: owner.users: Extra"),
        ("x" * (MAX_LINE_CHARS + 1), "line 2 cannot be imported: it has more than 2,000,000 characters"),
        ("[" * 100_000, "line 2 cannot be imported: "),
    ],
    ids=["no object", "nothing", "no kind", "a misspelt key", "NaN", "a misspelt inner key", "too long", "too deep"],
)
def test_a_line_that_is_not_an_item_is_rejected(line: str, message: str) -> None:
    with pytest.raises(KnowledgeError) as caught:
        list(read_items(["\n", line]))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ('{"format": "orga-knowledge", "version": 2}', "upgrade orga"),
        ('{"format": "recipes", "version": 1}', "its format is 'recipes', not 'orga-knowledge'"),
    ],
)
def test_an_export_of_another_format_is_refused(first: str, message: str) -> None:
    with pytest.raises(KnowledgeError, match=message):
        list(read_items([first]))


def test_the_header_line_is_optional() -> None:
    [item] = read_items(['{"kind": "document", "text": "x"}\n'])
    assert item == a_text("x")


def test_an_overlong_line_is_read_only_up_to_the_limit() -> None:
    lines = file_lines(io.StringIO("short\n" + "x" * (3 * MAX_LINE_CHARS)))
    assert next(lines) == "short\n"
    assert len(next(lines)) == MAX_LINE_CHARS + 1


def test_a_binary_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"\xff\xfe\x00")
    with (tmp_path / "a.jsonl").open(encoding="utf-8") as file, pytest.raises(KnowledgeError, match="no UTF-8"):
        list(file_lines(file))
