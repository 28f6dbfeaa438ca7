"""Sandboxed commands with real processes: their input, their output, and how they ended."""

import os
import py_compile
import shutil
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from orga.activities.adapters.sandbox import removal
from orga.activities.ports import ToolError
from tests.support.programs.sandboxed import python, run_to_end, shell


async def test_the_environment_contains_given_variables_and_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED_SECRET", "sk-planted-7f3a")
    done = await run_to_end(tmp_path, "env", env={"GIVEN": "yes", "LANG": "C"})
    variables = dict(line.split("=", 1) for line in done.stdout.decode().splitlines() if not line.startswith("GIT_"))
    home = variables.pop("HOME")
    assert variables.pop("PYTHONPYCACHEPREFIX").endswith("/orga/bytecode")
    assert variables == {"GIVEN": "yes", "LANG": "C", "PATH": "/usr/local/bin:/usr/bin:/bin", "TMPDIR": home}
    assert not Path(home).exists()


async def test_a_deep_or_closed_home_folder_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result of a command does not depend on the files that it leaves."""
    monkeypatch.setattr(removal, "TIME_LIMIT_S", 60.0)  # with other threads each step may have to wait
    code = """
import os
home = os.environ["HOME"]
os.makedirs(f"{home}/closed/inner")
os.symlink("/etc", f"{home}/closed/link")
os.chmod(f"{home}/closed/inner", 0)
os.chmod(f"{home}/closed", 0)
os.chdir(home)
for _ in range(3_000):
    open("f", "w").close()
    os.mkdir("d" * 50)
    os.chdir("d" * 50)
os.chmod(home, 0)
print(home)
"""
    done = await python(tmp_path, code)
    assert (done.exit_code, done.stderr) == (0, b"")
    assert not Path(done.stdout.decode().strip()).exists()


async def test_a_home_folder_that_cannot_be_removed_is_logged_and_the_result_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(removal, "TIME_LIMIT_S", -1.0)
    done = await shell(tmp_path, 'touch "$HOME/f"; echo "$HOME"')
    home = Path(done.stdout.decode().strip())
    assert (done.exit_code, home.exists()) == (0, True)
    assert f"{home} was not removed" in caplog.text
    shutil.rmtree(home)


async def test_the_target_of_a_link_in_a_home_folder_is_kept(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir(mode=0o750)
    (tmp_path / "kept/f").write_text("")
    done = await shell(tmp_path, 'ln -s "$PWD/kept" "$HOME/link"; ln -s "$PWD/kept/f" "$HOME/f"; echo "$HOME"')
    assert not Path(done.stdout.decode().strip()).exists()
    assert (tmp_path / "kept/f").exists()
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("below", ["", "deep"])
async def test_a_repository_written_by_a_file_tool_runs_nothing(tmp_path: Path, below: str) -> None:
    """Git runs programs named in the config of a repository, and any folder with these four entries is one."""
    work = tmp_path / below
    for name in ("objects/x", "refs/x"):
        (work / name).parent.mkdir(parents=True)
        (work / name).write_text("")
    (work / "HEAD").write_text("ref: refs/heads/x\n")
    (work / "config").write_text(
        f"[core]\nrepositoryformatversion = 0\nworktree = .\nfsmonitor = touch {tmp_path}/ran\n"
    )
    for argv in (("git", "status"), ("git", "diff"), ("sh", "-c", "git status")):
        await run_to_end(work, *argv)
    assert not (tmp_path / "ran").exists()


async def test_a_repository_of_the_operator_is_used(tmp_path: Path) -> None:
    await run_to_end(tmp_path, "git", "init", "--quiet")
    (tmp_path / "a").write_text("")
    assert (await run_to_end(tmp_path, "git", "status", "--short")).stdout == b"?? a\n"


async def test_compiled_code_next_to_a_script_is_not_run(tmp_path: Path) -> None:
    """Python runs it without reading the source if it is marked as unchecked."""
    for folder, source in (("evil", "print('evil')"), ("app", "print('good')")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "units.py").write_text(source)
    (tmp_path / "app" / "__main__.py").write_text("import units")
    compiled = cache_from_source(str(tmp_path / "app" / "units.py"))
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(tmp_path / "evil" / "units.py"), cfile=compiled, invalidation_mode=unchecked)
    done = await run_to_end(tmp_path, sys.executable, "app")
    assert (done.stdout, done.stderr) == (b"good\n", b"")
    direct = subprocess.run([sys.executable, "app"], cwd=tmp_path, capture_output=True, check=True)
    assert direct.stdout == b"evil\n", "otherwise this test proves nothing"


async def test_no_parent_process_shows_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of the same user can read the environment of its parent."""
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
async def test_the_exit_code_or_signal_is_returned(
    tmp_path: Path, script: str, expected: tuple[int | None, str | None]
) -> None:
    done = await shell(tmp_path, script)
    assert (done.exit_code, done.signal) == expected
    assert (done.limit, done.timed_out, done.truncated) == (None, False, False)


async def test_outputs_are_returned_separately_or_merged(tmp_path: Path) -> None:
    apart = await shell(tmp_path, "echo out; echo err >&2")
    assert (apart.stdout, apart.stderr) == (b"out\n", b"err\n")
    merged = await shell(tmp_path, "echo out; echo err >&2", merged=True)
    assert (merged.stdout, merged.stderr) == (b"out\nerr\n", b"")


async def test_input_may_be_read_or_ignored(tmp_path: Path) -> None:
    much = b"x" * 3_000_000
    assert (await run_to_end(tmp_path, "wc", "-c", stdin=much)).stdout.strip() == b"3000000"
    assert (await run_to_end(tmp_path, "true", stdin=much)).exit_code == 0
    assert (await run_to_end(tmp_path, "cat")).stdout == b""


async def test_no_descriptor_is_inherited(tmp_path: Path) -> None:
    with Path(__file__).open() as held:
        os.set_inheritable(held.fileno(), True)
        done = await python(tmp_path, "import os; print(sorted(os.listdir('/proc/self/fd')))")
    assert done.stdout == b"['0', '1', '2', '3']\n"  # the last is the listing itself


@pytest.mark.parametrize("argument", ["$(id)", "*", "", "-x", "a\nb", "é\u202e", "'\"\\"], ids=repr)
async def test_arguments_are_passed_unchanged(tmp_path: Path, argument: str) -> None:
    assert (await run_to_end(tmp_path, "printf", "%s|", argument)).stdout == f"{argument}|".encode()


@pytest.mark.parametrize("program", ["no-such-program", "./here", "sub/here", "/no/such"])
async def test_a_missing_program_is_refused(tmp_path: Path, program: str) -> None:
    (tmp_path / "here").symlink_to("/bin/true")
    with pytest.raises(ToolError, match="is not installed on") as caught:
        await run_to_end(tmp_path, program)
    assert caught.value.kind == "CommandRefused"


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        pytest.param(("echo", "x" * 200_000), b"Argument list too long", id="an argument too long"),
        pytest.param(("echo", "a\0b"), b"null byte", id="NUL"),
        pytest.param(("echo", "\ud800"), b"surrogates not allowed", id="a lone surrogate"),
    ],
)
async def test_a_failed_start_reports_the_reason(tmp_path: Path, argv: tuple[str, ...], expected: bytes) -> None:
    done = await run_to_end(tmp_path, *argv)
    assert done.exit_code == 127
    assert expected in done.stderr
