"""A console, a server and a worker that tests of the pages share, and a run in each state that a run can have."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from playwright.async_api import Browser
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from orga.activities.ports import ModelError, ModelRequest, ThinkingListener
from orga.client.console.doors import Limits
from orga.client.journal.reading import read_journal
from orga.client.runs.failing_tasks import failing_task
from orga.client.server.search_attributes import register_missing
from orga.testing import FakeTool, answers, calls, permanent
from orga.workflows.decisions.control import interventions
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.goals.requests import goal_prompt_in
from orga.workflows.types.messages import Reply
from orga.workflows.types.setup import Setup
from orga.workflows.types.tool_calls.gate import GateRequest, Verdict
from tests.support.browser import MARK
from tests.support.console import OWNER, Served, a_console
from tests.support.hold import Hold, wait_until
from tests.support.model.goals import SteadyModel, requesting_message
from tests.support.runs.approvals import Asks
from tests.support.runs.goals import start as start_goal
from tests.support.runs.loop import Loop, a_loop, a_worker
from tests.support.runs.questions import wait_for_question, wait_until_still
from tests.support.values.policies import a_verdict

FACTS = Setup(agent="", model="", search_attributes=True)
HOSTILE = (
    f'<script>{MARK}</script><img src="http://192.0.2.1/x" onerror="{MARK}">'
    f"[a](javascript:{MARK})\u202egnp.exe\x1b[31m</script>"
)
STREAMED = "The lamp costs two"
QUESTION = f"Which lamp? {HOSTILE}"
AGENTS = {"default": AgentConfig(tools=("look", "pay", "work", "burn", "fall", "ask_user"))}


@dataclass
class Model:
    """Does what the task names, step by step.

    `stream:NAME` and `think:NAME` stream a text until NAME is released; after `think` the run goes on. A goal with
    `hold-plan:NAME` waits in that turn until NAME is released, and one with `no-plan` never gets a plan.
    """

    holds: dict[str, Hold] = field(default_factory=dict[str, Hold])
    goals: SteadyModel = field(default_factory=lambda: SteadyModel(frozenset({"look"}), lambda turn: None))

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        asked = [message.text for message in request.messages if message.role == "user"]
        if any(goal_prompt_in(text) for text in asked):
            return await self._pursue(request, on_text)
        task = next((text for text in reversed(asked) if "do: " in text), "do: answer")
        steps = task.partition("do: ")[2].split("\n")[0].split()
        done = 0
        for message in reversed(request.messages):
            if message.role == "user" and message.text == task:
                break
            done += message.role == "assistant"
        step, _, name = (steps[done] if done < len(steps) else "answer").partition(":")
        if step in {"stream", "think"}:
            on_text(STREAMED)
            if isinstance(on_text, ThinkingListener):
                on_text.add_thinking("It may be cheaper elsewhere.")
            await self.hold(name).then(None)
            return answers(f"{STREAMED} euros.") if step == "stream" else calls("look", reply_text=STREAMED)
        if step == "data":
            return answers('{"paid": true, "cents": 250}')
        if step == "ask":
            return calls("ask_user", question=QUESTION, options=["The red one", "The blue one"])
        if step == "answer":
            return answers(f"# Done\n\n**paid** {HOSTILE}", cost_usd=0.01)
        if step == "fail":
            raise ModelError("InvalidRequest", f"scripted: the model fails {HOSTILE}", retryable=False)
        given: dict[str, Any] = {"cents": 250, "note": HOSTILE, **({"until": name} if name else {})}
        return calls(step, arguments=given, reply_text=f"I {step} now. {HOSTILE}", reply_cost_usd=0.002)

    async def _pursue(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        turn = goal_prompt_in(requesting_message(request)) or ""
        seen = "\n".join(message.text for message in request.messages)
        if "no-plan" in seen:
            return answers("I have no plan.")
        _, is_held, rest = seen.partition(f"hold-{turn.removeprefix('goal_')}:")
        if is_held:
            on_text(STREAMED)
            await self.hold(rest.split()[0]).then(None)
        return await self.goals.complete(request, on_text)

    def hold(self, name: str) -> Hold:
        return self.holds.setdefault(name, Hold())


@dataclass
class Decides(Asks):
    """Asks for `pay`, and denies `burn`."""

    async def judge(self, proposal: GateRequest) -> Verdict:
        if proposal.call is not None and proposal.call.name == "burn":
            return a_verdict(False, "nothing burns here")
        return await super().judge(proposal)


@dataclass(frozen=True)
class Stage:
    client: Client
    loop: Loop
    console: Served
    browser: Browser
    model: Model

    async def journal(self, run_id: str, *events: str) -> list[dict[str, Any]]:
        """Return the data of the run's entries of these kinds, each with its kind."""
        return [
            {"event": entry.event, **entry.data}
            async for entry in read_journal(self.client, run_id)
            if entry.event in events
        ]


@asynccontextmanager
async def a_stage(client: Client, browser: Browser) -> AsyncGenerator[Stage]:
    await register_missing(client)
    model = Model()

    async def work(arguments: dict[str, Any], _: Any) -> str:
        return await model.hold(arguments["until"]).then("worked")

    tools = FakeTool("look", f"a lamp {HOSTILE}"), FakeTool("pay"), FakeTool("burn")
    work_tool = FakeTool("work", work, effect="irreversible")
    fall = FakeTool("fall", permanent(f"it fell {HOSTILE}"))
    engine = Decides(approvers=(OWNER,))
    async with (
        a_loop(client, model, *tools, work_tool, fall, engine=engine, setup=FACTS, agents=AGENTS) as loop,
        a_console(client, loop.task_queue, limits=Limits(10_000, 10_000)) as console,
    ):
        loop.execution_timeout = timedelta(minutes=10)
        yield Stage(client, loop, console, browser, model)


@dataclass
class Live:
    """A run in a state, and the way out of it."""

    handle: WorkflowHandle[Any, Any]
    hold: Hold
    """The point at which its model or tool waits."""
    until_end: AsyncExitStack
    """Resources that the run needs until the test ends."""

    @property
    def id(self) -> str:
        return self.handle.id

    @property
    def path(self) -> str:
        return f"/runs/{self.id}"


Step = Callable[[Stage, Live], Awaitable[None]]


async def _stay(stage: Stage, run: Live) -> None:
    """Leave the run as it is."""


async def _reach_hold(stage: Stage, run: Live) -> None:
    await run.hold.reached()


async def _let_go(stage: Stage, run: Live) -> None:
    run.hold.go.set()


async def _reach_question(stage: Stage, run: Live) -> None:
    await wait_for_question(run.handle)


async def _decide(stage: Stage, run: Live) -> None:
    """Decide what the run waits for, so that it goes on."""
    [wait] = (await stage.console.get(run.path))["waits"]
    decisions: dict[str, dict[str, Any]] = {
        "approval": {"kind": "approve", "approval_id": wait["id"]},
        "answer": {"kind": "answer", "question_id": wait["id"], "text": "The red one"},
        "budget": {"kind": "extend", "max_iterations": 9},
        "escalation": {"kind": "resolve", "escalation_id": wait["id"], "choice": "skip"},
    }
    answer = await stage.console.post(f"{run.path}/actions", {"id": f"go-{uuid4()}", **decisions[wait["kind"]]})
    assert answer.json()["state"] == "applied", answer.text


async def _pause(stage: Stage, run: Live) -> None:
    await run.hold.reached()
    await run.handle.signal("pause")
    run.hold.go.set()
    await wait_until_still(run.handle)


async def _resume(stage: Stage, run: Live) -> None:
    await run.handle.signal("resume")


async def _bring_worker(stage: Stage, run: Live) -> None:
    loop = Loop(stage.client, (await run.handle.describe()).task_queue, stage.model)
    await run.until_end.enter_async_context(a_worker(loop, FakeTool("look"), setup=FACTS))


class State(NamedTuple):
    """A run in some state: the way there, the page that it then has, and the way on."""

    task: str
    shown: str
    """The state in the head of its page."""
    where: str
    """An element of its page that only this state has."""
    text: str
    """The text of that element."""
    enter: Step
    go_on: Step
    config: Mapping[str, Any] = {}
    is_goal: bool = False
    has_worker: bool = True


_AT_LIMIT = {"max_iterations": 1, "on_exhausted": "ask"}
_ESCALATES = {"step_iteration": {"max_reattempts": 1, "on_limit_reached": "escalate"}}
_PLANS, _THINKS = "find a lamp hold-plan:{hold}", "do: look think:{hold} answer"
_EVALUATES = "find a lamp hold-evaluate:{hold}"
LIVE: dict[str, State] = {
    "planning": State(_PLANS, "planning", ".flight-text", STREAMED, _reach_hold, _let_go, is_goal=True),
    "evaluating": State(_EVALUATES, "evaluating", ".flight-text", STREAMED, _reach_hold, _let_go, is_goal=True),
    "reasoning": State(_THINKS, "reasoning", ".flight-text", STREAMED, _reach_hold, _let_go),
    "acting": State("do: look work:{hold} answer", "acting", ".flight header b", "work", _reach_hold, _let_go),
    "held": State("do: look pay answer", "waiting", ".wait .call", "pay", _reach_question, _decide),
    "asked": State("do: look ask answer", "waiting", ".wait .question", "Which lamp?", _reach_question, _decide),
    "escalated": State(
        "do: fall fall fall answer", "waiting", ".wait header", "Escalation", _reach_question, _decide, _ESCALATES
    ),
    "paused": State(_THINKS, "paused", ".run-controls .primary", "Resume", _pause, _resume),
    "out of budget": State(
        "do: look look answer", "waiting", ".wait header", "Budget is used up", _reach_question, _decide, _AT_LIMIT
    ),
    "without a worker": State(
        "do: look answer", "preparing", ".trouble code", "orga worker", _stay, _bring_worker, has_worker=False
    ),
}


@asynccontextmanager
async def in_state(stage: Stage, name: str) -> AsyncGenerator[Live]:
    """Start a run and wait until it is in a state of `LIVE`. In the end it is terminated if it has not ended."""
    state, hold = LIVE[name], f"hold-{uuid4()}"
    loop = stage.loop if state.has_worker else Loop(stage.client, f"nobody-{uuid4()}", stage.model)
    task = state.task.format(hold=hold)
    handle = await (start_goal(loop, task, **state.config) if state.is_goal else loop.start(task, **state.config))
    async with AsyncExitStack() as until_end:
        live = Live(handle, stage.model.hold(hold), until_end)
        await state.enter(stage, live)
        yield live
        live.hold.go.set()
        await end(stage, handle.id)


async def end(stage: Stage, run_id: str) -> None:
    """Terminate a run unless it has ended."""
    try:
        await stage.client.get_workflow_handle(run_id).terminate()
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise


async def _terminate(stage: Stage, run: Live) -> None:
    await run.hold.reached()
    await run.handle.terminate("the test terminates it")


async def _abort(stage: Stage, run: Live) -> None:
    await run.hold.reached()
    await run.handle.signal("abort", {"text": "enough", "by": "kim"})


async def _cancel(stage: Stage, run: Live) -> None:
    await run.hold.reached()
    await run.handle.cancel()


async def _give_up(stage: Stage, run: Live) -> None:
    await wait_for_question(run.handle)
    [wait] = (await stage.console.get(run.path))["waits"]
    decision = {"kind": "resolve", "escalation_id": wait["id"], "choice": "abort", "reason": "hopeless"}
    await stage.console.post(f"{run.path}/actions", {"id": f"end-{uuid4()}", **decision})


class Ending(NamedTuple):
    """The end of a run, and the page that it then has."""

    task: str
    state: str
    detail: str = ""
    config: Mapping[str, Any] = {}
    enter: Step = _stay
    has_result: bool = True
    is_goal: bool = False
    within_s: float = 600
    """The time that the server gives it."""
    reason: str = ""
    """The reason in its journal, if it is not the state."""
    kept: int = 1
    """The latest iteration to which it can be rewound."""
    again: str = ""
    """Its state after a rewind to that iteration, if that is another one."""


_WORKS = "do: look work:{hold}"
ENDINGS: dict[str, Ending] = {
    "completed": Ending("do: look answer", "completed"),
    "max iterations": Ending("do: look look look", "max iterations", "limit of 2", {"max_iterations": 2}),
    "max tokens": Ending("do: look look", "max tokens", "110 of 100 tokens", {"max_total_tokens": 100}, kept=0),
    "max cost": Ending("do: look look", "max cost", "of 0.001 USD", {"max_cost_usd": 0.001}, kept=0),
    "timeout": Ending(_WORKS, "timeout", "limit of 1 s", {"timeout_s": 1}, again="completed"),
    "policy denial": Ending("do: burn burn burn burn burn", "policy denial", "burn"),
    "aborted": Ending(_WORKS, "aborted", "enough", {}, _abort, again="completed"),
    "cancelled": Ending(_WORKS, "aborted", "cancelled", {}, _cancel, again="completed"),
    "escalated": Ending("do: look fall fall", "escalated", "hopeless", _ESCALATES, _give_up, again="waiting"),
    "stuck": Ending("no-plan", "stuck", "3 replies in a row", is_goal=True, kept=0),
    "error": Ending("do: look fail", "error", "the model fails"),
    "terminated": Ending(_WORKS, "terminated", "", {}, _terminate, False, reason="aborted", again="completed"),
    "timed out": Ending("do: look pay", "timed out", has_result=False, within_s=6, reason="timeout", again="waiting"),
}


@asynccontextmanager
async def ended_as(stage: Stage, name: str) -> AsyncGenerator[Live]:
    ending, hold = ENDINGS[name], f"hold-{uuid4()}"
    loop = replace(stage.loop, execution_timeout=timedelta(seconds=ending.within_s))
    task = ending.task.format(hold=hold)
    handle = await (start_goal(loop, task, **ending.config) if ending.is_goal else loop.start(task, **ending.config))
    live = Live(handle, stage.model.hold(hold), AsyncExitStack())
    await ending.enter(stage, live)

    async def has_ended() -> bool:
        return (await handle.describe()).close_time is not None

    await wait_until(has_ended)
    live.hold.go.set()
    yield live


@contextmanager
def a_defect(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Let all workflow tasks of runs that are steered fail."""

    def spoiled(*_: Any) -> Any:
        raise ZeroDivisionError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr(interventions, "with_guidance", spoiled)
        yield


async def wait_until_stuck(stage: Stage, run: Live) -> None:
    async def fails() -> bool:
        return await failing_task(stage.client, await run.handle.describe()) is not None

    await wait_until(fails)
