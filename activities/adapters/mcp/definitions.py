"""What a server lists, as tools that a model can be offered, each pinned by the digest of its definition."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from mcp_types import Tool as Listed

from orga.activities.adapters.mcp.names import legal_names
from orga.activities.adapters.mcp.schema import UnusableTool, prose, remark, usable_schema
from orga.activities.adapters.mcp.settings import ServerSettings
from orga.workflows.types.tools import Effect, ToolOptions, ToolSpec

MAX_DESCRIPTION_BYTES = 4_000
DIGEST_CHARS = 32
"""128 bits: no server can make another definition with the same."""


@dataclass(frozen=True)
class Offered:
    """A tool under its legal name, and what its server calls it."""

    own_name: str
    spec: ToolSpec


@dataclass(frozen=True)
class Definitions:
    """The tools of a server at one moment, by legal name."""

    offered: Mapping[str, Offered]
    left_out: Mapping[str, str]
    """Why: of those that cannot be offered."""


def definitions(
    settings: ServerSettings, listed: Sequence[Listed], taken: Collection[str], faulty: Mapping[str, str] | None = None
) -> Definitions:
    """Return the usable tools of a listing, in the server's order; of two of one name the first.

    Args:
        settings: Of the server.
        listed: What it lists.
        taken: Names that belong to others.
        faulty: Why tools are not among those listed, by the server's own names.
    """
    tools: dict[str, Listed] = {}
    for tool in listed:
        tools.setdefault(tool.name, _without_secrets(settings, tool))
    offered: dict[str, Offered] = {}
    named = legal_names(settings.name, map(settings.secrets.hidden, faulty or {}), taken)
    left_out = dict(zip(named.values(), (faulty or {}).values(), strict=False))
    for own_name, name in legal_names(settings.name, tools, taken).items():
        try:
            offered[name] = Offered(own_name, _spec(settings, name, tools[own_name]))
        except UnusableTool as unusable:
            left_out[name] = str(unusable)
    specs = [each.spec for each in offered.values()]
    visible = {spec.name for spec in settings.server.tool_profile.visible(specs)}
    left_out |= dict.fromkeys(offered.keys() - visible, "the tool profile of its server leaves it out")
    return Definitions({name: each for name, each in offered.items() if name in visible}, left_out)


def _spec(settings: ServerSettings, name: str, listed: Listed) -> ToolSpec:
    options, digest = settings.options(name), definition_digest(listed)
    pin = settings.server.pinned.get(name)
    if pin not in {None, digest}:
        raise UnusableTool(f"its definition is not the one that is pinned; look at it: orga tools pin {settings.name}")
    parameters = usable_schema(listed.input_schema)
    told = prose(listed.description or listed.title or "", MAX_DESCRIPTION_BYTES)
    return ToolSpec(
        name=name,
        description="\n".join(filter(None, (told, remark(parameters)))),
        parameters=parameters,
        effect=_effect(settings, options, listed),
        options=options,
        digest=digest,
        pinned=pin is not None,
    )


def _without_secrets(settings: ServerSettings, listed: Listed) -> Listed:
    text = listed.model_dump_json(by_alias=True, exclude_unset=True)
    hidden = settings.secrets.hidden(text)
    return listed if hidden == text else Listed.model_validate_json(hidden)


def definition_digest(listed: Listed) -> str:
    """Return the digest of all that tells what a tool is and does."""
    told = listed.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"meta", "icons"})
    text = json.dumps(told, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()[:DIGEST_CHARS]


def _effect(settings: ServerSettings, options: ToolOptions, listed: Listed) -> Effect:
    """Return what repeating a call does: the config's word, else the server's where it is trusted, else the worst."""
    hints = listed.annotations
    if options.effect is not None:
        return options.effect
    if not settings.server.trust_annotations or hints is None:
        return "irreversible"
    if hints.read_only_hint:
        return "read_only"
    return "idempotent" if hints.idempotent_hint else "irreversible"
