"""What a worker says of its own parts: `worker.py --check`, run as a process of its own."""

import asyncio
import subprocess
from pathlib import Path

from pydantic import ValidationError

from orga.start import module_command
from orga.workflows.types.record import Record

TIMEOUT_S = 60.0


class CheckedAgent(Record):
    """An agent as a run would get it."""

    model: str | None = None
    tools: tuple[str, ...] = ()


class Problem(Record):
    """Something that a run would trip over."""

    place: str
    problem: str
    remedy: str = ""


class WorkerReport(Record):
    """The parts of a worker."""

    agents: dict[str, CheckedAgent] = {}
    tools: tuple[str, ...] = ()
    models: dict[str, str] = {}
    """By name, why its provider cannot be asked now; "" where it answers."""
    policy: str = ""
    """Who decides what may run."""
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    """What works, and is better known."""


async def worker_report(config: Path) -> WorkerReport:
    """Return the report of a worker that would start here and now."""
    options = ["--check", "--config", str(config)]
    command = module_command("orga.client.workers.child", *options)
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    output, errors = await _output(process)
    try:
        return WorkerReport.model_validate_json(output)
    except ValidationError:
        lines = [line.strip() for line in errors.decode(errors="replace").splitlines() if line.strip()]
        said = lines[-1][:300] if lines else "it said nothing"
        return WorkerReport(problems=(Problem(place="worker", problem=f"it does not start: {said}"),))


async def _output(process: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    """Read both streams; standard input stays open meanwhile, since its end would end the worker."""
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(TIMEOUT_S):
            output, errors = await asyncio.gather(process.stdout.read(), process.stderr.read())
            await process.wait()
            return output, errors
    except TimeoutError:
        process.kill()
        await process.wait()
        return b"", f"no answer within {TIMEOUT_S:g} s".encode()
    finally:
        if process.stdin is not None:
            process.stdin.close()
