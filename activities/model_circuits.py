"""Circuits of model providers: one that is down is not asked by every run of the worker again and again."""

from collections.abc import Callable

from orga.activities.breakers import TurnedAway, WorkerBreakers
from orga.activities.model_calls import Models
from orga.activities.ports import ModelError, ModelProvider, ModelRequest
from orga.workflows.types.breakers import CIRCUIT_OPEN, PROVIDER_PREFIX, CircuitOptions
from orga.workflows.types.messages import Reply

COUNTED = frozenset({"ServerError", "Overloaded", "ConnectionFailed", "Timeout", "BadStream"})
"""Kinds of failure that speak of the provider; a rate limit and a bad request speak of us."""


class GuardedModels:
    """Models whose providers have a circuit each."""

    def __init__(self, models: Models, breakers: WorkerBreakers, options: CircuitOptions) -> None:
        self._models = models
        self._breakers = breakers
        self._options = options

    def resolve(self, name: str) -> tuple[ModelProvider, str]:
        """Return the provider behind its circuit, and the model's name there.

        Raises:
            ValueError: The model cannot be called as this worker is configured.
        """
        provider, model = self._models.resolve(name)
        if not self._options.enabled:
            return provider, model
        circuit = PROVIDER_PREFIX + name.strip().partition(":")[0]
        return _Guarded(provider, circuit, self._breakers, self._options), model


class _Guarded:
    def __init__(
        self, provider: ModelProvider, circuit: str, breakers: WorkerBreakers, options: CircuitOptions
    ) -> None:
        self._provider = provider
        self._circuit = circuit
        self._breakers = breakers
        self._options = options

    async def complete(self, request: ModelRequest, on_text: Callable[[str], None]) -> Reply:
        try:
            with self._breakers.guarded(self._circuit, self._options, _counts):
                return await self._provider.complete(request, on_text)
        except TurnedAway as turned_away:
            raise _failure(turned_away) from None


def _failure(turned_away: TurnedAway) -> ModelError:
    """Ask to come back when the circuit may be tried; while others try it, the usual growing delay has to do."""
    text = f"{turned_away}; wait, or choose another model"
    return ModelError(CIRCUIT_OPEN, text, retryable=True, retry_after_s=turned_away.wait_s or None)


def _counts(error: BaseException) -> bool:
    return isinstance(error, ModelError) and error.kind in COUNTED
