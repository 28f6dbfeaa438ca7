"""Decisions for tests: the worked example, and small ones of any shape."""

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from orga.client.config.file import load_config
from orga.workflows.types.agents import AgentConfig
from orga.workflows.types.tool_calls.decision import GroundedDecision, Value
from tests.support.programs.orga_command import ROOT

TRIAGE = ROOT / "examples" / "triage"

FREE: dict[str, Any] = {"customer": {"tier": "free"}, "monitoring": {"alert": False}}
"""The trusted context of `context.json`."""


def the_triage(folder: Path = TRIAGE) -> AgentConfig:
    """Return the agent of the example."""
    return load_config(folder / "orga.toml", env={}).agents["triage"]


def routing_decision() -> GroundedDecision:
    """Return the decision of the example."""
    return the_triage().decisions["route"]


def triage_facts(tier: str = "free", *, alert: bool = False) -> dict[str, Any]:
    """Return the trusted context that the starter of a triage gives."""
    return {"customer": {"tier": tier}, "monitoring": {"alert": alert}}


def triage_fields(severity: str = "low", users: int = 0, *, workaround: bool = False) -> dict[str, Any]:
    """Return the fields of a triage."""
    return {"severity": severity, "users_affected": users, "workaround": workaround}


def proposal(fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the arguments of the call that proposes them."""
    return {"decision": "route", "fields": fields, **more}


def a_decision(**changes: Any) -> dict[str, Any]:
    """Return a small decision as people write it, with these keys changed."""
    return {
        "fields": {"size": {"enum": ["s", "m", "l"]}, "count": {"type": "integer", "minimum": 0, "maximum": 10}},
        "facts": {"paid": {"source": "trusted_context.paid", "type": "boolean"}},
        "rules": [{"when": {"size": "l", "paid": True}, "then": {"go": "yes"}}],
        "default": {"go": "no"},
    } | changes


_WORDS = ("a", "b", "c")
_bounds = st.tuples(st.integers(0, 4), st.integers(0, 4)).map(sorted)
_numbers = _bounds.map(lambda pair: {"at_least": pair[0], "at_most": pair[1]})
_conditions = st.fixed_dictionaries(
    {},
    optional={
        "word": st.lists(st.sampled_from(_WORDS), min_size=1, unique=True),
        "flag": st.booleans(),
        "number": _numbers | _bounds.map(lambda pair: {"at_least": pair[1]}) | st.integers(0, 4),
        "tainted": st.booleans(),
    },
)
decisions: st.SearchStrategy[GroundedDecision] = st.lists(_conditions, max_size=6).map(
    lambda whens: GroundedDecision.model_validate(
        {
            "fields": {"word": {"enum": _WORDS}, "number": {"type": "integer", "minimum": 0, "maximum": 4}},
            "facts": {"flag": {"source": "trusted_context.flag", "type": "boolean"}},
            "rules": [{"when": when, "then": {"to": str(index)}} for index, when in enumerate(whens)],
            "default": {"to": "default"},
        }
    )
)
"""Decisions with any rules. Some of them may never decide."""

ALL_CASES: list[dict[str, Value]] = [
    {"word": word, "flag": flag, "number": number, "tainted": tainted}
    for word in _WORDS
    for flag in (False, True)
    for number in range(5)
    for tainted in (False, True)
]
"""Ids for those decisions."""
