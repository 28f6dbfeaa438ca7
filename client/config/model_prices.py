"""Whether the cost of a model's replies will be known, as `[models]` says."""

from collections.abc import Callable
from typing import Protocol

from orga.client.config.sections import ModelsConfig


class Priced(Protocol):
    """What knows prices."""

    def is_priced(self, name: str) -> bool:
        """Return whether the cost of a model's replies will be known."""
        ...


def is_priced(config: ModelsConfig, models: Priced) -> Callable[[str], bool]:
    """Return the question; with `unpriced = "allow"` nobody minds."""
    return models.is_priced if config.unpriced == "refuse" else lambda model: True
