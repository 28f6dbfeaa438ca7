"""The `write_file` tool."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from orga.activities.adapters.tools.file_changes import WriteFile
from orga.activities.adapters.tools.root import FileRoot
from tests.support.tools.calls import failure, result
from tests.support.tools.held import PATIENCE_S, Held


@pytest.fixture(name="tool")
def a_tool(tmp_path: Path) -> WriteFile:
    return WriteFile(FileRoot(tmp_path))


async def test_a_new_file_is_created_with_its_folders(tool: WriteFile, tmp_path: Path) -> None:
    assert await result(tool, path="a/b/c.txt", content="hällo\n") == "Created a/b/c.txt (7 bytes)"
    assert (tmp_path / "a/b/c.txt").read_text() == "hällo\n"


async def test_a_file_is_replaced_whole_and_keeps_its_mode(tool: WriteFile, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("a longer text than the new one")
    script.chmod(0o755)
    assert await result(tool, path="run.sh", content="new") == "Replaced run.sh (3 bytes)"
    assert script.read_text() == "new"
    assert script.stat().st_mode & 0o777 == 0o755


async def test_repeating_a_call_changes_nothing(tool: WriteFile, tmp_path: Path) -> None:
    for _ in range(2):
        await result(tool, path="f", content="same")
    assert [p.name for p in tmp_path.iterdir()] == ["f"]
    assert (tmp_path / "f").read_text() == "same"


async def test_a_link_that_stays_inside_is_written_through(tool: WriteFile, tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    await result(tool, path="link", content="new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"


async def test_readers_never_see_a_partial_file(tool: WriteFile, tmp_path: Path) -> None:
    target = tmp_path / "f"
    target.write_text("a" * 900_000)
    seen: set[str] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            text = target.read_text()
            seen.add(f"{text[:1]}{len(set(text))}{len(text)}")

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for letter in "bcdef":
            await result(tool, path="f", content=letter * 900_000)
    finally:
        done.set()
        watcher.join()
    assert {s[1:] for s in seen} == {"1900000"}


async def test_a_failed_write_keeps_the_old_content_and_leaves_no_temporary_file(
    tool: WriteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_text("old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    error = await failure(tool, path="f", content="new")
    assert (str(error), error.retryable) == ("f: No space left on device", True)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("f", "old")]


async def test_the_largest_content_fits_and_one_byte_more_does_not(tool: WriteFile, tmp_path: Path) -> None:
    await result(tool, path="f", content="x" * 1_000_000)
    error = await failure(tool, path="f", content="x" * 999_999 + "ä")
    assert "1,000,001 bytes" in str(error)
    assert (tmp_path / "f").stat().st_size == 1_000_000


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        pytest.param(".", "IsAFolder", id="the root"),
        pytest.param("sub", "IsAFolder", id="a folder"),
        pytest.param("file/x", "NotAFolder", id="below a file"),
        pytest.param(".git/hooks/pre-commit", "PathRefused", id="a hook that git would run"),
        pytest.param("sub/.git/config", "PathRefused", id="configuration of a nested repository"),
        pytest.param("sneaky/hooks/pre-commit", "PathRefused", id="git's folder through a link"),
    ],
)
async def test_protected_and_invalid_paths_cannot_be_written(
    tool: WriteFile, tmp_path: Path, path: str, kind: str
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / ".git").mkdir()
    (tmp_path / "sneaky").symlink_to(".git")
    assert (await failure(tool, path=path, content="x")).kind == kind


async def test_a_lone_surrogate_is_refused(tool: WriteFile) -> None:
    assert "character 1" in str(await failure(tool, path="f", content="a\ud800"))


async def test_a_cancelled_write_never_replaces_a_newer_file(
    tool: WriteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = Held(os.fsync)
    monkeypatch.setattr(os, "fsync", sync)
    old = asyncio.create_task(result(tool, path="f", content="old"))
    assert await asyncio.to_thread(sync.is_reached.wait, PATIENCE_S)
    old.cancel()
    with pytest.raises(asyncio.CancelledError):
        await old
    await result(tool, path="f", content="new")
    sync.may_go_on.set()
    async with asyncio.timeout(PATIENCE_S):
        while len(list(tmp_path.iterdir())) > 1:  # the temporary file of the cancelled write
            await asyncio.sleep(0.01)
    assert (tmp_path / "f").read_text() == "new"


async def test_a_write_that_takes_effect_is_awaited_despite_cancellation(
    tool: WriteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not take effect after its end was reported."""
    rename = Held(os.replace)
    monkeypatch.setattr(os, "replace", rename)
    call = asyncio.create_task(result(tool, path="f", content="text"))
    assert await asyncio.to_thread(rename.is_reached.wait, PATIENCE_S)
    for _ in range(2):
        call.cancel()
        await asyncio.wait((call,), timeout=0.01)
        assert not call.done()
    rename.may_go_on.set()
    assert await call == "Created f (4 bytes)"
    assert (tmp_path / "f").read_text() == "text"
