"""The span of a run: the root of its one trace, through every continue-as-new."""

from typing import Any, NoReturn

from opentelemetry import context, metrics, trace
from opentelemetry.context import Context
from temporalio import workflow
from temporalio.contrib.opentelemetry import OpenTelemetryPlugin
from temporalio.plugin import SimplePlugin
from temporalio.worker import (
    ContinueAsNewInput,
    ExecuteWorkflowInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from workflows.phases.spans import opened
from workflows.types import telemetry_names as names
from workflows.types.result import AgentResult

_runs = metrics.get_meter(names.SCOPE).create_counter(
    names.RUN_COUNT, unit="{run}", description="Runs that ended, by ending"
)


def run_spans() -> tuple[SimplePlugin, ...]:
    """Return the plugins, in order: the SDK's carries the context in headers, ours opens a span in it."""
    return (OpenTelemetryPlugin(), SimplePlugin("orga.RunSpans", interceptors=[_RunSpans()]))


class _RunSpans(Interceptor):
    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        return _Run


class _Run(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        self._outbound = _Chained(outbound)
        super().init(self._outbound)

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        info = workflow.info()
        received = context.get_current()
        if info.continued_run_id and trace.get_current_span(received).get_span_context().is_valid:
            self._outbound.first_run = received
        about = {names.OPERATION: "invoke_agent", names.CONVERSATION: info.workflow_id, names.RUN: info.run_id}
        with opened("invoke_agent", about) as span:
            try:
                result = await super().execute_workflow(input)
            except Exception as error:
                if workflow.is_failure_exception(error):
                    _runs.add(1, {names.ENDING: "failed"})
                raise
            if isinstance(result, AgentResult):
                _show_ending(span, result)
            return result


class _Chained(WorkflowOutboundInterceptor):
    """Hands the first run's span on, so that the runs of a chain lie side by side in it and not one in the other."""

    first_run: Context | None = None

    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:
        token = context.attach(self.first_run or context.get_current())
        try:
            super().continue_as_new(input)
        finally:
            context.detach(token)


def _show_ending(span: trace.Span, result: AgentResult) -> None:
    span.set_attribute(names.ENDING, result.termination.reason)
    span.set_attribute(names.ITERATIONS, result.iterations)
    span.set_attribute(names.INPUT_TOKENS, result.usage.input_tokens)
    span.set_attribute(names.OUTPUT_TOKENS, result.usage.output_tokens)
    span.set_attribute(names.DENIED, result.tool_calls.denied)
    _runs.add(1, {names.ENDING: result.termination.reason})
