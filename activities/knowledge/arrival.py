"""What becomes of an item that arrives: added, updated or unchanged, and which of a claim's facts stands."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from orga.activities.knowledge.identity import item_id, same_object
from orga.workflows.types.knowledge import KnowledgeItem, StoredItem

SETTLED = 50
"""Facts of one claim, the newest, of which it is settled anew what contradicts them when another comes."""


def arrived(item: KnowledgeItem, now: datetime) -> StoredItem:
    """Return an item as it is stored. One that was stored elsewhere before (an export's) keeps its time."""
    stored_at = min(item.stored_at, now) if isinstance(item, StoredItem) else now
    fields = {name: getattr(item, name) for name in KnowledgeItem.model_fields}
    return StoredItem(**fields, id=item_id(item), stored_at=stored_at)


def change(old: StoredItem | None, new: StoredItem) -> Literal["added", "updated", "unchanged"]:
    """Return what an arriving item does to the one of the same id.

    What says the same again changes nothing, so that it keeps its first provenance: a tainted run cannot make a clean
    item its own, nor hide where it came from. Told again by a clean run, a tainted item is clean; and a fact that has
    been contradicted is news again. An older copy never takes the place of a newer one.
    """
    if old is None:
        return "added"
    if new.stored_at < old.stored_at:
        return "unchanged"
    is_cleaner = bool(old.provenance.taint) and not new.provenance.taint
    is_fouler = bool(new.provenance.taint) and not old.provenance.taint
    is_news = bool(old.contradicted_by) and new.stored_at > old.stored_at
    if is_fouler and not new.key:  # of the same content: what differs is the spelling or the confidence
        return "unchanged"
    return "updated" if _said(old) != _said(new) or is_cleaner or is_news else "unchanged"


def standing(facts: Sequence[StoredItem], arriving: str) -> dict[str, str]:
    """Return, by id, what each fact of one claim is contradicted by: the newest stands, empty.

    Args:
        facts: All of the claim.
        arriving: The id of the one that has just come: of two of the same time it is the newer.
    """
    if not facts:
        return {}
    newest = max(facts, key=lambda fact: (fact.stored_at, fact.id == arriving, fact.id))
    return {fact.id: "" if same_object(fact, newest) else newest.id for fact in facts}


def _said(item: KnowledgeItem) -> dict[str, object]:
    names = KnowledgeItem.model_fields.keys() - {"provenance"}
    return {name: getattr(item, name) for name in names}
