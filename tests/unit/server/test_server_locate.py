"""The search for the `temporal` command."""

import asyncio
import os
from pathlib import Path

import pytest

from orga.client.errors import ServerUnavailable
from orga.client.server import obtain
from orga.client.server.endpoint import Report
from orga.client.server.obtain import ObtainFailed, build_release, locate

MAKES_A_FILE = 'echo "$@" >> "$COUNT"; echo "#!/bin/sh" > "$GOBIN/temporal"'
FAILS = "echo go: downloading >&2; echo 'no such host' >&2; exit 1"
HANGS = 'exec 9> "$COUNT"; echo half > "$GOBIN/temporal"; sleep 600 & wait'


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing on PATH but a shell, no cache, and no way to download."""

    async def no_download(target: Path, report: Report) -> None:
        raise ObtainFailed("its download failed: no network")

    monkeypatch.setattr(obtain, "download_release", no_download)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("COUNT", str(tmp_path / "count"))
    monkeypatch.delenv("ORGA_TEMPORAL_CLI", raising=False)
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sleep").symlink_to("/bin/sleep")
    return tmp_path / "cache" / "orga" / "bin"


def a_program(path: Path, body: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def silent(line: str) -> None:
    """Ignore the line."""


async def test_the_named_program_precedes_the_path_and_the_path_the_cache(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = a_program(cache / "temporal")
    assert await locate(silent) == cached

    on_path = a_program(tmp_path / "path" / "temporal")
    assert await locate(silent) == on_path

    named = a_program(tmp_path / "named")
    monkeypatch.setenv("ORGA_TEMPORAL_CLI", str(named))
    assert await locate(silent) == named


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("nothing", id="no file"),
        pytest.param("count.txt", id="a file that cannot be run"),
        pytest.param("path", id="a folder"),
    ],
)
async def test_a_named_file_that_is_no_program_is_an_error(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "count.txt").touch()
    a_program(tmp_path / "path" / "temporal")
    monkeypatch.setenv("ORGA_TEMPORAL_CLI", str(tmp_path / name))
    with pytest.raises(ServerUnavailable, match=rf"ORGA_TEMPORAL_CLI names .*/{name}, which is no executable file"):
        await locate(silent)


async def test_a_missing_program_is_built_once_and_progress_is_reported(tmp_path: Path, cache: Path) -> None:
    a_program(tmp_path / "path" / "go", MAKES_A_FILE)
    reported: list[str] = []
    found = await asyncio.gather(locate(reported.append), locate(reported.append))

    assert found == [cache / "temporal", cache / "temporal"]
    assert os.access(cache / "temporal", os.X_OK)
    assert (tmp_path / "count").read_text() == f"install {obtain.GO_MODULE}\n"
    assert reported.count("building the Temporal server with Go, once, 3 to 5 minutes… 0:00") == 1
    assert "waiting for another command that is fetching the Temporal server…" in reported


@pytest.mark.parametrize(
    ("go", "cause"),
    [
        pytest.param(None, "there is no Go 1.25 or later to build it with", id="no Go"),
        pytest.param(FAILS, "its build with Go failed: no such host", id="the last line of a failed build"),
        pytest.param("exit 3", "its build with Go failed: exit code 3", id="a build without output"),
        pytest.param("exit 0", "it left no executable", id="a build without a result"),
    ],
)
async def test_if_every_way_fails_each_failure_and_a_remedy_are_reported(
    go: str | None, cause: str, tmp_path: Path, cache: Path
) -> None:
    if go is not None:
        a_program(tmp_path / "path" / "go", go)
    with pytest.raises(ServerUnavailable) as caught:
        await locate(silent)

    expected = f"there is no `temporal` command here (its download failed: no network; {cause}); install the `temporal`"
    assert str(caught.value).startswith(expected)
    assert [path.name for path in cache.iterdir()] == ["temporal.lock"]


async def test_a_cancelled_build_leaves_no_file_and_no_process(tmp_path: Path, cache: Path) -> None:
    a_program(tmp_path / "path" / "go", HANGS)
    os.mkfifo(tmp_path / "count")
    held_by_processes = os.open(tmp_path / "count", os.O_RDONLY | os.O_NONBLOCK)
    build = asyncio.create_task(locate(silent))
    while not list(cache.glob(".obtain-*/temporal")):
        assert not build.done(), build.exception()
        await asyncio.sleep(0.01)
    build.cancel()
    with pytest.raises(asyncio.CancelledError):
        await build

    assert [path.name for path in cache.iterdir()] == ["temporal.lock"]
    os.set_blocking(held_by_processes, True)
    assert os.read(held_by_processes, 1) == b"", "the pipe ends when its last writer has ended"
    os.close(held_by_processes)


async def test_a_build_that_takes_too_long_is_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(obtain, "BUILD_TIMEOUT_S", 0.2)
    a_program(tmp_path / "path" / "go", HANGS)
    with pytest.raises(ObtainFailed, match=r"not done after 0\.2 s"):
        await build_release(tmp_path / "temporal", silent)


async def test_leftovers_of_a_killed_build_are_removed_by_the_next(tmp_path: Path, cache: Path) -> None:
    (cache / ".obtain-old").mkdir(parents=True)
    a_program(tmp_path / "path" / "go", MAKES_A_FILE)
    await locate(silent)
    assert sorted(path.name for path in cache.iterdir()) == ["temporal", "temporal.lock"]


async def test_a_cache_folder_that_cannot_be_created_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(ServerUnavailable, match=r"cache folder .* cannot be made .* XDG_CACHE_HOME"):
        await locate(silent)
