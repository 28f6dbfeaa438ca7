"""A worker process that kills itself with SIGKILL at a named moment, or is killed from outside."""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Timer
from typing import Any

from temporalio.client import Client

from orga.activities.adapters.agents.agents import ConfiguredAgents
from orga.activities.adapters.knowledge.embedders import HashingEmbedder
from orga.activities.adapters.knowledge.knowledge_tools import RecallKnowledge, StoreKnowledge
from orga.activities.adapters.knowledge.sqlite.sqlite_store import SqliteStore
from orga.activities.adapters.schemas.arguments import find_argument_errors
from orga.activities.ports import ModelProvider, RunKey, Tool, ToolContext
from orga.client.history.values import data_converter
from orga.client.testing.script import ScriptedModels
from orga.client.workers.parts import Parts
from orga.testing import FakeTool
from orga.worker import build_worker
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.goals.deliveries import Channel, DeliveryKind, DeliveryRequest
from orga.workflows.types.goals.pipelines import Pipeline
from orga.workflows.types.knowledge import KnowledgeItem, Recall, Recalled, Stored
from orga.workflows.types.questions import Notification, NotifyEvent
from orga.workflows.types.setup import Setup
from orga.workflows.types.tool_calls.decision import CheckedDecision
from orga.workflows.types.tool_calls.delegation import Delegate
from orga.workflows.types.tool_calls.tools import Effect, ToolOptions
from tests.support.crash.model import Lenient, PlannedModel
from tests.support.crash.tasks import WatchedTasks
from tests.support.runs.loop import WORKER_FACTS

HALF_CALL_S = 0.15
TO = "people"
"""The channel for the answers of goals."""

SILENCE_S = 10.0
"""Seconds after which the server takes a call back from a dead worker."""

SIZE = CheckedDecision.model_validate(
    {
        "fields": {"size": {"enum": ["s", "l"]}},
        "rules": [{"name": "read", "when": {"size": "l", "tainted": True}, "then": {"go": "no"}}],
        "default": {"go": "yes"},
    }
)
"""A decision that also depends on the past of the run."""

STICKY_S = timedelta(seconds=1)
"""Seconds after which the server gives a workflow task to another worker."""


@dataclass(frozen=True)
class Fate:
    """When a worker dies: at a named moment, or some seconds after a tool's effect. By default it never dies."""

    moment: str = ""
    after_s: float | None = None

    def reached(self, moment: str) -> None:
        """Die here if this is the moment."""
        if moment == self.moment:
            _die()

    def had_effect(self) -> None:
        """Die some time later, if planned so."""
        if self.after_s is not None:
            Timer(self.after_s, _die).start()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Backstage:
    """The part of a test that its tools use."""

    effects: Path
    """File that gets one line for each effect of a tool: the tool and the idempotency key."""
    fate: Fate

    def tool(
        self,
        name: str,
        effect: Effect = "idempotent",
        body: Callable[[int], str] | None = None,
        held: bool = False,
        takes: str = "",
        **options: Any,
    ) -> FakeTool:
        """Return a tool whose effect is a line in a file.

        Args:
            name: Its name.
            effect: What repeating a call does.
            body: Takes the number of effects including this one. Returns the result, or raises.
            held: True if its calls end only when the file `release` exists.
            takes: Its only argument, if it has one.
            **options: Its `ToolOptions`.
        """

        def say(number: int) -> str:
            return body(number) if body else f"{name} is done"

        async def call(arguments: dict[str, Any], context: ToolContext) -> str:
            await asyncio.sleep(HALF_CALL_S)
            number = self._had_effect(name, context)
            self.fate.had_effect()
            self.fate.reached(name)
            self.fate.reached(f"{name} {number}")
            while held and not self.effects.with_name("release").exists():
                await asyncio.sleep(0.05)
            await asyncio.sleep(HALF_CALL_S)
            return say(number)

        known: dict[str, Any] = {"heartbeat_timeout_s": SILENCE_S, **options}
        parameters: dict[str, Any] = {"type": "object", "properties": {takes: {"type": "string"}} if takes else {}}
        return FakeTool(name, call, effect, parameters, ToolOptions(**known))

    def _had_effect(self, name: str, context: ToolContext) -> int:
        with self.effects.open("a") as file:
            file.write(f"{name} {context.idempotency_key}\n")
        return sum(line.split()[0] == name for line in self.effects.read_text().splitlines())


@dataclass(frozen=True)
class Receiver:
    """Takes notifications, and writes one line for each into the file `notified`."""

    backstage: Backstage

    async def deliver(self, notification: Notification, run: RunKey) -> None:
        """Record the message. The worker may then die before it knows."""
        with self.backstage.effects.with_name("notified").open("a") as file:
            file.write(f"{notification.message_id}\n")
        self.backstage.fate.reached("notified")


class FatedStore(SqliteStore):
    """The embedded store of a worker that may die right after a call, before anybody learns of it."""

    def __init__(self, path: Path, fate: Fate) -> None:
        super().__init__(path, HashingEmbedder())
        self._fate = fate

    async def store(self, items: Sequence[KnowledgeItem]) -> list[Stored]:
        """Store them."""
        done = await super().store(items)
        self._fate.reached(f"stored {items[0].kind}")
        return done

    async def recall(self, query: Recall) -> list[Recalled]:
        """Recall."""
        found = await super().recall(query)
        self._fate.reached("recalled")
        return found


@dataclass(frozen=True)
class Recipient:
    """Takes the answers of goals, and writes one line for each into the file `delivered`."""

    backstage: Backstage
    is_repeatable: bool

    async def deliver(self, request: DeliveryRequest, run: RunKey) -> None:
        """Record the answer. The worker may then die before it knows."""
        with self.backstage.effects.with_name("delivered").open("a") as file:
            file.write(f"{request.key}\n")
        self.backstage.fate.reached("delivered")


Cast = Callable[[Backstage], Sequence[Tool]]


@dataclass(frozen=True)
class CrashWorker:
    """The settings of a worker process."""

    address: str
    task_queue: str
    effects: Path
    roll_over_events: int
    fate: Fate
    cast: Cast
    """A module-level function, because only its name is passed to the process."""
    notify: tuple[NotifyEvent, ...] = ()
    model: Callable[[frozenset[str], Callable[[str], None]], ModelProvider] = PlannedModel
    remembers: bool = False
    """True if it has a knowledge store: the file `knowledge.db`."""
    delivers: DeliveryKind | None = None
    """The receiver of goals' answers. Only a webhook recognises a repetition."""
    pipelines: Mapping[str, Pipeline] = field(default_factory=dict[str, Pipeline])

    def started(self) -> BaseProcess:
        """Start a separate process, forked from one that has only done the imports."""
        context = get_context("forkserver")
        context.set_forkserver_preload(["__main__", __name__])
        process = context.Process(target=self._run, daemon=True)
        process.start()
        return process

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        client = await Client.connect(self.address, data_converter=data_converter)
        worker = build_worker(
            client,
            self._parts(),
            self.task_queue,
            workflow_task_executor=WatchedTasks(self.fate.reached, self.effects),
            sticky_queue_schedule_to_start_timeout=STICKY_S,
        )
        await worker.run()

    def _parts(self) -> Parts:
        backstage = Backstage(self.effects, self.fate)
        tools = list(self.cast(backstage))
        names = tuple(tool.spec.name for tool in tools)
        store = FatedStore(self.effects.with_name("knowledge.db"), self.fate) if self.remembers else None
        own: list[Tool] = [RecallKnowledge(store), StoreKnowledge(store)] if store else []
        agents = ConfiguredAgents(
            {
                "default": AgentConfig(
                    tools=(*names, "saga"), delegates=(Delegate(agent="helper"),), decisions={"size": SIZE}
                ),
                "helper": AgentConfig(tools=names),
            },
            {tool.spec.name: tool.spec for tool in (*tools, *own)},
            "scripted:model",
            lambda model: self.fate.reached("prepare"),
            self._facts(),
            pipelines=self.pipelines,
        )
        policy, models = Lenient(self.fate.reached), ScriptedModels(self.model(frozenset(names), self.fate.reached))
        known = [*tools, *own]
        parts = Parts(
            agents, models, policy, find_argument_errors, known, notifier=Receiver(backstage), knowledge=store
        )
        return replace(parts, deliveries={TO: Recipient(backstage, self.delivers == "webhook")})

    def _facts(self) -> Setup:
        facts = WORKER_FACTS.model_copy(update={"roll_over_events": self.roll_over_events, "notify": self.notify})
        if self.delivers is None:
            return facts
        return facts.with_deliveries((Channel(name=TO, kind=self.delivers, default=True),))
