"""Which guide explains a key of `orga.toml`: the first guide on the section's subject that mentions it."""

import re
from functools import cache
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]

SUBJECTS: dict[str, str] = {
    "temporal": "operating production",
    "agents.NAME": "agents",
    "agents.NAME.delegates": "delegation",
    "agents.NAME.decisions": "grounded-decisions",
    "agents.NAME.critics": "critics models",
    "agents.NAME.config": "budgets context delegation agents models",
    "agents.NAME.config.recovery": "when-a-call-fails",
    "agents.NAME.config.tool_profile": "tool-profiles",
    "agents.NAME.config.step_iteration": "when-a-call-fails",
    "agents.NAME.config.pre_hydration": "pre-hydration",
    "agents.NAME.config.knowledge": "knowledge",
    "models": "agents budgets production",
    "models.endpoints": "models",
    "models.tier_settings": "models",
    "models.breaker": "when-a-call-fails",
    "models.prices": "budgets",
    "tools": "tool-manifests agents",
    "tools.files": "agents",
    "tools.web": "agents",
    "tools.github": "pre-hydration",
    "tools.commands": "command-sandbox",
    "tools.activities": "your-own-tools",
    "tools.deferred": "your-own-tools",
    "tools.options": "agents blocking-tools when-a-call-fails policies untrusted-content",
    "tools.options.NAME.recovery": "when-a-call-fails",
    "tools.options.NAME.breaker": "when-a-call-fails",
    "mcp": "mcp",
    "mcp.servers.NAME.tool_profile": "tool-profiles",
    "mcp.servers.NAME.options": "agents blocking-tools when-a-call-fails policies untrusted-content",
    "mcp.servers.NAME.options.recovery": "when-a-call-fails",
    "mcp.servers.NAME.options.breaker": "when-a-call-fails",
    "policy": "policies",
    "audit": "audit",
    "notify": "notifications",
    "goals": "goals",
    "goals.prompts": "goal-prompts",
    "pipelines": "pipelines",
    "knowledge": "knowledge",
    "telemetry": "telemetry",
}
"""Guides by section, the most suitable first. A section also covers those below it."""


def page_of(section: str, key: str) -> str:
    """Return the guide that explains a key, as a file below `docs/`; "" if none on its subject does."""
    while section and section not in SUBJECTS:
        section = section.rpartition(".")[0]
    guides = SUBJECTS.get(section, "").split()
    return next((f"{guide}.md" for guide in guides if _writes_down(key).search(_text(guide))), "")


@cache
def _text(guide: str) -> str:
    return (DOCS / f"{guide}.md").read_text(encoding="utf-8")


@cache
def _writes_down(key: str) -> re.Pattern[str]:
    """Return a pattern that finds a key in a guide: as code in its prose, or in an example of the file."""
    name = re.escape(key)
    return re.compile(rf"(?:[`.]|`\[[a-z.]+\] ){name}(?:`| =)|^{name} = |[{{,] ?{name} = ", re.MULTILINE)
