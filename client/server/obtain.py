"""Two ways to get the `temporal` executable, each held against a checksum: the release's archive, and a build with Go.

Both work in a folder beside the target and move the finished file: whatever ends them, there is never half a file.
"""

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from orga.client.server.endpoint import Report
from orga.client.server.release import VERSION, NoRelease, unpacked_release
from orga.own_code import ROOT, installed_program

GO_MODULE = f"github.com/temporalio/cli/cmd/temporal@v{VERSION}"

DOWNLOAD_TIMEOUT_S = 300.0
BUILD_TIMEOUT_S = 1_800.0
REPORT_EVERY_S = 5.0


class NotObtained(Exception):
    """One way failed; the text is a clause that says how."""


async def downloaded(target: Path, report: Report) -> None:
    """Download the release's archive, and bring the command in it to `target` once its checksum is right."""
    with _workshop(target) as folder:
        telling = asyncio.create_task(_tell("downloading the Temporal server, once", report))
        try:
            async with asyncio.timeout(DOWNLOAD_TIMEOUT_S):
                made = await unpacked_release(folder)
        except TimeoutError as failure:
            raise NotObtained(f"its download failed: not done after {DOWNLOAD_TIMEOUT_S:g} s") from failure
        except NoRelease as failure:
            raise NotObtained(f"its download failed: {failure}") from failure
        finally:
            telling.cancel()
        _move(made, target)


async def built(target: Path, report: Report) -> None:
    """Build the pinned version with the Go toolchain to `target`."""
    go = installed_program("go")
    if go is None:
        raise NotObtained("there is no Go 1.25 or later to build it with")
    with _workshop(target) as folder:
        environment = {"GOBIN": str(folder)}
        doing = "building the Temporal server with Go, once, 3 to 5 minutes"
        try:
            await _run([go, "install", GO_MODULE], environment, doing, report)
        except NotObtained as failure:
            raise NotObtained(f"its build with Go failed: {failure}") from failure
        _move(folder / "temporal", target)


@contextmanager
def _workshop(target: Path) -> Generator[Path]:
    """Make a folder beside `target` and leave none, not even those of a build that was killed."""
    for stale in target.parent.glob(".obtain-*"):
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".obtain-", dir=target.parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _move(made: Path, target: Path) -> None:
    if not made.is_file():
        raise NotObtained("it left no executable")
    made.chmod(0o755)
    made.replace(target)


async def _run(command: list[str], environment: dict[str, str], doing: str, report: Report) -> None:
    starting = asyncio.create_task(
        asyncio.create_subprocess_exec(
            *command,
            cwd=ROOT,
            env=os.environ | environment,
            start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
    )
    telling = asyncio.create_task(_tell(doing, report))
    try:
        process = await asyncio.shield(starting)  # cancelled meanwhile, it would end the process and leave its children
        async with asyncio.timeout(BUILD_TIMEOUT_S):
            _, errors = await process.communicate()
    except TimeoutError as error:
        raise NotObtained(f"not done after {BUILD_TIMEOUT_S:g} s") from error
    finally:
        telling.cancel()
        await _end(await starting)
    if process.returncode != 0:
        raise NotObtained(_last_line(errors) or f"exit code {process.returncode}")


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # the compilers that Go started, too
    await process.wait()


async def _tell(doing: str, report: Report) -> None:
    start = time.monotonic()
    while True:
        minutes, seconds = divmod(int(time.monotonic() - start), 60)
        report(f"{doing}… {minutes}:{seconds:02}")
        await asyncio.sleep(REPORT_EVERY_S)


def _last_line(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1].strip()[:300] if lines else ""
