"""Decides who may recall an item: a place for each scope and owner, and the places that a reader sees.

Every store filters by place, so all stores share one rule.
"""

import json
from collections.abc import Sequence
from hashlib import sha256

from orga.workflows.types.knowledge import KnowledgeItem, Reader, ScopeLevel


def scoped_owner(scope: ScopeLevel, owner: Reader) -> Reader:
    """Return only the parts of an owner that the scope needs."""
    match scope:
        case "global":
            return Reader()
        case "tenant":
            return Reader(tenant=owner.tenant)
        case "user":
            return Reader(tenant=owner.tenant, user=owner.user)
        case "agent":
            return Reader(tenant=owner.tenant, agent=owner.agent)


def scope_place(scope: ScopeLevel, owner: Reader) -> str:
    """Return a name of decimal digits that is unique to this scope and owner.

    A text index keeps digits as one word, whatever stemming it does.
    """
    named = scoped_owner(scope, owner)
    words = json.dumps([scope, named.tenant, named.user, named.agent])
    return str(int.from_bytes(sha256(words.encode("ascii")).digest()[:15], "big")).zfill(37)


def visible_places(reader: Reader, scopes: Sequence[ScopeLevel]) -> tuple[str, ...]:
    """Return the places that a reader sees. Places of a user or an agent need a reader with a user or an agent."""
    return tuple(scope_place(scope, reader) for scope in dict.fromkeys(scopes) if _has_owner(scope, reader))


def may_recall(item: KnowledgeItem, reader: Reader, scopes: Sequence[ScopeLevel]) -> bool:
    """Return whether an item is visible to a reader."""
    return scope_place(item.scope, item.owner) in visible_places(reader, scopes)


def _has_owner(scope: ScopeLevel, reader: Reader) -> bool:
    match scope:
        case "user":
            return bool(reader.user)
        case "agent":
            return bool(reader.agent)
        case _:
            return True
