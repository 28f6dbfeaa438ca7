"""Checks an arriving item, decides if it is added, updated or unchanged, and finds which fact of a claim holds."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal

from orga.activities.knowledge.identity import claim_digest, is_same_object, item_id, scoped_owner
from orga.activities.knowledge.ports import KnowledgeError
from orga.workflows.types.knowledge import KnowledgeItem, Stored, StoredItem

MAX_SETTLED_FACTS = 50
"""The newest facts of one claim that are compared with a new one. The newest clean one is compared in any case."""


def arriving_item(item: KnowledgeItem, now: datetime) -> StoredItem:
    """Return an item as it is stored. An item of an export keeps its time."""
    stored_at = min(item.stored_at, now) if isinstance(item, StoredItem) else now
    fields = {name: getattr(item, name) for name in KnowledgeItem.model_fields}
    return StoredItem(**fields, id=item_id(item), stored_at=stored_at)


def arrival_change(old: StoredItem | None, new: StoredItem) -> Literal["added", "updated", "unchanged"]:
    """Return the effect of an arriving item on the stored one of the same id.

    - Repeated content changes nothing and keeps its first provenance. So a tainted run cannot take over a clean item,
      nor hide its origin, until that has expired.
    - A clean run that repeats a tainted item makes it clean.
    - An item with a key gets the taint of the run that stores it last.
    - A contradicted or expired fact counts as new, with the taint of the run that repeats it.
    - An older copy never replaces a newer one.
    """
    if old is None:
        return "added"
    if new.stored_at < old.stored_at:
        return "unchanged"
    is_cleaner = bool(old.provenance.taint) and not new.provenance.taint
    is_fouler = bool(new.provenance.taint) and not old.provenance.taint
    is_news = bool(old.contradicted_by) and new.stored_at > old.stored_at
    if is_fouler and not new.key and not _has_expired(old, new.stored_at):
        return "unchanged"  # the content is the same: only the spelling or the confidence differs
    is_marked = is_fouler and bool(new.key)
    has_changed = _content_fields(old) != _content_fields(replacement_item(old, new))
    return "updated" if has_changed or is_cleaner or is_marked or is_news else "unchanged"


def replacement_item(old: StoredItem | None, new: StoredItem) -> StoredItem:
    """Return an arriving item as it replaces the one of the same id.

    The same content without an expiry keeps the old expiry, unless that has passed.
    """
    if old is None or old.expires_at is None or new.expires_at is not None or new.key:
        return new
    return new if old.expires_at <= new.stored_at else new.with_expiry(old.expires_at)


def contradictions(facts: Sequence[StoredItem], arriving: str) -> dict[str, str]:
    """Return, by id, which fact contradicts each fact of one claim; "" for a fact that holds.

    The newest fact holds. A tainted fact contradicts no clean one. A clean one that holds contradicts tainted ones.

    Args:
        facts: The newest facts of the claim, and the newest clean one.
        arriving: The id of the new fact. It is the newer of two with the same time.
    """
    if not facts:
        return {}
    by_time = sorted(facts, key=lambda fact: (fact.stored_at, fact.id == arriving, fact.id))
    newest = by_time[-1]
    clean = next((fact for fact in reversed(by_time) if not fact.provenance.taint), newest)
    over_tainted = newest if _has_expired(clean, newest.stored_at) else clean
    leading = {fact.id: over_tainted if fact.provenance.taint else clean for fact in facts}
    return {fact.id: "" if is_same_object(fact, leading[fact.id]) else leading[fact.id].id for fact in facts}


def _has_expired(item: StoredItem, now: datetime) -> bool:
    return item.expires_at is not None and item.expires_at <= now


def _content_fields(item: KnowledgeItem) -> dict[str, object]:
    return {name: getattr(item, name) for name in KnowledgeItem.model_fields.keys() - {"provenance"}}


class ArrivalBatch:
    """A batch of arriving items. Afterwards, `changed_items` and `marked_items` are the changes to the tables."""

    def __init__(self, known: Iterable[StoredItem]) -> None:
        """Keep the stored items, in order of arrival: those with the batch's ids, and the newest of its claims."""
        self._items: dict[str, StoredItem] = {}
        self._places: dict[str, int] = {}
        self._claims: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for item in known:
            self._remember(item)
        self._changed: dict[str, bool] = {}

    @property
    def changed_items(self) -> list[StoredItem]:
        """New and changed items, in the order in which they came."""
        return [self._items[id_] for id_, is_written in self._changed.items() if is_written]

    @property
    def marked_items(self) -> list[StoredItem]:
        """Items of which only the contradicting fact has changed."""
        return [self._items[id_] for id_, is_written in self._changed.items() if not is_written]

    def add_item(self, item: StoredItem) -> Stored:
        old = self._items.get(item.id)
        what = arrival_change(old, item)
        if what == "unchanged":
            return Stored(id=item.id, change=what)
        if old is not None:
            self._claims[claim_digest(old)].pop(item.id, None)
        self._remember(replacement_item(old, item))
        self._changed[item.id] = True
        return Stored(id=item.id, change=what, contradicts=self._resolve_claim(claim_digest(item), item.id))

    def _remember(self, item: StoredItem) -> None:
        self._items[item.id] = item
        self._places.setdefault(item.id, len(self._places))
        if claim := claim_digest(item):
            self._claims[claim][item.id] = None

    def _resolve_claim(self, claim: str, arriving: str) -> tuple[str, ...]:
        """Update which fact of a claim holds, and return the facts that the arriving one newly contradicts."""
        facts = self._newest_facts(claim, arriving) if claim else []
        contradicted: list[str] = []
        for id_, newer in contradictions(facts, arriving).items():
            if self._items[id_].contradicted_by != newer:
                self._items[id_] = self._items[id_].with_contradiction(newer)
                self._changed.setdefault(id_, False)
                contradicted += [id_] if newer == arriving else []
        return tuple(sorted(contradicted))

    def _newest_facts(self, claim: str, arriving: str) -> list[StoredItem]:
        """Return a claim's newest facts, the newest clean one, and the arriving one. At equal times, later is newer."""
        facts = [self._items[id_] for id_ in self._claims[claim]]
        facts.sort(key=lambda fact: (fact.stored_at, self._places[fact.id]), reverse=True)
        clean = next((fact.id for fact in facts if not fact.provenance.taint), arriving)
        return facts[:MAX_SETTLED_FACTS] + [fact for fact in facts[MAX_SETTLED_FACTS:] if fact.id in {arriving, clean}]


MAX_TEXT_CHARS = 100_000
"""Characters of an item's text."""
MAX_NAME_CHARS = 1_000
"""Characters of each other field."""

_NAMES = ("key", "subject", "predicate", "object", "directory", "language")


def checked_item(item: KnowledgeItem) -> KnowledgeItem:
    """Return the item as stores keep it. Raise KnowledgeError (InvalidItem), with the remedy, for a faulty one."""
    flaw = _item_flaw(item)
    if flaw is not None:
        raise KnowledgeError(f"a {item.kind} cannot be stored: {flaw}", kind="InvalidItem")
    return item.with_texts(_storable_text).with_owner(scoped_owner(item.scope, item.owner))


def _item_flaw(item: KnowledgeItem) -> str | None:  # noqa: PLR0911 -- a list of conditions
    if not item.text.strip():
        return "its text is empty"
    if len(item.text) > MAX_TEXT_CHARS:
        most = f"of at most {MAX_TEXT_CHARS:,}; import it as a document, in parts"
        return f"its text has {len(item.text):,} characters {most}"
    owner = item.owner
    others = [(name, getattr(item, name)) for name in _NAMES]
    others += [("tenant", owner.tenant), ("user", owner.user), ("agent", owner.agent)]
    others += [("source", item.provenance.source), ("workflow_id", item.provenance.workflow_id)]
    for name, value in others:
        if len(value) > MAX_NAME_CHARS:
            return f"its {name} has {len(value):,} characters of at most {MAX_NAME_CHARS:,}"
    if item.scope == "user" and not owner.user:
        return "its scope is a user's and no user is named; name one in the run's trusted_context, or use another scope"
    if item.scope == "agent" and not owner.agent:
        return "its scope is an agent's and no agent is named; name one, or use another scope"
    if item.kind == "fact" and not all(part.strip() for part in (item.subject, item.predicate, item.object)):
        return "a fact has a subject, a predicate and an object, none of them empty"
    if item.expires_at is not None and item.expires_at.utcoffset() is None:
        return "the time at which it expires has no time zone"
    directory = item.directory
    if directory and ("\\" in directory or not {"", ".", ".."}.isdisjoint(directory.split("/"))):
        return f"its directory {directory!r} is no path relative to a project's root, with / between parts"
    for name, value in scoped_owner(item.scope, owner):
        if _storable_text(value) != value:  # it cannot be replaced: the item would belong to somebody else
            return f"its {name} has a character that no database takes; give that {name} another name"
    return None


def _storable_text(text: str) -> str:
    """Replace what no database accepts as text: NUL and lone surrogates."""
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
