"""A worker started before its order takes the order or leaves nothing behind, also after Ctrl-C at the start."""

import asyncio
import math
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import cast

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from orga.activities.adapters.shared_files import try_lock
from orga.client.server.home import Home
from orga.client.workers import early_start
from orga.client.workers.early_start import WorkerOrder
from orga.client.workers.process import WorkerFailed, WorkerProcess
from tests.support.programs.orga_command import ROOT

COMMAND = [sys.executable, "-c", "from orga.start import command; command()"]
REFUSED = ["run", "x", "--again"]
"""Refused once all of the command is loaded."""

AT_A_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""

POINTS = 20
PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORGA_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def processes_of_home(home: Path) -> list[str]:
    """Return the commands of all processes with this home."""
    found: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"ORGA_HOME={home}\0".encode() in (folder / "environ").read_bytes() and folder.name != str(os.getpid()):
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:  # it has ended, or is another user's
            continue
    return [each for each in found if each]


def none_is_left(home: Path) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while processes_of_home(home) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not processes_of_home(home)


def test_an_early_worker_takes_its_order(home: Path) -> None:
    early_start.start_early()
    early_start.start_early()
    begun = early_start.take_or_start()
    begun.send_order(WorkerOrder("127.0.0.1:9", None, "orga", Path(os.devnull)))
    assert begun.process.wait(PATIENCE_S) == 7
    assert begun.process.stdin is not None
    begun.process.stdin.close()
    assert begun.log is not None
    assert "127.0.0.1:9 does not answer" in begun.log.read_text()
    assert none_is_left(home)


def test_an_early_worker_ends_with_its_parent(home: Path) -> None:
    begun = early_start.start_without_order()
    assert begun.process.stdin is not None
    begun.process.stdin.close()
    assert begun.process.wait(PATIENCE_S) == -signal.SIGUSR1
    assert none_is_left(home)


def test_an_unneeded_early_worker_leaves_no_trace(home: Path) -> None:
    early_start.start_early()
    early_start.end_early()
    assert not list(home.glob("worker-*"))
    assert none_is_left(home)


def test_an_early_worker_that_dies_before_its_order_is_stopped_quietly(home: Path) -> None:
    """The order is still being sent, and is tried once more after its pipe is closed."""
    a_dead_one().end()
    WorkerProcess(a_dead_one().process, None).kill()
    asyncio.run(WorkerProcess(a_dead_one().process, None).stop())
    assert none_is_left(home)


def a_dead_one() -> early_start.EarlyWorker:
    begun = early_start.start_without_order()
    begun.process.kill()
    begun.process.wait()
    begun.send_order(WorkerOrder("127.0.0.1:9", None, "orga", Path(os.devnull)))
    return begun


def test_only_one_of_concurrent_commands_starts_an_early_worker(home: Path) -> None:
    """The others first check whether there is a worker."""
    home.mkdir()
    lock = try_lock(Home(home).early_worker_lock)
    assert lock is not None
    early_start.start_early()
    assert not processes_of_home(home)
    os.close(lock)
    early_start.start_early()
    assert try_lock(Home(home).early_worker_lock) is None
    early_start.end_early()
    freed = try_lock(Home(home).early_worker_lock)
    assert freed is not None
    os.close(freed)


def test_the_log_of_a_living_worker_is_kept(home: Path) -> None:
    first = early_start.start_without_order()
    assert first.log is not None
    os.utime(first.log, (1, 1))
    for number in range(early_start.KEPT_LOGS + 5):
        (home / f"worker-{2**22 + number}.log").write_text("")  # beyond all process ids
    early_start.start_without_order().end()
    assert first.log.exists()
    assert len(list(home.glob("worker-*.log"))) == early_start.KEPT_LOGS + 1
    first.end()


def test_the_end_of_a_worker_without_a_log_is_reported(home: Path) -> None:
    begun = a_dead_one()
    assert begun.log is not None
    begun.log.unlink()
    with pytest.raises(WorkerFailed, match=r"the worker ended at its start.*it printed nothing"):
        asyncio.run(WorkerProcess(begun.process, begun.log).wait_until_polling(cast(Client, Untold()), "q"))
    begun.end()


class Untold:
    """A server that does not report pollers."""

    namespace = "default"

    @property
    def workflow_service(self) -> "Untold":
        return self

    async def describe_task_queue(self, _: object, *, retry: bool) -> None:
        raise RPCError("unimplemented", RPCStatusCode.UNIMPLEMENTED, b"")


def test_a_log_removed_by_another_command_is_ignored(home: Path) -> None:
    home.mkdir()
    (home / "worker-1.log").symlink_to(home / "gone")  # listed, but not there when one looks
    early_start.start_without_order().end()
    assert none_is_left(home)


def test_a_command_that_fails_leaves_no_worker(home: Path) -> None:
    done = subprocess.run([*COMMAND, *REFUSED], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (2, "orga: --again: it needs a run's id. Add --id ID")
    assert not list(home.glob("worker-*"))
    assert none_is_left(home)


def work_done(process: "subprocess.Popen[bytes]") -> float:
    """Return the seconds of processor time that it has taken: how far it is, whatever else the machine is doing."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def interrupted_after(work_s: float) -> tuple[str, float]:
    """Type Ctrl-C at a terminal after so much work of a command. Return its output and its total work."""
    ours, theirs = pty.openpty()
    attributes = termios.tcgetattr(theirs)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    process = subprocess.Popen(
        [sys.executable, "-c", AT_A_TERMINAL, *COMMAND, *REFUSED],
        cwd=ROOT,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    while b"isolated.py" not in Path(f"/proc/{process.pid}/cmdline").read_bytes():  # before, Python itself starts
        time.sleep(0.001)
    while not has_ended(process) and work_done(process) < work_s:
        time.sleep(0.001)
    os.write(ours, b"\x03")
    shown = b""
    try:
        while piece := os.read(ours, 4096):
            shown += piece
    except OSError:  # the other end is closed
        pass
    while not has_ended(process):
        time.sleep(0.001)
    work = work_done(process)
    process.wait(PATIENCE_S)
    os.close(ours)
    return shown.decode(), work


def has_ended(process: "subprocess.Popen[bytes]") -> bool:
    """Without taking its last word, so that its work can still be read."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def test_ctrl_c_at_any_moment_of_the_start_shows_nothing_and_leaves_nothing(home: Path) -> None:
    (whole, first), (_, second) = (interrupted_after(math.inf) for _ in range(2))
    work = min(first, second)  # the first may have compiled what it loads
    assert whole.strip() == "orga: --again: it needs a run's id. Add --id ID"
    shown = [interrupted_after(work * point / POINTS)[0].strip() for point in range(POINTS)]
    assert {*shown} <= {"", whole.strip()}
    assert shown.count("") >= POINTS // 4, "a busy machine interrupts some of them only after their end"
    assert none_is_left(home)
