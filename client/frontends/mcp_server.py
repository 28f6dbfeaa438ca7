"""An MCP server whose tools let assistants start runs, follow them, and answer their questions.

Clients give up on a call after a minute. So each call returns within `wait_s`, with the state of the run and its open
questions. The run goes on, and the next call waits for more. No run ends because a call or a client ends.
"""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from typing import Annotated, Any, Literal, cast

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult, ToolAnnotations
from pydantic import BaseModel, Field
from temporalio.client import WorkflowExecutionStatus

from orga.client.errors import OrgaError, Refused
from orga.client.frontends.reach import OpenWait, Reach, converts_errors, held_arguments, open_waits
from orga.client.runs.agents import AgentHandle
from orga.workflows.types.questions import Choice
from orga.workflows.types.text import escaped_text, one_line

LOOK_S = 0.5
"""Seconds between two reads of a run's state."""
PROGRESS_S = 5.0
"""Seconds between two reports of progress."""
MAX_ANSWER_CHARS = 20_000

INSTRUCTIONS = """Durable agents. `start_run` begins a run and returns when it has ended, waits for a person, or wait_s
is over; the run goes on in any case. While its state is `running`, call `run_state` to wait for more. While it is
`waiting`, show the user what it waits for: `answer` answers a question. A held call is decided by a person, with
`orga inbox` or, if this server has it, with `decide` after the user has seen the call."""

RunId = Annotated[str, Field(description="The id of the run.", max_length=1_000)]
WaitS = Annotated[float, Field(description="Seconds to wait for news, at most 55.", ge=0, le=55)]
DEFAULT_WAIT_S = 45.0


class HeldCall(BaseModel):
    """A call that does not run until a person allows it."""

    approval_id: str
    tool: str
    arguments: str
    reason: str
    approvers: list[str]


class WaitingItem(BaseModel):
    """Something that waits for a person."""

    id: str
    kind: str
    question: str
    options: list[str] = Field(description="The only valid answers or decisions. Empty: any text.")
    calls: list[HeldCall]


class RunState(BaseModel):
    """The state of a run."""

    run_id: str
    state: str = Field(description="running, waiting, or how it ended: completed, aborted, max_iterations, …")
    phase: str = ""
    iteration: int = 0
    waits: list[WaitingItem] = []
    output: str = Field(default="", description="The answer, once the run has ended.")
    data: Any = None
    detail: str = Field(default="", description="Why it ended.")


Reply = RunState | InputRequiredResult


@dataclass
class Runs:
    """Follows runs, and asks their questions, for the tools of one client."""

    reach: Reach
    _reported: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """The ids of the questions in the last returned state of each run, by the run's id."""
    _no_form: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """The keys of questions that no form asks again."""

    async def follow(self, ctx: Context, run: AgentHandle, wait_s: float) -> Reply:
        """Wait for the end of the run, for a question that was not reported yet, or for `wait_s` seconds."""
        clock = asyncio.get_running_loop().time
        state = RunState(run_id=run.id, state="running")
        started = progress_at = clock()
        deadline = started + wait_s
        while True:
            if (await run.describe()).status != WorkflowExecutionStatus.RUNNING:
                return await self._ended(run)
            waits = list[OpenWait]()
            try:
                status = await run.status()
                state.phase, state.iteration = status.phase, status.iteration
                waits = await open_waits(run)
            except OrgaError:  # no worker answers at the moment
                state.phase = "no worker"
            question = self._question_to_ask(ctx, waits)
            if question and (left_s := deadline - clock()) > 0:
                form = await self._ask(ctx, run, question, left_s)
                if form is not None:
                    return form
                continue  # the question was answered or declined, or its time is over
            state.waits, state.state = [_wait_view(wait) for wait in waits], "waiting" if waits else "running"
            ids = frozenset(id_ for wait in waits for id_ in wait.ids)
            is_news = not ids <= self._reported.get(run.id, frozenset())
            if clock() >= deadline or is_news:
                self._reported[run.id] = ids
                return state
            if clock() >= progress_at:
                progress_at = clock() + PROGRESS_S
                about = f"{state.state}: {state.phase}, iteration {state.iteration}"
                await ctx.report_progress(clock() - started, wait_s, about)
            await asyncio.sleep(min(LOOK_S, max(deadline - clock(), 0)))

    async def find_wait(self, run: AgentHandle, wanted: str, kinds: frozenset[str]) -> OpenWait:
        """Return the open question with this id or held call. The id "" means the only question of these kinds."""
        waits = [wait for wait in await open_waits(run) if wait.shown.kind in kinds]
        if not wanted and len(waits) == 1:
            return waits[0]
        for wait in waits:
            if wanted in wait.ids:
                return wait
        known = ", ".join(sorted(id_ for wait in waits for id_ in wait.ids)) or "nothing"
        raise ToolError(f"{one_line(wanted)!r} does not wait in this run. What waits there: {known}")

    async def _ended(self, run: AgentHandle) -> RunState:
        self._reported.pop(run.id, None)
        ended = await run.result()
        how = ended.termination
        state = RunState(run_id=run.id, state=how.reason, phase="ended", iteration=ended.iterations)
        state.output, state.data, state.detail = ended.output, ended.data, how.detail
        return state

    def _question_to_ask(self, ctx: Context, waits: list[OpenWait]) -> OpenWait | None:
        """Return the first question that a form may ask, or None if there is none, or the client shows no forms."""
        client = ctx.client_capabilities
        has_forms = client is not None and client.elicitation is not None
        if not has_forms or not self.reach.may_write:
            return None
        questions = (wait for wait in waits if wait.shown.kind == "answer")
        return next((wait for wait in questions if wait.key not in self._no_form), None)

    async def _ask(self, ctx: Context, run: AgentHandle, wait: OpenWait, within_s: float) -> InputRequiredResult | None:
        """Ask the person in a form, and record the answer.

        A client of a newer revision of MCP gets the form as its call's result, and repeats the call with the answer.
        Then return this result.
        """
        limit = {"enum": wait.options} if wait.options else {"maxLength": MAX_ANSWER_CHARS}
        answer = {"type": "string", "title": "Answer", **limit}
        schema = {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
        message, session = escaped_text(wait.shown.question), ctx.request_context.session
        if not session.can_send_request:
            form = ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))
            state = json.dumps({"run": run.id, "asker": wait.run.id, "question": wait.shown.wait_id})
            return InputRequiredResult(input_requests={"answer": form}, request_state=state)
        try:
            async with asyncio.timeout(within_s):
                result = await session.elicit_form(message, schema, ctx.request_id)
            await self._take_answer(wait.run, wait.shown.wait_id, result)
        except TimeoutError:
            self._no_form.add(wait.key)
        return None

    async def continued(self, ctx: Context) -> AgentHandle | None:
        """Record the answer in a repeated call, and return the run to follow. Return None for any other call."""
        if not ctx.request_state:
            return None
        # the package seals the state, so the client cannot name another run
        state, answer = json.loads(ctx.request_state), (ctx.input_responses or {}).get("answer")
        asker, question = state["asker"], state["question"]
        if isinstance(answer, ElicitResult) and (asker, question) not in self._no_form:
            await self._take_answer(AgentHandle(self.reach.client, asker), question, answer)
        return await self.reach.open(state["run"])

    async def _take_answer(self, asker: AgentHandle, question: str, result: ElicitResult) -> None:
        """Answer a question, unless the person declined. No form asks it again, even if the run refuses the answer."""
        self._no_form.add((asker.id, question))
        text = (result.content or {}).get("answer") if result.action == "accept" else None
        if isinstance(text, str) and text.strip():
            self.reach.count_write()
            with suppress(Refused):  # it is answered already, or the text is none of its options
                await asker.answer(text, question, self.reach.by)


def _wait_view(wait: OpenWait) -> WaitingItem:
    calls = [
        HeldCall(
            approval_id=item.approval_id,
            tool=str(item.call.get("name", "")),
            arguments=json.dumps(held_arguments(item), ensure_ascii=False),
            reason=item.reason,
            approvers=list(item.approvers),
        )
        for item in wait.calls
    ]
    options = wait.options or [choice for choice in wait.shown.choices if choice != "result"]
    return WaitingItem(
        id=wait.shown.wait_id, kind=wait.shown.kind, question=wait.shown.question, options=options, calls=calls
    )


def build_server(reach: Reach, *, agent_tools: Mapping[str, str] | None = None, may_decide: bool = False) -> MCPServer:
    """Return a server for one client.

    Args:
        agent_tools: Agents that get a tool of their own, each with its purpose.
        may_decide: Offer the tool `decide`. The user of the client is the approver.
    """
    runs = Runs(reach)
    server: MCPServer = MCPServer("orga", title="orga: durable agents", instructions=INSTRUCTIONS, log_level="ERROR")
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)

    def tool(function: Callable[..., Any], annotations: ToolAnnotations | None = None, **named: Any) -> None:
        @wraps(function)
        async def call(**given: Any) -> Any:
            if (ctx := given.get("ctx")) and (run := await runs.continued(ctx)):
                return await runs.follow(ctx, run, given["wait_s"])  # the first call has carried out the function
            return await function(**given)

        server.add_tool(_with_errors(call), annotations=annotations, **named)

    async def start_run(
        ctx: Context,
        task: Annotated[str, Field(description="What to do.")],
        *,
        agent: Annotated[str, Field(description="The name of the agent.")] = "default",
        kind: Annotated[Literal["agent", "goal"], Field(description="goal: plan steps, and evaluate them.")] = "agent",
        run_id: Annotated[str | None, Field(description="An id of your choice, so that it starts once.")] = None,
        wait_s: WaitS = DEFAULT_WAIT_S,
    ) -> Reply:
        """Start a run on a task. It returns the state of the run; the run goes on after that."""
        return await runs.follow(ctx, await reach.start(kind, agent, task, run_id), wait_s)

    async def run_state(ctx: Context, run_id: RunId, wait_s: WaitS = DEFAULT_WAIT_S) -> Reply:
        """Wait for news of a run: its end, or something new that waits for a person. Then return its state."""
        return await runs.follow(ctx, await reach.open(run_id), wait_s)

    async def result(ctx: Context, run_id: RunId, wait_s: WaitS = DEFAULT_WAIT_S) -> Reply:
        """Return the result of a run that has ended. A run that goes on is waited for."""
        return await runs.follow(ctx, await reach.open(run_id), wait_s)

    async def answer(
        ctx: Context,
        run_id: RunId,
        text: Annotated[str, Field(description="The user's answer.", max_length=MAX_ANSWER_CHARS)],
        question_id: Annotated[str, Field(description="Needed if several questions are open.")] = "",
        wait_s: WaitS = DEFAULT_WAIT_S,
    ) -> Reply:
        """Answer a question of a run with the words of the user."""
        run = await reach.open(run_id, is_write=True)
        wait = await runs.find_wait(run, question_id, frozenset({"answer"}))
        await wait.run.answer(text, wait.shown.wait_id, reach.by)
        return await runs.follow(ctx, run, wait_s)

    async def decide(
        ctx: Context,
        run_id: RunId,
        *,
        wait_id: Annotated[str, Field(description="The approval_id of a held call, or the id of what waits.")],
        decision: Annotated[
            Literal["approve", "deny", "retry", "skip", "abort"],
            Field(description="approve or deny for a held call, else one of the options."),
        ],
        reason: Annotated[str, Field(max_length=2_000)] = "",
        wait_s: WaitS = DEFAULT_WAIT_S,
    ) -> Reply:
        """Decide what waits in a run, as the user has decided after seeing it."""
        run = await reach.open(run_id, is_write=True)
        wait = await runs.find_wait(run, wait_id, frozenset({"approval", "escalation", "budget"}))
        item = next((each for each in wait.calls if each.approval_id == wait_id), None)
        is_about_call = decision in {"approve", "deny"}
        if is_about_call != (item is not None):
            raise ToolError(f"decision: {decision} does not fit {wait_id}. Name the approval_id of a held call")
        if item is None:
            await wait.run.resolve_escalation(wait_id, cast("Choice", decision), by=reach.by, reason=reason)
        elif decision == "approve":
            if held_arguments(item) is None:
                raise ToolError("wait_id: the arguments are too long to show here. Use: orga approve --show")
            await wait.run.approve(wait_id, reach.by, reason)
        else:
            await wait.run.deny(wait_id, reach.by, reason)
        return await runs.follow(ctx, run, wait_s)

    async def steer(
        run_id: RunId, guidance: Annotated[str, Field(description="What the agent reads at its next step.")]
    ) -> str:
        """Guide a run."""
        await (await reach.open(run_id, is_write=True)).steer(guidance, by=reach.by)
        return "sent: the run reads it at its next step"

    async def abort(ctx: Context, run_id: RunId, why: str = "", wait_s: WaitS = DEFAULT_WAIT_S) -> Reply:
        """End a run at once. Its result keeps what was gathered so far."""
        run = await reach.open(run_id, is_write=True)
        await run.abort(why, by=reach.by)
        return await runs.follow(ctx, run, wait_s)

    tool(run_state, reads)
    tool(result, reads)
    if reach.may_write:
        for function in (start_run, answer, steer, abort, *([decide] if may_decide else [])):
            tool(function)
    for name, purpose in (agent_tools or {}).items():
        about = f"Give a task to the agent {name}. {purpose}".strip()
        tool_name = f"ask_{re.sub('[^A-Za-z0-9_-]', '_', name)}"[:64]
        tool(_agent_tool(start_run, name), name=tool_name, description=about)
    return server


_with_errors = converts_errors(lambda error: ToolError(str(error)))


def _agent_tool(start_run: Callable[..., Any], agent: str) -> Callable[..., Any]:
    async def ask(
        ctx: Context,
        task: Annotated[str, Field(description="What to do, with everything that the agent needs to know.")],
        wait_s: WaitS = DEFAULT_WAIT_S,
    ) -> Reply:
        return await start_run(ctx, task, agent=agent, wait_s=wait_s)

    return ask
