"""The rule for what an erasure erases. Every store and the preview use it."""

from collections.abc import Iterable

from orga.activities.knowledge.identity import folded_text
from orga.activities.knowledge.ports import KnowledgeError, KnowledgeStore, batches
from orga.workflows.types.knowledge import Erasure, StoredItem


def require_named(what: Erasure) -> None:
    """Refuse an erasure without any condition, because it would erase everything."""
    if what == Erasure():
        raise KnowledgeError(
            "name what to forget: an id, a subject, a run, a user, a tenant, a source or a time",
            kind="InvalidItem",
        )


def exact_columns(what: Erasure) -> dict[str, str]:
    """Return the columns that an erasure names, with the values that an item must have."""
    named = {"workflow_id": what.workflow_id, "user": what.user, "source": what.source}
    return {column: value for column, value in named.items() if value}


def matching_subjects(subjects: Iterable[str], subject: str) -> list[str]:
    """Return the subjects that equal the named one, compared as facts are."""
    return [each for each in subjects if each and folded_text(each) == folded_text(subject)]


def is_erased_by(item: StoredItem, what: Erasure) -> bool:
    has = {
        "workflow_id": item.provenance.workflow_id,
        "user": item.owner.user,
        "source": item.provenance.source,
    }
    return (
        (not what.ids or item.id in what.ids)
        and (not what.subject or item.subject in matching_subjects([item.subject], what.subject))
        and all(has[column] == value for column, value in exact_columns(what).items())
        and (what.tenant is None or (item.scope != "global" and item.owner.tenant == what.tenant))
        and (what.expired_by is None or (item.expires_at is not None and item.expires_at <= what.expired_by))
    )


async def forget_ids(store: KnowledgeStore, ids: Iterable[str]) -> None:
    """Forget any number of items, in order. If it raises KnowledgeError, some remain."""
    for batch in batches(ids):
        await store.forget(Erasure(ids=tuple(batch)))
