"""Whether the cost of a model's replies will be known, as `[models]` says."""

from collections.abc import Callable

from orga.activities.adapters.models.registry import ModelRegistry
from orga.client.config.sections import ModelsConfig


def is_priced(config: ModelsConfig, models: ModelRegistry) -> Callable[[str], bool]:
    """Return the question; with `unpriced = "allow"` nobody minds."""
    return models.is_priced if config.unpriced == "refuse" else lambda model: True
