"""What may be erased at once."""

from orga.activities.knowledge.ports import KnowledgeError
from orga.workflows.types.knowledge import Erasure


def require_named(what: Erasure) -> None:
    """Refuse to erase everything for want of a word.

    Raises:
        KnowledgeError: Nothing is named.
    """
    if what == Erasure():
        raise KnowledgeError(
            "nothing says what is to be forgotten; name an id, a subject, a run, a user, a tenant or a source",
            kind="InvalidItem",
        )
