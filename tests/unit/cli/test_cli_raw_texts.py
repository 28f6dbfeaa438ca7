"""Errors of the system and of libraries are shown in plain words with a remedy."""

import errno
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer
from temporalio.service import RPCError, RPCStatusCode

from orga.activities.adapters.models.model_settings import idle_addresses
from orga.client.cli.command_errors import report_error
from orga.client.cli.live.screens import QuietScreen, remarks
from orga.client.cli.main import run_command
from orga.client.cli.shown.progress import Progress
from orga.client.cli.workbench.doctor import idle_address_checks
from orga.client.server.server_errors import silence_reason
from orga.start import module_command


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full, so the output is incomplete"),
        (OSError(errno.ENOSPC, "No space", "/x/run.jsonl.part"), "/x/run.jsonl.part: the disk is full"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), "the working folder was deleted or moved"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "/x: Permission denied"),
        (
            RPCError(
                "UpdateWorkflow failed. Error: INSERT INTO x: database or disk is full (13)",
                RPCStatusCode.UNAVAILABLE,
                b"",
            ),
            "the disk of its database is full; make room",
        ),
    ],
)
def test_an_error_of_the_system_is_shown_without_raw_text(
    error: Exception, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report_error(error, lambda: 0)
    reported = capsys.readouterr().err
    assert says in reported
    for raw in ("[Errno", "INSERT", "Traceback"):
        assert raw not in reported


def test_a_deleted_working_folder_is_reported(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = module_command("orga.client.cli.main", "list")
    done = subprocess.run(
        ["sh", "-c", 'cd "$1" && rmdir "$1" && shift && exec "$@"', "sh", str(gone), *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "orga: the working folder was deleted or moved. Change into another folder (cd)\n"


async def test_a_web_server_at_the_address_is_reported(httpserver: HTTPServer) -> None:
    """The SDK's own text begins with `tonic::transport::Error`."""
    reported = await silence_reason(f"{httpserver.host}:{httpserver.port}", timeout_s=30)
    assert reported == "something other than a Temporal server answers"


def test_a_full_disk_under_stdout_is_reported(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = module_command("orga.client.cli.main", "init", "--print")
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 6
    assert done.stderr.startswith("orga: the disk is full")


def test_the_help_of_notify_keeps_the_brackets_of_a_section(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["notify", "--help"]) == 0
    assert "[notify] in orga.toml" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("env", "names"),
    [
        ({"OPENAI_BASE_URL": "http://h/v1"}, ["OPENAI_BASE_URL is set and OPENAI_API_KEY is not"]),
        ({"OPENAI_BASE_URL": "http://h/v1", "OPENAI_API_KEY": "any"}, []),
        ({"OPENAI_COMPATIBLE_BASE_URL": "http://h/v1"}, ["Name the model: openai-compatible:MODEL"]),
        ({}, []),
    ],
)
def test_an_address_without_a_key_is_reported(env: dict[str, str], names: list[str]) -> None:
    reported = idle_addresses(env)
    assert len(reported) == len(names)
    assert all(name in text for name, text in zip(names, reported, strict=True))
    assert [check.warning for check in idle_address_checks(env)] == [True] * len(names)


def test_a_command_that_starts_a_worker_does_not_ask_for_one() -> None:
    waits = Progress(task_queue="q", lacks_worker=True)
    assert remarks(replace(waits, starts_worker=True)) == [
        "waiting for the worker that is being started for task queue 'q'"
    ]
    assert "start one with: orga worker" in remarks(waits)[0]


def test_quiet_reports_only_a_missing_worker_and_only_once(capsys: pytest.CaptureFixture[str]) -> None:
    screen, lacking = QuietScreen(), Progress(task_queue="q", lacks_worker=True)
    for progress in (Progress(), lacking, lacking):
        screen.show_progress(progress)
    screen.note("a remark")
    assert capsys.readouterr().err.count("\n") == 1
