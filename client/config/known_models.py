"""What is known of a model from its name, the environment and the configuration: tools, window and price."""

from collections.abc import Callable, Mapping
from typing import Protocol

from orga.client.config.sections import ModelsConfig
from orga.client.errors import ConfigError
from orga.workflows.types.text import close_to
from orga.workflows.types.tiers import PROVIDERS


def misnamed(name: str) -> str:
    """Return why the name is that of no model, whoever asks, or ""."""
    provider, colon, model = name.strip().partition(":")
    if colon and model.strip() and provider in PROVIDERS:
        return ""
    near = close_to(provider.strip(), PROVIDERS) if colon else ""
    return f"{name!r} names no model: {near}write provider:model, with provider one of {', '.join(PROVIDERS)}"


def require_model(name: str) -> None:
    """Refuse what names no model of a provider.

    Raises:
        ConfigError: With the providers that there are.
    """
    if problem := misnamed(name):
        raise ConfigError(problem)


def model_problem(name: str, env: Mapping[str, str], base_urls: Mapping[str, str]) -> str:
    """Return why a process with this environment could not ask the model, or ""; nothing is loaded and nobody asked."""
    from orga.activities.adapters.models.settings import EMBEDDED_MODEL, SITES, ModelNotConfigured, endpoint

    if problem := misnamed(name):
        return problem
    provider, _, model = name.strip().partition(":")
    if provider in SITES:
        try:
            endpoint(provider, env, base_urls)
        except ModelNotConfigured as error:
            return str(error)
    if provider == "local":
        from orga.activities.adapters.offline.local_engine import lacking

        return lacking()
    if provider == "offline" and f"{provider}:{model.strip()}" != EMBEDDED_MODEL:
        return f"'{provider}:{model.strip()}' names no model: the offline one is {EMBEDDED_MODEL}"
    return ""


class Priced(Protocol):
    """What knows prices."""

    def is_priced(self, name: str) -> bool:
        """Return whether the cost of a model's replies will be known."""
        ...


def is_priced(config: ModelsConfig, models: Priced) -> Callable[[str], bool]:
    """Return the question; with `unpriced = "allow"` nobody minds."""
    return models.is_priced if config.unpriced == "refuse" else lambda model: True
