"""Keeps unreadable trace contexts of other senders away from the SDK's OpenTelemetry plugin in a worker."""

from dataclasses import replace
from typing import Any, TypeVar, cast

import temporalio.client
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadConverter
from temporalio.worker import (
    ExecuteWorkflowInput,
    HandleQueryInput,
    HandleSignalInput,
    HandleUpdateInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

_TRACE_HEADER = "_tracer-data"
"""The header with the trace context, as the SDK names it."""

_MAX_TRACE_HEADER_BYTES = 20_000
"""Bytes, above the 8,192 that baggage may have. A workflow task reads the headers of all its signals within 2 s."""

_HeadersInput = TypeVar("_HeadersInput", ExecuteWorkflowInput, HandleSignalInput, HandleQueryInput, HandleUpdateInput)


class TraceHeaders(temporalio.client.Interceptor, Interceptor):
    """Drops unreadable trace contexts in the workers of a client. It has to be the client's first interceptor.

    A worker calls the interceptors of its client before its own, and one of them may be the SDK's.
    """

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        return _ReadableHeaders


class _ReadableHeaders(WorkflowInboundInterceptor):
    """Drops a trace context that cannot be read. The SDK would raise, and each workflow task would fail for ever."""

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        return await super().execute_workflow(_with_readable_context(input))

    async def handle_signal(self, input: HandleSignalInput) -> None:
        await super().handle_signal(_with_readable_context(input))

    async def handle_query(self, input: HandleQueryInput) -> Any:
        return await super().handle_query(_with_readable_context(input))

    def handle_update_validator(self, input: HandleUpdateInput) -> None:
        super().handle_update_validator(_with_readable_context(input))

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:
        return await super().handle_update_handler(_with_readable_context(input))


def _with_readable_context(given: _HeadersInput) -> _HeadersInput:
    header = given.headers.get(_TRACE_HEADER)
    if header is None or _is_trace_context(header):
        return given
    return replace(given, headers={name: each for name, each in given.headers.items() if name != _TRACE_HEADER})


def _is_trace_context(header: Payload) -> bool:
    """Return True for what the SDK writes: an object of texts. Any sender can write something else."""
    if len(header.data) > _MAX_TRACE_HEADER_BYTES:
        return False
    try:
        context_fields = PayloadConverter.default.from_payload(header)
    except Exception:  # converters raise anything
        return False
    return isinstance(context_fields, dict) and all(
        isinstance(text, str) for text in cast("dict[str, object]", context_fields).values()
    )
