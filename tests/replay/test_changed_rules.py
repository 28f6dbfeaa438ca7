"""Changes of the loop's rules: runs from before a change keep the old rules, and later runs follow the new ones."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import Client

from orga.workflows.phases import agent_run as phases_run
from orga.workflows.types import names
from orga.workflows.types.names import (
    ALTERNATIVES_CHECKED,
    CLOSED_CIRCUIT_SHOWN,
    LOOP_VERSION,
    OPEN_CIRCUITS,
    PATCHES,
    STOPPED_STEPS_COUNTED,
)
from tests.replay.features import circuit_shown
from tests.replay.test_histories import HISTORIES, history_in
from tests.support.runs.loop import check_replay

BEFORE, AFTER = "circuit-shown-before", "circuit-shown"


def events(name: str) -> list[Any]:
    return list(history_in(path_of(name)).events)


def path_of(name: str) -> Path:
    return next(path for path in HISTORIES if path.stem == name)


def listed(name: str) -> Iterator[list[str] | None]:
    """Yield each value of the attribute that lists open circuits."""
    for event in events(name):
        fields = event.upsert_workflow_search_attributes_event_attributes.search_attributes.indexed_fields
        if "OrgaOpenCircuits" in fields:
            yield json.loads(fields["OrgaOpenCircuits"].data or b"null")


def patches(name: str) -> list[str]:
    """Return the changes in which a history takes part."""
    marks = [event.marker_recorded_event_attributes for event in events(name)]
    patch = [mark.details["patch-data"].payloads[0] for mark in marks if mark.marker_name == "core_patch"]
    return [json.loads(payload.data)["id"] for payload in patch]


def test_a_closed_circuit_is_no_longer_listed() -> None:
    assert list(listed(AFTER)) == [["read"], None]
    assert patches(AFTER) == [CLOSED_CIRCUIT_SHOWN]


def test_every_change_has_a_recorded_history() -> None:
    """No test would notice a guard whose name is in no history, or that `PATCHES` does not list."""
    code = Path(phases_run.__file__).parents[1]
    guards = [
        name for path in code.rglob("*.py") for name in re.findall(r"workflow\.patched\((\w+)\)", path.read_text())
    ]
    assert {getattr(names, name) for name in guards} == set(PATCHES)
    assert {change for path in HISTORIES for change in patches(path.stem)} == set(PATCHES)


def test_a_run_from_before_the_change_still_lists_it() -> None:
    assert list(listed(BEFORE)) == [["read"]]
    assert patches(BEFORE) == []


def progress_of(name: str) -> list[tuple[str, int]]:
    """Return phase and iteration each time they are written."""
    written = [event.upsert_workflow_search_attributes_event_attributes.search_attributes for event in events(name)]
    fields = [each.indexed_fields for each in written if "OrgaIteration" in each.indexed_fields]
    return [(json.loads(each["OrgaPhase"].data), json.loads(each["OrgaIteration"].data)) for each in fields]


def test_the_progress_of_a_run_is_shown_from_its_first_calls_on() -> None:
    """It costs one event and no patch marker, because the loop version with which the run started guards it."""
    assert progress_of("first-calls-shown") == [("preparing", 0), ("acting", 1), ("done", 3)]
    assert patches("first-calls-shown") == []
    assert progress_of(AFTER) == [("done", 4)]


@pytest.mark.parametrize(("name", "since"), [(AFTER, 0), ("first-calls-shown", LOOP_VERSION + 1)])
async def test_a_history_does_not_replay_under_another_loop_version(
    monkeypatch: pytest.MonkeyPatch, name: str, since: int
) -> None:
    monkeypatch.setattr(names, "FIRST_CALLS_SHOWN", since)
    monkeypatch.setattr(phases_run, "FIRST_CALLS_SHOWN", since)
    with pytest.raises(workflow.NondeterminismError):
        await check_replay(history_in(path_of(name)))


async def test_the_server_drops_the_attribute_of_a_closed_circuit(client: Client) -> None:
    """`orga list` reads the attribute."""
    ran = await circuit_shown(client)
    assert "CircuitClosed" in ran.events
    assert (await ran.handle.describe()).typed_search_attributes.get(OPEN_CIRCUITS) is None


def ending(name: str) -> str:
    """Return the reason of the result with which a history ends."""
    [payload] = events(name)[-1].workflow_execution_completed_event_attributes.result.payloads
    return json.loads(payload.data)["termination"]["reason"]


def test_a_model_that_proposes_only_stopped_steps_is_stopped() -> None:
    assert (ending("step-limit-before"), patches("step-limit-before")) == ("completed", [])
    assert (ending("step-limit-counted"), patches("step-limit-counted")) == ("error", [STOPPED_STEPS_COUNTED])


def activity_types(name: str) -> list[str]:
    scheduled = [event.activity_task_scheduled_event_attributes.activity_type.name for event in events(name)]
    return [each for each in scheduled if each]


def test_an_alternative_whose_effect_nothing_takes_back_is_no_longer_called() -> None:
    assert ("order" in activity_types("alternatives-before"), patches("alternatives-before")) == (True, [])
    checked = "alternatives-checked"
    assert ("order" in activity_types(checked), patches(checked)) == (False, [ALTERNATIVES_CHECKED])


@pytest.mark.parametrize(
    ("name", "is_taken_part_in"),
    [
        *((BEFORE, True), (AFTER, False), ("step-limit-before", True), ("step-limit-counted", False)),
        *(("alternatives-before", True), ("alternatives-checked", False)),
    ],
)
async def test_a_history_does_not_replay_without_the_guard(
    monkeypatch: pytest.MonkeyPatch, name: str, is_taken_part_in: bool
) -> None:
    """An unguarded change would block every run that had passed the place before."""

    def unguarded(change: str) -> bool:
        return is_taken_part_in

    monkeypatch.setattr(workflow, "patched", unguarded)
    with pytest.raises(workflow.NondeterminismError):
        await check_replay(history_in(path_of(name)))
