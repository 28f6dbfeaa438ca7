"""File tools stay under their root."""

import os
import socket
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

import pytest

from orga.activities.adapters.tools.file_changes import EditFile, EditRecords, WriteFile
from orga.activities.adapters.tools.file_search import ListFiles, SearchText
from orga.activities.adapters.tools.read_file import ReadFile
from orga.activities.adapters.tools.root import FileRoot
from tests.support.tools.calls import failure, result

SECRET = "the secret outside"


def an_editor(root: FileRoot) -> EditFile:
    return EditFile(root, EditRecords(None))


@pytest.fixture(name="base")
def a_root_beside_a_secret(tmp_path: Path) -> Path:
    base = tmp_path / "root"
    (base / "docs").mkdir(parents=True)
    (base / "docs" / "a.md").write_text("inside\n")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text(SECRET)
    (tmp_path / "root-twin").mkdir()
    (tmp_path / "root-twin" / "secret.txt").write_text(SECRET)
    (base / "link").symlink_to(tmp_path / "outside")
    (base / "docs" / "up").symlink_to("../../outside")
    (base / "file-link").symlink_to("../outside/secret.txt")
    (base / "dangling").symlink_to(tmp_path / "outside" / "new.txt")
    return base


ESCAPES = [
    pytest.param("../outside/secret.txt", id="dots"),
    pytest.param("docs/../../outside/secret.txt", id="dots after a folder"),
    pytest.param("docs/./..//../outside/secret.txt", id="dots among noise"),
    pytest.param("../root-twin/secret.txt", id="a neighbour whose name starts like the root"),
    pytest.param("/etc/passwd", id="absolute"),
    pytest.param("//etc/passwd", id="absolute with two slashes"),
    pytest.param("link/secret.txt", id="link in the middle, absolute"),
    pytest.param("docs/up/secret.txt", id="link in the middle, relative"),
    pytest.param("file-link", id="link at the end"),
    pytest.param("~/secret.txt", id="home folder"),
    pytest.param("link/../outside/secret.txt", id="dots after a link count from its target"),
    pytest.param("dangling", id="link to a file that does not exist yet"),
    pytest.param("/proc/self/root/etc/passwd", id="through the proc file system"),
]

HARMLESS = [
    pytest.param("..%2foutside/secret.txt", id="percent-encoded slash"),
    pytest.param("%2e%2e/outside/secret.txt", id="percent-encoded dots"),
    pytest.param("~root~/secret.txt", id="a tilde in a name"),
    pytest.param("$HOME/secret.txt", id="variables are not expanded"),
    pytest.param("‥/outside/secret.txt", id="two-dot leader is no dots"),
    pytest.param("．．/outside/secret.txt", id="full-width dots are no dots"),
    pytest.param("..\\outside\\secret.txt", id="backslashes separate nothing"),
    pytest.param("file:///etc/passwd", id="a URL is no path"),
]

UNUSABLE = [
    pytest.param("docs/a.md\0.png", id="NUL"),
    pytest.param("x" * 256, id="name of 256 bytes"),
    pytest.param("ä" * 128, id="name of 256 bytes in 128 characters"),
    pytest.param("x/" * 3_000, id="path of 6,000 bytes"),
    pytest.param("\ud800", id="a lone surrogate"),
]


@pytest.mark.parametrize("path", [*ESCAPES, *UNUSABLE])
@pytest.mark.parametrize("tool", [ListFiles, ReadFile, WriteFile, SearchText, an_editor])
async def test_a_path_that_leads_outside_is_refused(
    base: Path, path: str, tool: Callable[[FileRoot], ReadFile]
) -> None:
    needed: dict[object, dict[str, str]] = {
        WriteFile: {"content": "x"},
        SearchText: {"query": "secret"},
        an_editor: {"old_text": "secret", "new_text": "x"},
    }
    more = needed.get(tool, {})
    error = await failure(tool(FileRoot(base)), path=path, **more)

    assert error.kind == "PathRefused"
    assert not error.retryable
    assert SECRET not in str(error)
    assert str(base) not in str(error)


async def test_a_path_that_is_too_long_is_refused_with_the_limit_of_paths(base: Path) -> None:
    error = await failure(ReadFile(FileRoot(base)), path="x/" * 3_000)
    assert "a name has at most 255 bytes, a path 4000" in str(error)


@pytest.mark.parametrize("path", HARMLESS)
async def test_a_name_that_only_looks_like_an_escape_is_a_plain_name(base: Path, path: str) -> None:
    assert (await failure(ReadFile(FileRoot(base)), path=path)).kind == "NotFound"
    assert await result(WriteFile(FileRoot(base)), path=path, content="mine")
    assert "mine" in await result(ReadFile(FileRoot(base)), path=path)
    assert (base / path).is_relative_to(base)


@pytest.mark.parametrize("path", ["docs/a.md", "./docs//a.md", "{root}/docs/a.md", "inner/a.md"], ids=str)
async def test_a_path_that_stays_inside_may_use_dots_and_links(base: Path, path: str) -> None:
    (base / "inner").symlink_to("docs")
    assert "inside" in await result(ReadFile(FileRoot(base)), path=path.replace("{root}", str(base)))


@pytest.mark.parametrize("path", ["docs/../a.py", "docs/../docs/a.md", "docs/./../a.py", "docs//..//a.py"], ids=str)
async def test_a_path_never_goes_up(base: Path, path: str) -> None:
    """A policy that permits `docs/*` judges the path as written."""
    assert fnmatch(path, "docs/*")
    error = await failure(WriteFile(FileRoot(base)), path=path, content="mine")
    assert (error.kind, "goes up" in str(error)) == ("PathRefused", True)
    assert not (base / "a.py").exists()


async def test_nothing_is_written_outside(base: Path) -> None:
    for path in ("link/new.txt", "dangling", "../outside/new.txt", "docs/up/deep/new.txt"):
        await failure(WriteFile(FileRoot(base)), path=path, content="x")
        await failure(an_editor(FileRoot(base)), path=path, old_text="x", new_text="y")
    assert sorted(p.name for p in (base.parent / "outside").iterdir()) == ["secret.txt"]


async def test_links_that_lead_outside_are_neither_listed_nor_searched(base: Path) -> None:
    assert await result(ListFiles(FileRoot(base))) == "docs/a.md"
    assert "No match" in await result(SearchText(FileRoot(base)), query="secret")


@pytest.mark.parametrize("kind", ["fifo", "socket", "device"])
async def test_only_regular_files_are_opened(base: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a FIFO would wait for a writer forever."""
    monkeypatch.chdir(base)
    if kind == "fifo":
        os.mkfifo("odd")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("odd")
    root = FileRoot(Path("/dev") if kind == "device" else base)
    path = "null" if kind == "device" else "odd"

    assert "only regular files" in str(await failure(ReadFile(root), path=path))
    assert "only regular files" in str(await failure(WriteFile(root), path=path, content="x"))
    assert "only regular files" in str(await failure(an_editor(root), path=path, old_text="x", new_text="y"))


async def test_a_link_loop_is_refused(base: Path) -> None:
    (base / "a").symlink_to("b")
    (base / "b").symlink_to("a")
    assert (await failure(ReadFile(FileRoot(base)), path="a")).kind == "PathRefused"


async def test_a_link_that_appears_after_the_check_is_not_followed(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (base / "swapped").mkdir()
    (base / "swapped" / "secret.txt").write_text("mine")
    located = FileRoot.locate

    def locate_then_swap(root: FileRoot, path: str) -> object:
        place = located(root, path)
        (base / "swapped").rename(base / "away")
        (base / "swapped").symlink_to(base.parent / "outside")
        return place

    monkeypatch.setattr(FileRoot, "locate", locate_then_swap)
    error = await failure(ReadFile(FileRoot(base)), path="swapped/secret.txt")
    assert SECRET not in str(error)


async def test_a_file_swapped_for_a_link_after_the_check_is_not_followed(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    located = FileRoot.locate

    def locate_then_swap(root: FileRoot, path: str) -> object:
        place = located(root, path)
        (base / "docs" / "a.md").unlink()
        (base / "docs" / "a.md").symlink_to("../../outside/secret.txt")
        return place

    monkeypatch.setattr(FileRoot, "locate", locate_then_swap)
    assert SECRET not in str(await failure(ReadFile(FileRoot(base)), path="docs/a.md"))


def test_a_root_that_is_no_folder_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a folder"):
        FileRoot(tmp_path / "missing")


async def test_descriptors_are_closed(base: Path) -> None:
    root = FileRoot(base)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for path in ("docs/missing", "docs/a.md/x", "docs", "../x"):
        await failure(ReadFile(root), path=path)
    await result(ReadFile(root), path="docs/a.md")
    await result(WriteFile(root), path="new/deep/x", content="x")
    await result(an_editor(root), path="new/deep/x", old_text="x", new_text="y")
    await result(SearchText(root), query="inside")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
