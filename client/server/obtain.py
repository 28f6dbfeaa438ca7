"""Two ways to get the `temporal` executable: the SDK's own download, and a build with Go.

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

from client.server.endpoint import Report
from client.server.own_modules import ROOT, module_command

GO_MODULE = "github.com/temporalio/cli/cmd/temporal@v1.5.1"
"""Later versions carry a `replace` directive, which `go install` refuses."""

DOWNLOAD_TIMEOUT_S = 60.0
BUILD_TIMEOUT_S = 1_800.0
REPORT_EVERY_S = 5.0


class NotObtained(Exception):
    """One way failed; the text is a clause that says how."""


async def downloaded(target: Path, report: Report) -> None:
    """Let the Temporal SDK download its server to `target`."""
    with _workshop(target) as folder:
        command = module_command("client.server.sdk_download", str(folder))
        try:
            await _run(command, {}, DOWNLOAD_TIMEOUT_S, "downloading the Temporal server, once", report)
        except NotObtained as failure:
            raise NotObtained(f"its download failed: {failure}") from failure
        _move(next(folder.glob("temporal*"), folder / "temporal"), target)


async def built(target: Path, report: Report) -> None:
    """Build the pinned version with the Go toolchain to `target`."""
    go = shutil.which("go")
    if go is None:
        raise NotObtained("there is no Go 1.25 or later to build it with")
    with _workshop(target) as folder:
        environment = {"GOBIN": str(folder)}
        doing = "building the Temporal server with Go, once, 3 to 5 minutes"
        try:
            await _run([go, "install", GO_MODULE], environment, BUILD_TIMEOUT_S, doing, report)
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


async def _run(command: list[str], environment: dict[str, str], timeout_s: float, doing: str, report: Report) -> None:
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
        async with asyncio.timeout(timeout_s):
            _, errors = await process.communicate()
    except TimeoutError as error:
        raise NotObtained(f"not done after {timeout_s:g} s") from error
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
