"""The runs that a front end may see and start (`Reach`), and the open questions of a run (`open_waits`)."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal, TypeVar, cast

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.service import RPCError

from orga.client.errors import IdTaken, OrgaError, RunNotFound
from orga.client.runs.agents import AgentHandle, start_agent
from orga.client.runs.goals import start_goal
from orga.client.runs.ids import MAX_ID_BYTES, refuse_derived
from orga.client.runs.sessions import SessionHandle, start_session
from orga.workflows.types.goals.goal_input import GoalInput, parse_goal
from orga.workflows.types.input import AgentInput, Attachment, parse_input
from orga.workflows.types.json_text import as_object, as_objects, as_text, inner_values
from orga.workflows.types.names import RUN_WORKFLOWS, SESSION_WORKFLOW, TENANT
from orga.workflows.types.questions import Item, ShownQuestion
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.text import one_line

F = TypeVar("F", bound=Callable[..., Any])

Kind = Literal["agent", "goal", "session"]


@dataclass(frozen=True)
class Reach:
    """The runs that a front end may see, and its user. For the front end, no other run exists."""

    client: Client
    by: str
    """The name of the person, for the journal."""
    runs_query: str
    """A visibility query that selects these runs."""
    has: Callable[[WorkflowExecution], bool]
    """Returns whether a run is one of these."""
    serve: Callable[[WorkflowExecution], Awaitable[None]] | None = None
    """Makes sure that a worker polls for a run, if this process may start one."""
    tenant: str | None = None
    """The only tenant whose runs exist. A new run gets this tenant. None: runs of all tenants exist."""
    check: Callable[[AgentInput | GoalInput], None] = lambda _: None
    """Raises InvalidInput for a run that no worker would take."""
    count_write: Callable[[], None] = lambda: None
    """Raises InvalidInput if the person writes too often."""
    may_write: bool = True
    """True if the person may start, answer and guide runs."""

    async def open(self, run_id: str, *, is_write: bool = False) -> AgentHandle:
        """Return the handle of a run that this front end may see. A live run gets a worker."""
        if is_write:
            self.count_write()
        if not 0 < len(run_id) <= MAX_ID_BYTES:
            raise RunNotFound(run_id[:50])
        run = await AgentHandle(self.client, run_id).describe()
        is_other_tenant = self.tenant is not None and run.typed_search_attributes.get(TENANT) != self.tenant
        is_own = run.workflow_type in RUN_WORKFLOWS and self.has(run)
        if not is_own or is_other_tenant:
            raise RunNotFound(run_id)
        if self.serve and run.status == WorkflowExecutionStatus.RUNNING:
            await self.serve(run)
        return handle_of(self.client, run)

    async def start(
        self,
        kind: Kind,
        agent: str,
        task: str = "",
        run_id: str | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> AgentHandle:
        """Start a run. A session begins without a task and attachments."""
        refuse_derived(run_id)
        try:
            return await self._start(kind, agent, task, run_id, attachments)
        except IdTaken:
            if run_id is None:
                raise
            # the error names the state of a run that may belong to somebody else
            raise InvalidInput(f"id: {one_line(run_id)!r} is taken by another run. Choose another id") from None

    async def _start(
        self, kind: Kind, agent: str, task: str, run_id: str | None, attachments: Sequence[Attachment]
    ) -> AgentHandle:
        given = {"agent": agent} if self.tenant is None else {"agent": agent, "tenant": self.tenant}
        # the run itself sets its tenant only later
        attributes = TypedSearchAttributes([SearchAttributePair(TENANT, self.tenant)] if self.tenant else [])
        if kind == "session":
            return await start_session(self.client, given, session_id=run_id, search_attributes=attributes)
        if kind == "goal":
            goal = parse_goal(given | {"goal": task})
            self.check(goal)
            return await start_goal(
                self.client, goal, workflow_id=run_id, search_attributes=attributes, attachments=attachments
            )
        checked = parse_input(given | {"task": task})
        self.check(checked)
        return await start_agent(
            self.client, checked, workflow_id=run_id, search_attributes=attributes, attachments=attachments
        )


def handle_of(client: Client, run: WorkflowExecution) -> AgentHandle:
    return (SessionHandle if run.workflow_type == SESSION_WORKFLOW else AgentHandle)(client, run.id)


def converts_errors(convert: Callable[[Exception], Exception]) -> Callable[[F], F]:
    """Return a decorator that converts errors with a text for the user into errors of a protocol."""

    def decorate(method: F) -> F:
        @wraps(method)
        async def call(*given: Any, **named: Any) -> Any:
            try:
                return await method(*given, **named)
            except (OrgaError, InvalidInput, RPCError) as error:
                raise convert(error) from None

        return cast("F", call)

    return decorate


@dataclass(frozen=True)
class OpenWait:
    """An open question of a run, or of one of its delegates."""

    run: AgentHandle
    """The run that asks."""
    shown: ShownQuestion
    calls: tuple[Item, ...]
    """The held calls that nobody has decided."""

    @property
    def key(self) -> tuple[str, str]:
        """The id of the run that asks, and the id of the question."""
        return self.run.id, self.shown.wait_id

    @property
    def ids(self) -> set[str]:
        """The ids of the question and of its held calls."""
        return {self.shown.wait_id, *(item.approval_id for item in self.calls)}

    @property
    def options(self) -> list[str]:
        """The only valid answers to a question. Empty: any text."""
        return [as_text(option) for option in inner_values(self.shown.data.get("options"))]


async def open_waits(run: AgentHandle) -> list[OpenWait]:
    """Return the open questions of a run and its delegates. Raise NoAnswer if no worker is running."""
    status = await run.status()
    waits = list[OpenWait]()
    for wait in status.waiting:
        ids = {as_text(call.get("id")) for call in as_objects(wait.data.get("calls"))}
        waits.append(OpenWait(run, wait, tuple(item for item in status.pending_approvals if item.approval_id in ids)))
    for child in status.children:
        with suppress(OrgaError):  # the delegate may have ended meanwhile, or not begun
            waits += await open_waits(AgentHandle(run.client, child.workflow_id))
    return waits


def held_arguments(item: Item) -> dict[str, Any] | None:
    """Return the arguments of a held call, or None if they are too long to be kept. Then nobody may approve it here."""
    return None if "arguments_digest" in item.call else as_object(item.call.get("arguments"))
