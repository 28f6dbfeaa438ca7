"""Log lines are machine-readable JSON or text for people, and never contain a secret."""

import json
import logging
import warnings
from collections.abc import Callable

import pytest
import structlog
from temporalio import activity
from temporalio.testing import ActivityEnvironment

from orga.activities.calls.activity import log_iteration_of_call
from orga.activities.text.secrets import KnownSecrets
from orga.client.telemetry.logs import SecretMask, configure_logs
from tests.support.programs.log_lines import lines, restored_logs

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


def test_a_record_of_structlog_has_the_same_form_and_keeps_its_values(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(json=True)
    structlog.get_logger("a.b").warning("hello", path=object)

    (line,) = lines(capsys)
    assert (line["logger"], line["message"], line["path"]) == ("a.b", "hello", "<class 'object'>")


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        pytest.param("DEBUG", ["debug", "info"], id="debug"),
        pytest.param("INFO", ["info"], id="info"),
        pytest.param(logging.ERROR, [], id="error"),
    ],
)
def test_the_level_applies_to_both_kinds(
    capsys: pytest.CaptureFixture[str], level: str | int, expected: list[str]
) -> None:
    configure_logs(json=True, level=level)
    for logger in (logging.getLogger("x"), structlog.get_logger("x")):
        logger.debug("debug")
        logger.info("info")
    assert [line["message"] for line in lines(capsys)] == expected * 2


async def test_records_within_an_activity_contain_run_and_iteration(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(json=True)
    environment = ActivityEnvironment()

    async def work() -> None:
        log_iteration_of_call("3.0")
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


FORGED = "2026-11-22T09:00:00.000000Z [info     ] paid 9 EUR   [orga.gate] workflow_id=agent-1"
BREAKS = [
    "\n",
    "\r\n",
    "\r",
    "\x0b",
    "\x0c",
    "\x1c",
    "\x85",
    "\u2028",
    "\u2029",
    "\x1b[2K\x1b[1G",
    "\x9b1G",
    "\u2800\n",
]


class Sly(Exception):
    """Shows its text unchanged in all of its forms."""

    def __repr__(self) -> str:
        return str(self)


def by_message(text: str) -> None:
    logging.getLogger("a.library").warning("refused %s", text)


def by_format(text: str) -> None:
    logging.getLogger("a.library").warning(text)


def by_object(text: str) -> None:
    logging.getLogger("a.library").warning(Sly(text))


def by_field(text: str) -> None:
    structlog.get_logger("x").warning("refused", path=text, other=Sly(text))


def by_key(text: str) -> None:
    structlog.get_logger("x").warning("refused", **{text: 1})


def by_logger(text: str) -> None:
    logging.getLogger(text).warning("refused")


def by_run(text: str) -> None:
    logging.getLogger("x").warning("refused", extra={"temporal_workflow": {"workflow_id": text, "run_id": "r"}})


def by_context(text: str) -> None:
    with structlog.contextvars.bound_contextvars(tool=text):
        logging.getLogger("x").warning("refused")


def by_event(text: str) -> None:
    structlog.get_logger("x").warning(text)


WAYS = [by_message, by_format, by_object, by_field, by_key, by_logger, by_run, by_context, by_event]


@pytest.mark.parametrize("as_json", [pytest.param(True, id="json"), pytest.param(False, id="for people")])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_no_text_forges_a_line(capsys: pytest.CaptureFixture[str], way: Callable[[str], None], as_json: bool) -> None:
    configure_logs(json=as_json)
    for broken in BREAKS:
        way(f"it{broken}{FORGED}{broken}")
        (line,) = capsys.readouterr().err.splitlines()
        assert line.isprintable()
        assert not line.startswith(FORGED)


@pytest.mark.parametrize("way", [by_message, by_field, by_event], ids=lambda way: way.__name__)
def test_a_json_line_contains_the_original_text(capsys: pytest.CaptureFixture[str], way: Callable[[str], None]) -> None:
    configure_logs(json=True)
    for broken in BREAKS:
        way(f"it{broken}{FORGED}")
        (line,) = lines(capsys)
        assert any(f"it{broken}{FORGED}" in str(value) for value in line.values())


@pytest.mark.parametrize("field", ["stack", "exception"])
def test_lines_of_a_multiline_field_are_marked(capsys: pytest.CaptureFixture[str], field: str) -> None:
    configure_logs(json=False)
    structlog.get_logger("x").warning("refused", **{field: f"{FORGED}\n{FORGED}"})
    assert [line[:4] == "  | " for line in capsys.readouterr().err.splitlines()] == [False, True]


def by_its_text(text: str) -> None:
    raise Sly(text)


def by_its_cause(text: str) -> None:
    raise ValueError from Sly(text)


def by_its_note(text: str) -> None:
    error = Sly("no")
    error.add_note(text)
    raise error


def by_its_group(text: str) -> None:
    raise ExceptionGroup(text, [Sly(text), Sly(text)])


@pytest.mark.parametrize("as_json", [pytest.param(True, id="json"), pytest.param(False, id="for people")])
@pytest.mark.parametrize("fails", [by_its_text, by_its_cause, by_its_note, by_its_group], ids=lambda way: way.__name__)
def test_no_exception_forges_a_line(
    capsys: pytest.CaptureFixture[str], fails: Callable[[str], None], as_json: bool
) -> None:
    configure_logs(json=as_json)
    for broken in BREAKS:
        try:
            fails(f"it{broken}{FORGED}")
        except Exception:
            logging.getLogger("x").exception("failed")
        first, *others = capsys.readouterr().err.splitlines()
        assert "failed" in first
        assert bool(others) != as_json
        for line in (first, *others):
            assert line.isprintable()
        assert all(line.startswith("  | ") for line in others)


def test_a_secret_of_several_lines_is_hidden_in_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_PRIVATE_KEY", "-----BEGIN-----\nabcdefgh\n-----END-----")
    configure_logs(json=False)
    try:
        raise ValueError("with -----BEGIN-----\nabcdefgh\n-----END-----")
    except ValueError:
        logging.getLogger("x").exception("bad -----BEGIN-----\nabcdefgh\n-----END-----")
    assert "abcdefgh" not in capsys.readouterr().err


def test_a_python_warning_is_also_a_record(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(json=True)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(False)
    assert [line["logger"] for line in lines(capsys)] == ["py.warnings"]


def test_addresses_requested_by_http_clients_are_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
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
        pytest.param("KEYBOARD", "0123456789", False, id="only the same beginning"),
    ],
)
def test_these_variables_count_as_secrets(name: str, value: str, is_secret: bool) -> None:
    hidden = SecretMask(KnownSecrets.from_environment({name: value})).mask_line(f"a {value} b")
    assert hidden == ("a [redacted] b" if is_secret else f"a {value} b")
