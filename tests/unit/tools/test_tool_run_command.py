"""The `run_command` tool, with real processes."""

import asyncio
import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from orga.activities.adapters.sandbox.bubblewrap import SEARCH_PATH
from orga.activities.adapters.tools.root import FileRoot
from orga.activities.adapters.tools.run_command import RunCommand
from orga.workflows.types.tool_calls.sandbox import Sandbox, SandboxLimits
from tests.support.parts.bubblewrap import bubblewrap
from tests.support.tools.calls import CONTEXT, failure, result


@pytest.fixture(name="bin_folder")
def a_folder_of_programs(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "py").symlink_to(sys.executable)
    (tmp_path / "root" / "sub").mkdir(parents=True)
    return folder


@pytest.fixture(name="tool")
def a_tool(bin_folder: Path) -> RunCommand:
    return tool_with(bin_folder)


def tool_with(bin_folder: Path, **limits: int) -> RunCommand:
    return RunCommand(
        FileRoot(bin_folder.parent / "root"),
        ("sh", "echo", "py", "env", "missing-program", "broken", "yes"),
        search_path=f"{bin_folder}:{SEARCH_PATH}",
        sandbox=Sandbox(limits=SandboxLimits(**limits)),
    )


def is_alive(pid: int) -> bool:
    """Return true if a process runs. A zombie does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def until(path: Path) -> str:
    """Wait until a process under test has written `path`."""
    async with asyncio.timeout(10):
        while not path.exists() or not path.read_text().endswith("\n"):
            await asyncio.sleep(0.01)
    return path.read_text()


async def test_output_of_both_streams_is_returned(tool: RunCommand) -> None:
    assert await result(tool, command=["sh", "-c", "echo out; echo err >&2"]) == "out\nerr"


async def test_a_command_without_output_is_reported_as_such(tool: RunCommand) -> None:
    assert await result(tool, command=["sh", "-c", ":"]) == "(no output)"


@pytest.mark.parametrize("argument", ["$(id)", "`id`", "a; id", "a | id", "> file", "$HOME", "*", "a\nb", "", "'\"\\"])
async def test_no_shell_reads_the_arguments(tool: RunCommand, argument: str) -> None:
    assert await result(tool, command=["echo", f"<{argument}>"]) == f"<{argument}>"


@pytest.mark.parametrize(
    "program",
    ["rm", "/bin/sh", "./sh", "../bin/sh", "sh ", "sh -c id", "", "-c", "SH", "/usr/bin/env", "sh/../sh"],
    ids=repr,
)
async def test_other_programs_are_refused(tool: RunCommand, program: str) -> None:
    error = await failure(tool, command=[program, "x"])
    assert error.kind == "CommandRefused"
    assert "sh, echo, py" in str(error)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"command": []}, id="empty"),
        pytest.param({"command": "echo x"}, id="a line for a shell"),
        pytest.param({"command": ["echo", "a\0b"]}, id="NUL"),
        pytest.param({"command": ["echo"], "timeout_s": 0}, id="no time"),
        pytest.param({"command": ["echo"], "timeout_s": 601}, id="too much time"),
    ],
)
async def test_invalid_arguments_are_refused(tool: RunCommand, arguments: dict[str, object]) -> None:
    assert (await failure(tool, **arguments)).kind == "InvalidArguments"


async def test_a_missing_program_is_reported(tool: RunCommand) -> None:
    assert "not installed" in str(await failure(tool, command=["missing-program"]))


async def test_a_program_that_cannot_be_started_is_reported(tool: RunCommand, bin_folder: Path) -> None:
    (bin_folder / "broken").write_text("#!/nowhere/interpreter\n")
    (bin_folder / "broken").chmod(0o755)
    assert "No such file" in str(await failure(tool, command=["broken"]))


@pytest.mark.parametrize("name", ["a/b", "/bin/ls", "", "-x"])
def test_the_list_accepts_only_bare_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="bare program name"):
        RunCommand(FileRoot(tmp_path), [name])


async def test_the_working_folder_stays_under_the_root(tool: RunCommand, bin_folder: Path) -> None:
    assert (await result(tool, command=["sh", "-c", "pwd"], cwd="sub")).endswith("/root/sub")
    assert (await failure(tool, command=["sh"], cwd="..")).kind == "PathRefused"
    assert (await failure(tool, command=["sh"], cwd="none")).kind == "NotFound"
    (bin_folder.parent / "root" / "f").write_text("")
    assert (await failure(tool, command=["sh"], cwd="f")).kind == "NotAFolder"


async def test_the_environment_is_clean(tool: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    lines = (await result(tool, command=["env"])).splitlines()
    names = {line.split("=")[0] for line in lines if not line.startswith("GIT_CONFIG_")}
    assert names - {"LC_CTYPE"} == {"PATH", "HOME", "TMPDIR", "LANG", "PYTHONPYCACHEPREFIX"}
    home = next(line for line in lines if line.startswith("HOME=")).removeprefix("HOME=")
    assert not Path(home).exists()


async def test_input_is_empty_and_no_descriptor_is_inherited(tool: RunCommand) -> None:
    code = "import os, sys; print(repr(sys.stdin.read()), len(os.listdir('/proc/self/fd')))"
    with Path(__file__).open() as held:
        os.set_inheritable(held.fileno(), True)
        assert await result(tool, command=["py", "-c", code]) == "'' 4"  # the fourth descriptor is the listing itself


async def test_a_failure_is_reported_with_exit_code_and_the_end_of_the_output(tool: RunCommand) -> None:
    error = await failure(tool, command=["sh", "-c", "seq 1 5000; echo the cause >&2; exit 3"])
    assert (error.kind, error.retryable) == ("CommandFailed", False)
    assert str(error).startswith("sh exited with code 3. The last 2,500 characters of its output:\n")
    assert str(error).endswith("5000\nthe cause")


async def test_a_fatal_signal_is_reported(tool: RunCommand) -> None:
    assert "was killed by SIGKILL (Killed)" in str(await failure(tool, command=["sh", "-c", "kill -9 $$"]))


async def test_a_flood_of_output_keeps_its_head_and_tail(tool: RunCommand) -> None:
    output = await result(tool, command=["py", "-c", "print('HEAD' + 'x' * 50_000_000 + 'TAIL')"])
    assert output.startswith("HEAD")
    assert output.endswith("TAIL")
    assert "bytes left out ...]" in output
    assert len(output) < 13_000


async def test_undecodable_output_is_replaced(tool: RunCommand) -> None:
    assert await result(tool, command=["sh", "-c", r"printf 'a\377b'"]) == "a\ufffdb"


async def test_a_timeout_ends_the_whole_group(tool: RunCommand, bin_folder: Path) -> None:
    script = "sleep 60 & echo $! > ../pids; echo started; wait"
    started = time.monotonic()
    error = await failure(tool, command=["sh", "-c", script], timeout_s=3)
    assert error.kind == "CommandTimedOut"
    assert "stopped after 3 s" in str(error)
    assert "started" in str(error)
    assert time.monotonic() - started < 8
    assert not is_alive(int((bin_folder.parent / "pids").read_text()))


async def test_a_process_that_ignores_sigterm_is_killed(tool: RunCommand, bin_folder: Path) -> None:
    script = "trap '' TERM; echo $$ > ../pids; while :; do sleep 0.1; done"
    error = await failure(tool, command=["sh", "-c", script], timeout_s=3)
    assert error.kind == "CommandTimedOut"
    assert not is_alive(int((bin_folder.parent / "pids").read_text()))


async def test_cancelling_the_call_ends_the_whole_group(tool: RunCommand, bin_folder: Path) -> None:
    pids = bin_folder.parent / "pids"
    script = "trap '' TERM; sleep 60 & echo $! $$ > ../pids; wait; sleep 60"
    call = asyncio.create_task(tool.call({"command": ["sh", "-c", script]}, CONTEXT))
    running = [int(pid) for pid in (await until(pids)).split()]
    assert all(map(is_alive, running))

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not any(map(is_alive, running))


async def test_a_background_process_ends_with_its_program(tool: RunCommand, bin_folder: Path) -> None:
    """A background process that keeps the output open must not delay the call."""
    started = time.monotonic()
    assert await result(tool, command=["sh", "-c", "sleep 60 & echo $! > ../pids; echo done"]) == "done"
    assert time.monotonic() - started < 10
    assert not is_alive(int((bin_folder.parent / "pids").read_text()))


async def test_a_process_in_its_own_session_ends_with_the_call(tool: RunCommand, bin_folder: Path) -> None:
    pids = bin_folder.parent / "pids"
    away = f"{shutil.which('setsid')} sh -c 'echo $$ > ../pids; exec sleep 30'"
    script = f"{away} & while [ ! -s ../pids ]; do sleep 0.05; done"
    assert await result(tool, command=["sh", "-c", script], timeout_s=30) == "(no output)"
    assert not is_alive(int(pids.read_text()))


@pytest.mark.parametrize(
    ("limits", "code", "named"),
    [
        pytest.param({"memory_bytes": 300_000_000}, "x = bytearray(900_000_000)", "memory_bytes", id="memory"),
        pytest.param({"cpu_s": 1}, "while True: pass", "cpu_s", id="processor time"),
        pytest.param({"file_bytes": 1_000}, "open('f', 'wb').write(b'x' * 9_000)", "file_bytes", id="file size"),
        pytest.param({"open_files": 20}, "a = [open('/dev/null') for _ in range(30)]", "open_files", id="files"),
    ],
)
async def test_a_reached_limit_is_reported(bin_folder: Path, limits: dict[str, int], code: str, named: str) -> None:
    error = await failure(tool_with(bin_folder, **limits), command=["py", "-c", code], timeout_s=30)
    assert error.kind == "CommandFailed"
    assert f"; it reached its limit {named}. " in str(error)


async def test_a_broken_pipe_ends_a_program_as_usual(tool: RunCommand) -> None:
    assert await result(tool, command=["sh", "-c", "yes | head -n 1"], timeout_s=10) == "y"


async def test_calls_run_in_parallel(tool: RunCommand) -> None:
    started = time.monotonic()
    await asyncio.gather(*(result(tool, command=["sh", "-c", "sleep 3"]) for _ in range(4)))
    assert time.monotonic() - started < 11


@pytest.mark.parametrize(
    ("sandbox", "expected"),
    [
        pytest.param(
            Sandbox(network=False), "network: only isolated commands have none", id="no network, no isolation"
        ),
        pytest.param(Sandbox(isolation="bubblewrap"), "isolation: bubblewrap is not installed", id="no bubblewrap"),
    ],
)
def test_an_impossible_sandbox_is_refused_before_the_first_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox, expected: str
) -> None:
    monkeypatch.setattr("orga.activities.adapters.sandbox.bubblewrap.SEARCH_PATH", str(tmp_path))
    with pytest.raises(ValueError, match=f"^tools.commands.sandbox.{expected}"):
        RunCommand(FileRoot(tmp_path), ["ls"], sandbox=sandbox)


async def test_isolated_commands_write_anywhere_under_the_root(bin_folder: Path) -> None:
    bubblewrap()
    root = bin_folder.parent / "root"
    tool = RunCommand(FileRoot(root), ["sh"], sandbox=Sandbox(isolation="bubblewrap"))
    script = "pwd; echo x > ../above; echo y > ../../outside"
    assert await result(tool, command=["sh", "-c", script], cwd="sub") == str(root / "sub")
    assert (root / "above").read_text() == "x\n"
    assert not (bin_folder.parent / "outside").exists()


def test_the_definition_names_the_programs(tool: RunCommand) -> None:
    assert "sh, echo, py" in tool.spec.description
    assert (tool.spec.effect, tool.spec.main_argument) == ("irreversible", "command")
