"""Renders recalled items for a model, each with its source and score, sanitized and within a limit.

Anybody can have written stored text, so it is shown between delimiters, as results of tools are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orga.activities.knowledge.words import text_with_task
from orga.workflows.types.context import text_digest
from orga.workflows.types.knowledge import Recalled, StoredItem
from orga.workflows.types.recall import BLOCK_HEADER, RecalledRef, taint_of
from orga.workflows.types.text import clean_text, clip, one_line

MAX_ITEM_BYTES = 2_000
MAX_ITEM_CHARS = 20_000
"""Characters of an item that are read."""

SOURCE_CHARS = 200

INDENT = "  "
"""Indents each line of a stored text. Lines without indent are ours, so no text can pass for another item."""

_RECALL_HINT = "recall_knowledge finds it by its words"

BLOCK_LINE = f"{BLOCK_HEADER} What was stored before and may concern this step, the most relevant first:"


@dataclass(frozen=True)
class ShownKnowledge:
    text: str = ""
    items: tuple[RecalledRef, ...] = ()
    taint: tuple[str, ...] = ()
    content: str = ""
    """Digest of the items' texts and sources. It does not depend on their order and scores."""


def shown_knowledge(
    found: Sequence[Recalled], max_bytes: int, fit: Callable[[str], str] = clean_text
) -> ShownKnowledge:
    """Return as many items as there is room for, in their order. `fit` makes a text safe for a model."""
    lines: list[str] = []
    contents: list[str] = []
    kept: list[Recalled] = []
    size = 0
    for each in found:
        text = clip(_indented_text(fit(text_with_task(each.item)[:MAX_ITEM_CHARS])), MAX_ITEM_BYTES, _RECALL_HINT)
        source = _source_line(each.item)
        line = f"- {each.item.kind}, relevance={each.score:.2f}{source}\n{text}"
        size += len(line.encode()) + 1
        if size > max_bytes:
            break
        lines.append(line)
        contents.append(f"{each.item.id}\n{source}\n{text}")
        kept.append(each)
    if not kept:
        return ShownKnowledge()
    taint = taint_of(tuple(name for each in kept for name in each.item.provenance.taint))
    return ShownKnowledge(
        "\n".join(lines), tuple(map(recalled_reference, kept)), taint, text_digest("\0".join(sorted(contents)))
    )


def recalled_reference(each: Recalled) -> RecalledRef:
    """Return what the journal shows of an item."""
    reference = RecalledRef(id=each.item.id, score=round(each.score, 4))
    return reference.with_taint() if each.item.provenance.taint else reference


def _indented_text(text: str) -> str:
    return "\n".join(f"{INDENT}{line}" if line else "" for line in text.splitlines())


def _source_line(item: StoredItem) -> str:
    """Return the source of an item, as a part of one line."""
    origin = item.provenance
    parts = [f"confidence={item.confidence:.2f}" if item.kind in {"fact", "memory"} else ""]
    parts.append(f"directory={item.directory or '.'}" if item.kind == "convention" else "")
    parts.append(f"source={origin.source}" if origin.source else "")
    parts.append(f"run={origin.workflow_id}, iteration={origin.iteration}" if origin.workflow_id else "")
    parts.append(f"model={origin.model}" if origin.model else "")
    parts.append(f"untrusted: it came with {', '.join(origin.taint[:5])}" if origin.taint else "")
    parts.append("a newer fact says otherwise" if item.contradicted_by else "")
    return "".join(f", {one_line(part, SOURCE_CHARS)}" for part in parts if part)
