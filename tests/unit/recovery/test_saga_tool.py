"""The tool `saga`: when it is offered, its reserved name, its arguments, and its end in the journal."""

from typing import Any

import pytest

from orga.activities.adapters.agents.agent_problems import agent_problems
from orga.activities.adapters.agents.agents import ConfiguredAgents
from orga.activities.adapters.agents.offered_tools import SAGA_TOOL
from orga.activities.adapters.schemas.arguments import argument_errors
from orga.activities.adapters.tools.catalog import ToolCatalog
from orga.client.cli.shown.narration import entry_lines
from orga.client.journal.run_view import RunView
from orga.testing import FakeTool
from orga.workflows.decisions.journal.fold import JournalFold
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.messages import Reply
from orga.workflows.types.setup import PrepareRequest
from orga.workflows.types.status import Happening, HappeningKind, JournalEntry
from tests.support.runs.sagas import book, look, pay
from tests.support.values.core import a_call, a_request, a_setup, a_spec, at, user

AGENT = AgentConfig(tools=("read", "saga"))
TOOLS = {"read": a_spec("read")}


async def test_it_is_offered_if_it_is_listed() -> None:
    agents = ConfiguredAgents({"a": AGENT}, TOOLS, "scripted:model", lambda model: None, a_setup())
    setup = await agents.setup(PrepareRequest(agent="a"))
    assert [tool.name for tool in setup.tools] == ["read", "saga"]
    assert list(agent_problems({"a": AGENT}, TOOLS)) == []


def test_the_name_saga_is_reserved() -> None:
    with pytest.raises(ValueError, match="'saga', a name that belongs to the loop"):
        ToolCatalog([FakeTool("saga")])


@pytest.mark.parametrize(
    ("arguments", "fits"),
    [
        pytest.param({"steps": [look(), book("x"), pay()]}, True, id="each kind"),
        pytest.param({"steps": []}, False, id="no step"),
        pytest.param({"steps": [look()] * 21}, False, id="too many"),
        pytest.param({"steps": [{**look(), "kind": "any"}]}, False, id="another kind"),
        pytest.param({"steps": [{**look(), "when": "now"}]}, False, id="an unknown key"),
        pytest.param({"steps": [book("x", compensation={"tool": "cancel"})]}, False, id="no arguments"),
        pytest.param({}, False, id="nothing"),
    ],
)
def test_arguments_are_validated(arguments: dict[str, Any], fits: bool) -> None:
    assert (argument_errors(SAGA_TOOL.parameters, arguments) == []) is fits


def happened(kind: HappeningKind, name: str = "", key: str = "", value: Any = None) -> Happening:
    return Happening(kind=kind, at=at(1), event_id=1, name=name, key=key, value=value)


def saga_journal(*happenings: Happening) -> list[JournalEntry]:
    """Return the journal of an iteration that starts with a saga and a look."""
    reply = Reply.of(calls=(a_call("saga", "g0"), a_call("look", "l0")), finish="tool_calls")
    verdicts = {"verdicts": [{"decision": "allow"}] * 2, "places": ["1.0", "1.1"]}
    begin = [
        happened("started", value=[{"task": "go"}]),
        happened("scheduled", "reason", "1", a_request((user("go"),), a_setup()).model_dump(mode="json")),
        happened("finished", "reason", "1", reply.model_dump(mode="json")),
        happened("finished", "gate", "", verdicts),
        happened("scheduled", "look", "1.1"),
        happened("finished", "look", "1.1", "ok"),
        happened("scheduled", "book", "1.0.s0"),
    ]
    fold = JournalFold()
    return [entry for each in (*begin, *happenings) for entry in fold.feed(each)]


def note(outcome: str, **data: Any) -> Happening:
    return happened("noted", value=[{"event": "SagaEnded", "data": {"place": "1.0", "outcome": outcome, **data}}])


END = happened("workflow_terminated")


@pytest.mark.parametrize(
    ("happenings", "expected"),
    [
        pytest.param([note("ok")], {"outcome": "ok"}, id="done, reported immediately"),
        pytest.param([note("failed", error="full"), END], {"outcome": "failed", "error": "full"}, id="failed"),
        pytest.param([END], {"outcome": "unfinished"}, id="terminated while it ran"),
    ],
)
def test_the_journal_records_the_outcome(happenings: list[Happening], expected: dict[str, str]) -> None:
    (collected,) = [entry.data for entry in saga_journal(*happenings) if entry.event == "ObservationsCollected"]
    assert collected["outcomes"][0] == {"tool": "saga", "call_id": "g0", **expected}
    assert collected["outcomes"][1]["outcome"] == "ok"


@pytest.mark.parametrize(
    ("outcome", "error", "line"),
    [
        pytest.param("ok", "", "✓ saga ok (book ok)", id="done"),
        pytest.param("failed", "stopped", "✗ saga failed: stopped (book ok)", id="stopped"),
    ],
)
def test_the_end_of_a_saga_is_shown_in_one_line(outcome: str, error: str, line: str) -> None:
    happening = note(outcome, error=error, calls=[{"tool": "book", "outcome": "ok"}])
    entry = next(entry for entry in saga_journal(happening) if entry.event == "SagaEnded")
    assert [each.text for each in entry_lines(RunView().take(entry))] == [line]
