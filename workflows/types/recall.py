"""What a run recalls and learns: its settings, what the bridge puts into its context, what its tools tell of it."""

from typing import Any, Literal, Self, cast

from pydantic import Field, ValidationError, model_serializer, model_validator

from orga.workflows.types.knowledge import Reader
from orga.workflows.types.record import Record, replace_fields
from orga.workflows.types.tool_calls.tools import ToolOutput

RECALL_KNOWLEDGE = "recall_knowledge"
"""The tool by which a model looks something up."""

STORE_KNOWLEDGE = "store_knowledge"
"""The tool by which a model stores a fact; what a run has learnt is stored by a call of it, too."""

KNOWLEDGE_TOOLS = (RECALL_KNOWLEDGE, STORE_KNOWLEDGE)
"""Offered where a run's config has `knowledge`; they are told on whose behalf they are called."""

BLOCK_HEADER = "[KNOWLEDGE_CONTEXT]"

MAX_BLOCK_BYTES = 8_000
"""Of what the model is shown."""

MAX_TAINT = 20
"""Names that one recall may bring."""

MAX_TAINT_CHARS = 100


def recall_id(iteration: int | str) -> str:
    """Return the id of the activity that recalls ahead of an iteration's model call."""
    return f"{iteration}.recall"


class RecallRequest(Record):
    """Input of `recall_context`: a local activity, so that it stands in no history."""

    iteration: int
    terms: tuple[str, ...]
    """Words of the talk."""
    paths: tuple[str, ...] = ()
    """Where the run works, as its calls say: no words to search by."""
    reader: Reader = Reader()
    limit: int = 5
    threshold: float = 0.3
    max_bytes: int = MAX_BLOCK_BYTES
    content: str = ""
    """Digest of what the block shows that is there already."""

    @property
    def wanted(self) -> tuple[str, ...]:
        """All by which it is looked for, each once: paths ahead of words."""
        return tuple(dict.fromkeys((*self.paths, *self.terms)))

    def failed(self, error: str) -> "RecalledContext":
        """Return the result where nothing could be recalled."""
        failed = RecalledContext(terms=self.wanted, error=error)
        return failed.as_same() if self.content else failed


class RecalledRef(Record):
    """An item that was recalled."""

    id: str
    score: float = 0.0
    tainted: bool = False

    def with_taint(self) -> Self:
        """Return the reference to an item that a tainted run stored."""
        return replace_fields(self, {"tainted": True})


class RecalledContext(Record):
    """Result of `recall_context`."""

    terms: tuple[str, ...] = ()
    """By which it was looked for, paths ahead of words."""
    items: tuple[RecalledRef, ...] = ()
    taint: tuple[str, ...] = ()
    """What the items are tainted by."""
    content: str = ""
    """Digest of what the items say, whatever their scores are."""
    text: str = ""
    """Of the block; empty where nothing fits, and where the block is there already."""
    same: bool = False
    """Whether the block that is there stays: it says the same, or nothing could be recalled."""
    error: str = ""
    """Why nothing could be recalled."""

    def with_terms(self, terms: tuple[str, ...]) -> Self:
        """Return it by these terms."""
        return replace_fields(self, {"terms": terms})

    def as_same(self) -> Self:
        """Return it where the block that is there stays."""
        return replace_fields(self, {"same": True})

    def with_text(self, text: str) -> Self:
        """Return it with the block."""
        return replace_fields(self, {"text": text})


class Recollection(Record):
    """What a run has recalled last."""

    terms: tuple[str, ...] = ()
    """By which nothing is looked for again."""
    content: str = ""
    """As in `RecalledContext`, of the block."""
    items: int = 0
    """That the block shows."""
    error: str = ""
    """Why nothing could be recalled the last time."""


class StoredRef(Record):
    """What storing has done with an item."""

    id: str
    kind: str = "fact"
    change: Literal["added", "updated", "unchanged"] = "added"
    contradicts: tuple[str, ...] = ()


class KnowledgeReport(Record):
    """What a knowledge tool has done, for the run and its journal."""

    terms: tuple[str, ...] = ()
    items: tuple[RecalledRef, ...] = ()
    taint: tuple[str, ...] = Field(default=(), max_length=MAX_TAINT)
    """What the items are tainted by; names of tools."""
    stored: StoredRef | None = None
    evidence: tuple[StoredRef, ...] = ()
    """What the steps of a goal brought, stored beside what it has learnt."""


class KnowledgeOutput(ToolOutput):
    """Result of a knowledge tool: the text, and what the run has to know of it."""

    knowledge: KnowledgeReport = KnowledgeReport()

    @model_serializer
    def _bare(self) -> Any:
        return {"content": self.content, "knowledge": self.knowledge.model_dump(mode="json", exclude_defaults=True)}

    @model_validator(mode="before")
    @classmethod
    def _from_any_json(cls, value: Any) -> Any:
        return value


def knowledge_report_in(tool: str, result: object) -> KnowledgeReport:
    """Return what the result of a knowledge tool tells; one that tells nothing readable may hold anybody's text."""
    told = cast("dict[str, Any]", result).get("knowledge") if isinstance(result, dict) else None
    try:
        return KnowledgeReport.model_validate(told)
    except ValidationError:
        return KnowledgeReport(taint=(tool,))


def taint_of(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return names of tools as a run takes them over from items: each once, no more and no longer than it has room."""
    return tuple(dict.fromkeys(name[:MAX_TAINT_CHARS] for name in names))[:MAX_TAINT]


_COMMON_WORDS_TEXT = """
a about above after again all also am an and any are as at be because been before being below between both but by can
cannot could did do does doing down during each few for from get had has have having he her here hers him his how i if
in into is it its itself just let like me more most my no nor not now of off on once only or other our ours out over
own please same she should so some such than that the their theirs them then there these they this those through to
too under until up us very was we were what when where which while who whom why will with would you your yours
"""
COMMON_WORDS = frozenset(_COMMON_WORDS_TEXT.split())
"""In any text: searching and vectors leave them out."""

_TALK_WORDS_TEXT = """
against almost already although always among another anybody anything around away back become begin better came come
comes done either else enough even ever every everything find first gets give given goes going gone herself himself
however instead keep know known last later least less made make makes many maybe might much must myself need needs
neither never none nothing often onto others ourselves perhaps says seem seems shall show since something soon still
take tell themselves thing things though thus together upon used using want wants well went whatever whether whose
within without yeah yourself
"""
TALK_WORDS = frozenset(_TALK_WORDS_TEXT.split())
"""In talk, beside those: what somebody says of what is to be done, not what it is about."""
