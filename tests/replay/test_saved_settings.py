"""Recorded histories of settings replay with today's code."""

from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from orga.client.runners.workflows import our_runner
from tests.replay.saved_settings import FOLDER
from tests.replay.test_histories import SHARED_MODULES, module_state
from tests.support.runs.loop import check_replay

HISTORIES = sorted(FOLDER.glob("*.json"))


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_a_recorded_history_of_settings_replays(path: Path) -> None:
    history = WorkflowHistory.from_json(path.stem, path.read_text())
    before = module_state()

    await check_replay(history, our_runner())
    assert module_state() == before
    restrictions = SandboxRestrictions.default.with_passthrough_modules(*SHARED_MODULES)
    await check_replay(history, SandboxedWorkflowRunner(restrictions=restrictions))


def test_the_recordings_contain_all_that_settings_do() -> None:
    text = "".join(path.read_text() for path in HISTORIES)

    assert len(HISTORIES) == 2
    assert all(
        word in text for word in ("InvalidSettings", "StaleSettings", "EVENT_TYPE_MARKER_RECORDED", "CONTINUED_AS_NEW")
    )
