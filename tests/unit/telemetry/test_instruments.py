"""Metrics never have names invented by a model as attributes."""

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


def test_an_invented_tool_name_of_a_denied_call_is_no_attribute(counted: list[tuple[str, Any]]) -> None:
    """A gate that fails or times out denies calls before it knows whether the tool exists."""
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
