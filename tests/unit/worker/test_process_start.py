"""The first moments of a command, before it can report how it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orga.client.cli.main import BROKEN_PIPE
from orga.start import module_command
from tests.support.programs.orga_command import ROOT

COMMAND = [sys.executable, "-c", "from orga.start import command; command()"]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_error(closed: str) -> None:
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh"]
    done = subprocess.run([*shell, *COMMAND, "--version"], cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (b"orga " in done.stdout) is (">&-" not in closed.replace("2>&-", ""))


def test_a_closed_pipe_gets_no_error_message() -> None:
    """An example is `orga policy schema | head -0`."""
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run([*COMMAND, "policy", "schema"], cwd=ROOT, stdout=theirs, stderr=subprocess.PIPE, check=False)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (BROKEN_PIPE, b"")


@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.3, 0.6])
def test_ctrl_c_while_it_starts_shows_no_traceback(tmp_path: Path, after_s: float) -> None:
    process = subprocess.Popen(
        [*COMMAND, "trust", "--list"], cwd=ROOT, env={"ORGA_HOME": str(tmp_path)}, stderr=subprocess.PIPE
    )
    while module_command("orga.client.cli.main")[-2].encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes():
        time.sleep(0.001)
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert errors == b""
    assert process.returncode in {-signal.SIGINT, 130, 0}
