"""The sandbox is left alone while payloads are converted, unless something that converts them wants to know more."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.converter import (
    DataConverter,
    PayloadCodec,
    SerializationContext,
    StorageDriverStoreContext,
    WithSerializationContext,
)
from temporalio.worker import WorkflowInstance

from orga.client.history.converter import data_converter
from orga.client.runners.sandbox import _WithoutContexts, workflow_runner


class Codec(PayloadCodec):
    """A codec that does nothing."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)


class CodecByWorkflow(Codec, WithSerializationContext):
    """A codec with a key for each workflow, say."""

    def with_context(self, context: SerializationContext | None) -> "CodecByWorkflow":
        return self


@pytest.mark.parametrize(
    ("converter", "asks"),
    [
        pytest.param(data_converter, False, id="no codec"),
        pytest.param(replace(data_converter, payload_codec=Codec()), False, id="a codec that treats all alike"),
        pytest.param(replace(data_converter, payload_codec=CodecByWorkflow()), True, id="a codec by context"),
    ],
)
def test_only_who_uses_contexts_is_told_them(converter: DataConverter, asks: bool) -> None:
    assert cast(Any, workflow_runner(converter)).is_asked_for_contexts == asks


class Sandboxed(WorkflowInstance):
    """An instance that must not be asked for contexts."""

    def activate(self, act: Any) -> Any:
        return ("activated", act)

    def get_serialization_context(self, command_info: Any) -> SerializationContext:
        raise AssertionError

    def get_external_store_context(self, command_info: Any) -> StorageDriverStoreContext:
        raise AssertionError

    def get_info(self) -> Any:
        return "info"

    def get_thread_id(self) -> int:
        return 7


def test_payloads_have_no_context() -> None:
    instance = _WithoutContexts(Sandboxed())
    assert cast(object, instance.get_serialization_context(None)) is None
    assert instance.get_external_store_context(None).target is None


def test_all_else_goes_through() -> None:
    instance, act = _WithoutContexts(Sandboxed()), WorkflowActivation()
    assert (instance.activate(act), instance.get_info(), instance.get_thread_id()) == (("activated", act), "info", 7)
