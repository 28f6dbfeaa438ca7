"""A fork replays another run in the worker that starts it, and that must not delay other runs."""

from typing import NoReturn

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import _replayer

from orga.client.history.values import converters_in, data_converter
from orga.client.past.replayed_state import replayed_state
from orga.client.proof.replay import replay_history
from tests.replay.test_histories import HISTORIES


def _reads_all_modules() -> NoReturn:
    raise AssertionError("it reads every module of the process from disk, which takes seconds")


async def test_a_replay_does_not_read_all_modules_to_name_its_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_replayer, "load_default_build_id", _reads_all_modules)
    path = next(path for path in HISTORIES if path.stem.startswith("answer"))
    history = WorkflowHistory.from_json(path.stem, path.read_text())
    converters = converters_in(history, data_converter, "default")
    assert (await replayed_state(history, converters)).phase == "done"
    assert (await replay_history(history, converters)).failure == ""
