"""Alternatives in a saga. Nothing takes back their effects, and a compensation cannot wait for a later result."""

from temporalio.client import Client

from orga.activities.ports import Tool
from orga.testing import answers
from orga.workflows.types.tool_calls.recovery import Recovery
from orga.workflows.types.tool_calls.tools import ToolOptions
from tests.support.runs.deferred import a_check
from tests.support.runs.loop import Ran
from tests.support.runs.questions import tool_results_in
from tests.support.runs.sagas import Ledger, Step, an_agency, book, fails, look, pay, saga


def replaced_by(*names: str) -> ToolOptions:
    return ToolOptions(recovery=Recovery(strategy="fallback", max_attempts=1, alternatives=names))


async def a_saga(client: Client, tools: list[Tool], *steps: Step) -> tuple[Ran, str]:
    async with an_agency(client, [saga(*steps), answers()], *tools) as loop:
        ran = await loop.run()
    return ran, tool_results_in(loop)[0]


def alternatives(ran: Ran) -> list[tuple[str, str, str]]:
    """Return place, outcome and error of the alternatives in the journal."""
    recovered = [entry.data for entry in ran.journal if entry.event == "RecoveryTriggered"]
    calls = [call for data in recovered if data["strategy"] == "fallback" for call in data["calls"]]
    return [(call["place"], call["outcome"], call.get("error", "")) for call in calls]


async def test_the_alternative_of_a_read_only_step_may_only_read(client: Client) -> None:
    """The step has no compensation, so an effect of its alternative would stay after the saga is taken back."""
    ledger = Ledger({"look prices": fails("down"), "pay all": fails("no money")})
    _, *others = ledger.tools
    looking = [ledger.tool("look", "read_only", options=replaced_by("order", "guess"))]
    tools = [*looking, ledger.tool("order"), ledger.tool("guess", "read_only"), *others]
    ran, text = await a_saga(client, [*tools], book("hotel"), look(), pay())
    assert ledger.done == ["book hotel", "guess prices", "cancel hotel"]
    assert "what was done is taken back" in text
    refused, guessed = alternatives(ran)
    assert refused[:2] == ("1.0.s1.f0", "not_run")
    assert "it is no read-only tool, and its effect would not be taken back" in refused[2]
    assert guessed == ("1.0.s1.f1", "ok", "")


async def test_the_alternative_of_a_compensation_cannot_be_a_deferred_tool(client: Client) -> None:
    """A saga with a deferred tool as a compensation does not begin, for the same reason."""
    ledger = Ledger({"cancel hotel": fails("down"), "pay all": fails("no money")})
    check = a_check(start=ledger.tool("order"), parameters={"type": "object"})
    cancel = ledger.tool("cancel", options=replaced_by("check", "refund"))
    tools = [ledger.tool("book"), ledger.tool("pay", "irreversible"), cancel, check, ledger.tool("refund")]
    ran, text = await a_saga(client, [*tools], book("hotel"), pay())
    assert ledger.done == ["book hotel", "refund hotel"]
    assert "what was done is taken back" in text
    assert "its results come later, and a compensation cannot wait" in alternatives(ran)[0][2]
