"""Sandboxed commands end with the process that started them, and no process outlives the call."""

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orga.activities.ports import ToolError
from tests.support.programs.sandboxed import AWAY, living_processes, run_to_end, shell, until_gone, until_written

BOTH_ARE_AWAY = 'while [ "$(cat pids 2>/dev/null | wc -l)" -lt 2 ]; do sleep 0.02; done;'


async def test_background_processes_end_with_the_command(tmp_path: Path) -> None:
    """They also keep its output open."""
    started = time.monotonic()
    done = await shell(tmp_path, f"{AWAY} sleep 60 & {BOTH_ARE_AWAY} echo done")
    assert (done.exit_code, done.stdout) == (0, b"done\n")
    assert time.monotonic() - started < 15
    assert not living_processes(tmp_path)


async def test_a_timeout_ends_all_processes(tmp_path: Path) -> None:
    script = f"trap '' TERM; {AWAY} {BOTH_ARE_AWAY} echo $$ >> pids; echo started; while :; do sleep 0.1; done"
    done = await shell(tmp_path, script, timeout_s=3)
    assert (done.timed_out, done.signal, done.stdout) == (True, "SIGKILL", b"started\n")
    assert len((tmp_path / "pids").read_text().split()) == 3
    assert not living_processes(tmp_path)


async def test_a_timeout_sends_sigterm_before_sigkill(tmp_path: Path) -> None:
    done = await shell(tmp_path, "trap 'echo bye; exit 9' TERM; while :; do sleep 0.05; done", timeout_s=3)
    assert (done.timed_out, done.exit_code, done.stdout) == (True, 9, b"bye\n")


async def test_a_command_cancelled_during_its_start_is_not_run(tmp_path: Path) -> None:
    """Otherwise it could act during its grace period."""
    started = time.monotonic()
    done = await shell(tmp_path, "echo > begun; sleep 60", timeout_s=0)
    assert (done.timed_out, done.exit_code, (tmp_path / "begun").exists()) == (True, None, False)
    assert time.monotonic() - started < 15


async def test_a_supervisor_stopped_by_the_command_is_not_waited_for(tmp_path: Path) -> None:
    """A run waits five seconds for a call that was cancelled."""
    call = asyncio.create_task(shell(tmp_path, "echo $$ >> pids; kill -STOP $PPID; sleep 60"))
    await until_written(tmp_path / "pids", 1)
    call.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await call
    await until_gone(tmp_path)


async def test_sixteen_concurrent_commands_leave_no_descriptor_and_no_child(tmp_path: Path) -> None:
    def held() -> tuple[int, list[str]]:
        tasks = Path("/proc/self/task").iterdir()
        children = [child for task in tasks for child in (task / "children").read_text().split()]
        return len(list(Path("/proc/self/fd").iterdir())), sorted(children)

    await run_to_end(tmp_path, "true")
    before = held()
    for _ in range(2):
        calls = (shell(tmp_path, "yes | head -c 3000000; exit 3", tail_bytes=10) for _ in range(16))
        assert [done.exit_code for done in await asyncio.gather(*calls)] == [3] * 16
    assert held() == before


async def test_cancelling_ends_all_processes(tmp_path: Path) -> None:
    call = asyncio.create_task(shell(tmp_path, f"{AWAY} echo $$ >> pids; sleep 60"))
    await until_written(tmp_path / "pids", 3)
    assert len(living_processes(tmp_path)) == 3

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not living_processes(tmp_path)


async def test_the_death_of_the_worker_ends_all_processes(tmp_path: Path) -> None:
    code = f"""
import asyncio
from pathlib import Path
from orga.activities.adapters.sandbox.limited_command import run_sandboxed
command = ["sh", "-c", {AWAY + "echo $$ >> pids; sleep 60"!r}]
asyncio.run(run_sandboxed(command, cwd=Path({str(tmp_path)!r}), env={{}}, timeout_s=60, max_output_bytes=9))
"""
    worker = subprocess.Popen([sys.executable, "-c", code])
    await until_written(tmp_path / "pids", 3)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    await until_gone(tmp_path)


async def test_a_command_that_kills_its_supervisor_ends_with_it(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="nobody knows how it ended") as caught:
        await shell(tmp_path, "echo $$ >> pids; kill -9 $PPID; sleep 60")
    assert caught.value.kind == "CommandLost"
    await until_gone(tmp_path)


async def test_a_signal_to_its_own_group_does_not_reach_the_supervisor(tmp_path: Path) -> None:
    assert (await shell(tmp_path, "kill -9 0; sleep 60")).signal == "SIGKILL"
