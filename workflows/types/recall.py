"""Knowledge in a run: its tools, the recalls before model calls, and what both report."""

from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_serializer, model_validator

from orga.workflows.types.json_text import as_object
from orga.workflows.types.knowledge import Reader
from orga.workflows.types.record import Record, replace_fields
from orga.workflows.types.tool_calls.tools import ToolOutput

RECALL_KNOWLEDGE = "recall_knowledge"
"""The tool for looking something up in the knowledge."""

STORE_KNOWLEDGE = "store_knowledge"
"""The tool for storing a fact. The run stores its learnings by a call of it too."""

KNOWLEDGE_TOOLS = (RECALL_KNOWLEDGE, STORE_KNOWLEDGE)
"""These tools are offered if a run's config has `knowledge`. Each of their calls gets the run's `Behalf`."""

KNOWLEDGE_HEADER = "[KNOWLEDGE_CONTEXT]"
"""Begins the message that holds recalled knowledge."""

LOOKUPS_HEADER = "[PRE_HYDRATED_CONTEXT]"
"""First line of the message that holds the content of looked-up references."""

MAX_BLOCK_BYTES = 8_000

MAX_TAINT = 20

MAX_TAINT_CHARS = 100


def recall_id(iteration: int | str) -> str:
    """Return the id of the activity that recalls before an iteration's model call."""
    return f"{iteration}.recall"


class RecallRequest(Record):
    """Input of `recall_context`. It is a local activity, so the input is not written to history."""

    iteration: int
    terms: tuple[str, ...]
    paths: tuple[str, ...] = ()
    """Paths in the arguments of the run's calls. They are searched as words only if there are no `terms`."""
    reader: Reader = Reader()
    limit: int
    threshold: float
    max_bytes: int = MAX_BLOCK_BYTES
    content: str = ""
    """Digest of the items in the conversation's block. Empty if there is no block."""

    @property
    def search_terms(self) -> tuple[str, ...]:
        """Paths, then words, each once."""
        return tuple(dict.fromkeys((*self.paths, *self.terms)))

    def failed_recall(self, error: str) -> "RecalledContext":
        failed = RecalledContext(terms=self.search_terms, error=error)
        return failed.with_block_kept() if self.content else failed


class RecalledRef(Record):
    id: str
    score: float = 0.0
    tainted: bool = False

    def with_taint(self) -> Self:
        return replace_fields(self, {"tainted": True})


class RecalledContext(Record):
    """Result of `recall_context`."""

    terms: tuple[str, ...] = ()
    """The paths and words that were searched, paths first."""
    items: tuple[RecalledRef, ...] = ()
    taint: tuple[str, ...] = ()
    content: str = ""
    """Digest of the items' texts. Scores do not count."""
    text: str = ""
    """Text of the block. Empty if nothing fits, and if the block is already there."""
    same: bool = False
    """True if the existing block stays, because it has the same content or the recall failed."""
    error: str = ""

    def with_terms(self, terms: tuple[str, ...]) -> Self:
        return replace_fields(self, {"terms": terms})

    def with_block_kept(self) -> Self:
        return replace_fields(self, {"same": True})

    def with_text(self, text: str) -> Self:
        return replace_fields(self, {"text": text})


class Recollection(Record):
    """A run's latest recall."""

    terms: tuple[str, ...] = ()
    """Words and paths that are not searched again."""
    content: str = ""
    """Digest of the items' texts."""
    items: int = 0
    error: str = ""


class StoredRef(Record):
    id: str
    kind: str = "fact"
    change: Literal["added", "updated", "unchanged"] = "added"
    contradicts: tuple[str, ...] = ()


class KnowledgeReport(Record):
    """The report of a knowledge tool for the run and its journal."""

    terms: tuple[str, ...] = ()
    items: tuple[RecalledRef, ...] = ()
    taint: tuple[str, ...] = Field(default=(), max_length=MAX_TAINT)
    stored: StoredRef | None = None
    evidence: tuple[StoredRef, ...] = ()
    """Step outputs of a goal, stored with its learnings."""


class KnowledgeOutput(ToolOutput):
    """Result of a knowledge tool: the text, and the report for the run."""

    knowledge: KnowledgeReport = KnowledgeReport()

    @model_serializer
    def _written_output(self) -> Any:
        return {"content": self.content, "knowledge": self.knowledge.model_dump(mode="json", exclude_defaults=True)}

    @model_validator(mode="before")
    @classmethod
    def _from_any_json(cls, value: Any) -> Any:
        """Return the value with its `knowledge`, which `ToolOutput` would leave out."""
        return value


def knowledge_report_in(tool: str, result: object) -> KnowledgeReport:
    """Return the report in a knowledge tool's result. A result without a readable report counts as tainted."""
    report = as_object(result).get("knowledge")
    try:
        return KnowledgeReport.model_validate(report)
    except ValidationError:
        return KnowledgeReport(taint=(tool,))


def taint_of(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the taint of recalled items for the run: each name once, bounded in number and length."""
    return tuple(dict.fromkeys(name[:MAX_TAINT_CHARS] for name in names))[:MAX_TAINT]


_COMMON_WORDS_TEXT = """
a about above after again all also am an and any are as at be because been before being below between both but by can
cannot could did do does doing down during each few for from get had has have having he her here hers him his how i if
in into is it its itself just let like me more most my no nor not now of off on once only or other our ours out over
own please same she should so some such than that the their theirs them then there these they this those through to
too under until up us very was we were what when where which while who whom why will with would you your yours
"""
COMMON_WORDS = frozenset(_COMMON_WORDS_TEXT.split())
"""Common words of any text. Searches and vectors leave them out."""

_TALK_WORDS_TEXT = """
against almost already although always among another anybody anything around away back become begin better came come
comes done either else enough even ever every everything find first gets give given goes going gone herself himself
however instead keep know known last later least less made make makes many maybe might much must myself need needs
neither never none nothing often onto others ourselves perhaps says seem seems shall show since something soon still
take tell themselves thing things though thus together upon used using want wants well went whatever whether whose
within without yeah yourself
"""
TALK_WORDS = frozenset(_TALK_WORDS_TEXT.split())
"""Further common words of conversations. They belong to the request, not to its subject."""
