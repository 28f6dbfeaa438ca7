"""Paths of the corpus: no tool with a path reads, lists or changes anything outside the root."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orga.activities.adapters.tools.file_changes import EditFile, EditRecords, WriteFile
from orga.activities.adapters.tools.file_search import ListFiles, SearchText
from orga.activities.adapters.tools.read_file import ReadFile
from orga.activities.adapters.tools.root import FileRoot
from orga.activities.adapters.tools.run_command import RunCommand
from orga.activities.ports import Tool, ToolError
from tests.support.tools.calls import failure, result
from tests.support.values.corpora import Case, cases, filled

SECRET = "the secret of the house"


@pytest.fixture(name="base")
def a_root_among_secrets(tmp_path: Path) -> Path:
    base, outside, evil = tmp_path / "root", tmp_path / "outside", tmp_path / "root-evil"
    for folder in (base / "docs", base / "deep", outside, evil):
        folder.mkdir(parents=True)
    (base / "docs" / "a.md").write_text("inside")
    for folder in (outside, evil):
        (folder / "secret.txt").write_text(SECRET)
    links = {"link": outside, "chain": base / "link", "linkfile": outside / "secret.txt", "deep/up": tmp_path}
    links |= {"dangling": outside / "new.txt", "environ": Path("/proc/self/environ"), "null": Path("/dev/null")}
    for name, target in links.items():
        (base / name).symlink_to(target)
    return base


def around(base: Path) -> dict[str, str]:
    """Return all files next to the root."""
    folders = [base.parent / "outside", base.parent / "root-evil"]
    beside = {str(path): path.read_text() for folder in folders for path in folder.rglob("*") if path.is_file()}
    return beside | dict.fromkeys(os.listdir(base.parent), "")  # noqa: PTH208


TOOLS: dict[str, tuple[Callable[[FileRoot], Tool], dict[str, Any]]] = {
    "read_file": (ReadFile, {}),
    "write_file": (WriteFile, {"content": "x"}),
    "edit_file": (lambda root: EditFile(root, EditRecords(None)), {"old_text": "s", "new_text": "x"}),
    "list_files": (ListFiles, {}),
    "search_text": (SearchText, {"query": "secret"}),
    "run_command": (lambda root: RunCommand(root, ["ls", "cat"]), {"command": ["ls"]}),
}


async def tried(tool: Tool, arguments: dict[str, Any]) -> str:
    try:
        return await result(tool, **arguments)
    except ToolError as error:
        return str(error)


@pytest.mark.parametrize("case", cases("paths"))
@pytest.mark.parametrize("name", TOOLS)
async def test_no_path_reaches_outside_the_root(
    base: Path, name: str, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORGA_TEST_SECRET", SECRET)
    before = around(base)
    make, more = TOOLS[name]
    path = filled(case["path"], outside=str(base.parent / "outside"), root=str(base))
    place = {"cwd": path} if name == "run_command" else {"path": path}

    reported = await tried(make(FileRoot(base)), {**more, **place})

    assert SECRET not in reported
    assert "secret.txt" in path or "secret.txt" not in reported
    assert "root:x:" not in reported
    assert around(base) == before


@pytest.mark.parametrize("case", cases("paths", "git"))
async def test_files_that_git_would_run_are_not_written(base: Path, case: Case) -> None:
    before = sorted(path.name for path in base.rglob("*"))
    error = await failure(WriteFile(FileRoot(base)), path=case["path"], content="x")
    assert error.kind == "PathRefused"
    assert sorted(path.name for path in base.rglob("*")) == before


@pytest.mark.parametrize("path", [".gitignore", ".github/workflows/ci.yml", "git/notes.md", "x.git/y", "git~2/a"])
async def test_names_that_only_begin_like_git_are_allowed(base: Path, path: str) -> None:
    assert "Created" in await result(WriteFile(FileRoot(base)), path=path, content="x")


@pytest.mark.parametrize("name", TOOLS)
async def test_a_folder_replaced_by_a_link_is_not_followed(
    base: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This happens after the check of the path and before it is opened (CVE-2024-32002, CWE-367)."""
    (base / "swapped").mkdir()
    located, before = FileRoot.locate, around(base)

    def locate_then_swap(root: FileRoot, path: str) -> object:
        place = located(root, path)
        (base / "swapped").rename(base / "away")
        (base / "swapped").symlink_to(base.parent / "outside")
        return place

    make, more = TOOLS[name]
    tool, place = make(FileRoot(base)), "swapped" if name in {"list_files", "run_command"} else "swapped/secret.txt"
    monkeypatch.setattr(FileRoot, "locate", locate_then_swap)
    reported = await tried(tool, {**more, ("cwd" if name == "run_command" else "path"): place})

    assert SECRET not in reported
    assert "secret.txt" not in reported.replace("swapped/secret.txt", "")
    assert around(base) == before


async def test_a_command_starts_in_the_folder_that_was_opened(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that replaces the open folder has no effect."""
    (base / "swapped").mkdir()
    (base / "swapped" / "mine.txt").write_text("x")
    opened = FileRoot.folder

    def open_then_swap(root: FileRoot, place: Any, **more: Any) -> Any:
        held = opened(root, place, **more)
        return _Swapped(held, base)

    monkeypatch.setattr(FileRoot, "folder", open_then_swap)
    reported = await result(RunCommand(FileRoot(base), ["ls"]), command=["ls"], cwd="swapped")
    assert reported == "mine.txt"


class _Swapped:
    """An opened folder that is replaced by a link as soon as it is open."""

    def __init__(self, held: Any, base: Path) -> None:
        self._held, self._base = held, base

    def __enter__(self) -> int:
        folder = self._held.__enter__()
        (self._base / "swapped").rename(self._base / "away")
        (self._base / "swapped").symlink_to(self._base.parent / "outside")
        return folder

    def __exit__(self, *why: Any) -> Any:
        return self._held.__exit__(*why)


@pytest.mark.parametrize("name", TOOLS)
@pytest.mark.parametrize("path", ["~/secret.txt", "~", "~root/secret.txt", "~/outside"])
async def test_a_home_folder_is_outside_the_root(
    base: Path, monkeypatch: pytest.MonkeyPatch, name: str, path: str
) -> None:
    """The path must not lead to a folder named `~` in the root either."""
    monkeypatch.setenv("HOME", str(base.parent / "outside"))
    (base / "~").mkdir()
    (base / "~" / "secret.txt").write_text("in the root")
    make, arguments = TOOLS[name]
    place = "cwd" if name == "run_command" else "path"
    before = around(base)
    error = await failure(make(FileRoot(base)), **arguments, **{place: path})
    assert "it leads outside the root" in str(error)
    assert around(base) == before


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("~/docs/a.md", "docs/a.md", id="a home folder that is the root"),
        pytest.param("./~/a.md", "~/a.md", id="a folder of that name"),
        pytest.param("~$report.docx", "~$report.docx", id="a file name with a leading tilde"),
        pytest.param("docs/~/a.md", "docs/~/a.md", id="further down"),
        pytest.param("~nobody-here/a.md", "~nobody-here/a.md", id="an unknown user"),
    ],
)
def test_a_tilde_can_lead_into_the_root(base: Path, monkeypatch: pytest.MonkeyPatch, path: str, expected: str) -> None:
    monkeypatch.setenv("HOME", str(base))
    assert str(FileRoot(base).locate(path)) == expected
