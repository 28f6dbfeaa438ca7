"""Isolated commands, with the real bubblewrap: what they see and reach, and what is said where they cannot be had."""

import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from orga.activities.adapters.sandbox.bubblewrap import bubblewrap_argv, check_isolation
from orga.activities.adapters.sandbox.limited_command import CommandResult, run_sandboxed
from orga.activities.ports import ToolError
from orga.workflows.types.tool_calls.sandbox import SandboxLimits
from tests.support.parts.bubblewrap import bubblewrap


@pytest.fixture(autouse=True, scope="module")
def installed() -> None:
    bubblewrap()


@pytest.fixture(name="folder")
def a_folder(tmp_path: Path) -> Path:
    (tmp_path / "work" / "sub").mkdir(parents=True)
    return tmp_path / "work"


async def isolated(folder: Path, script: str, **more: Any) -> CommandResult:
    given: dict[str, Any] = {"cwd": folder, "env": {}, "timeout_s": 30, "max_output_bytes": 10_000, **more}
    return await run_sandboxed(["sh", "-c", script], isolation="bubblewrap", **given)


@pytest.mark.parametrize(
    ("script", "ended"),
    [
        pytest.param("exit 255", (255, None), id="a code that ssh has for its own failures"),
        pytest.param("exit 200", (200, None), id="a code behind the last signal"),
        pytest.param("exit 7", (7, None), id="a code"),
        pytest.param("kill -9 $$", (None, "SIGKILL"), id="a signal"),
    ],
)
async def test_a_code_is_a_signal_only_where_there_is_that_signal(
    folder: Path, script: str, ended: tuple[int | None, str | None]
) -> None:
    done = await isolated(folder, script)
    assert (done.exit_code, done.signal) == ended


def test_this_machine_can_isolate() -> None:
    check_isolation("bubblewrap")


async def test_what_is_called_off_while_it_starts_is_not_begun(folder: Path) -> None:
    done = await isolated(folder, "echo > begun; sleep 60", timeout_s=0)
    assert (done.timed_out, done.exit_code, (folder / "begun").exists()) == (True, None, False)


async def test_its_folder_can_be_written_and_stays(folder: Path) -> None:
    done = await isolated(folder, "pwd; echo kept > sub/file", env={"GIVEN": "yes"})
    assert (done.exit_code, done.stdout) == (0, f"{folder}\n".encode())
    assert (folder / "sub" / "file").read_text() == "kept\n"


@pytest.mark.parametrize("place", ["/etc/orga-test", "/usr/orga-test", "/orga-test", "/proc/sys/kernel/hostname"])
async def test_nothing_else_can_be_written(folder: Path, place: str) -> None:
    """Not even by root, whose the settings of the kernel are."""
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
async def test_nothing_privileged_can_be_done(folder: Path, script: str) -> None:
    assert (await isolated(folder, script)).exit_code != 0


async def test_compiled_code_beside_its_scripts_is_not_looked_at(folder: Path) -> None:
    done = await isolated(folder, 'case "$PYTHONPYCACHEPREFIX" in "$PWD"*) ;; /*) echo elsewhere ;; esac')
    assert done.stdout == b"elsewhere\n"


async def test_what_is_commonly_private_is_not_there(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "beside").write_text("private")
    done = await isolated(
        folder, f"cat {tmp_path}/beside; ls /home /root /run /var/tmp; ls /tmp > inside; echo x > /tmp/y"
    )
    assert done.stdout.split() == [b"/home:", b"/root:", b"/run:", b"/var/tmp:"]
    assert (folder / "inside").read_text().split() == [tmp_path.relative_to("/tmp").parts[0]]
    assert not Path("/tmp/y").exists()


async def test_it_sees_no_process_of_the_host(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED_SECRET", "sk-planted-7f3a")
    done = await isolated(folder, f"cat /proc/*/environ; ls -d /proc/{os.getpid()}; kill -0 {os.getpid()}")
    assert b"sk-planted" not in done.stdout
    assert done.exit_code != 0


@pytest.mark.parametrize("network", [pytest.param(False, id="without"), pytest.param(True, id="with")])
async def test_the_network_is_there_only_where_it_is_asked_for(folder: Path, network: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = await isolated(folder, f"bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}'", network=network)
    assert (done.exit_code == 0) == network


async def test_sockets_of_services_cannot_be_opened(folder: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "service"))
        assert (await isolated(folder, f"ls {tmp_path}/service")).exit_code != 0


async def test_a_timeout_leaves_it_its_grace(folder: Path) -> None:
    done = await isolated(folder, "trap 'echo bye; exit 9' TERM; while :; do sleep 0.05; done", timeout_s=1.5)
    assert (done.timed_out, done.exit_code, done.stdout) == (True, 9, b"bye\n")


async def test_a_timeout_ends_all_of_it(folder: Path) -> None:
    """Their names are looked for: the ids in the sandbox are others."""
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
async def test_limits_hold_and_are_named(folder: Path, script: str, limits: SandboxLimits, named: str) -> None:
    assert (await isolated(folder, script, limits=limits)).limit == named


async def test_the_whole_file_system_is_never_writable(folder: Path) -> None:
    with pytest.raises(ToolError, match="/ cannot be isolated; choose a folder in it"):
        await isolated(folder, "true", writable=Path("/"))


@pytest.mark.parametrize(
    "program", [pytest.param("/home/x/tool", id="hidden"), pytest.param("/usr/bin/env", id="seen")]
)
def test_a_program_in_a_hidden_folder_is_shown(folder: Path, program: str) -> None:
    line = bubblewrap_argv([program], writable=folder, folder=folder, network=False)
    assert ("--ro-bind-try" in line) == program.startswith("/home")


def test_a_missing_bubblewrap_says_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orga.activities.adapters.sandbox.bubblewrap.SEARCH_PATH", str(tmp_path))
    with pytest.raises(
        ValueError, match=r"not installed; install it \(Debian: apt-get install bubblewrap\), or set iso"
    ):
        check_isolation("bubblewrap")


def test_a_machine_that_forbids_it_says_the_reason_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setattr("orga.activities.adapters.sandbox.bubblewrap.SEARCH_PATH", str(tmp_path))
    with pytest.raises(ValueError, match="No permissions to create new namespace; allow user namespaces"):
        check_isolation("bubblewrap")


def test_another_system_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr("orga.activities.adapters.sandbox.bubblewrap.IS_LINUX", False)
    with pytest.raises(ValueError, match="bubblewrap needs Linux"):
        check_isolation("bubblewrap")
    check_isolation("none")
    assert "memory and the number of processes are not limited" in caplog.text
