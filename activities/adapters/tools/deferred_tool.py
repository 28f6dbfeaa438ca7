"""Tools whose results come later, from a client, a job or a webhook, by the update `complete_tool_call`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from temporalio import activity

from orga.activities.adapters.schemas.arguments import schema_problem
from orga.activities.adapters.tools.python_function import PythonFunction
from orga.activities.ports import Tool, ToolContext, ToolError
from orga.workflows.types.tool_calls.tools import NO_ARGUMENTS, Deferral, Effect, ToolOptions, ToolOutput, ToolSpec

WEEK_S = 604_800.0
YEAR_S = 31_536_000.0

_OWN_PLACE = ToolOptions(task_queue=None, execution="activity")
"""The options of `start` that do not apply, because the deferred tool itself calls it."""


class DeferredTool:
    """A tool whose calls wait, for days or weeks, until somebody completes them. They pass the gate like all others.

    Each call has an idempotency key. Whoever does the work completes the call with it: by
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
        output_schema: Mapping[str, Any] | None = None,
    ) -> None:
        """Describe the tool.

        Args:
            name: The name that models and policies use.
            start: A function or a tool that starts the work. It gets the arguments of each call, and its ids as any
                tool does. The model does not see what it returns. None: whoever does the work finds the call in the
                inbox.
            description: The description that the model reads. Empty: that of `start`.
            parameters: JSON Schema (2020-12) of the arguments, an object. None: those of `start`, or no arguments.
            effect: The effect of repeating a call. None: that of `start`, or irreversible.
            expires_s: Seconds after which a call without a result has failed. At most a year.
            output_schema: JSON Schema (2020-12) of a result. None: any JSON.

        Raises:
            ValueError: A schema, the number of seconds, or the function cannot be used.
        """
        if not 1 <= expires_s <= YEAR_S:
            raise ValueError(f"{name}: expires_s must be between 1 and {YEAR_S:.15g}")
        for key, schema in (("parameters", parameters), ("output_schema", output_schema)):
            if schema is not None and (problem := schema_problem(dict(schema))):
                raise ValueError(f"{name}: {key}: {problem}")
        self._start = PythonFunction(start) if callable(start) else start
        base = self._start.spec if self._start else None
        given = parameters if parameters is not None else base.parameters if base else NO_ARGUMENTS
        terms = Deferral(expires_s=expires_s, has_start=start is not None)
        spec = ToolSpec(
            name=name,
            description=description or (base.description if base else ""),
            parameters=dict(given),
            effect=effect or (base.effect if base else "irreversible"),
            options=base.options.with_overrides(_OWN_PLACE) if base else ToolOptions(),
            main_argument=base.main_argument if base else None,
            deferred=terms if output_schema is None else terms.with_output_schema(dict(output_schema)),
        )
        self.spec = spec.with_takes_caller(base is not None and base.takes_caller)

    @property
    def source(self) -> str:
        """The origin of its results, for people."""
        return f"deferred, started by {self._start.spec.name}" if self._start else "deferred"

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Start the work of one call. Raises what its `start` raises, or ToolError of the kind NotInRun."""
        if not activity.in_activity():
            raise ToolError(f"{self.spec.name} has its results later: only runs call it", kind="NotInRun")
        if self._start is None:
            return ToolOutput()
        return await self._start.call(arguments, replace(context, is_deferred=True))
