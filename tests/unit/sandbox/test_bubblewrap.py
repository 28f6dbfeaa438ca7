"""Isolated commands with the real bubblewrap: what they can see and reach, and the messages if it is not usable."""

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from orga.activities.adapters.sandbox.bubblewrap import bubblewrap_argv, check_isolation
from orga.activities.adapters.sandbox.limited_command import CommandResult, run_sandboxed
from orga.activities.ports import ToolError
from orga.workflows.types.tool_calls.sandbox import Sandbox, SandboxLimits
from tests.support.parts.bubblewrap import bubblewrap


@pytest.fixture(autouse=True, scope="module")
def installed() -> None:
    bubblewrap()


@pytest.fixture(name="folder")
def a_folder(tmp_path: Path) -> Path:
    (tmp_path / "work" / "sub").mkdir(parents=True)
    return tmp_path / "work"


async def isolated(
    folder: Path, script: str, *, sandbox: Mapping[str, Any] | None = None, **more: Any
) -> CommandResult:
    given: dict[str, Any] = {"cwd": folder, "env": {}, "timeout_s": 30, "max_output_bytes": 10_000, **more}
    settings = Sandbox(isolation="bubblewrap", **(sandbox or {}))
    return await run_sandboxed(["sh", "-c", script], sandbox=settings, **given)


@pytest.mark.parametrize(
    ("script", "ended"),
    [
        pytest.param("exit 255", (255, None), id="a code that ssh has for its own failures"),
        pytest.param("exit 200", (200, None), id="a code after the last signal"),
        pytest.param("exit 7", (7, None), id="a code"),
        pytest.param("kill -9 $$", (None, "SIGKILL"), id="a signal"),
    ],
)
async def test_an_exit_code_counts_as_a_signal_only_if_that_signal_exists(
    folder: Path, script: str, ended: tuple[int | None, str | None]
) -> None:
    done = await isolated(folder, script)
    assert (done.exit_code, done.signal) == ended


def test_this_machine_can_isolate_commands() -> None:
    check_isolation("bubblewrap")


async def test_a_command_cancelled_during_its_start_is_not_run(folder: Path) -> None:
    done = await isolated(folder, "echo > begun; sleep 60", timeout_s=0)
    assert (done.timed_out, done.exit_code, (folder / "begun").exists()) == (True, None, False)


async def test_its_folder_can_be_written_and_is_kept(folder: Path) -> None:
    done = await isolated(folder, "pwd; echo kept > sub/file", env={"GIVEN": "yes"})
    assert (done.exit_code, done.stdout) == (0, f"{folder}\n".encode())
    assert (folder / "sub" / "file").read_text() == "kept\n"


@pytest.mark.parametrize("place", ["/etc/orga-test", "/usr/orga-test", "/orga-test", "/proc/sys/kernel/hostname"])
async def test_no_other_place_can_be_written(folder: Path, place: str) -> None:
    """Not even by root, who owns the settings of the kernel."""
    done = await isolated(folder, f"echo x | tee -a {place}")
    assert any(why in done.stderr for why in (b"Read-only file system", b"Permission denied"))


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("mount -t tmpfs none /etc", id="mounting"),
        pytest.param("mount -o remount,rw /", id="remounting"),
        pytest.param("unshare --map-root-user --mount mount -o remount,rw,bind /", id="remounting in a namespace"),
        pytest.param("unshare --user --mount --pid --fork mount -t proc none /proc", id="another list of processes"),
        pytest.param("chroot / true", id="another root"),
        pytest.param("mknod disk b 8 0", id="a device"),
    ],
)
async def test_privileged_operations_fail(folder: Path, script: str) -> None:
    assert (await isolated(folder, script)).exit_code != 0


async def test_compiled_code_next_to_its_scripts_is_ignored(folder: Path) -> None:
    done = await isolated(folder, 'case "$PYTHONPYCACHEPREFIX" in "$PWD"*) ;; /*) echo elsewhere ;; esac')
    assert done.stdout == b"elsewhere\n"


async def test_commonly_private_files_are_not_visible(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "beside").write_text("private")
    done = await isolated(
        folder, f"cat {tmp_path}/beside; ls /home /root /run /var/tmp; ls /tmp > inside; echo x > /tmp/y"
    )
    assert done.stdout.split() == [b"/home:", b"/root:", b"/run:", b"/var/tmp:"]
    assert (folder / "inside").read_text().split() == [tmp_path.relative_to("/tmp").parts[0]]
    assert not Path("/tmp/y").exists()


async def test_processes_of_the_host_are_not_visible(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED_SECRET", "sk-planted-7f3a")
    done = await isolated(folder, f"cat /proc/*/environ; ls -d /proc/{os.getpid()}; kill -0 {os.getpid()}")
    assert b"sk-planted" not in done.stdout
    assert done.exit_code != 0


@pytest.mark.parametrize("network", [pytest.param(False, id="without"), pytest.param(True, id="with")])
async def test_the_network_is_available_only_if_configured(folder: Path, network: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = await isolated(folder, f"bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}'", sandbox={"network": network})
    assert (done.exit_code == 0) == network


async def test_sockets_of_services_cannot_be_opened(folder: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "service"))
        assert (await isolated(folder, f"ls {tmp_path}/service")).exit_code != 0


async def test_a_timeout_leaves_a_grace_period(folder: Path) -> None:
    done = await isolated(folder, "trap 'echo bye; exit 9' TERM; while :; do sleep 0.05; done", timeout_s=1.5)
    assert (done.timed_out, done.exit_code, done.stdout) == (True, 9, b"bye\n")


async def test_a_timeout_ends_all_its_processes(folder: Path) -> None:
    """Processes are found by name, because their ids inside the sandbox are different."""
    mark = f"61.{os.getpid()}"
    done = await isolated(folder, f"trap '' TERM; setsid sleep {mark} & sleep {mark}; sleep {mark}", timeout_s=1)
    assert done.timed_out
    assert not [pid for pid in Path("/proc").glob("[0-9]*") if mark.encode() in _command_line(pid)]


def _command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("script", "limits", "named"),
    [
        pytest.param("while :; do :; done", SandboxLimits(cpu_s=1), "cpu_s", id="processor time"),
        pytest.param("exec head -c 9000 /dev/zero > f", SandboxLimits(file_bytes=1_000), "file_bytes", id="file size"),
        pytest.param(
            "for i in 1 2 3 4 5 6 7 8; do sleep 60 & done; wait",
            SandboxLimits(processes=5),
            "processes",
            id="processes",
        ),
    ],
)
async def test_limits_apply_and_are_named(folder: Path, script: str, limits: SandboxLimits, named: str) -> None:
    assert (await isolated(folder, script, sandbox={"limits": limits})).limit == named


async def test_the_whole_file_system_is_never_writable(folder: Path) -> None:
    with pytest.raises(ToolError, match="/ cannot be isolated; choose a folder in it"):
        await isolated(folder, "true", writable=Path("/"))


@pytest.mark.parametrize(
    "program", [pytest.param("/home/x/tool", id="hidden"), pytest.param("/usr/bin/env", id="seen")]
)
def test_a_program_in_a_hidden_folder_is_made_visible(folder: Path, program: str) -> None:
    line = bubblewrap_argv([program], writable=folder, folder=folder, network=False)
    assert ("--ro-bind-try" in line) == program.startswith("/home")


def test_a_missing_bubblewrap_is_reported_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orga.activities.adapters.sandbox.bubblewrap.SEARCH_PATH", str(tmp_path))
    with pytest.raises(
        ValueError, match=r"not installed; install it \(Debian: apt-get install bubblewrap\), or set iso"
    ):
        check_isolation("bubblewrap")


def test_a_machine_that_forbids_isolation_is_reported_with_reason_and_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setattr("orga.activities.adapters.sandbox.bubblewrap.SEARCH_PATH", str(tmp_path))
    with pytest.raises(ValueError, match="No permissions to create new namespace; allow user namespaces"):
        check_isolation("bubblewrap")


def test_another_system_reports_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ValueError, match="bubblewrap needs Linux"):
        check_isolation("bubblewrap")
    check_isolation("none")
    assert "memory and the number of processes are not limited" in caplog.text
