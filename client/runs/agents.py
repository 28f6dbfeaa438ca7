"""The Python API of agents: start a run, steer it, query it, wait for its result."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from weakref import WeakKeyDictionary

import uuid_utils
from pydantic import BaseModel
from pydantic_core import to_json
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.common import TypedSearchAttributes, WorkflowIDConflictPolicy
from temporalio.exceptions import TerminatedError, WorkflowAlreadyStartedError
from temporalio.service import RPCError

from orga.client.config.workplace import client_memo, client_queue
from orga.client.errors import NotAnAgent, RunFailed
from orga.client.history.values import readable
from orga.client.runs.endings import kind_of
from orga.client.runs.exchange import Exchange, sender_fields, user_error
from orga.client.runs.ids import MAX_ID_BYTES, id_taken_error, reuse_policy
from orga.workflows.types.input import AgentInput, parse_input
from orga.workflows.types.names import AGENT_WORKFLOW
from orga.workflows.types.questions import Choice
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.status import AgentResult, AgentStatus, JournalEntry, ShownMessage
from orga.workflows.types.text import can_be_typed, clean_text, escaped_line, one_line

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from orga.client.config.known_input import RequestedNames
    from orga.client.journal.watcher import LiveActivity
    from orga.client.runs.attachments import Attachable
    from orga.workflows.types.goals.goal_input import GoalInput
    from orga.workflows.types.sessions.session_input import SessionInput

T = TypeVar("T", bound=AgentResult | AgentStatus)
R = TypeVar("R", bound=BaseModel)

_CHECKS_BY_CLIENT: "WeakKeyDictionary[Client, Callable[[RequestedNames], None]]" = WeakKeyDictionary()


def register_check(client: Client, check: "Callable[[RequestedNames], None]") -> None:
    """Register how this process's own worker, which uses this client, checks inputs."""
    _CHECKS_BY_CLIENT[client] = check


def check_by_local_worker(
    client: Client, checked: "AgentInput | GoalInput | SessionInput", task_queue: str | None
) -> None:
    """Refuse an input that this process's own worker would refuse. Check nothing if the run goes to another queue."""
    if client in _CHECKS_BY_CLIENT and task_queue in (None, client_queue(client)):
        from orga.client.config.known_input import requested_names

        _CHECKS_BY_CLIENT[client](requested_names(checked))


SUMMARY_CHARS = 150
"""Characters of a run's summary, which lists and Temporal's UI show."""

COMPLETION_TIMEOUT = timedelta(seconds=60)
"""Longer than for other updates, because a worker checks the result before the run answers."""

STARTED_BY_MEMO = "orga_started_by"
"""The memo key of the person who started a run, if the client has authenticated that person."""


class AgentHandle:
    """A run of an agent, live or ended: `AgentHandle(client, id)`. It also works for goals and sessions."""

    def __init__(self, client: Client, workflow_id: str) -> None:
        """Create the handle of a run. It stays valid across continue-as-new and rewinds. This sends no request.

        Args:
            client: From `connect`, `orga.worker` or your own with `OrgaPlugin`.
            workflow_id: The id of the run.
        """
        self.id = workflow_id
        self.client = client
        self._exchange = Exchange(client, workflow_id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r})"

    async def steer(self, guidance: str, *, by: str = "", intervention_id: str = "") -> None:
        """Guide the next reasoning step. Guidance is queued in order.

        Args:
            guidance: The text for the model.
            by: The name of the person, for the journal.
            intervention_id: Your id for the intervention, at most 64 printable ASCII characters. With it, the journal
                has an `InterventionApplied` when the model gets the text, or an `InterventionRefused`. A second
                intervention with the same id has no effect.

        Raises:
            RunNotFound: No run has this id.
            RunEnded: The run accepts no more signals.
        """
        await self._intervene("steer", guidance, by, intervention_id)

    async def add_context(self, context: str, *, by: str = "", intervention_id: str = "") -> None:
        """Add information to the agent's conversation. `by` and `intervention_id` are those of `steer`."""
        await self._intervene("add_context", context, by, intervention_id)

    async def pause(self, *, by: str = "", intervention_id: str = "") -> None:
        """Pause before the next phase. Clocks and budgets stop meanwhile. `by` and `intervention_id` as for `steer`.

        The journal has its `InterventionApplied` when the run pauses, or with the resume if that comes first.
        """
        await self._intervene("pause", None, by, intervention_id)

    async def resume(self, *, by: str = "", intervention_id: str = "") -> None:
        """Continue after a pause. `by` and `intervention_id` as for `steer`."""
        await self._intervene("resume", None, by, intervention_id)

    async def abort(self, why: str = "", *, by: str = "", intervention_id: str = "") -> None:
        """Cancel running calls and end the run with reason `aborted`. `by` and `intervention_id` as for `steer`."""
        await self._intervene("abort", why, by, intervention_id)

    async def _intervene(self, kind: str, text: str | None, by: str, intervention_id: str) -> None:
        sender = sender_fields(by, intervention_id)
        if sender:
            await self._exchange.signal(kind, {**sender, "text": text} if text else sender)
        elif text is None:
            await self._exchange.signal(kind)
        else:
            await self._exchange.signal(kind, text)

    async def extend_budget(self, *, by: str = "", **limits: float) -> dict[str, float]:
        """Raise limits of the live run and return all limits raised so far.

        Args:
            by: The name of the person, for the journal.
            limits: The new totals, not increments. The names are those of `BudgetExtension`.

        Raises:
            Refused: A limit is unknown, or the new limit is not higher.
            RunEnded: The run has ended.
            NoAnswer: No worker is running that can accept it.
        """
        return dict(await self._exchange.update("extend_budget", {**limits, **sender_fields(by)}))

    async def resolve_escalation(
        self, escalation_id: str, choice: Choice, result: str = "", by: str = "", reason: str = ""
    ) -> None:
        """Decide an escalation or a budget question.

        Args:
            escalation_id: The `wait_id` that `status` shows.
            choice: The decision. A budget question accepts only `skip` (end at the limit) and `abort`.
            result: The result with which the run continues, if the choice is `result`.
            by: The person who decided.
            reason: The reason, for the journal.

        Raises:
            Refused: Nothing waits under this id, it is already decided, or the choice does not fit.
        """
        texts = {"result": result, "by": by, "reason": reason}
        cleaned = {name: clean_text(text) for name, text in texts.items()}
        resolution = {"escalation_id": escalation_id, "choice": choice, **cleaned}
        await self._exchange.update("resolve_escalation", resolution)

    async def approve(
        self, approval_id: str, by: str, reason: str = "", *, arguments: Mapping[str, Any] | None = None
    ) -> None:
        """Approve one held call: only this call with these arguments, and only once.

        Args:
            approval_id: The id in `pending_approvals` of `status`.
            by: The person who decides. If policy names approvers, this must be one of them.
            reason: The reason, for the journal.
            arguments: All arguments of the call, if you change any of them, at most 20,000 characters of JSON. The
                tool's schema and the policies apply to them. If they do not fit, the call is held again.

        Raises:
            Refused: Nothing is held under this id, it is decided or has expired, or this person may not decide it.
            RunEnded: The run has ended.
            NoAnswer: No worker is running that can accept it.
        """
        changed = {} if arguments is None else {"arguments": dict(arguments)}
        await self._decide("approve", approval_id, by, reason, **changed)

    async def deny(self, approval_id: str, by: str, reason: str = "") -> None:
        """Deny one held call. The model reads the reason. Raises the same errors as `approve`."""
        await self._decide("deny", approval_id, by, reason)

    async def answer(self, text: str, question_id: str = "", by: str = "") -> str:
        """Answer a question of the run, and return the question's id.

        Args:
            text: The answer. It must be one of the question's `options`, if there are any.
            question_id: The question's id. Empty means the only open question.
            by: The person who answers.

        Raises:
            Refused: No such question is open, or the answer is none of its options.
            RunEnded: The run has ended.
            NoAnswer: No worker is running that can accept it.
        """
        optional = {"question_id": question_id} if question_id else {}
        answer = {"text": clean_text(text), "by": clean_text(by), **optional}
        return str(await self._exchange.update("answer", answer))

    async def complete_tool_call(
        self, idempotency_key: str, *, result: Any = None, error: str = "", nothing_done: bool = False, by: str
    ) -> None:
        """Give a call of a deferred tool its result, or its error. Repeating this changes nothing.

        Args:
            idempotency_key: The key of the call, which the tool's `start` received. `status` shows it as `wait_id`.
            result: Any JSON, or a pydantic model, at most 100,000 bytes. Like the result of any tool, it is untrusted.
            error: The error for the model, if the call failed.
            nothing_done: True if the failed call had no effect. Otherwise the effect of a failed irreversible call is
                unknown.
            by: The person or the program that completes it, for the journal.

        Raises:
            Refused: No call waits under this key, it is completed or has expired, or the result does not fit.
            InvalidInput: The result is no JSON.
            RunEnded: The run has ended.
            NoAnswer: No worker is running that can accept it.
        """
        given: dict[str, Any] = {"idempotency_key": idempotency_key, "by": clean_text(by)}
        if result is not None:
            try:
                given["result_json"] = to_json(result, inf_nan_mode="strings").decode()
            except ValueError as problem:
                raise InvalidInput(f"result: is no JSON: {problem}. Give text, numbers, lists, objects") from None
        if error:
            given["error"] = clean_text(error)
        if nothing_done:
            given["nothing_done"] = True
        await self._exchange.update("complete_tool_call", given, COMPLETION_TIMEOUT)

    async def requeue(self, letter_id: str, *, by: str = "") -> None:
        """Let the run send a dead letter again before its next reasoning step, under its original key.

        Args:
            letter_id: The id in `dead_letters` of `status`.
            by: The name of the person, for the journal.

        Raises:
            Refused: There is no such letter.
            RunEnded: The run has ended. Only a fork can send it: `orga.runs.fork(..., requeue=[letter_id])`.
        """
        sender = sender_fields(by)
        await self._exchange.update("requeue", {"letter_id": letter_id, **sender} if sender else letter_id)

    async def status(self) -> AgentStatus:
        """Return the run's current status.

        Raises:
            NoAnswer: No worker is running that can answer.
        """
        answer = await self._exchange.query("status")
        return kind_of(answer).status.model_validate(answer)

    async def live_status(self) -> AgentStatus:
        """Return the status for a person who is about to decide. Fail at once if no worker could accept the decision.

        Raises:
            RunEnded: The run has ended.
            NoAnswer: No worker is running.
        """
        await self._exchange.require_worker()
        return await self.status()

    async def conversation(self) -> list[ShownMessage]:
        """Return the messages as the model would see them. They are queried page by page."""
        found: list[ShownMessage] = []
        while page := await self._exchange.query("conversation", {"offset": len(found)}):
            found += map(ShownMessage.model_validate, page)
        return found

    async def result(self) -> AgentResult:
        """Wait for the run to end and return its result. If the run is rewound meanwhile, wait for its new end.

        Raises:
            RunFailed: The input was invalid, the workflow has a defect, or an operator terminated the run.
            UnreadableRun: The client lacks the payload codec of the run's application.
        """
        while True:
            try:
                ended = readable(await self._exchange.workflow.result())
                return kind_of(ended).result.model_validate(ended)
            except WorkflowFailureError as error:
                if not await self._was_reset(error):
                    raise RunFailed(str(error.cause)) from None
            except RPCError as error:
                raise user_error(error, self.id) from error

    def events(self, after: int | str | None = None) -> "AsyncGenerator[JournalEntry | LiveActivity]":
        """Yield what happens in the run, live, until it ends.

        A `JournalEntry` comes as soon as the history has it. A `LiveActivity` comes whenever a running model or tool
        call has changed, with the text that the model has written so far. All readers of a run in one process share one
        watcher, and watching adds nothing to the run's history.

        The events continue across continue-as-new, and if the server is away for less than a minute. If the run is
        rewound meanwhile, the next entry has a sequence that was used before. It replaces the earlier entry with that
        sequence and all later ones. Entries of delegated runs come when the delegation ends, as in the journal. Until
        then, only the `LiveActivity` of a delegate comes. The delegate's own handle yields its entries live.

        Args:
            after: The `cursor` or `sequence` of the last entry that you have. None begins with the first entry. If a
                rewind has removed that entry, all entries come again. If the rewound run has reached the same sequence
                again, only a cursor shows that the entry was removed.

        Raises:
            RunNotFound: No run has this id.
            NotAnAgent: The id belongs to a workflow of another type.
            InvalidInput: `after` is neither a sequence nor a cursor.
            ServerLost: The server has been away for a minute.
        """
        from orga.client.journal.watcher import run_events

        return run_events(self.client, self.id, after)

    async def describe(self) -> WorkflowExecutionDescription:
        """Return the server's description of the run, including its running activities."""
        return await self._exchange.describe()

    async def _checked_kind(self, answer: AgentResult | AgentStatus, kind: type[T], workflow: str) -> T:
        """Return the answer, or raise NotAnAgent if the run is of another kind than the subclass is for."""
        if isinstance(answer, kind):
            return answer
        raise NotAnAgent(self.id, (await self.describe()).workflow_type, (workflow,))

    async def _decide(self, update: str, approval_id: str, by: str, reason: str, **changed: Any) -> None:
        decision = {"approval_id": approval_id, "approver": clean_text(by), "reason": clean_text(reason), **changed}
        await self._exchange.update(update, decision)

    async def _was_reset(self, error: WorkflowFailureError) -> bool:
        """Return whether the run was reset. A reset terminates a run and starts another with the same id at once."""
        is_terminated = isinstance(error.cause, TerminatedError)
        return is_terminated and (await self.describe()).status != WorkflowExecutionStatus.TERMINATED


async def start_agent(
    client: Client,
    agent_input: AgentInput | Mapping[str, Any] | str,
    *,
    workflow_id: str | None = None,
    task_queue: str | None = None,
    again: bool = False,
    search_attributes: TypedSearchAttributes = TypedSearchAttributes.empty,
    attachments: "Sequence[Attachable]" = (),
) -> AgentHandle:
    """Start a run and return its handle.

    Args:
        client: From `connect` or `orga.worker`, or your own with `OrgaPlugin`.
        agent_input: The input of `AgentWorkflow`. A string is the task.
        workflow_id: The run's id, by default `agent-<uuid7>`.
        task_queue: The queue that the workers poll. None takes the client's queue if it comes from `connect` or
            `orga.worker`, else `orga`. If no worker polls the queue, the run waits without any message.
        again: Start even if a run with this id has ended. The old history can then be found only by its run id.
        search_attributes: Set from the start. The run adds its own.
        attachments: Pictures and PDFs that belong to the task: paths, bytes, `orga.Media`, or references. They are put
            into the folder `blobs` of this machine's state, or into your own store. The worker must use the same one.

    Raises:
        InvalidInput: The input or an attachment is invalid. The text names it, and nothing was started.
        OrgaError: A run with this id is live, or has ended and `again` is False.
    """
    given = {"task": agent_input} if isinstance(agent_input, str) else agent_input
    checked = parse_input(dict(given) if isinstance(given, Mapping) else given)
    run_id = new_run_id(workflow_id)
    if attachments:
        from orga.client.runs.attachments import with_attachments

        checked = await with_attachments(checked, attachments, client)
    await start_run(
        client,
        AGENT_WORKFLOW,
        checked,
        checked.task,
        run_id,
        task_queue=task_queue,
        again=again,
        attributes=search_attributes,
    )
    return AgentHandle(client, run_id)


def given_fields(given: Mapping[str, Any] | R, parse: Callable[[Any], R]) -> dict[str, Any]:
    """Return the fields that the caller has set. Raise InvalidInput if `given` is an input of another kind."""
    if isinstance(given, Mapping):
        return dict(given)
    return {name: getattr(given, name) for name in parse(given).model_fields_set}


async def start_run(
    client: Client,
    workflow: str,
    checked: "AgentInput | GoalInput | SessionInput",
    summary: str,
    run_id: str,
    *,
    task_queue: str | None,
    again: bool,
    attributes: TypedSearchAttributes,
    started_by: str = "",
) -> None:
    """Start a run of any kind with a checked input and a checked id. `started_by` is put into the memo."""
    if task_queue is not None:
        _refuse_hidden_characters(task_queue, "task_queue")
    check_by_local_worker(client, checked, task_queue)
    memo = client_memo(client)
    if started_by:
        memo[STARTED_BY_MEMO] = started_by
    try:
        await client.start_workflow(
            workflow,
            checked.model_dump(mode="json", exclude_unset=True),
            id=run_id,
            task_queue=task_queue or client_queue(client),
            id_reuse_policy=reuse_policy(again=again),
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            static_summary=one_line(summary, SUMMARY_CHARS),
            search_attributes=attributes,
            memo=memo or None,
        )
    except RPCError as error:
        raise user_error(error, run_id) from error
    except WorkflowAlreadyStartedError:
        raise await id_taken_error(client, run_id) from None


def new_run_id(given: str | None, kind: Literal["agent", "goal", "session"] = "agent") -> str:
    """Return the id of a new run: the given one, else `<kind>-<uuid7>`."""
    if given is None:
        return f"{kind}-{uuid_utils.uuid7()}"
    _refuse_hidden_characters(given, "id")
    if len(given.encode(errors="replace")) > MAX_ID_BYTES:
        raise InvalidInput(f"id: must not be longer than {MAX_ID_BYTES} bytes")
    return given


def _refuse_hidden_characters(name: str, what: str) -> None:
    if not can_be_typed(name):
        problem = (
            "must be one line, not empty, without control or hidden characters or double spaces, not beginning with -"
        )
        raise InvalidInput(f"{what} {escaped_line(name)!r}: {problem}")
