"""The `list_files` tool."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from orga.activities.adapters.tools import root
from orga.activities.adapters.tools.file_search import ListFiles
from orga.activities.adapters.tools.root import FileRoot
from tests.support.tools.calls import failure, result


@pytest.fixture(name="tool")
def a_tool(tmp_path: Path) -> ListFiles:
    for path in (
        "b.py",
        "a.md",
        "src/x.py",
        "src/deep/y.py",
        "src/deep/y.txt",
        ".hidden/z.py",
        ".env",
        "node_modules/m.js",
        "__pycache__/c.pyc",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    return ListFiles(FileRoot(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param({}, ["a.md", "b.py", "src/deep/y.py", "src/deep/y.txt", "src/x.py"], id="all, sorted"),
        pytest.param({"path": "src"}, ["src/deep/y.py", "src/deep/y.txt", "src/x.py"], id="below a folder"),
        pytest.param({"path": "src/x.py"}, ["src/x.py"], id="a file lists itself"),
        pytest.param({"path": ".hidden"}, [".hidden/z.py"], id="a hidden folder that is named"),
        pytest.param({"pattern": "*.py"}, ["b.py", "src/deep/y.py", "src/x.py"], id="name pattern at any depth"),
        pytest.param({"pattern": "src/*.py"}, ["src/x.py"], id="a star stays within a folder"),
        pytest.param({"pattern": "./src/*.py"}, ["src/x.py"], id="a leading dot and slash"),
        pytest.param({"pattern": "src/**/*.py"}, ["src/deep/y.py", "src/x.py"], id="two stars cross folders"),
        pytest.param({"pattern": "*.{md,txt}"}, ["a.md", "src/deep/y.txt"], id="alternatives"),
        pytest.param({"path": "src", "pattern": "deep/*.py"}, ["src/deep/y.py"], id="pattern below the path"),
        pytest.param({"pattern": None}, ["a.md", "b.py", "src/deep/y.py", "src/deep/y.txt", "src/x.py"], id="null"),
    ],
)
async def test_files_are_listed_by_path_and_pattern(
    tool: ListFiles, arguments: dict[str, object], expected: list[str]
) -> None:
    assert (await result(tool, **arguments)).splitlines() == expected


async def test_a_folder_that_cannot_be_listed_is_skipped(
    tool: ListFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some folders in /proc can be opened but not read, even by root."""
    denied, listed = (tmp_path / "src" / "deep").stat().st_ino, os.scandir

    def scandir(folder: int) -> Any:
        if os.fstat(folder).st_ino == denied:
            raise PermissionError(13, "Permission denied")
        return listed(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    assert (await result(tool)).splitlines() == ["a.md", "b.py", "src/x.py"]


async def test_the_last_line_shows_how_many_files_are_missing(tool: ListFiles) -> None:
    lines = (await result(tool, limit=2)).splitlines()
    assert lines == ["a.md", "b.py", "[3 more files not shown; narrow with path or pattern]"]


async def test_an_empty_listing_names_the_pattern(tool: ListFiles) -> None:
    assert (await result(tool, pattern="*.rs")).startswith("No files match '*.rs' in . (hidden files")


async def test_a_missing_folder_is_an_error(tool: ListFiles) -> None:
    error = await failure(tool, path="nowhere")
    assert (error.kind, str(error)) == (
        "NotFound",
        "nowhere: there is no such file or folder; list_files shows what there is",
    )


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("**/a/" * 30, id="many double stars"),
        pytest.param("{1..100000}", id="many alternatives"),
        pytest.param("{a,b}" * 30, id="alternatives multiplied"),
        pytest.param("a" * 300, id="long"),
    ],
)
async def test_a_pattern_that_could_take_too_long_is_refused(tool: ListFiles, pattern: str) -> None:
    assert (await failure(tool, pattern=pattern)).kind == "InvalidPattern"


@pytest.mark.parametrize(
    "pattern", ["**/a/" * 3 + "b", "*a" * 60 + "b", "[a-z]*" * 30 + "1", "@(a|aa)" * 20, "?*" * 90 + "1"]
)
async def test_accepted_patterns_are_fast(tmp_path: Path, pattern: str) -> None:
    folder = tmp_path / "/".join(["a"] * 90)
    folder.mkdir(parents=True)
    (folder / ("a" * 250)).write_text("")
    started = time.monotonic()
    await result(ListFiles(FileRoot(tmp_path)), pattern=pattern)
    assert time.monotonic() - started < 10


async def test_unusual_names_stay_on_one_line(tmp_path: Path) -> None:
    (tmp_path / "a\nb").write_text("")
    (tmp_path / os.fsdecode(b"caf\xe9")).write_text("")
    listing = await result(ListFiles(FileRoot(tmp_path)))
    assert listing.splitlines() == ["a\\x0ab", "caf\\xudce9".replace("xu", "x")]
    assert listing.encode()


async def test_a_walk_is_bounded_in_time(tool: ListFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root, "TIME_LIMIT_S", -1.0)
    assert "[stopped after" in await result(tool)


@pytest.mark.parametrize("file", [".hidden", "node_modules/x.js"], ids=["hidden files", "generated files"])
async def test_a_walk_through_folders_with_nothing_to_show_is_bounded_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """A checkout may have a million such files."""
    (tmp_path / "a" / file).parent.mkdir(parents=True)
    (tmp_path / "a" / file).touch()
    monkeypatch.setattr(root, "TIME_LIMIT_S", -1.0)
    assert "[stopped after" in await result(ListFiles(FileRoot(tmp_path)))


async def test_an_invalid_argument_is_named(tool: ListFiles) -> None:
    error = await failure(tool, limit=0, folder="x")
    assert error.kind == "InvalidArguments"
    assert "limit: " in str(error)
    assert "folder: " in str(error)
