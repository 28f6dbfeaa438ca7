"""Tools whose work happens outside this worker: activities of other workers in any language, and deferred tools.

The result of a deferred tool comes later, from a client, a job or a webhook, by the update `complete_tool_call`.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from temporalio import activity
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    FailureError,
    TimeoutError,
    TimeoutType,
    WorkflowAlreadyStartedError,
)

from orga.activities.adapters.schemas.arguments import schema_problem
from orga.activities.adapters.tools.python_function import PythonFunction, checked_output_schema
from orga.activities.ports import Acted, Tool, ToolContext, ToolError
from orga.workflows.types.names import ACTIVITY_CALL_WORKFLOW
from orga.workflows.types.tool_calls.tools import (
    DONE,
    NO_ARGUMENTS,
    NOT_DONE,
    REPORT_S,
    TIME_LIMIT,
    ActivityCall,
    Deferral,
    Effect,
    ToolOptions,
    ToolOutput,
    ToolSpec,
)

PICKUP_S = 60.0
"""Seconds in which a worker of the queue must take a call."""

MARGIN_S = 0.5
"""Seconds that are left for the call to report a failure after the activity's time is over."""


class ActivityTool:
    """A tool whose calls another worker carries out as an activity. The gate judges them like all other calls.

    The activity gets the arguments as one JSON object, and returns any JSON.
    """

    def __init__(
        self,
        name: str,
        *,
        task_queue: str,
        activity: str | None = None,
        description: str = "",
        parameters: Mapping[str, Any] = NO_ARGUMENTS,
        effect: Effect = "irreversible",
        heartbeat_timeout_s: float | None = None,
        pass_context: bool = False,
        output_schema: type | Mapping[str, Any] | None = None,
    ) -> None:
        """Describe the tool.

        Args:
            name: The name that models and policies use.
            task_queue: The queue of the worker that has the activity.
            activity: The activity's type. None: the same as `name`.
            description: The description that the model reads.
            parameters: JSON Schema (2020-12) of the arguments, an object.
            effect: The effect of repeating a call.
            heartbeat_timeout_s: Seconds without a heartbeat after which a call counts as lost. Set it only if the
                activity sends heartbeats. They also deliver an abort to it. None: only the time limit counts.
            pass_context: Give the activity a second argument: an object with `idempotency_key`, `workflow_id`,
                `call_id` and `agent`. It also has `tenant`, `trusted_context` and `approver`, unless they are empty.
            output_schema: Type of the value that the activity returns, such as a pydantic model, or its JSON Schema
                (2020-12). None: any JSON.

        Raises:
            ValueError: The output schema cannot be used.
        """
        spec = ToolSpec(name=name, description=description, parameters=dict(parameters), effect=effect)
        schema = None if output_schema is None else _named_schema(name, output_schema)
        self.spec = spec.with_takes_caller(pass_context).with_output_schema(schema)
        self.activity = activity or name
        self.task_queue = task_queue
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._passes_context = pass_context

    @property
    def source(self) -> str:
        """A text for people: which activity on which queue carries out the calls."""
        return f"activity {self.activity} on queue {self.task_queue}"

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Return what the activity returns, as text.

        Raises:
            ToolError: The kind is TimeLimit, NoWorker, NotInRun, or the type of the activity's failure.
        """
        if not activity.in_activity():
            raise ToolError(f"{self.spec.name} is an activity of another worker: only runs call it", kind="NotInRun")
        handle = await self._start_or_find(activity.client(), arguments, context)
        try:
            return ToolOutput.model_validate(await handle.result())
        except asyncio.CancelledError:
            details = activity.cancellation_details()
            if details is not None and details.cancel_requested:  # otherwise a later attempt waits for the same call
                await handle.cancel()
            raise
        except WorkflowFailureError as error:
            raise self._tool_error(error) from None

    async def _start_or_find(
        self, client: Client, arguments: dict[str, Any], context: ToolContext
    ) -> WorkflowHandle[Any, Any]:
        """Start the call, or find the call that an earlier attempt with the same key has started."""
        info = activity.info()
        attempt_s = info.start_to_close_timeout.total_seconds() if info.start_to_close_timeout else PICKUP_S
        limit_s = max(attempt_s - REPORT_S - MARGIN_S, MARGIN_S)
        workflow_id = f"{context.workflow_id}/{self.spec.name}/{context.idempotency_key}"
        call = ActivityCall(
            activity=self.activity,
            task_queue=self.task_queue,
            arguments=arguments,
            context=_context_argument(context) if self._passes_context else None,
            timeout_s=limit_s,
            pickup_s=min(PICKUP_S, limit_s),
            heartbeat_timeout_s=self._heartbeat_timeout_s,
        )
        try:
            return await client.start_workflow(
                ACTIVITY_CALL_WORKFLOW,
                call,
                id=workflow_id,
                task_queue=info.task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                static_summary=f"{self.spec.name} of {context.workflow_id}",
            )
        except WorkflowAlreadyStartedError:  # an earlier attempt has succeeded
            return client.get_workflow_handle(workflow_id)

    def _tool_error(self, error: WorkflowFailureError) -> ToolError:
        if isinstance(error.cause, ApplicationError):  # the workflow refused the call
            return ToolError(error.cause.message, kind=error.cause.type or "ApplicationError")
        cause = error.cause.cause if isinstance(error.cause, ActivityError) else error.cause
        if isinstance(cause, TimeoutError) and cause.type == TimeoutType.SCHEDULE_TO_START:
            why = f"no worker took {self.activity} from the queue {self.task_queue}; tell the operator"
            return ToolError(why, kind="NoWorker", retryable=True, acted="no")
        if isinstance(cause, TimeoutError):
            return ToolError(f"{self.activity} took too long, or its worker is gone", kind=TIME_LIMIT, retryable=True)
        if isinstance(cause, ApplicationError):
            kind, retryable = cause.type or "ApplicationError", not cause.non_retryable
            return ToolError(cause.message, kind=kind, retryable=retryable, acted=_stated_effect(cause))
        message = cause.message if isinstance(cause, FailureError) else str(cause or error)
        return ToolError(message, kind=type(cause).__name__, retryable=True)


def _context_argument(context: ToolContext) -> dict[str, Any]:
    """Return the ids of the call, and those facts about its run that are not empty."""
    ids = {name: getattr(context, name) for name in ("idempotency_key", "workflow_id", "call_id")}
    facts = {name: getattr(context, name) for name in ("agent", "tenant", "trusted_context", "approver")}
    return ids | {name: value for name, value in facts.items() if value}


def _named_schema(name: str, declared: Any) -> dict[str, Any]:
    """Return the schema of the declared type. Add the tool's name to an error."""
    try:
        return checked_output_schema(declared)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _stated_effect(error: ApplicationError) -> Acted | None:
    """Return whether the activity had its effect, by the failure's details. If they lack it, a final one is "maybe"."""
    if NOT_DONE in error.details:
        return "no"
    if DONE in error.details:
        return "yes"
    return "maybe" if error.non_retryable else None


WEEK_S = 604_800.0
_YEAR_S = 31_536_000.0

_OWN_PLACE = ToolOptions(task_queue=None, execution="activity")
"""Replaces options of `start` that choose where it runs, because the deferred tool calls `start` in its own process."""


class DeferredTool:
    """A tool whose calls wait for their results, for days or weeks. The gate judges them like all other calls.

    The person or program that does the work completes the call, which its idempotency key identifies: by
    `AgentHandle.complete_tool_call`, the command `orga complete`, or the update `complete_tool_call`.
    """

    def __init__(
        self,
        name: str,
        *,
        start: Tool | Callable[..., Any] | None = None,
        description: str = "",
        parameters: Mapping[str, Any] | None = None,
        effect: Effect | None = None,
        expires_s: float = WEEK_S,
        output_schema: type | Mapping[str, Any] | None = None,
    ) -> None:
        """Describe the tool.

        Args:
            name: The name that models and policies use.
            start: A function or a tool that starts the work. Like any tool, it gets the arguments and the ids of each
                call. The model does not see its result. None: the people who do the work find the call in the inbox.
            description: The description that the model reads. Empty: the description of `start`.
            parameters: JSON Schema (2020-12) of the arguments, an object. None: those of `start`, or no arguments.
            effect: The effect of repeating a call. None: the effect of `start`, or irreversible.
            expires_s: Seconds after which a call without a result fails. At most a year.
            output_schema: Type of a result, such as a pydantic model, or its JSON Schema (2020-12). None: any JSON.

        Raises:
            ValueError: A schema, `expires_s` or `start` cannot be used.
        """
        if not 1 <= expires_s <= _YEAR_S:
            raise ValueError(f"{name}: expires_s must be between 1 and {_YEAR_S:.15g}")
        if parameters is not None and (problem := schema_problem(dict(parameters))):
            raise ValueError(f"{name}: parameters: {problem}")
        self._start = PythonFunction(start) if callable(start) else start
        if self._start is not None and not hasattr(self._start, "spec"):
            raise ValueError(f"{name}: start: {start!r} is neither a function nor a tool; give one of them")
        base = self._start.spec if self._start else ToolSpec(name=name, parameters=NO_ARGUMENTS)
        terms = Deferral(expires_s=expires_s, has_start=start is not None)
        spec = ToolSpec(
            name=name,
            description=description or base.description,
            parameters=dict(base.parameters if parameters is None else parameters),
            effect=effect or base.effect,
            options=base.options.with_overrides(_OWN_PLACE) if self._start else base.options,
            main_argument=base.main_argument,
            deferred=terms if output_schema is None else terms.with_output_schema(_named_schema(name, output_schema)),
        )
        self.spec = spec.with_takes_caller(base.takes_caller)

    @property
    def source(self) -> str:
        """A text for people: where its results come from."""
        return f"deferred, started by {self._start.spec.name}" if self._start else "deferred"

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Start the work of one call. Raise the errors of `start`, or ToolError (NotInRun) outside a run."""
        if not activity.in_activity():
            raise ToolError(f"{self.spec.name} has its results later: only runs call it", kind="NotInRun")
        if self._start is None:
            return ToolOutput()
        return await self._start.call(arguments, replace(context, is_deferred=True))
