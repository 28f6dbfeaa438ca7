"""Sagas as a model proposes them, and tools that keep a ledger of what they did."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from activities.ports import ToolContext, ToolError
from tests.support.loop import FakeTool
from tests.support.scripted import USAGE
from workflows.types.messages import Reply, ToolCall
from workflows.types.tools import Effect

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
    """Return a step that cannot be taken back."""
    return {"tool": "pay", "arguments": {"what": what}, "kind": "final"}


def saga(*steps: Step) -> Reply:
    """Return a reply that proposes a saga of these steps."""
    return sagas(steps)


def sagas(*each: tuple[Step, ...]) -> Reply:
    """Return a reply that proposes several."""
    calls = (ToolCall(call_id=f"g{n}", name="saga", arguments={"steps": list(steps)}) for n, steps in enumerate(each))
    return Reply(calls=tuple(calls), finish="tool_calls", usage=USAGE)


@dataclass
class Ledger:
    """What tools did, in order. Of these things a tool has something else to do: `Ledger({"book hotel": ...})`."""

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
        """Those of a travel agent."""
        return [
            self.tool("look", "read_only"),
            self.tool("book"),
            self.tool("cancel"),
            self.tool("pay", "irreversible"),
        ]


def fails(error: str = "full", *, retryable: bool = False) -> Callable[[], Any]:
    """Return what a tool does that fails."""

    def act() -> Any:
        raise ToolError(error, retryable=retryable)

    return act
