"""The rules of all stores for arriving items: which are valid, which change the store, which fact of a claim holds."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal

from orga.activities.knowledge.identity import claim_digest, is_same_object, item_id, scoped_owner
from orga.activities.knowledge.ports import KnowledgeError
from orga.workflows.types.knowledge import KnowledgeItem, Stored, StoredItem

MAX_SETTLED_FACTS = 50
"""The newest facts of one claim that a new fact is compared with. The newest clean fact is always one of them."""


def arriving_item(item: KnowledgeItem, now: datetime) -> StoredItem:
    """Return an item as it is stored. An item of an export keeps its time."""
    stored_at = min(item.stored_at, now) if isinstance(item, StoredItem) else now
    fields = {name: getattr(item, name) for name in KnowledgeItem.model_fields}
    return StoredItem(**fields, id=item_id(item), stored_at=stored_at)


def arrival_change(old: StoredItem | None, new: StoredItem) -> Literal["added", "updated", "unchanged"]:
    """Return the effect of an arriving item on the stored item of the same id.

    - Repeated content changes nothing and keeps its first provenance. So until a clean item expires, a tainted run can
      neither take it over nor hide its origin.
    - A clean run that repeats a tainted item makes it clean.
    - An item with a key gets the taint of the run that stores it last.
    - A contradicted or expired fact counts as new, with the taint of the run that repeats it.
    - An older copy never replaces a newer one.
    """
    if old is None:
        return "added"
    if new.stored_at < old.stored_at:
        return "unchanged"
    was_tainted, is_tainted = bool(old.provenance.taint), bool(new.provenance.taint)
    becomes_tainted = is_tainted and not was_tainted
    if becomes_tainted and not new.key and not _has_expired(old, new.stored_at):
        return "unchanged"  # the content is the same: only the spelling or the confidence differs
    takes_taint = becomes_tainted and bool(new.key)
    becomes_clean = was_tainted and not is_tainted
    is_restated = bool(old.contradicted_by) and new.stored_at > old.stored_at
    has_changed = _content_fields(old) != _content_fields(replacement_item(old, new))
    return "updated" if has_changed or becomes_clean or takes_taint or is_restated else "unchanged"


def replacement_item(old: StoredItem | None, new: StoredItem) -> StoredItem:
    """Return the item to store for an arriving item, if `old` is the stored item of the same id.

    An arriving item without a key and without an expiry gets the old expiry, unless that has passed.
    """
    if old is None or old.expires_at is None or new.expires_at is not None or new.key:
        return new
    return new if old.expires_at <= new.stored_at else new.with_expiry(old.expires_at)


def contradictions(facts: Sequence[StoredItem], arriving: str) -> dict[str, str]:
    """Return by the id of each fact of one claim the id of the fact that contradicts it, or "" if it holds.

    - A clean fact holds if it agrees with the newest clean fact. Tainted facts cannot contradict it.
    - A tainted fact holds if it agrees with the newest clean fact. If that has expired, or if there is none, it has to
      agree with the newest fact.

    Args:
        facts: The newest facts of the claim, and the newest clean one.
        arriving: The id of the new fact. Of two facts with the same time, this one is newer.
    """
    if not facts:
        return {}
    by_time = sorted(facts, key=lambda fact: (fact.stored_at, fact.id == arriving, fact.id))
    newest = by_time[-1]
    clean = next((fact for fact in reversed(by_time) if not fact.provenance.taint), newest)
    judges_tainted = newest if _has_expired(clean, newest.stored_at) else clean
    contradicted_by: dict[str, str] = {}
    for fact in facts:
        judge = judges_tainted if fact.provenance.taint else clean
        contradicted_by[fact.id] = "" if is_same_object(fact, judge) else judge.id
    return contradicted_by


def _has_expired(item: StoredItem, now: datetime) -> bool:
    return item.expires_at is not None and item.expires_at <= now


def _content_fields(item: KnowledgeItem) -> dict[str, object]:
    return {name: getattr(item, name) for name in KnowledgeItem.model_fields.keys() - {"provenance"}}


class ArrivalBatch:
    """A batch of arriving items. Afterwards, `changed_items` and `marked_items` are the changes to the tables."""

    def __init__(self, known: Iterable[StoredItem]) -> None:
        """Keep the stored items with the ids of the batch, and the newest of its claims, in order of arrival."""
        self._items: dict[str, StoredItem] = {}
        self._positions: dict[str, int] = {}
        self._claims: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for item in known:
            self._remember(item)
        self._changed: dict[str, bool] = {}
        """Changed items by id. False if only `contradicted_by` has changed."""

    @property
    def changed_items(self) -> list[StoredItem]:
        """New and changed items, in order of arrival."""
        return [self._items[id_] for id_, is_content in self._changed.items() if is_content]

    @property
    def marked_items(self) -> list[StoredItem]:
        """Stored items whose only change is `contradicted_by`, in order of arrival."""
        return [self._items[id_] for id_, is_content in self._changed.items() if not is_content]

    def add_item(self, item: StoredItem) -> Stored:
        old = self._items.get(item.id)
        change = arrival_change(old, item)
        if change == "unchanged":
            return Stored(id=item.id, change=change)
        if old is not None:
            self._claims[claim_digest(old)].pop(item.id, None)
        self._remember(replacement_item(old, item))
        self._changed[item.id] = True
        return Stored(id=item.id, change=change, contradicts=self._resolve_claim(claim_digest(item), item.id))

    def _remember(self, item: StoredItem) -> None:
        self._items[item.id] = item
        self._positions.setdefault(item.id, len(self._positions))
        if claim := claim_digest(item):
            self._claims[claim][item.id] = None

    def _resolve_claim(self, claim: str, arriving: str) -> tuple[str, ...]:
        """Update which fact of a claim holds. Return the ids of the facts that the arriving one newly contradicts."""
        facts = self._newest_facts(claim, arriving) if claim else []
        contradicted: list[str] = []
        for id_, newer in contradictions(facts, arriving).items():
            if self._items[id_].contradicted_by != newer:
                self._items[id_] = self._items[id_].with_contradiction(newer)
                self._changed.setdefault(id_, False)
                if newer == arriving:
                    contradicted.append(id_)
        return tuple(sorted(contradicted))

    def _newest_facts(self, claim: str, arriving: str) -> list[StoredItem]:
        """Return a claim's newest facts, which always include the newest clean one and the arriving one.

        Of facts with the same time, the one that came later is newer.
        """
        facts = [self._items[id_] for id_ in self._claims[claim]]
        facts.sort(key=lambda fact: (fact.stored_at, self._positions[fact.id]), reverse=True)
        clean = next((fact.id for fact in facts if not fact.provenance.taint), "")
        newest, older = facts[:MAX_SETTLED_FACTS], facts[MAX_SETTLED_FACTS:]
        return [*newest, *(fact for fact in older if fact.id in {arriving, clean})]


MAX_TEXT_CHARS = 100_000
"""Characters of an item's text."""
MAX_NAME_CHARS = 1_000
"""Characters of each other field."""

_NAMES = ("key", "subject", "predicate", "object", "directory", "language")


def checked_item(item: KnowledgeItem) -> KnowledgeItem:
    """Return the item as stores keep it. For an invalid one, raise KnowledgeError (InvalidItem) with the remedy."""
    flaw = _item_flaw(item)
    if flaw is not None:
        raise KnowledgeError(f"a {item.kind} cannot be stored: {flaw}", kind="InvalidItem")
    return item.with_texts(_storable_text).with_owner(scoped_owner(item.scope, item.owner))


def _item_flaw(item: KnowledgeItem) -> str | None:  # noqa: PLR0911 -- a list of conditions
    if not item.text.strip():
        return "its text is empty"
    if len(item.text) > MAX_TEXT_CHARS:
        size = f"its text has {len(item.text):,} characters of at most {MAX_TEXT_CHARS:,}"
        return f"{size}; import it as a document, in parts"
    owner = item.owner
    fields = [(name, getattr(item, name)) for name in _NAMES]
    fields += [("tenant", owner.tenant), ("user", owner.user), ("agent", owner.agent)]
    fields += [("source", item.provenance.source), ("workflow_id", item.provenance.workflow_id)]
    for name, value in fields:
        if len(value) > MAX_NAME_CHARS:
            return f"its {name} has {len(value):,} characters of at most {MAX_NAME_CHARS:,}"
    if item.scope == "user" and not owner.user:
        return "its scope is user, but no user is named; name one in the run's trusted_context, or use another scope"
    if item.scope == "agent" and not owner.agent:
        return "its scope is agent, but no agent is named; name one, or use another scope"
    if item.kind == "fact" and not all(part.strip() for part in (item.subject, item.predicate, item.object)):
        return "a fact has a subject, a predicate and an object, none of them empty"
    if item.expires_at is not None and item.expires_at.utcoffset() is None:
        return "the time at which it expires has no time zone"
    directory = item.directory
    if directory and ("\\" in directory or not {"", ".", ".."}.isdisjoint(directory.split("/"))):
        return f"its directory {directory!r} is no path relative to a project's root, with / between parts"
    for name, value in scoped_owner(item.scope, owner):
        if _storable_text(value) != value:  # a replacement would give the item to another owner
            return f"its {name} has a character that no database takes; give that {name} another name"
    return None


def _storable_text(text: str) -> str:
    """Replace what no database accepts as text: NUL and lone surrogates."""
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
