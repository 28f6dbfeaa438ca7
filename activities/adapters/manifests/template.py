"""Texts of a manifest with placeholders (`{name}`, `{secret:VARIABLE}`; `{{` is a brace), and their secrets."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from orga.activities.adapters.caller_secrets import CallerSecret
from orga.activities.adapters.manifests.manifest import Http
from orga.activities.ports import ToolContext
from orga.activities.text.secrets import KnownSecrets

_PART = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_NAME = re.compile(r"(secret:)?([A-Za-z_][A-Za-z0-9_]*)(?(1)(\[(?:tenant|trusted_context(?:\.[^.\s\[\]{}]+)+)\])?|)")


@dataclass(frozen=True)
class TemplatePlaceholder:
    name: str
    is_secret: bool = False
    """True if the name is a variable of the worker's environment, or a secret by caller such as `VARIABLE[tenant]`."""


Template = tuple[str | TemplatePlaceholder, ...]


@lru_cache(maxsize=1_000)
def parse_template(source: str) -> Template:
    """Return literal texts and placeholders in order. Raise ValueError for a broken brace or an invalid name."""
    parts: list[str | TemplatePlaceholder] = []
    at = 0
    for found in _PART.finditer(source):
        parts.append(source[at : found.start()])
        parts.append(_parsed_part(found))
        at = found.end()
    return _joined_parts([*parts, source[at:]])


def template_placeholders(template: Template) -> Iterator[TemplatePlaceholder]:
    return (part for part in template if isinstance(part, TemplatePlaceholder))


def only_placeholder(template: Template) -> TemplatePlaceholder | None:
    """Return the placeholder of a template that has nothing else, or None."""
    only = template[0] if len(template) == 1 else None
    return only if isinstance(only, TemplatePlaceholder) else None


def fill_template(template: Template, fill: Callable[[TemplatePlaceholder], str]) -> str:
    """Return the text with values. Placeholders within values are never filled."""
    return "".join(part if isinstance(part, str) else fill(part) for part in template)


def _parsed_part(found: re.Match[str]) -> str | TemplatePlaceholder:
    if found[0] in ("{{", "}}"):
        return found[0][0]
    name = None if found[1] is None else _NAME.fullmatch(found[1])
    if name is None:
        raise ValueError(f"{found[0]!r} is no placeholder; write {{name}}, or {{{{ for a brace")
    return TemplatePlaceholder(name[2] + (name[3] or ""), bool(name[1]))


def _joined_parts(parts: list[str | TemplatePlaceholder]) -> Template:
    joined: list[str | TemplatePlaceholder] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        elif part != "":
            joined.append(part)
    return tuple(joined)


def header_secrets(http: Http) -> set[str]:
    """Return the secrets that a request's headers name. Raise ValueError if a placeholder is broken."""
    return {
        slot.name
        for source in http.headers.values()
        for slot in template_placeholders(parse_template(source))
        if slot.is_secret
    }


@dataclass(frozen=True)
class ManifestSecrets:
    """Values by name. The `repr` shows none."""

    values: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    by_caller: Mapping[str, CallerSecret] = field(default_factory=dict[str, CallerSecret])
    """Secrets whose values only a call has."""

    @classmethod
    def from_environment(cls, names: Iterable[str], env: Mapping[str, str]) -> "ManifestSecrets":
        """Read the variables. Raise ValueError if one is not set."""
        wanted = list(names)
        by_caller = {name: found for name in wanted if (found := CallerSecret.from_reference(name, env))}
        plain = [name for name in wanted if name not in by_caller]
        if missing := [name for name in plain if not env.get(name)]:
            raise ValueError(f"the environment has no {' and no '.join(missing)}; set it where the worker starts")
        return cls({name: env[name] for name in plain}, by_caller)

    def for_call(self, context: ToolContext) -> "ManifestSecrets":
        """Return the secrets with the caller's own. Raise ToolError (NoCredentials) if it lacks one."""
        if not self.by_caller:
            return self
        return ManifestSecrets(
            {**self.values, **{name: each.for_call(context) for name, each in self.by_caller.items()}}
        )

    @cached_property
    def known_secrets(self) -> KnownSecrets:
        """The same values as secrets that can be hidden in texts."""
        return KnownSecrets.from_values(self.values.values())
