"""Sandboxed commands have limits, and the exceeded limit is named."""

from pathlib import Path

import pytest

from orga.workflows.types.tool_calls.sandbox import Sandbox, SandboxLimits
from tests.support.programs.sandboxed import python, run_to_end, shell

LIMITS = {
    "memory": (SandboxLimits(memory_bytes=300_000_000), "x = bytearray(900_000_000)", "memory_bytes"),
    "processor time": (SandboxLimits(cpu_s=1), "while True: pass", "cpu_s"),
    "processor time, with the warning ignored": (
        SandboxLimits(cpu_s=1),
        "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
        "cpu_s",
    ),
    "processor time under a shell": (
        SandboxLimits(cpu_s=1),
        "import os; os.execv('/bin/sh', ['sh', '-c', 'sh -c \"while :; do :; done\"; exit $?'])",
        "cpu_s",
    ),
    "file size, with Python's own error": (
        SandboxLimits(file_bytes=1_000),
        "open('f', 'wb').write(b'x' * 9_000)",
        "file_bytes",
    ),
    "file size": (
        SandboxLimits(file_bytes=1_000),
        "import os; os.execv('/bin/sh', ['sh', '-c', 'exec head -c 9000 /dev/zero > f'])",
        "file_bytes",
    ),
    "open files": (SandboxLimits(open_files=20), "a = [open('/dev/null') for _ in range(30)]", "open_files"),
    "processes": (
        SandboxLimits(processes=5),
        "import subprocess as s; a = [s.Popen(['sleep', '60']) for _ in range(6)]; a[0].wait()",
        "processes",
    ),
}


@pytest.mark.parametrize(("limits", "code", "named"), LIMITS.values(), ids=LIMITS)
async def test_an_exceeded_limit_ends_the_command_and_is_named(
    tmp_path: Path, limits: SandboxLimits, code: str, named: str
) -> None:
    done = await python(tmp_path, code, sandbox=Sandbox(limits=limits))
    assert done.limit == named
    assert done.exit_code != 0
    assert not done.timed_out


async def test_a_successful_command_names_no_limit(tmp_path: Path) -> None:
    """A command that handles a refused allocation was not ended by the limit."""
    done = await python(tmp_path, "import sys; print('MemoryError', file=sys.stderr)")
    assert (done.exit_code, done.limit) == (0, None)


async def test_limits_can_be_removed(tmp_path: Path) -> None:
    none = SandboxLimits(cpu_s=None, memory_bytes=None, file_bytes=None, processes=None, open_files=None)
    done = await shell(tmp_path, "ulimit -t; ulimit -v; ulimit -f; ulimit -c", sandbox=Sandbox(limits=none))
    assert done.stdout == b"unlimited\nunlimited\nunlimited\n0\n"


async def test_privileges_cannot_be_gained(tmp_path: Path) -> None:
    assert b"NoNewPrivs:\t1" in (await run_to_end(tmp_path, "cat", "/proc/self/status")).stdout


async def test_a_fork_bomb_is_stopped(tmp_path: Path) -> None:
    """Each level doubles the number of processes, to 512 without a limit."""
    code = "import os, time\nfor _ in range(9): os.fork()\ntime.sleep(60)"
    done = await python(tmp_path, code, sandbox=Sandbox(limits=SandboxLimits(processes=20)))
    assert (done.limit, done.signal) == ("processes", "SIGKILL")


async def test_output_over_the_limit_is_read_and_dropped(tmp_path: Path) -> None:
    code = "import sys; sys.stdout.write('HEAD' + 'x' * 20_000_000); sys.stderr.write('y' * 20_000_000); sys.exit(4)"
    done = await python(tmp_path, code, max_output_bytes=1_000)
    assert (len(done.stdout), len(done.stderr)) == (1_000, 1_000)
    assert done.stdout.startswith(b"HEAD")
    assert (done.truncated, done.exit_code) == (True, 4)


async def test_the_end_of_a_long_output_can_be_kept(tmp_path: Path) -> None:
    done = await python(tmp_path, "print('HEAD' + 'x' * 5_000 + 'TAIL')", max_output_bytes=20, tail_bytes=5)
    assert done.stdout == b"HEAD" + b"x" * 11 + b"\n[... 4,989 bytes left out ...]\n" + b"TAIL\n"
    assert done.truncated
