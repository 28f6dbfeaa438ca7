"""What an audit found, as a table and as JSON."""

from collections.abc import Sequence
from typing import Any

from orga.client.cli.counting import counted
from orga.client.cli.terminal_text import on_one_line
from orga.client.proof.audit import RunAudit, counts
from orga.client.proof.rejudged import SAME, Rejudged
from orga.workflows.types.text import in_full

PROPOSAL_CHARS = 60
REASON_CHARS = 80
HEADINGS = ("RUN", "ITERATION", "PROPOSAL", "CHANGE", "DECIDED BY THEN", "DECIDED BY NOW", "REASON NOW")


def table(audits: Sequence[RunAudit], *, everything: bool) -> list[str]:
    """Return one line for each proposal that would be decided otherwise, or for each there is."""
    cells = [HEADINGS, *map(_cells, _shown(audits, everything=everything))]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADINGS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def as_json(audits: Sequence[RunAudit], *, everything: bool) -> dict[str, Any]:
    """Return the whole result."""
    return {
        "runs": [audit.run for audit in audits],
        "counts": counts(audits),
        "not_rebuilt": [{"run": audit.run, "why": why} for audit in audits for why in audit.not_rebuilt],
        "breaches": [{"run": audit.run, "why": why} for audit in audits for why in audit.breaches],
        "judgements": [_object(found) for found in _shown(audits, everything=everything)],
    }


def summary(audits: Sequence[RunAudit]) -> list[str]:
    """Return one line that counts, and one for each part that could not be judged anew or was against the law."""
    found = counts(audits)
    told = ", ".join(f"{number} {change}" for change, number in found.items()) or "nothing was proposed"
    lacking = [
        f"{in_full(audit.run)}: {on_one_line(why, 600)}"
        for audit in audits
        for why in (*audit.not_rebuilt, *audit.breaches)
    ]
    return [f"{counted(sum(found.values()), 'proposal')} of {counted(len(audits), 'run')}: {told}", *lacking]


def _shown(audits: Sequence[RunAudit], *, everything: bool) -> list[Rejudged]:
    return [found for audit in audits for found in audit.judgements if everything or found.change != SAME]


def _cells(found: Rejudged) -> tuple[str, ...]:
    about = [found.purpose] if found.purpose != "reply" else []
    about += [f"approved by {found.approved_by}"] if found.approved_by else []
    proposal = f"{found.tool} {found.arguments}" + (f" ({', '.join(about)})" if about else "")
    return (
        on_one_line(found.run),
        str(found.iteration),
        on_one_line(proposal, PROPOSAL_CHARS),
        found.change,
        on_one_line(", ".join(found.recorded.policies)) or "-",
        on_one_line(", ".join(found.now.policies)) or "-",
        on_one_line(found.now.reason, REASON_CHARS),
    )


def _object(found: Rejudged) -> dict[str, Any]:
    return {
        "run": found.run,
        "iteration": found.iteration,
        "purpose": found.purpose,
        "tool": found.tool,
        "call_id": found.call_id,
        "arguments": found.arguments,
        "approved_by": found.approved_by or None,
        "change": found.change,
        "recorded": found.recorded.model_dump(mode="json", exclude_defaults=True),
        "now": found.now.model_dump(mode="json", exclude_defaults=True),
    }
