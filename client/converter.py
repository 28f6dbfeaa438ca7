"""How values are written to histories: clear JSON by pydantic, unset fields left out."""

from temporalio.contrib.pydantic import PydanticPayloadConverter, ToJsonOptions
from temporalio.converter import DataConverter


class FrugalPayloadConverter(PydanticPayloadConverter):
    """Leaves out what was not set: defaults cost no history."""

    def __init__(self) -> None:
        super().__init__(ToJsonOptions(exclude_unset=True))


data_converter = DataConverter(payload_converter_class=FrugalPayloadConverter)
"""The converter of every client and worker of orga."""
