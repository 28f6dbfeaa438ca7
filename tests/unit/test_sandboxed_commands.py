"""Commands in the sandbox, with real processes: what they get, what ends them, and that none outlives its call."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from activities.adapters.sandbox.finished import Finished
from activities.adapters.sandbox.sandboxed import run_sandboxed
from activities.adapters.sandbox.supervised import GRACE_S
from activities.ports import ToolError
from workflows.types.sandbox import Limits

AWAY = "setsid sh -c 'setsid sh -c \"echo \\$\\$ >> pids; exec sleep 60\" & echo $$ >> pids; exec sleep 60' &"
"""Two that leave their session, one of them without a parent."""
BOTH_ARE_AWAY = 'while [ "$(cat pids 2>/dev/null | wc -l)" -lt 2 ]; do sleep 0.02; done;'


async def ran(folder: Path, *argv: str, **more: Any) -> Finished:
    given: dict[str, Any] = {"cwd": folder, "env": {}, "timeout_s": 30, "max_output_bytes": 10_000, **more}
    return await run_sandboxed(argv, **given)


async def python(folder: Path, code: str, **more: Any) -> Finished:
    return await ran(folder, sys.executable, "-c", code, **more)


async def shell(folder: Path, script: str, **more: Any) -> Finished:
    return await ran(folder, "sh", "-c", script, **more)


def alive(folder: Path) -> list[int]:
    """Return which of the processes that wrote their ids are there, be it as zombies."""
    return [pid for pid in map(int, (folder / "pids").read_text().split()) if Path(f"/proc/{pid}").exists()]


async def until_written(path: Path, lines: int) -> None:
    async with asyncio.timeout(20):
        while not path.exists() or path.read_text().count("\n") < lines:
            await asyncio.sleep(0.02)


async def until_gone(folder: Path) -> None:
    async with asyncio.timeout(20):
        while alive(folder):
            await asyncio.sleep(0.02)


async def test_the_environment_holds_what_is_passed_and_four_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED_SECRET", "sk-planted-7f3a")
    done = await ran(tmp_path, "env", env={"GIVEN": "yes", "LANG": "C"})
    variables = dict(line.split("=", 1) for line in done.stdout.decode().splitlines())
    home = variables.pop("HOME")
    assert variables == {"GIVEN": "yes", "LANG": "C", "PATH": "/usr/local/bin:/usr/bin:/bin", "TMPDIR": home}
    assert not Path(home).exists()


async def test_no_process_above_it_that_is_ours_tells_the_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment of its parent can be read by a program of the same user."""
    monkeypatch.setenv("PLANTED_SECRET", "sk-planted-7f3a")
    done = await shell(tmp_path, "cat /proc/$PPID/environ /proc/$PPID/cmdline", env={"GIVEN": "operators-secret"})
    assert b"sk-planted" not in done.stdout
    assert b"operators-secret" not in done.stdout


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        pytest.param("exit 3", (3, None), id="an exit code"),
        pytest.param("kill -TERM $$", (None, "SIGTERM"), id="a signal"),
        pytest.param("kill -34 $$", (None, "SIGRTMIN"), id="a real-time signal"),
        pytest.param("kill -40 $$", (None, "signal 40"), id="a signal without a name"),
    ],
)
async def test_how_it_ended(tmp_path: Path, script: str, expected: tuple[int | None, str | None]) -> None:
    done = await shell(tmp_path, script)
    assert (done.exit_code, done.signal) == expected
    assert (done.limit, done.timed_out, done.truncated) == (None, False, False)


async def test_both_outputs_apart_and_merged(tmp_path: Path) -> None:
    apart = await shell(tmp_path, "echo out; echo err >&2")
    assert (apart.stdout, apart.stderr) == (b"out\n", b"err\n")
    merged = await shell(tmp_path, "echo out; echo err >&2", merged=True)
    assert (merged.stdout, merged.stderr) == (b"out\nerr\n", b"")


async def test_input_is_read_to_its_end_or_not_at_all(tmp_path: Path) -> None:
    much = b"x" * 3_000_000
    assert (await ran(tmp_path, "wc", "-c", stdin=much)).stdout.strip() == b"3000000"
    assert (await ran(tmp_path, "true", stdin=much)).exit_code == 0
    assert (await ran(tmp_path, "cat")).stdout == b""


async def test_no_descriptor_is_inherited(tmp_path: Path) -> None:
    with Path(__file__).open() as held:
        os.set_inheritable(held.fileno(), True)
        done = await python(tmp_path, "import os; print(sorted(os.listdir('/proc/self/fd')))")
    assert done.stdout == b"['0', '1', '2', '3']\n"  # the last is the listing itself


@pytest.mark.parametrize("argument", ["$(id)", "*", "", "-x", "a\nb", "é\u202e", "'\"\\"], ids=repr)
async def test_arguments_arrive_as_they_are(tmp_path: Path, argument: str) -> None:
    assert (await ran(tmp_path, "printf", "%s|", argument)).stdout == f"{argument}|".encode()


@pytest.mark.parametrize("program", ["no-such-program", "./here", "sub/here", "/no/such"])
async def test_a_program_that_is_not_there(tmp_path: Path, program: str) -> None:
    (tmp_path / "here").symlink_to("/bin/true")
    with pytest.raises(ToolError, match="is not installed on") as caught:
        await ran(tmp_path, program)
    assert caught.value.kind == "CommandRefused"


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        pytest.param(("echo", "x" * 200_000), b"Argument list too long", id="an argument too long"),
        pytest.param(("echo", "a\0b"), b"null byte", id="NUL"),
        pytest.param(("echo", "\ud800"), b"surrogates not allowed", id="half a character"),
    ],
)
async def test_what_cannot_be_started_says_why(tmp_path: Path, argv: tuple[str, ...], told: bytes) -> None:
    done = await ran(tmp_path, *argv)
    assert done.exit_code == 127
    assert told in done.stderr


LIMITS = {
    "memory": (Limits(memory_bytes=300_000_000), "x = bytearray(900_000_000)", "memory_bytes"),
    "processor time": (Limits(cpu_s=1), "while True: pass", "cpu_s"),
    "processor time of one who ignores the warning": (
        Limits(cpu_s=1),
        "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
        "cpu_s",
    ),
    "processor time under a shell": (
        Limits(cpu_s=1),
        "import os; os.execv('/bin/sh', ['sh', '-c', 'sh -c \"while :; do :; done\"; exit $?'])",
        "cpu_s",
    ),
    "file size, with Python's own error": (
        Limits(file_bytes=1_000),
        "open('f', 'wb').write(b'x' * 9_000)",
        "file_bytes",
    ),
    "file size": (
        Limits(file_bytes=1_000),
        "import os; os.execv('/bin/sh', ['sh', '-c', 'exec head -c 9000 /dev/zero > f'])",
        "file_bytes",
    ),
    "open files": (Limits(open_files=20), "a = [open('/dev/null') for _ in range(30)]", "open_files"),
    "processes": (
        Limits(processes=5),
        "import subprocess as s; a = [s.Popen(['sleep', '60']) for _ in range(6)]; a[0].wait()",
        "processes",
    ),
}


@pytest.mark.parametrize(("limits", "code", "named"), LIMITS.values(), ids=LIMITS)
async def test_a_limit_ends_it_and_is_named(tmp_path: Path, limits: Limits, code: str, named: str) -> None:
    done = await python(tmp_path, code, limits=limits)
    assert done.limit == named
    assert done.exit_code != 0
    assert not done.timed_out


async def test_within_its_limits_none_is_named(tmp_path: Path) -> None:
    """Who copes with what a limit refused has not been ended by it."""
    done = await python(tmp_path, "import sys; print('MemoryError', file=sys.stderr)")
    assert (done.exit_code, done.limit) == (0, None)


async def test_limits_can_be_lifted(tmp_path: Path) -> None:
    none = Limits(cpu_s=None, memory_bytes=None, file_bytes=None, processes=None, open_files=None)
    done = await shell(tmp_path, "ulimit -t; ulimit -v; ulimit -f; ulimit -c", limits=none)
    assert done.stdout == b"unlimited\nunlimited\nunlimited\n0\n"


async def test_nothing_can_gain_privileges(tmp_path: Path) -> None:
    assert b"NoNewPrivs:\t1" in (await ran(tmp_path, "cat", "/proc/self/status")).stdout


async def test_what_multiplies_is_stopped(tmp_path: Path) -> None:
    """Each level doubles; without a limit there would be 512 processes."""
    code = "import os, time\nfor _ in range(9): os.fork()\ntime.sleep(60)"
    done = await python(tmp_path, code, limits=Limits(processes=20))
    assert (done.limit, done.signal) == ("processes", "SIGKILL")


async def test_more_than_is_kept_is_read_all_the_same(tmp_path: Path) -> None:
    code = "import sys; sys.stdout.write('HEAD' + 'x' * 20_000_000); sys.stderr.write('y' * 20_000_000); sys.exit(4)"
    done = await python(tmp_path, code, max_output_bytes=1_000)
    assert (len(done.stdout), len(done.stderr)) == (1_000, 1_000)
    assert done.stdout.startswith(b"HEAD")
    assert (done.truncated, done.exit_code) == (True, 4)


async def test_part_of_what_is_kept_may_be_the_end(tmp_path: Path) -> None:
    done = await python(tmp_path, "print('HEAD' + 'x' * 5_000 + 'TAIL')", max_output_bytes=20, tail_bytes=5)
    assert done.stdout == b"HEAD" + b"x" * 11 + b"\n[... 4,989 bytes left out ...]\n" + b"TAIL\n"
    assert done.truncated


async def test_what_it_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    """They hold its output open, too."""
    started = time.monotonic()
    done = await shell(tmp_path, f"{AWAY} sleep 60 & {BOTH_ARE_AWAY} echo done")
    assert (done.exit_code, done.stdout) == (0, b"done\n")
    assert time.monotonic() - started < 15
    assert not alive(tmp_path)


async def test_a_timeout_ends_all_that_it_started(tmp_path: Path) -> None:
    script = f"trap '' TERM; {AWAY} {BOTH_ARE_AWAY} echo $$ >> pids; echo started; while :; do sleep 0.1; done"
    done = await shell(tmp_path, script, timeout_s=3)
    assert (done.timed_out, done.signal, done.stdout) == (True, "SIGKILL", b"started\n")
    assert len((tmp_path / "pids").read_text().split()) == 3
    assert not alive(tmp_path)


async def test_a_timeout_asks_before_it_kills(tmp_path: Path) -> None:
    done = await shell(tmp_path, "trap 'echo bye; exit 9' TERM; while :; do sleep 0.05; done", timeout_s=1.5)
    assert (done.timed_out, done.exit_code, done.stdout) == (True, 9, b"bye\n")


async def test_what_is_called_off_while_it_starts_is_not_begun(tmp_path: Path) -> None:
    """Else it would have its time of grace to act."""
    started = time.monotonic()
    done = await shell(tmp_path, "echo > begun; sleep 60", timeout_s=0)
    assert (done.timed_out, done.exit_code, (tmp_path / "begun").exists()) == (True, None, False)
    assert time.monotonic() - started < GRACE_S


async def test_a_supervisor_that_the_command_stopped_is_not_waited_for(tmp_path: Path) -> None:
    """A run waits five seconds for a call that was cancelled."""
    call = asyncio.create_task(shell(tmp_path, "echo $$ >> pids; kill -STOP $PPID; sleep 60"))
    await until_written(tmp_path / "pids", 1)
    call.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await call
    await until_gone(tmp_path)


async def test_sixteen_at_once_leave_no_descriptor_and_no_child_in_the_worker(tmp_path: Path) -> None:
    def held() -> tuple[int, list[str]]:
        tasks = Path("/proc/self/task").iterdir()
        children = [child for task in tasks for child in (task / "children").read_text().split()]
        return len(list(Path("/proc/self/fd").iterdir())), sorted(children)

    await ran(tmp_path, "true")
    before = held()
    for _ in range(2):
        calls = (shell(tmp_path, "yes | head -c 3000000; exit 3", tail_bytes=10) for _ in range(16))
        assert [done.exit_code for done in await asyncio.gather(*calls)] == [3] * 16
    assert held() == before


async def test_cancelling_ends_all_that_it_started(tmp_path: Path) -> None:
    call = asyncio.create_task(shell(tmp_path, f"{AWAY} echo $$ >> pids; sleep 60"))
    await until_written(tmp_path / "pids", 3)
    assert len(alive(tmp_path)) == 3

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not alive(tmp_path)


async def test_the_death_of_the_worker_ends_all_that_it_started(tmp_path: Path) -> None:
    code = f"""
import asyncio
from pathlib import Path
from activities.adapters.sandbox.sandboxed import run_sandboxed
command = ["sh", "-c", {AWAY + "echo $$ >> pids; sleep 60"!r}]
asyncio.run(run_sandboxed(command, cwd=Path({str(tmp_path)!r}), env={{}}, timeout_s=60, max_output_bytes=9))
"""
    worker = subprocess.Popen([sys.executable, "-c", code])
    await until_written(tmp_path / "pids", 3)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    await until_gone(tmp_path)


async def test_who_kills_its_supervisor_dies_with_it(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="nobody knows how it ended") as caught:
        await shell(tmp_path, "echo $$ >> pids; kill -9 $PPID; sleep 60")
    assert caught.value.kind == "CommandLost"
    await until_gone(tmp_path)


async def test_a_signal_to_its_own_group_does_not_reach_the_supervisor(tmp_path: Path) -> None:
    assert (await shell(tmp_path, "kill -9 0; sleep 60")).signal == "SIGKILL"
