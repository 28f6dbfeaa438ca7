"""Conventions of a project: imported from its files, and recalled for work in one of its folders."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import pytest

from orga.activities.adapters.knowledge.conventions.changes import ConventionTarget, import_conventions
from orga.activities.adapters.knowledge.embedders import HashingEmbedder
from orga.activities.adapters.knowledge.project_files import FileChange
from orga.activities.adapters.knowledge.sqlite.sqlite_store import SqliteStore
from orga.activities.knowledge.conventions import conventions_for
from orga.activities.knowledge.ports import KnowledgeError, KnowledgeStore
from orga.workflows.types.knowledge import KnowledgeItem, Reader, StoredItem

PLACE = ConventionTarget("shop", "", "tenant", Reader(tenant="acme"))
ACME = Reader(tenant="acme", user="ada", agent="default")

FILES = {
    "AGENTS.md": "# Commits\nSign them.\n# Tests\nRun make test.\n",
    "pyproject.toml": "[tool.ruff]\nline-length = 120\n",
    "src/AGENTS.md": "# Names\nsnake_case.\n",
    "src/api/CLAUDE.md": "# Handlers\nNo SQL.\n# Tests\nRun make test.\n",
    "web/.prettierrc.json": '{"semi": false}',
    "web/AGENTS.md": "# Components\nOne a file.\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    for path, text in FILES.items():
        write(folder, path, text)
    return folder


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[KnowledgeStore]:
    opened = SqliteStore(tmp_path / "knowledge.db", HashingEmbedder())
    yield opened
    await opened.close()


def write(folder: Path, path: str, text: str) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(text)


async def import_folder(
    store: KnowledgeStore, folder: Path, place: ConventionTarget = PLACE
) -> dict[str, tuple[str, int]]:
    changes = [change async for change in import_conventions(store, folder, place, lambda done, of: None)]
    return {change.path: (change.change, change.items) for change in changes}


async def find(store: KnowledgeStore, directory: str, language: str = "", reader: Reader = ACME) -> list[str]:
    conventions = await conventions_for(store, reader, directory, language, limit=20)
    return [each.item.text for each in conventions]


async def all_items(store: KnowledgeStore) -> list[StoredItem]:
    return [item async for item in store.items()]


AT_THE_ROOT = ["Commits\nSign them.", "Tests\nRun make test.", "ruff, in pyproject.toml\nline-length = 120"]
OF_WEB = ["Components\nOne a file.", ".prettierrc.json\nsemi = false"]


async def test_conventions_of_a_file_come_from_its_folder_and_the_parents(store: KnowledgeStore, project: Path) -> None:
    await import_folder(store, project)
    commits, tests, ruff = AT_THE_ROOT
    nearest = ["Handlers\nNo SQL.", tests, "Names\nsnake_case."]
    assert await find(store, "src/api/users.py") == [*nearest, commits, ruff]
    assert await find(store, "src/api/users.go", "go") == [*nearest, commits], (
        "a convention for Python is not used for Go"
    )
    assert await find(store, "web/app.ts") == [*OF_WEB, *AT_THE_ROOT], "no convention of src/"
    assert await find(store, "src/api/users.py", reader=Reader(tenant="other")) == []


async def test_an_import_reports_what_has_changed(store: KnowledgeStore, project: Path) -> None:
    first = await import_folder(store, project)
    assert set(first.values()) == {("added", 1), ("added", 2)}
    assert sorted(first) == sorted(FILES)
    assert set((await import_folder(store, project)).values()) == {("unchanged", 1), ("unchanged", 2)}

    write(project, "AGENTS.md", "# Commits\nNo need to sign.\n")
    write(project, "docs/AGENTS.md", "Be brief.")
    (project / "web/AGENTS.md").unlink()
    write(project, "src/AGENTS.md", "")
    changes = await import_folder(store, project)
    assert {path: change for path, change in changes.items() if change[0] != "unchanged"} == {
        "AGENTS.md": ("changed", 1),
        "docs/AGENTS.md": ("added", 1),
        "web/AGENTS.md": ("removed", 1),
        "src/AGENTS.md": ("changed", 0),
    }
    texts = {item.text for item in await all_items(store)}
    assert "Commits\nNo need to sign." in texts
    assert not {"Commits\nSign them.", "Components\nOne a file.", "Names\nsnake_case."} & texts
    assert "src/AGENTS.md" not in await import_folder(store, project), "an empty file is not reported again"


async def test_a_file_that_becomes_unreadable_keeps_its_stored_conventions(
    store: KnowledgeStore, project: Path
) -> None:
    await import_folder(store, project)
    write(project, "pyproject.toml", "[tool")
    assert (await import_folder(store, project))["pyproject.toml"] == ("unreadable", 1)
    assert AT_THE_ROOT[2] in await find(store, "")


async def test_one_folder_of_a_project_can_be_updated_alone(store: KnowledgeStore, project: Path) -> None:
    await import_folder(store, project)
    before = {item.id for item in await all_items(store)}
    write(project, "AGENTS.md", "changed")
    at_web = ConventionTarget("shop", "web", "tenant", Reader(tenant="acme"))
    assert set(await import_folder(store, project / "web", at_web)) == {"web/AGENTS.md", "web/.prettierrc.json"}
    assert {item.id for item in await all_items(store)} == before


async def test_an_import_keeps_items_of_other_owners_and_items_written_by_people(
    store: KnowledgeStore, project: Path
) -> None:
    by_hand = KnowledgeItem(kind="convention", text="By hand.", owner=Reader(tenant="acme"), directory="web")
    await store.store([by_hand])
    await import_folder(store, project)
    await import_folder(store, project, ConventionTarget("shop", "", "user", Reader(tenant="acme", user="bob")))
    for path in FILES:
        (project / path).unlink()
    assert {change for change, _ in (await import_folder(store, project)).values()} == {"removed"}
    left = await all_items(store)
    assert [item.text for item in left if item.scope == "tenant"] == ["By hand."]
    assert {item.owner.user for item in left if item.scope == "user"} == {"bob"}
    assert len(left) == 9


async def test_another_projects_conventions_are_not_replaced(
    store: KnowledgeStore, project: Path, tmp_path: Path
) -> None:
    await import_folder(store, project)
    other = tmp_path / "other"
    write(other, "AGENTS.md", "Other words.")
    before = await all_items(store)
    with pytest.raises(KnowledgeError, match=r"belong to the project 'shop', not to 'other': .* --at"):
        await import_folder(store, other, ConventionTarget("other", "", "tenant", Reader(tenant="acme")))
    assert await all_items(store) == before
    await import_folder(store, other, ConventionTarget("other", "apps/other", "tenant", Reader(tenant="acme")))
    assert (await find(store, "apps/other/x.py"))[0] == "Other words."
    assert set((await import_folder(store, project)).values()) == {("unchanged", 1), ("unchanged", 2)}


async def test_a_stopped_import_is_continued_by_the_next(store: KnowledgeStore, project: Path) -> None:
    changes: list[FileChange] = []
    async with aclosing(import_conventions(store, project, PLACE, lambda done, of: None)) as importing:
        async for change in importing:
            changes.append(change)
            if len(changes) == 2:
                break
    assert len({item.provenance.source for item in await all_items(store)}) == 2
    after = await import_folder(store, project)
    assert sorted(path for path, (change, _) in after.items() if change == "unchanged") == sorted(
        change.path for change in changes
    )
    assert {change for change, _ in after.values()} == {"unchanged", "added"}
