"""Values in histories: plain JSON by pydantic, without unset fields."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticPayloadConverter, ToJsonOptions
from temporalio.converter import DataConverter, EncodingPayloadConverter


class UnreadablePayload:
    """Replaces a payload that cannot be decoded."""

    def __str__(self) -> str:
        return "[unreadable]"  # the same in every process, since it may become part of a conversation


class FrugalPayloadConverter(PydanticPayloadConverter):
    """Omits unset fields, so that defaults take no space in histories.

    The SDK creates a converter for each run and each workflow task. The parts inside hold nothing but caches of types,
    so all converters share them.
    """

    def __init__(self) -> None:
        self.converters = _converters()

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        """Read payloads. If any type is accepted, a payload that cannot be read becomes an `UnreadablePayload`.

        Otherwise a starter's broken bytes would fail the workflow task again and again.
        """
        if type_hints:
            return super().from_payloads(payloads, type_hints)
        return [self._decode_any(payload) for payload in payloads]

    def _decode_any(self, payload: Payload) -> Any:
        try:
            return super().from_payloads([payload], None)[0]
        except Exception:  # converters raise anything for broken bytes
            return UnreadablePayload()


@cache
def _converters() -> Mapping[bytes, EncodingPayloadConverter]:
    return PydanticPayloadConverter(ToJsonOptions(exclude_unset=True)).converters


data_converter = DataConverter(payload_converter_class=FrugalPayloadConverter)
"""The converter of every client and worker of orga."""
