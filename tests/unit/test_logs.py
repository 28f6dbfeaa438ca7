"""Log lines: JSON a machine can read, and no secret in either form."""

import json
import logging
import warnings

import pytest
import structlog
from temporalio import activity
from temporalio.testing import ActivityEnvironment

from activities.log_context import log_iteration_of
from client.log_secrets import SecretMask
from client.logs import configure_logs
from tests.support.log_lines import lines, restored_logs

SECRET = 'sk-test-"quoted"-0123456789'

__all__ = ["restored_logs"]

pytestmark = pytest.mark.usefixtures("restored_logs")


def test_a_record_of_the_standard_library_is_one_object_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(json=True)
    logging.getLogger("a.b").warning("two\nlines of %s", "ünicode")

    (line,) = lines(capsys)
    assert list(line) == ["timestamp", "level", "logger", "message"]
    assert (line["level"], line["logger"], line["message"]) == ("warning", "a.b", "two\nlines of ünicode")
    assert line["timestamp"].endswith("Z")


def test_a_record_of_structlog_looks_the_same_and_keeps_its_values(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(json=True)
    structlog.get_logger("a.b").warning("hello", path=object)

    (line,) = lines(capsys)
    assert (line["logger"], line["message"], line["path"]) == ("a.b", "hello", "<class 'object'>")


@pytest.mark.parametrize(
    ("level", "said"),
    [
        pytest.param("DEBUG", ["debug", "info"], id="debug"),
        pytest.param("INFO", ["info"], id="info"),
        pytest.param(logging.ERROR, [], id="error"),
    ],
)
def test_the_level_holds_for_both_kinds(capsys: pytest.CaptureFixture[str], level: str | int, said: list[str]) -> None:
    configure_logs(json=True, level=level)
    for logger in (logging.getLogger("x"), structlog.get_logger("x")):
        logger.debug("debug")
        logger.info("info")
    assert [line["message"] for line in lines(capsys)] == said * 2


async def test_records_within_an_activity_carry_run_and_iteration(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(json=True)
    environment = ActivityEnvironment()

    async def work() -> None:
        log_iteration_of("3.0")
        activity.logger.info("ours")
        logging.getLogger("a.library").warning("theirs")

    await environment.run(work)

    info = environment.info
    assert [(li["message"], li["workflow_id"], li["run_id"], li["iteration"]) for li in lines(capsys)] == [
        ("ours", info.workflow_id, info.workflow_run_id, 3),
        ("theirs", info.workflow_id, info.workflow_run_id, 3),
    ]


@pytest.mark.parametrize("as_json", [pytest.param(True, id="json"), pytest.param(False, id="for people")])
def test_no_secret_is_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    monkeypatch.setenv("ACME_API_KEY", SECRET)
    configure_logs(json=as_json)
    header = {"authorization": "Bearer abcdefghijkl"}
    try:
        raise ValueError(f"refused: {SECRET}")
    except ValueError:
        logging.getLogger("x").exception("sent %s with %s to http://me:hunter22@host/", header, SECRET)

    err = capsys.readouterr().err
    assert "ValueError" in err
    assert "[redacted]" in err
    for secret in (SECRET, json.dumps(SECRET)[1:-1], "abcdefghijkl", "hunter22"):
        assert secret not in err


def test_for_people_a_line_is_plain_text_with_its_run(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(json=False)
    extra = {"temporal_workflow": {"workflow_id": "agent-1", "run_id": "r-1"}}
    logging.getLogger("x").warning("hello", extra=extra)

    err = capsys.readouterr().err
    assert "hello" in err
    assert "workflow_id=agent-1" in err
    assert "\x1b" not in err


def test_a_python_warning_is_a_record_too(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(json=True)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(False)
    assert [line["logger"] for line in lines(capsys)] == ["py.warnings"]


def test_addresses_that_clients_were_asked_for_are_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(json=True)
    logging.getLogger("httpx").info("HTTP Request: GET https://host/?token=abc")
    assert lines(capsys) == []


@pytest.mark.parametrize(
    ("name", "value", "is_secret"),
    [
        pytest.param("OPENAI_API_KEY", "0123456789", True, id="key"),
        pytest.param("gh_token", "0123456789", True, id="lower-case token"),
        pytest.param("OTEL_EXPORTER_OTLP_HEADERS", "0123456789", True, id="headers of a collector"),
        pytest.param("ORGA_KEY", "short", False, id="too short to hide"),
        pytest.param("KEYBOARD", "0123456789", False, id="only starts so"),
    ],
)
def test_what_counts_as_a_secret_of_the_environment(name: str, value: str, is_secret: bool) -> None:
    hidden = SecretMask.of_environment({name: value}).hidden(f"a {value} b")
    assert hidden == ("a [redacted] b" if is_secret else f"a {value} b")
