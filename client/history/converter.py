"""How values are written to histories: clear JSON by pydantic, unset fields left out."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticPayloadConverter, ToJsonOptions
from temporalio.converter import DataConverter, EncodingPayloadConverter


class UnreadablePayload:
    """Stands for a payload that is not what its encoding says."""

    def __str__(self) -> str:
        return "[unreadable]"  # the same in every process, since it may become part of a conversation


class FrugalPayloadConverter(PydanticPayloadConverter):
    """Leaves out what was not set: defaults cost no history.

    The SDK makes one for each run and each workflow task; what they are made of keeps no state but what it knows of
    types, so all of them share it.
    """

    def __init__(self) -> None:
        self.converters = _converters()

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        """Read payloads; one that cannot be read where anything is welcome becomes `Unreadable`.

        Otherwise a starter's broken bytes would fail the workflow task again and again.
        """
        if type_hints:
            return super().from_payloads(payloads, type_hints)
        return [self._decode_any(payload) for payload in payloads]

    def _decode_any(self, payload: Payload) -> Any:
        try:
            return super().from_payloads([payload], None)[0]
        except Exception:  # whatever a converter makes of bytes that are not what they say
            return UnreadablePayload()


@cache
def _converters() -> Mapping[bytes, EncodingPayloadConverter]:
    return PydanticPayloadConverter(ToJsonOptions(exclude_unset=True)).converters


data_converter = DataConverter(payload_converter_class=FrugalPayloadConverter)
"""The converter of every client and worker of orga."""
