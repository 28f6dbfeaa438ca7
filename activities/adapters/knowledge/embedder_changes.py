"""A change of embedder is noticed where it matters: at a recall that meets items without vectors of the one in use."""

import logging
from collections.abc import Sequence

from orga.activities.knowledge.ranking import Candidate

_log = logging.getLogger(__name__)


class MissingVectorsNotice:
    """Says it once, however many recalls meet such items."""

    def __init__(self, place: str, embedder: str) -> None:
        """Take what people are told: the store, and the embedder in use."""
        self._place = place
        self._embedder = embedder
        self._is_told = False

    def notice(self, found: Sequence[Candidate]) -> None:
        """Look at what was found, and log it where vectors are missing."""
        missing = sum(candidate.vector is None for candidate in found)
        if missing and not self._is_told:
            self._is_told = True
            _log.warning(
                "the knowledge store %s: %d of %d items that were found have no vectors of the embedder %s: they are "
                "known by their words alone; make vectors by: orga knowledge reindex",
                self._place,
                missing,
                len(found),
                self._embedder,
            )
