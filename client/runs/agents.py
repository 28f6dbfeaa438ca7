"""Agents from Python: start one, steer it, ask it, wait for it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import uuid_utils
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.common import TypedSearchAttributes, WorkflowIDConflictPolicy
from temporalio.exceptions import TerminatedError, WorkflowAlreadyStartedError
from temporalio.service import RPCError

from orga.client.config.workplace import queue_and_memo
from orga.client.errors import RunFailed
from orga.client.runs.exchange import Exchange, user_error
from orga.client.runs.ids import MAX_ID_BYTES, id_taken_error, reuse_policy
from orga.client.runs.kinds import kind_of
from orga.client.runs.local_worker import check_by_local_worker
from orga.workflows.types.input import AgentInput, parse_input
from orga.workflows.types.names import AGENT_WORKFLOW
from orga.workflows.types.questions import Choice, Resolution
from orga.workflows.types.record import InvalidInput
from orga.workflows.types.status import AgentResult, AgentStatus, JournalEntry, ShownMessage
from orga.workflows.types.text import can_be_typed, clean_text, escaped_line, one_line

if TYPE_CHECKING:  # who starts an agent loads none of these
    from collections.abc import AsyncGenerator

    from orga.client.journal.events import LiveActivity
    from orga.workflows.types.goals.input import GoalInput
    from orga.workflows.types.sessions.input import SessionInput

SUMMARY_CHARS = 150


class AgentHandle:
    """A run of an agent, live or ended: `AgentHandle(client, id)`. All but `override_step` works for a goal, too."""

    def __init__(self, client: Client, workflow_id: str) -> None:
        """Make the handle of a run, through all its continue-as-new runs and rewinds. The server is not asked.

        Args:
            client: From `connect`, `orga.worker` or your own with `OrgaPlugin`.
            workflow_id: The id of the run.
        """
        self.id = workflow_id
        self.client = client
        self._exchange = Exchange(client, workflow_id)

    async def steer(self, guidance: str) -> None:
        """Guide the next reasoning step. Guidance is queued, in order.

        Raises:
            RunNotFound: No run has this id.
            RunEnded: It takes no more signals.
        """
        await self._exchange.signal("steer", guidance)

    async def add_context(self, context: str) -> None:
        """Append to what the agent knows."""
        await self._exchange.signal("add_context", context)

    async def pause(self) -> None:
        """Stop before the next phase; clocks and budgets stand still."""
        await self._exchange.signal("pause")

    async def resume(self) -> None:
        """Go on after a pause."""
        await self._exchange.signal("resume")

    async def abort(self, why: str = "") -> None:
        """Cancel what is in flight and end with reason `aborted`."""
        await self._exchange.signal("abort", why)

    async def extend_budget(self, **limits: float) -> dict[str, float]:
        """Raise limits of the live run and return all that were raised so far.

        Args:
            limits: The new limits, not what is added to the old ones; names as in `BudgetExtension`.

        Raises:
            Refused: An unknown limit, or one that would not get higher.
            RunEnded: There is nothing to raise any more.
            NoAnswer: No worker is there to take it.
        """
        return dict(await self._exchange.update("extend_budget", limits))

    async def resolve_escalation(
        self, escalation_id: str, choice: Choice, result: str = "", by: str = "", reason: str = ""
    ) -> None:
        """Decide what waits for a person.

        Args:
            escalation_id: The `wait_id` that `status` shows.
            choice: What to do; a budget takes `skip` (end at the limit) and `abort` only.
            result: What the run goes on with, for `result`.
            by: Who decided.
            reason: Stands in the journal.

        Raises:
            Refused: Nothing waits under this id, it is decided already, or the choice does not fit.
        """
        texts = {"result": result, "by": by, "reason": reason}
        cleaned = {name: clean_text(text) for name, text in texts.items()}
        resolution = Resolution(escalation_id=escalation_id, choice=choice, **cleaned)
        await self._exchange.update("resolve_escalation", resolution.model_dump(mode="json"))

    async def approve(self, approval_id: str, by: str, reason: str = "") -> None:
        """Say yes to one held call: that call, with those arguments, once.

        Args:
            approval_id: As `status` shows it, in `pending_approvals`.
            by: Who decides; has to be one of the approvers where policy names some.
            reason: Stands in the journal.

        Raises:
            Refused: Nothing is held under this id, it is decided or has expired, or this person may not decide it.
            RunEnded: It is not live.
            NoAnswer: No worker is there to take it.
        """
        await self._decide("approve", approval_id, by, reason)

    async def deny(self, approval_id: str, by: str, reason: str = "") -> None:
        """Say no to one held call; the model reads the reason. Raises as `approve` does."""
        await self._decide("deny", approval_id, by, reason)

    async def answer(self, text: str, question_id: str = "", by: str = "") -> str:
        """Answer what the run asks, and return the id of the question.

        Args:
            text: The answer; one of the `options` where the question has some.
            question_id: Which question; empty for the one that is open.
            by: Who answers.

        Raises:
            Refused: Nothing is asked, or not under this id; or it is none of the options.
            RunEnded: It is not live.
            NoAnswer: No worker is there to take it.
        """
        said = {"text": clean_text(text), "by": clean_text(by), **({"question_id": question_id} if question_id else {})}
        return str(await self._exchange.update("answer", said))

    async def requeue(self, letter_id: str) -> None:
        """Let the run send a dead letter again before its next reasoning step, under the key that it had.

        Raises:
            Refused: There is no such letter.
            RunEnded: Only a fork of it can: `orga.runs.fork(..., requeue=[letter_id])`.
        """
        await self._exchange.update("requeue", letter_id)

    async def status(self) -> AgentStatus:
        """Return where the run stands.

        Raises:
            NoAnswer: No worker is there to answer.
        """
        answer = await self._exchange.query("status")
        return kind_of(answer).status.model_validate(answer)

    async def live_status(self) -> AgentStatus:
        """Return where the run stands, to decide something about it; says at once when nobody could take that.

        Raises:
            RunEnded: It is not live.
            NoAnswer: No worker is there.
        """
        await self._exchange.polled()
        return await self.status()

    async def conversation(self) -> list[ShownMessage]:
        """Return the messages as the model would see them, asked for page by page."""
        found: list[ShownMessage] = []
        while page := await self._exchange.query("conversation", {"offset": len(found)}):
            found += map(ShownMessage.model_validate, page)
        return found

    async def result(self) -> AgentResult:
        """Wait for the ending; a run that is rewound meanwhile has another.

        Raises:
            RunFailed: Invalid input, a defect, or the run was terminated by an operator.
        """
        while True:
            try:
                ended = await self._exchange.workflow.result()
                return kind_of(ended).result.model_validate(ended)
            except WorkflowFailureError as error:
                if not await self._was_reset(error):
                    raise RunFailed(_failure_cause(error)) from None
            except RPCError as error:
                raise user_error(error, self.id) from error

    def events(self, after: int | str | None = None) -> "AsyncGenerator[JournalEntry | LiveActivity]":
        """Yield what happens in the run, live, until it ends.

        A `JournalEntry` comes as soon as the history has it; a `LiveActivity` comes whenever a model call or a tool
        call that is under way has changed, with the text that the model has written so far. All readers of a run in
        one process share one watcher, and watching adds nothing to the run's history.

        It goes on through continue-as-new, and through a server that is away for less than a minute. When the run is
        rewound meanwhile, the next entry has a sequence that is not higher than the last one's: it takes the place of
        that entry and of all after it. Entries of delegated runs come when the delegation ends, as in the journal; what
        a delegate does at the moment comes as `LiveActivity`, and its own handle follows it entry by entry.

        Args:
            after: The `cursor` of the last entry that is known, or its `sequence`; None begins with the first entry.
                Where the run was rewound to before it meanwhile, all entries come again. Only the cursor shows a rewind
                after which the run has gone on to that sequence again.

        Raises:
            RunNotFound: No run has this id.
            NotAnAgent: The id belongs to a workflow of another type.
            InvalidInput: `after` is neither a sequence nor a cursor.
            ServerLost: The server has been away for a minute.
        """
        from orga.client.journal.events import run_events

        return run_events(self.client, self.id, after)

    async def describe(self) -> WorkflowExecutionDescription:
        """Return what the server says of the run, its activities in flight included."""
        return await self._exchange.describe()

    async def _decide(self, update: str, approval_id: str, by: str, reason: str) -> None:
        decision = {"approval_id": approval_id, "approver": clean_text(by), "reason": clean_text(reason)}
        await self._exchange.update(update, decision)

    async def _was_reset(self, error: WorkflowFailureError) -> bool:
        """Return whether the run was reset: that terminates it, and begins another under its id at once."""
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
) -> AgentHandle:
    """Start a run and return its handle.

    Args:
        client: From `connect` or `orga.worker`, or one of your own with `OrgaPlugin`.
        agent_input: The input of `AgentWorkflow`; a string is the task.
        workflow_id: `agent-<uuid7>` unless given.
        task_queue: Where the workers poll. None: of a client from `connect` or `orga.worker` what that stands for; of
            one of your own `orga`, whatever your `Worker` polls, and a run that nobody polls for waits without a word.
        again: Start even though a run with this id has ended; its history is found by its run id only, then.
        search_attributes: Set from the start; the run adds its own.

    Raises:
        InvalidInput: Before anything is started, naming each bad key.
        OrgaError: A run with this id is live, or has ended and `again` does not say that this is meant.
    """
    given = {"task": agent_input} if isinstance(agent_input, str) else agent_input
    checked = parse_input(given if isinstance(given, AgentInput) else dict(given))
    run_id = run_id_of(workflow_id)
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
) -> None:
    """Start a run of any kind under an id that was checked; as `start_agent` does.

    Raises:
        InvalidInput: The worker beside the client would refuse it.
        OrgaError: A run with this id is live, or has ended and `again` does not say that this is meant.
    """
    if task_queue is not None:
        _refuse_hidden_characters(task_queue, "task_queue")
    check_by_local_worker(client, checked, task_queue)
    queue, memo = queue_and_memo(client)
    try:
        await client.start_workflow(
            workflow,
            checked.model_dump(mode="json", exclude_unset=True),
            id=run_id,
            task_queue=task_queue or queue,
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


def run_id_of(given: str | None) -> str:
    """Return the id that a new run gets.

    Raises:
        InvalidInput: People could not read the one that is given, or a command with it would not be what it looks like.
    """
    if given is None:
        return f"agent-{uuid_utils.uuid7()}"
    _refuse_hidden_characters(given, "id")
    if len(given.encode(errors="replace")) > MAX_ID_BYTES:
        raise InvalidInput(f"id: must not be longer than {MAX_ID_BYTES} bytes")
    return given


def _refuse_hidden_characters(name: str, what: str) -> None:
    if not can_be_typed(name):
        told = "must be one line, not empty, without control or hidden characters or double spaces, - not first"
        raise InvalidInput(f"{what} {escaped_line(name)!r}: {told}")


def _failure_cause(error: WorkflowFailureError) -> str:
    return str(error.cause)
