"""What a batch of items does to those that are there, worked out before anything is written."""

from collections import defaultdict
from collections.abc import Iterable

from orga.activities.knowledge.arrival import SETTLED, change, in_place_of, standing
from orga.activities.knowledge.identity import claim_of
from orga.workflows.types.knowledge import Stored, StoredItem


class Arrivals:
    """A batch; afterwards `written` and `marked` are what changes in the tables."""

    def __init__(self, known: Iterable[StoredItem]) -> None:
        """Take what is there, in the order in which it came: the items of the batch's ids, the newest of its claims."""
        self._items: dict[str, StoredItem] = {}
        self._places: dict[str, int] = {}
        self._claims: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for item in known:
            self._keep(item)
        self._changed: dict[str, bool] = {}

    @property
    def written(self) -> list[StoredItem]:
        """Those that are new or say something else, in the order in which they came."""
        return [self._items[id_] for id_, is_written in self._changed.items() if is_written]

    @property
    def marked(self) -> list[StoredItem]:
        """Those that only another fact contradicts now, or none any longer."""
        return [self._items[id_] for id_, is_written in self._changed.items() if not is_written]

    def take(self, item: StoredItem) -> Stored:
        """Take in the next one, and return what becomes of it."""
        old = self._items.get(item.id)
        what = change(old, item)
        if what == "unchanged":
            return Stored(id=item.id, change=what)
        if old is not None:
            self._claims[claim_of(old)].pop(item.id, None)
        self._keep(in_place_of(old, item))
        self._changed[item.id] = True
        return Stored(id=item.id, change=what, contradicts=self._settle(claim_of(item), item.id))

    def _keep(self, item: StoredItem) -> None:
        self._items[item.id] = item
        self._places.setdefault(item.id, len(self._places))
        if claim := claim_of(item):
            self._claims[claim][item.id] = None

    def _settle(self, claim: str, arriving: str) -> tuple[str, ...]:
        """Settle which fact of a claim stands, and return which ones the arriving one contradicts from now on."""
        facts = self._newest(claim, arriving) if claim else []
        news = {
            id_: newer for id_, newer in standing(facts, arriving).items() if self._items[id_].contradicted_by != newer
        }
        for id_, newer in news.items():
            self._items[id_] = self._items[id_].with_contradiction(newer)
            self._changed.setdefault(id_, False)
        return tuple(sorted(id_ for id_, newer in news.items() if newer == arriving))

    def _newest(self, claim: str, arriving: str) -> list[StoredItem]:
        """Return the newest facts of a claim, of equal time the later ones; the newest clean and the arriving one."""
        facts = [self._items[id_] for id_ in self._claims[claim]]
        facts.sort(key=lambda fact: (fact.stored_at, self._places[fact.id]), reverse=True)
        clean = next((fact.id for fact in facts if not fact.provenance.taint), arriving)
        return facts[:SETTLED] + [fact for fact in facts[SETTLED:] if fact.id in {arriving, clean}]
