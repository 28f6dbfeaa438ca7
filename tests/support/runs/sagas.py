"""Sagas as a model proposes them, tools that keep a ledger of their effects, and runs with both."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from temporalio.client import Client

from orga.activities.ports import PolicyEngine, Tool, ToolContext, ToolError
from orga.client.testing.script import USAGE
from orga.testing import FakeTool, answers
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.messages import Reply, ToolCall
from orga.workflows.types.tool_calls.tools import Effect
from tests.support.runs.loop import Loop, Ran, a_loop
from tests.support.runs.questions import tool_results_in

Step = dict[str, Any]


def book(what: str, **fields: Any) -> Step:
    """Return a step that books, with the compensation that cancels it."""
    arguments = {"what": what}
    compensation = {"tool": "cancel", "arguments": arguments}
    return {"tool": "book", "arguments": arguments, "kind": "compensatable", "compensation": compensation, **fields}


def look(what: str = "prices") -> Step:
    """Return a step that changes nothing."""
    return {"tool": "look", "arguments": {"what": what}, "kind": "read_only"}


def pay(what: str = "all") -> Step:
    """Return a step that cannot be compensated."""
    return {"tool": "pay", "arguments": {"what": what}, "kind": "final"}


def saga(*steps: Step) -> Reply:
    """Return a reply that proposes a saga of these steps."""
    return sagas(steps)


def sagas(*each: tuple[Step, ...]) -> Reply:
    """Return a reply that proposes several sagas."""
    calls = (ToolCall(call_id=f"g{n}", name="saga", arguments={"steps": list(steps)}) for n, steps in enumerate(each))
    return Reply.of(calls=tuple(calls), finish="tool_calls", usage=USAGE)


@dataclass
class Ledger:
    """The actions of tools in order. Some actions can be replaced: `Ledger({"book hotel": ...})`."""

    instead: Mapping[str, Callable[[], Any]] = field(default_factory=dict[str, Callable[[], Any]])
    done: list[str] = field(default_factory=list[str])
    keys: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def tool(self, name: str, effect: Effect = "idempotent", **fields: Any) -> FakeTool:
        """Return a tool that writes into the ledger."""

        def act(arguments: dict[str, Any], context: ToolContext) -> Any:
            entry = f"{name} {arguments.get('what')}"
            self.keys.setdefault(entry, []).append(context.idempotency_key)
            if entry in self.instead:
                return self.instead[entry]()
            self.done.append(entry)
            return f"{entry}: done"

        return FakeTool(name, act, effect, **fields)

    @property
    def tools(self) -> list[FakeTool]:
        """The tools of a travel agent."""
        return [
            self.tool("look", "read_only"),
            self.tool("book"),
            self.tool("cancel"),
            self.tool("pay", "irreversible"),
        ]


def fails(error: str = "full", *, retryable: bool = False) -> Callable[[], Any]:
    """Return the body of a tool that fails."""

    def act() -> Any:
        raise ToolError(error, retryable=retryable)

    return act


@asynccontextmanager
async def an_agency(client: Client, steps: Sequence[Any], *tools: Tool, **options: Any) -> AsyncGenerator[Loop]:
    """Run a worker whose agent may propose sagas of these tools."""
    agent = AgentConfig(tools=(*(tool.spec.name for tool in tools), "saga"))
    async with a_loop(client, steps, *tools, agents={"default": agent}, **options) as loop:
        yield loop


async def run_saga(
    client: Client, ledger: Ledger, *steps: Step, engine: PolicyEngine | None = None, **config: Any
) -> tuple[Ran, str]:
    """Return a run that proposes one saga, and the result that the model read."""
    async with an_agency(client, [saga(*steps), answers()], *ledger.tools, engine=engine) as loop:
        ran = await loop.run(**config)
    return ran, tool_results_in(loop)[0]


def compensations(ran: Ran) -> list[tuple[str, str]]:
    """Return the compensations in the journal, each with its outcome."""
    found = [entry.data for entry in ran.journal if entry.event == "RecoveryTriggered"]
    assert {data["strategy"] for data in found} <= {"compensate", "dead_letter", "fallback"}
    return [(data["tool"], data["outcome"]) for data in found if data["strategy"] == "compensate"]


def first_reply_outcomes(ran: Ran) -> list[dict[str, Any]]:
    """Return the outcomes of the first reply's calls."""
    return next(entry.data["outcomes"] for entry in ran.journal if entry.event == "ObservationsCollected")
