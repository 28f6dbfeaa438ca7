"""The span of a run: the root of its one trace, through every continue-as-new."""

from collections.abc import Mapping
from typing import Any, NoReturn

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.util.types import AttributeValue
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

from orga.activities.instruments import count, record
from orga.workflows.phases.control.visibility import open_span
from orga.workflows.types import telemetry_names as names
from orga.workflows.types.status import AgentResult


def run_spans() -> tuple[SimplePlugin, ...]:
    """Return the plugins in order: the SDK's carries the context in headers, and ours opens a span in it."""
    return (OpenTelemetryPlugin(), SimplePlugin("orga.RunSpans", interceptors=[_RunSpans()]))


class _RunSpans(Interceptor):
    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        return _RunSpanInbound


class _RunSpanInbound(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        self._outbound = _RunSpanOutbound(outbound)
        super().init(self._outbound)

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        info = workflow.info()
        received = context.get_current()
        if info.continued_run_id and trace.get_current_span(received).get_span_context().is_valid:
            self._outbound.first_run = received
        if info.continued_run_id is None:
            count(names.RUNS_STARTED)
        about = {names.OPERATION: "invoke_agent", names.CONVERSATION: info.workflow_id, names.RUN: info.run_id}
        with open_span("invoke_agent", about) as span:
            try:
                result = await super().execute_workflow(input)
            except Exception as error:
                if workflow.is_failure_exception(error):
                    count(names.RUN_COUNT, {names.ENDING: "failed"})
                raise
            if isinstance(result, AgentResult):
                _record_ending(span, result)
            _record_history()
            return result


class _RunSpanOutbound(WorkflowOutboundInterceptor):
    """Passes on the first run's span, so that the spans of a chain's runs are siblings in it and not nested."""

    first_run: Context | None = None

    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:
        _record_history()
        token = context.attach(self.first_run or context.get_current())
        try:
            super().continue_as_new(input)
        finally:
            context.detach(token)


def _record_ending(span: trace.Span, result: AgentResult) -> None:
    span.set_attribute(names.ENDING, result.termination.reason)
    span.set_attribute(names.ITERATIONS, result.iterations)
    span.set_attribute(names.INPUT_TOKENS, result.usage.input_tokens)
    span.set_attribute(names.CACHED_TOKENS, result.usage.cached_input_tokens)
    span.set_attribute(names.OUTPUT_TOKENS, result.usage.output_tokens)
    span.set_attribute(names.DENIED, result.tool_calls.denied)
    count(names.RUN_COUNT, {names.ENDING: result.termination.reason})
    known: Mapping[str, AttributeValue] = getattr(span, "attributes", None) or {}
    about = {name: known[name] for name in (names.AGENT, names.REQUEST_MODEL) if name in known}
    failed = {names.ERROR: result.termination.reason} if result.termination.reason == "error" else {}
    record(names.RUN_DURATION, result.duration_s, {names.ENDING: result.termination.reason, **about, **failed})


def _record_history() -> None:
    info = workflow.info()
    record(names.HISTORY_SIZE, info.get_current_history_size())
    record(names.HISTORY_EVENTS, info.get_current_history_length())
