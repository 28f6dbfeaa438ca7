"""A provider that is always asked for one model, whatever name the run uses."""

from collections.abc import Callable
from dataclasses import replace

from orga.activities.ports import ModelProvider, ModelRequest
from orga.workflows.types.messages import Reply


class Named:
    """A provider that uses the model's own name."""

    def __init__(self, provider: ModelProvider, model: str) -> None:
        self._provider = provider
        self._model = model

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        return await self._provider.complete(replace(request, model=self._model), on_text)
