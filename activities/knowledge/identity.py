"""Decides which items are the same, which facts have the same claim, who sees an item, and what is erased.

A scope and its owner make an audience. Every store filters by audience, so the same rule holds in all stores.
"""

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from unicodedata import normalize

from orga.activities.knowledge.ports import KnowledgeError, KnowledgeStore, batches
from orga.workflows.types.knowledge import Erasure, KnowledgeItem, Reader, Recall, ScopeLevel, StoredItem


def scoped_owner(scope: ScopeLevel, owner: Reader) -> Reader:
    """Return only the parts of an owner that the scope needs."""
    return Reader(
        tenant="" if scope == "global" else owner.tenant,
        user=owner.user if scope == "user" else "",
        agent=owner.agent if scope == "agent" else "",
    )


def audience_digits(scope: ScopeLevel, owner: Reader) -> str:
    """Return the name of an audience: 37 decimal digits, because a text index keeps digits as one word."""
    scoped = scoped_owner(scope, owner)
    text = json.dumps([scope, scoped.tenant, scoped.user, scoped.agent])
    return str(int.from_bytes(sha256(text.encode("ascii")).digest()[:15], "big")).zfill(37)


def reader_audiences(reader: Reader, scopes: Sequence[ScopeLevel]) -> tuple[str, ...]:
    """Return the audiences that a reader belongs to. A reader without a user (or agent) has none of that scope."""
    owners = {"user": reader.user, "agent": reader.agent}
    return tuple(audience_digits(scope, reader) for scope in dict.fromkeys(scopes) if owners.get(scope, "all"))


def is_visible(item: KnowledgeItem, query: Recall) -> bool:
    """Return whether the reader of a query may see the item."""
    return audience_digits(item.scope, item.owner) in reader_audiences(query.reader, query.scopes)


def item_id(item: KnowledgeItem) -> str:
    """Return the id of an item. Items with the same scope, owner and key (or content, without a key) share it."""
    key = ["key", item.key] if item.key else ["content", content_digest(item)]
    return f"k{_digest(audience_digits(item.scope, item.owner), *key)}"


def content_digest(item: KnowledgeItem) -> str:
    """Return a digest of an item's content. For facts, upper case and spaces make no difference."""
    if item.kind == "fact":
        return _digest(item.kind, *map(folded_text, (item.subject, item.predicate, item.object)))
    return _digest(item.kind, item.text, item.directory, item.language)


def claim_digest(item: KnowledgeItem) -> str:
    """Return a digest of a fact's claim (audience, subject, predicate), or "" for other items."""
    return _claim_for(audience_digits(item.scope, item.owner), item) if item.kind == "fact" else ""


def tainted_claims(items: Iterable[KnowledgeItem], audiences: Iterable[str]) -> set[str]:
    """Return the claims of the tainted facts for each audience, because a clean fact of any audience may matter."""
    tainted = [item for item in items if item.kind == "fact" and item.provenance.taint]
    return {_claim_for(audience, item) for audience in audiences for item in tainted}


def _claim_for(audience: str, fact: KnowledgeItem) -> str:
    return _digest(audience, folded_text(fact.subject), folded_text(fact.predicate))


def is_same_object(one: KnowledgeItem, other: KnowledgeItem) -> bool:
    return folded_text(one.object) == folded_text(other.object)


def folded_text(words: str) -> str:
    """Return a text as it is compared, without differences of upper case and spaces."""
    return " ".join(normalize("NFKC", words).casefold().split())


def _digest(*parts: str) -> str:
    return sha256(json.dumps(parts).encode("ascii")).hexdigest()[:24]


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
    """Return whether an item matches all conditions of an erasure."""
    origin = item.provenance
    own = {"workflow_id": origin.workflow_id, "user": item.owner.user, "source": origin.source}
    return (
        (not what.ids or item.id in what.ids)
        and (not what.subject or item.subject in matching_subjects([item.subject], what.subject))
        and all(own[column] == value for column, value in exact_columns(what).items())
        and (what.tenant is None or (item.scope != "global" and item.owner.tenant == what.tenant))
        and (what.expired_by is None or (item.expires_at is not None and item.expires_at <= what.expired_by))
    )


async def forget_ids(store: KnowledgeStore, ids: Iterable[str]) -> None:
    """Forget any number of items, in order. If it raises KnowledgeError, some remain."""
    for batch in batches(ids):
        await store.forget(Erasure(ids=tuple(batch)))
