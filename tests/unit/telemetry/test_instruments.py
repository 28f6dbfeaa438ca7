"""Metrics: what a model makes up is no attribute."""

from typing import Any

import pytest

from orga.activities import instruments
from orga.activities.instruments import count_verdicts
from orga.workflows.types import telemetry_names as names
from orga.workflows.types.tool_calls.gate import Verdict
from tests.support.values.core import a_call

DENIED = Verdict(decision="deny", reason="no")
INVALID = Verdict(decision="invalid", reason="no")


@pytest.fixture(name="counted")
def what_is_counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []

    def keep(name: str, about: Any) -> None:
        found.append((name, about))

    monkeypatch.setattr(instruments, "count", keep)
    return found


def test_a_name_that_a_model_made_up_is_no_attribute_though_it_was_denied(counted: list[tuple[str, Any]]) -> None:
    """A gate that decides nothing, or whose time is over, denies calls before it knows whether there is such a tool."""
    count_verdicts([a_call("read"), a_call("made-up-7f3a")], [DENIED, DENIED], known={"read"})
    assert counted == [
        (names.DENIAL_COUNT, {names.PROPOSAL: "tool_call", names.TOOL: "read"}),
        (names.DENIAL_COUNT, {names.PROPOSAL: "tool_call"}),
    ]


def test_an_answer_has_no_tool(counted: list[tuple[str, Any]]) -> None:
    count_verdicts([], [DENIED], known={"read"})
    count_verdicts([a_call("read")], [INVALID], known={"read"})
    assert counted == [
        (names.DENIAL_COUNT, {names.PROPOSAL: "answer"}),
        (names.INVALID_COUNT, {names.PROPOSAL: "tool_call"}),
    ]
