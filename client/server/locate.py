"""Finds the `temporal` executable: named, on PATH or in our cache. Else it is downloaded or built into the cache."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from orga.client.server.endpoint import Report, ServerUnavailable
from orga.client.server.home import cache_folder
from orga.client.server.locks import try_lock
from orga.client.server.obtain import ObtainFailed, build_release, download_release
from orga.client.user_path import user_path
from orga.own_code import installed_program

REMEDY = (
    "install the `temporal` command (https://docs.temporal.io/cli), name it in ORGA_TEMPORAL_CLI, "
    "or name a running server in TEMPORAL_ADDRESS"
)


async def locate(report: Report) -> Path:
    """Return the path of a `temporal` executable.

    Order: `ORGA_TEMPORAL_CLI`, PATH, our cache, the archive of a release, a build with Go.

    Raises:
        ServerUnavailable: All ways failed. The text has the reason of each, and the remedy.
    """
    if named := os.environ.get("ORGA_TEMPORAL_CLI"):
        return _named_executable(named)
    if found := installed_program("temporal"):
        return Path(found)
    cached = cache_folder() / "bin" / "temporal"
    if _is_executable(cached):
        return cached
    async with _machine_lock(_prepare_folder(cached.parent) / "temporal.lock", report):
        if not _is_executable(cached):
            await _obtain_release(cached, report)
    return cached


async def _obtain_release(target: Path, report: Report) -> None:
    failures: list[str] = []
    for way in (download_release, build_release):
        try:
            return await way(target, report)
        except ObtainFailed as failure:
            report(f"the Temporal server: {failure}")
            failures.append(str(failure))
    raise ServerUnavailable(f"there is no `temporal` command here ({'; '.join(failures)})", REMEDY)


@asynccontextmanager
async def _machine_lock(lock: Path, report: Report) -> AsyncGenerator[None]:
    """Hold the machine-wide lock, so that two commands do not build at once."""
    while (descriptor := try_lock(lock)) is None:
        report("waiting for another command that is fetching the Temporal server…")
        await asyncio.sleep(1)
    try:
        yield
    finally:
        os.close(descriptor)


def _named_executable(name: str) -> Path:
    path = user_path(name)
    if not _is_executable(path):
        raise ServerUnavailable(f"ORGA_TEMPORAL_CLI names {path}, which is no executable file", "correct or unset it")
    return path


def _prepare_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ServerUnavailable(
            f"the cache folder {folder} cannot be made ({error.strerror})", "make it writable or set XDG_CACHE_HOME"
        ) from error
    return folder


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
