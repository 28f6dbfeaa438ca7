"""Finds the `temporal` executable: named, on PATH or in our cache. Otherwise downloads it, or builds it with Go.

A download and a build both check a checksum. They work in a folder next to the target and then move the finished file,
so an interruption never leaves half a file.
"""

import asyncio
import os
import platform
import shutil
import signal
import tarfile
import tempfile
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from orga.activities.adapters.shared_files import try_lock
from orga.client.errors import ServerUnavailable
from orga.client.server.endpoint import Report
from orga.client.server.home import cache_folder, user_path
from orga.own_code import ROOT, installed_program

VERSION = "1.5.1"
"""Version of the command. Sources of later versions have a `replace` directive, which `go install` refuses."""

ADDRESS = f"https://github.com/temporalio/cli/releases/download/v{VERSION}/temporal_cli_{VERSION}_"


class _Archive(NamedTuple):
    name: str
    checksum: str
    """SHA-256."""


ARCHIVES = {
    ("Linux", "x86_64"): _Archive("linux_amd64", "ddc95e08b0b076efd4ea9733a3f488eb7d2be875f8834e616cd2a37358b4852d"),
    ("Linux", "aarch64"): _Archive("linux_arm64", "bd1b0db9f18b051026de8bf6cc1505f2510f14bbb7a8b9a4a91fff46c77454f5"),
    ("Darwin", "x86_64"): _Archive("darwin_amd64", "bbb73e2a31135abe50a1f1cdb35030c42961df618e8ce9c60ae89f201540c5d9"),
    ("Darwin", "arm64"): _Archive("darwin_arm64", "cca01b7ea35ad56e2a328d9ae596bf716bd22313ef63c7a761c88354457c2415"),
}
"""The archive for each system and machine."""

MAX_BYTES = 200_000_000
"""Limit of a download. An archive has about 50 MB."""

SILENCE_S = 10.0
"""Seconds without data after which a download is given up."""

DOWNLOAD_TIMEOUT_S = 300.0
BUILD_TIMEOUT_S = 1_800.0
REPORT_EVERY_S = 5.0

GO_MODULE = f"github.com/temporalio/cli/cmd/temporal@v{VERSION}"

REMEDY = (
    "install the `temporal` command (https://docs.temporal.io/cli), name it in ORGA_TEMPORAL_CLI, "
    "or name a running server in TEMPORAL_ADDRESS"
)


class ObtainFailed(Exception):
    """The download or the build failed. The text is a clause with the reason."""


async def locate(report: Report) -> Path:
    """Return the path of a `temporal` executable.

    Order: `ORGA_TEMPORAL_CLI`, PATH, our cache, the archive of a release, a build with Go.
    """
    if named := named_executable("ORGA_TEMPORAL_CLI"):
        return named
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
    for obtain in (download_release, build_release):
        try:
            return await obtain(target, report)
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


def named_executable(variable: str) -> Path | None:
    """Return the executable that an environment variable names, or None if it is not set."""
    name = os.environ.get(variable)
    if not name:
        return None
    path = user_path(name)
    if not _is_executable(path):
        raise ServerUnavailable(f"{variable} names {path}, which is no executable file", "correct or unset it")
    return path


def _prepare_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ServerUnavailable(
            f"the cache folder {folder} cannot be made ({error.strerror})",
            "make it writable or set XDG_CACHE_HOME",
        ) from error
    return folder


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


async def download_release(target: Path, report: Report) -> None:
    """Download the archive, and move the command in it to `target` if the checksum is right."""
    with _temporary_folder(target) as folder, _progress("downloading the Temporal server, once", report):
        try:
            async with asyncio.timeout(DOWNLOAD_TIMEOUT_S):
                executable = await unpacked_release(folder)
        except TimeoutError as failure:
            raise ObtainFailed(f"its download failed: not done after {DOWNLOAD_TIMEOUT_S:g} s") from failure
        except ObtainFailed as failure:
            raise ObtainFailed(f"its download failed: {failure}") from failure
        _move_executable(executable, target)


async def unpacked_release(folder: Path) -> Path:
    """Download the archive into `folder`, check its checksum, and return the unpacked command."""
    import httpx  # most commands find an installed server and need no HTTP

    machine = platform.system(), platform.machine()
    if machine not in ARCHIVES:
        raise ObtainFailed(f"release {VERSION} has none for {' '.join(machine)}")
    name, checksum = ARCHIVES[machine]
    archive = folder / "archive"
    try:
        actual = await _save_archive(f"{ADDRESS}{name}.tar.gz", archive)
    except httpx.HTTPError as error:
        raise ObtainFailed(str(error) or type(error).__name__) from error
    if actual != checksum:
        raise ObtainFailed(f"what came is not release {VERSION}: its SHA-256 is {actual}, not {checksum}")
    return await asyncio.to_thread(_unpack, archive, folder / "temporal")


async def _save_archive(address: str, archive: Path) -> str:
    import httpx

    digest, size = sha256(), 0
    async with (
        httpx.AsyncClient(follow_redirects=True, timeout=SILENCE_S) as client,
        client.stream("GET", address, headers={"accept-encoding": "identity"}) as response,
    ):
        response.raise_for_status()
        with archive.open("wb") as file:
            async for piece in response.aiter_raw():
                size += len(piece)
                if size > MAX_BYTES:
                    raise ObtainFailed(f"it has more than {MAX_BYTES:,} bytes")
                digest.update(piece)
                file.write(piece)
    return digest.hexdigest()


def _unpack(archive: Path, command: Path) -> Path:
    with tarfile.open(archive) as members:
        member = members.extractfile("temporal") if "temporal" in members.getnames() else None
        if member is None:
            raise ObtainFailed("the archive holds no `temporal`")
        with member, command.open("wb") as file:
            shutil.copyfileobj(member, file)
    return command


async def build_release(target: Path, report: Report) -> None:
    """Build the pinned version with Go, and move the command to `target`."""
    go = installed_program("go")
    if go is None:
        raise ObtainFailed("there is no Go 1.25 or later to build it with")
    with _temporary_folder(target) as folder:
        try:
            with _progress("building the Temporal server with Go, once, 3 to 5 minutes", report):
                await _run_go_install(go, folder)
        except ObtainFailed as failure:
            raise ObtainFailed(f"its build with Go failed: {failure}") from failure
        _move_executable(folder / "temporal", target)


@contextmanager
def _temporary_folder(target: Path) -> Generator[Path]:
    """Create a temporary folder next to `target`. Folders of killed builds are removed, too."""
    for stale in target.parent.glob(".obtain-*"):
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".obtain-", dir=target.parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _move_executable(executable: Path, target: Path) -> None:
    if not executable.is_file():
        raise ObtainFailed("it left no executable")
    executable.chmod(0o755)
    executable.replace(target)


async def _run_go_install(go: str, folder: Path) -> None:
    starting = asyncio.create_task(
        asyncio.create_subprocess_exec(
            *(go, "install", GO_MODULE),
            cwd=ROOT,
            env=os.environ | {"GOBIN": str(folder)},
            start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
    )
    try:
        process = await asyncio.shield(starting)  # a cancellation here would end the process but not its children
        async with asyncio.timeout(BUILD_TIMEOUT_S):
            _, errors = await process.communicate()
    except TimeoutError as error:
        raise ObtainFailed(f"not done after {BUILD_TIMEOUT_S:g} s") from error
    finally:
        await _end_process(await starting)
    if process.returncode != 0:
        last_line = errors.decode(errors="replace").strip().rpartition("\n")[2].strip()
        raise ObtainFailed(last_line[:300] or f"exit code {process.returncode}")


async def _end_process(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # this includes the compilers that Go has started
    await process.wait()


@contextmanager
def _progress(work: str, report: Report) -> Generator[None]:
    """Report during the block that the work goes on."""
    reports = asyncio.create_task(_report_progress(work, report))
    try:
        yield
    finally:
        reports.cancel()


async def _report_progress(work: str, report: Report) -> None:
    start = time.monotonic()
    while True:
        minutes, seconds = divmod(int(time.monotonic() - start), 60)
        report(f"{work}… {minutes}:{seconds:02}")
        await asyncio.sleep(REPORT_EVERY_S)
