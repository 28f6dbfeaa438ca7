"""Knowledge: what runs and people have learnt, who may recall it, and where it comes from."""

from collections.abc import Callable
from datetime import datetime
from typing import Literal, Self

from pydantic import Field

from orga.workflows.types.record import Record, replace_differing_fields, replace_fields

DEFAULT_CONFIDENCE = 0.8
"""The confidence of an item if nobody states it."""

DEFAULT_RECALLED = 5
"""The maximum number of items of one recall."""

DEFAULT_THRESHOLD = 0.3
"""The lowest score of an item that is recalled."""

KnowledgeKind = Literal["fact", "document", "memory", "convention", "output"]
"""A statement, a part of a document, a finding of a run, a convention of a folder, or a goal step's output."""

RECALLED_KINDS: tuple[KnowledgeKind, ...] = ("fact", "document", "memory", "convention")
"""The kinds that a recall finds by default. An output is evidence, not knowledge."""

ScopeLevel = Literal["user", "agent", "tenant", "global"]
"""The kind of an item's owner. Users and agents belong to a tenant. Those without a tenant form one together."""


class Reader(Record):
    """The user, agent and tenant on whose behalf something is stored or recalled."""

    tenant: str = ""
    user: str = ""
    """`trusted_context.user` of the run."""
    agent: str = ""


class StepOutput(Record):
    """The output of a goal's step."""

    step: str
    source: str = ""
    """Its origin, as in the goal's result."""
    text: str


class Provenance(Record):
    source: str = ""
    """A path, an address, or a person."""
    workflow_id: str = ""
    iteration: int = 0
    model: str = ""
    taint: tuple[str, ...] = ()
    """Tools whose untrusted content had entered the run that stored it. If there are any, the item is untrusted."""

    def with_source(self, source: str) -> Self:
        return replace_fields(self, {"source": source})

    def with_taint(self, names: tuple[str, ...]) -> Self:
        return replace_fields(self, {"taint": tuple(dict.fromkeys((*self.taint, *names)))})

    def with_texts(self, change: Callable[[str], str]) -> Self:
        return replace_fields(
            self,
            {
                "source": change(self.source),
                "workflow_id": change(self.workflow_id),
                "model": change(self.model),
                "taint": tuple(map(change, self.taint)),
            },
        )


class Behalf(Record):
    """The origin of a call that stores or recalls: its reader, model and taint. The run sets it, never the model."""

    reader: Reader = Reader()
    iteration: int = 0
    model: str = ""
    taint: tuple[str, ...] = ()
    """Tools whose untrusted content has entered the run."""
    threshold: float = DEFAULT_THRESHOLD
    """The lowest score that is recalled."""
    is_learning: bool = False
    """True if the call stores the run's learnings at its end."""
    outputs: tuple[StepOutput, ...] = ()
    """Step outputs of a goal, stored as evidence together with its learnings. A recall finds them only on request."""

    def provenance(self, source: str, workflow_id: str) -> Provenance:
        return Provenance(
            source=source,
            workflow_id=workflow_id,
            iteration=self.iteration,
            model=self.model,
            taint=self.taint,
        )

    def with_learning(self, outputs: tuple[StepOutput, ...]) -> Self:
        return replace_differing_fields(self, {"is_learning": True, "outputs": outputs})


class KnowledgeItem(Record):
    """An item of knowledge, as it is given to a store."""

    kind: KnowledgeKind
    text: str
    """The text that is searched and shown. For a fact it is the subject, predicate and object."""
    scope: ScopeLevel = "tenant"
    owner: Reader = Reader()
    """The owner. Only the parts that the scope needs count: agent and tenant for `agent`, none for `global`."""
    key: str = ""
    """An item replaces the earlier one with the same key, scope and owner. If the key is empty, the content is used as
    the key, so that nothing is stored twice.
    """
    subject: str = ""
    """The subject of a fact. For a memory it is the run's task, which is shown but not searched."""
    predicate: str = ""
    object: str = ""
    directory: str = ""
    """Path of a convention or document from the project's root, with `/` between parts. Empty is the root."""
    language: str = ""
    """A programming language in lower case. A convention for a language applies in every directory."""
    confidence: float = Field(default=DEFAULT_CONFIDENCE, ge=0, le=1)
    provenance: Provenance = Provenance()
    expires_at: datetime | None = None
    """A time with its zone. The item is not recalled from then on."""

    def with_texts(self, change: Callable[[str], str]) -> Self:
        return replace_fields(
            self,
            {
                "text": change(self.text),
                "key": change(self.key),
                "subject": change(self.subject),
                "predicate": change(self.predicate),
                "object": change(self.object),
                "directory": change(self.directory),
                "language": change(self.language),
                "provenance": self.provenance.with_texts(change),
            },
        )

    def with_taint(self, names: tuple[str, ...]) -> Self:
        return replace_fields(self, {"provenance": self.provenance.with_taint(names)})

    def with_expiry(self, time: datetime) -> Self:
        return replace_fields(self, {"expires_at": time})

    def with_owner(self, owner: Reader) -> Self:
        return replace_fields(self, {"owner": owner})


class StoredItem(KnowledgeItem):
    """An item as a store has it."""

    id: str
    """The store's own id. It is the same for the same key, scope and owner."""
    stored_at: datetime
    contradicted_by: str = ""
    """Id of the fact that outranks this one. The two have the same subject, predicate, scope and owner, and different
    objects. The newest clean fact outranks all others. Only if none is clean, the newest tainted fact does.
    """

    def with_contradiction(self, newer: str) -> Self:
        """Return the fact with the id of the fact that outranks it, or "" if none does."""
        return replace_fields(self, {"contradicted_by": newer})


class Recall(Record):
    """A query."""

    text: str
    """Words to search for. If empty, all items that match the other fields are found, newest first. If they are only
    conventions, those with the highest confidence come first.
    """
    reader: Reader = Reader()
    limit: int = Field(default=DEFAULT_RECALLED, ge=1, le=100)
    threshold: float = Field(default=DEFAULT_THRESHOLD, ge=0, le=1)
    """The lowest score that is returned."""
    kinds: tuple[KnowledgeKind, ...] = RECALLED_KINDS
    scopes: tuple[ScopeLevel, ...] = ("user", "agent", "tenant", "global")
    directory: str | None = None
    """Finds only items of exactly this directory. None finds all."""
    language: str | None = None
    """Finds only items of exactly this language. None finds all."""


class Recalled(Record):
    """An item that a query has found."""

    item: StoredItem
    score: float = Field(ge=0, le=1)


class Stored(Record):
    """The outcome of storing an item."""

    id: str
    change: Literal["added", "updated", "unchanged"]
    contradicts: tuple[str, ...] = ()
    """Ids of older facts that rank below this one from now on."""


class Erasure(Record):
    """Items to erase. An item has to match every field that is set, and at least one field has to be set."""

    ids: tuple[str, ...] = ()
    subject: str = ""
    """Case and spaces are ignored, as when facts are compared."""
    workflow_id: str = ""
    user: str = ""
    tenant: str | None = None
    """An empty text matches items without a tenant. None matches any item, and nothing else matches a global item."""
    source: str = ""
    expired_by: datetime | None = None
    """A time with its zone. Matches items that have expired by then. None matches any item."""
