"""Knowledge: what runs and people have learnt, who may recall it, and where it comes from."""

from collections.abc import Callable
from datetime import datetime
from typing import Literal, Self

from pydantic import Field

from orga.workflows.types.record import Record, replace_fields

KnowledgeKind = Literal["fact", "document", "memory", "convention", "output"]
"""A statement, a part of a document, what a run has learnt, a convention of a folder; what a step of a goal brought."""

RECALLED_KINDS: tuple[KnowledgeKind, ...] = ("fact", "document", "memory", "convention")
"""What is recalled where nobody says which: an output is evidence, no knowledge."""

ScopeLevel = Literal["user", "agent", "tenant", "global"]
"""Whose an item is. A tenant's users and agents are its own; no tenant is a tenant, too."""


class Reader(Record):
    """On whose behalf something is stored or recalled."""

    tenant: str = ""
    user: str = ""
    """`trusted_context.user` of the run."""
    agent: str = ""


class StepOutput(Record):
    """What a step of a goal has brought."""

    step: str
    source: str = ""
    """Where it is from, as the goal's result tells it."""
    text: str


class Provenance(Record):
    """Where an item comes from."""

    source: str = ""
    """A path, an address, or who said it."""
    workflow_id: str = ""
    iteration: int = 0
    model: str = ""
    taint: tuple[str, ...] = ()
    """Tools whose untrusted content had entered the run that stored it: the item is untrusted data."""

    def with_source(self, source: str) -> Self:
        """Return it from another source."""
        return replace_fields(self, {"source": source})

    def with_taint(self, names: tuple[str, ...]) -> Self:
        """Return it marked by these names, too."""
        return replace_fields(self, {"taint": tuple(dict.fromkeys((*self.taint, *names)))})

    def with_texts(self, change: Callable[[str], str]) -> Self:
        """Return it with each of its texts changed so."""
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
    """On whose behalf a run's call stores or recalls: said by the run itself, never by what a model writes."""

    reader: Reader = Reader()
    iteration: int = 0
    model: str = ""
    taint: tuple[str, ...] = ()
    """Tools whose untrusted content has entered the run."""
    threshold: float = 0.3
    """Of the score, below which nothing is recalled."""
    is_learning: bool = False
    """Whether it is what the run stores at its end."""

    outputs: tuple[StepOutput, ...] = ()
    """Of a goal that stores what it has learnt: kept beside that as evidence, which no run recalls by itself."""

    def provenance(self, source: str, workflow_id: str) -> Provenance:
        """Return where an item comes from that this run stores."""
        return Provenance(
            source=source,
            workflow_id=workflow_id,
            iteration=self.iteration,
            model=self.model,
            taint=self.taint,
        )

    def with_learning(self, outputs: tuple[StepOutput, ...]) -> Self:
        """Return it for what the run stores at its end."""
        if not outputs:
            return replace_fields(self, {"is_learning": True})
        return replace_fields(self, {"is_learning": True, "outputs": outputs})


class KnowledgeItem(Record):
    """Something to be stored."""

    kind: KnowledgeKind
    text: str
    """What is searched and shown; of a fact its subject, predicate and object."""
    scope: ScopeLevel = "tenant"
    owner: Reader = Reader()
    """Of a scope only what it takes counts: a global item belongs to nobody, an agent's to its agent and tenant."""
    key: str = ""
    """Stored again under the same key, scope and owner, an item takes the place of the one before. Empty: its content
    is its key, so that nothing is there twice."""
    subject: str = ""
    """Of a fact; of a memory the task of the run, which is shown and not searched."""
    predicate: str = ""
    object: str = ""
    directory: str = ""
    """Of a convention or document, relative to the root of its project, `/` between parts; empty is the root."""
    language: str = ""
    """A programming language, in lower case, for which a convention holds wherever it lies."""
    confidence: float = Field(default=0.8, ge=0, le=1)
    provenance: Provenance = Provenance()
    expires_at: datetime | None = None
    """Aware. From then on it is not recalled."""

    def with_texts(self, change: Callable[[str], str]) -> Self:
        """Return it with each of its texts changed so, but for its owner's names."""
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
        """Return it marked by these names, too."""
        return replace_fields(self, {"provenance": self.provenance.with_taint(names)})

    def with_expiry(self, time: datetime) -> Self:
        """Return it as what is not recalled from that time on."""
        return replace_fields(self, {"expires_at": time})

    def with_owner(self, owner: Reader) -> Self:
        """Return it as another's."""
        return replace_fields(self, {"owner": owner})


class StoredItem(KnowledgeItem):
    """What a store holds."""

    id: str
    """Of the store's own making; the same for the same key, scope and owner."""
    stored_at: datetime
    contradicted_by: str = ""
    """The id of the fact of the same subject and predicate, within the same scope and owner, with another object, that
    this one ranks below: the newest, of a tainted fact the newest clean one."""

    def with_contradiction(self, newer: str) -> Self:
        """Return the fact that the newer one of this id contradicts; "" for none."""
        return replace_fields(self, {"contradicted_by": newer})


class Recall(Record):
    """What is looked for."""

    text: str
    """Words; empty finds everything that fits the rest, the newest first, or of conventions alone the surest."""
    reader: Reader = Reader()
    limit: int = Field(default=5, ge=1, le=100)
    threshold: float = Field(default=0.3, ge=0, le=1)
    """Of the score, below which nothing is returned."""
    kinds: tuple[KnowledgeKind, ...] = RECALLED_KINDS
    scopes: tuple[ScopeLevel, ...] = ("user", "agent", "tenant", "global")
    directory: str | None = None
    """Items of exactly this directory alone; None does not ask."""
    language: str | None = None
    """Items of exactly this language alone; None does not ask."""


class Recalled(Record):
    """What was found."""

    item: StoredItem
    score: float = Field(ge=0, le=1)


class Stored(Record):
    """What storing has done with one item."""

    id: str
    change: Literal["added", "updated", "unchanged"]
    contradicts: tuple[str, ...] = ()
    """Ids of older facts that rank below this one from now on."""


class Erasure(Record):
    """What is to be forgotten: all that is named has to fit, and something has to be named."""

    ids: tuple[str, ...] = ()
    subject: str = ""
    """In whatever letters and spaces, as facts are compared."""
    workflow_id: str = ""
    user: str = ""
    tenant: str | None = None
    """Empty means what belongs to no tenant; None does not ask. What is global is nobody's, and never among it."""
    source: str = ""
    expired_by: datetime | None = None
    """Aware. What is not recalled from then on; None does not ask."""
