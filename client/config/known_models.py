"""Checks of a model by its name, the environment and the configuration, without loading or calling it."""

from collections.abc import Callable, Mapping
from typing import Protocol

from orga.client.config.sections import ModelsConfig
from orga.client.errors import ConfigError
from orga.workflows.types.providers import PROVIDERS, model_name_problem


def require_model(name: str) -> None:
    """Refuse a name that belongs to no model of any provider.

    Raises:
        ConfigError: The text lists the providers.
    """
    if problem := model_name_problem(name):
        raise ConfigError(problem)


def model_problem(name: str, env: Mapping[str, str], base_urls: Mapping[str, str]) -> str:
    """Return why a process with this environment cannot call the model, or "". Nothing is loaded or called."""
    from orga.activities.adapters.models.settings import (
        EMBEDDED_MODEL,
        ModelNotConfigured,
        provider_endpoint,
    )

    if problem := model_name_problem(name):
        return problem
    provider, _, model = name.strip().partition(":")
    if PROVIDERS[provider].is_remote:
        try:
            provider_endpoint(provider, env, base_urls)
        except ModelNotConfigured as error:
            return str(error)
    if provider == "local":
        from orga.activities.adapters.offline.local_engine import missing_extra

        return missing_extra()
    if provider == "offline" and f"{provider}:{model.strip()}" != EMBEDDED_MODEL:
        return f"'{provider}:{model.strip()}' names no model: the offline one is {EMBEDDED_MODEL}"
    return ""


class PriceList(Protocol):
    """A source of model prices."""

    def is_priced(self, name: str) -> bool:
        """Return whether the cost of the model's replies will be known."""
        ...


def price_check(config: ModelsConfig, models: PriceList) -> Callable[[str], bool]:
    """Return a function that tests whether a model has a price. It accepts every model under `unpriced = "allow"`."""
    return models.is_priced if config.unpriced == "refuse" else lambda model: True
