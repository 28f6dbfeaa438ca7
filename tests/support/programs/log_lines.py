"""Log lines read from stderr, and logging restored after each test."""

import json
import logging
from collections.abc import Generator
from typing import Any

import pytest
import structlog
from temporalio import activity, workflow

from orga.client.telemetry import logs


@pytest.fixture
def restored_logs(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Undo what `configure_logs` does to the process."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", root.handlers)
    monkeypatch.setattr(workflow.logger, "workflow_info_on_message", True)
    monkeypatch.setattr(activity.logger, "activity_info_on_message", True)
    level = root.level
    yield
    root.setLevel(level)
    logging.captureWarnings(False)
    for name in logs._CHATTY_LOGGERS:
        logging.getLogger(name).setLevel(logging.NOTSET)
    structlog.reset_defaults()


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return the lines of stderr, each a JSON object, and assert that stdout is empty."""
    out, err = capsys.readouterr()
    assert out == ""
    return [json.loads(line) for line in err.splitlines()]
