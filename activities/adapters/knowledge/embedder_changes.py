"""Notices a change of embedder when it matters: a recall finds items without vectors of the current embedder."""

import logging
from collections.abc import Sequence

from orga.activities.knowledge.ranking import Candidate

_log = logging.getLogger(__name__)


class MissingVectorsNotice:
    """Logs the warning once, however many recalls find such items."""

    def __init__(self, place: str, embedder: str) -> None:
        """Keep the names of the store and the current embedder for the warning."""
        self._place = place
        self._embedder = embedder
        self._is_told = False

    def log_missing(self, found: Sequence[Candidate]) -> None:
        """Log a warning if vectors of the found items are missing."""
        missing = sum(candidate.vector is None for candidate in found)
        if missing and not self._is_told:
            self._is_told = True
            _log.warning(
                "the knowledge store %s: %d of %d found items have no vectors of the embedder %s, so they are found by "
                "their words only; make vectors with: orga knowledge reindex",
                self._place,
                missing,
                len(found),
                self._embedder,
            )
