"""What an item has to be before a store takes it."""

from typing import Literal

from orga.activities.knowledge.ports import KnowledgeError
from orga.activities.knowledge.scopes import owner_of
from orga.workflows.types.knowledge import KnowledgeItem, Reader

MAX_TEXT = 100_000
"""Characters of an item's text."""
MAX_NAME = 1_000
"""Characters of each other field."""

_NAMES: tuple[Literal["key", "subject", "predicate", "object", "directory", "language"], ...] = (
    *("key", "subject", "predicate"),
    *("object", "directory", "language"),
)


def checked(item: KnowledgeItem) -> KnowledgeItem:
    """Return the item as stores keep it: the owner as its scope has it, no character in a text that a database refuses.

    Raises:
        KnowledgeError: `InvalidItem`, with what is wrong and the remedy.
    """
    flaw = _flaw(item)
    if flaw is not None:
        raise KnowledgeError(f"a {item.kind} cannot be stored: {flaw}", kind="InvalidItem")
    return item.with_texts(_storable).with_owner(owner_of(item.scope, item.owner))


def _flaw(item: KnowledgeItem) -> str | None:  # noqa: PLR0911 -- a list of conditions
    if not item.text.strip():
        return "its text is empty"
    if len(item.text) > MAX_TEXT:
        return f"its text has {len(item.text):,} characters of at most {MAX_TEXT:,}; import it as a document, in parts"
    owner = item.owner
    others = [(name, getattr(item, name)) for name in _NAMES]
    others += [("tenant", owner.tenant), ("user", owner.user), ("agent", owner.agent)]
    others += [("source", item.provenance.source), ("workflow_id", item.provenance.workflow_id)]
    for name, value in others:
        if len(value) > MAX_NAME:
            return f"its {name} has {len(value):,} characters of at most {MAX_NAME:,}"
    if item.scope == "user" and not owner.user:
        return "its scope is a user's and no user is named; name one in the run's trusted_context, or use another scope"
    if item.scope == "agent" and not owner.agent:
        return "its scope is an agent's and no agent is named; name one, or use another scope"
    if item.kind == "fact" and not all(part.strip() for part in (item.subject, item.predicate, item.object)):
        return "a fact has a subject, a predicate and an object, none of them empty"
    if item.expires_at is not None and item.expires_at.utcoffset() is None:
        return "the time at which it expires has no time zone"
    return _flaw_of_directory(item.directory) or _flaw_of_owner(owner_of(item.scope, owner))


def _flaw_of_directory(directory: str) -> str | None:
    if not directory:
        return None
    parts = directory.split("/")
    if "\\" in directory or any(part in {"", ".", ".."} for part in parts):
        return f"its directory {directory!r} is no path relative to a project's root, with / between parts"
    return None


def _flaw_of_owner(owner: Reader) -> str | None:
    """Another character in place of one would make it somebody else's."""
    for name in ("tenant", "user", "agent"):
        value: str = getattr(owner, name)
        if _storable(value) != value:
            return f"its {name} has a character that no database takes; give that {name} another name"
    return None


def _storable(text: str) -> str:
    """Replace what no database takes as text: NUL, and surrogates that stand alone."""
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
