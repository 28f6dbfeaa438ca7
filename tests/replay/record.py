"""Records the histories that `test_histories.py` replays: `python -m tests.replay.record [NAME ...]`.

Histories of a released version are never recorded again, because they have to replay for ever.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowHistory
from temporalio.testing import WorkflowEnvironment

from orga.client.history.values import data_converter
from tests.conftest import SERVER_ARGUMENTS
from tests.replay import features, goals, plain, saved_settings, sessions, trust
from tests.support.parts.temporal import temporal_cli
from tests.support.runs.loop import Ran, histories_of

FOLDER = Path(__file__).parent / "histories"

SCENARIOS: dict[str, Callable[[Client], Awaitable[Ran]]] = {
    "answer": plain.answer,
    "tools-and-a-denial": plain.tools_and_a_denial,
    "steered-and-paused": plain.steered_and_paused,
    "aborted-in-a-tool": plain.aborted_in_a_tool,
    "repaired": plain.repaired,
    "an-error-after-repairs": plain.an_error_after_repairs,
    "iteration-limit": plain.iteration_limit,
    "rolled-over": plain.rolled_over,
    "recovered": features.recovered,
    "escalated": features.escalated,
    "budget-extended": features.budget_extended,
    "deferred": features.deferred,
    "step-limit": features.step_limit,
    "circuit": features.circuit,
    "step-limit-counted": features.step_limit_counted,
    "step-limit-before": features.step_limit_before,
    "circuit-shown": features.circuit_shown,
    "circuit-shown-before": features.circuit_shown_before,
    "first-calls-shown": features.first_calls_shown,
    "hydrated": features.hydrated,
    "summarised": features.summarised,
    "masked": features.masked,
    "answer-repaired": features.answer_repaired,
    "delegated": features.delegated,
    "notified": features.notified,
    "decided": features.decided,
    "knowing": features.knowing,
    "criticised": trust.criticised_run,
    "held": trust.held,
    "compensated": trust.compensated,
    "alternatives-checked": trust.alternatives_checked,
    "alternatives-before": trust.alternatives_before,
    "held-below": trust.held_below,
    "pursued": goals.pursued,
    "piped": goals.piped,
    "overridden": goals.overridden,
    "asked-by-templates": goals.asked_by_templates,
    "talked": sessions.talked,
    "looked-up": sessions.looked_up,
    "taught": sessions.taught,
    "delegate-awaited": sessions.delegate_awaited,
}


async def _record(path: str, names: list[str]) -> None:
    environment = await WorkflowEnvironment.start_local(  # pyright: ignore[reportUnknownMemberType]
        dev_server_existing_path=path,
        data_converter=data_converter,
        dev_server_extra_args=SERVER_ARGUMENTS,
        identity="recorder",
    )
    async with environment:
        if "saved-settings" in names:
            _write("saved-settings", await saved_settings.saved(environment.client), saved_settings.FOLDER)
        for name in SCENARIOS.keys() & names:
            ran = await SCENARIOS[name](environment.client)
            _write(name, ran.histories)
            for child in _children(ran):
                _write(f"{name}-child", await histories_of(environment.client, child))


def _children(ran: Ran) -> list[str]:
    events = [event for history in ran.histories for event in history.events]
    started = [event.child_workflow_execution_started_event_attributes.workflow_execution for event in events]
    return [child.workflow_id for child in started if child.workflow_id]


def _write(name: str, histories: Sequence[WorkflowHistory], folder: Path = FOLDER) -> None:
    for old in folder.glob(f"{name}-[0-9].json"):
        old.unlink()
    for number, history in enumerate(histories, start=1):
        suffix = f"-{number}" if len(histories) > 1 else ""
        path = folder / f"{name}{suffix}.json"
        path.write_text(json.dumps(json.loads(history.to_json(), object_hook=_anywhere), indent=1) + "\n")
        print(f"{path.name}: {len(history.events)} events")


def _anywhere(value: dict[str, Any]) -> dict[str, Any]:
    """Return a failure without the paths of the machine on which it was recorded."""
    return {key: item for key, item in value.items() if key != "stackTrace"}


if __name__ == "__main__":
    asyncio.run(_record(str(temporal_cli()), sys.argv[1:] or [*SCENARIOS, "saved-settings"]))
    sys.stdout.flush()
    os._exit(0)  # a normal exit of the interpreter can abort in the SDK's threads (sdk-python issue 300)
