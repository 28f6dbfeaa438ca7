"""Finds the flaws of a manifest whose keys and types are valid: in arguments, placeholders, commands and requests."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from orga.activities.adapters.http import is_loopback
from orga.activities.adapters.manifests.argument_types import (
    RULES_OF_TYPE,
    PathContext,
    argument_schema,
    checked_scope_entry,
    normalised_url,
)
from orga.activities.adapters.manifests.code_flaws import code_flaws
from orga.activities.adapters.manifests.manifest import (
    Argument,
    CommandSection,
    Flaw,
    Http,
    Manifest,
    Output,
    Template,
    fill_template,
    header_secrets,
    only_placeholder,
    output_pattern,
    parse_template,
    template_placeholders,
)
from orga.activities.adapters.schemas.arguments import argument_errors, schema_problem
from orga.activities.adapters.tools.catalog import RESERVED_NAMES
from orga.activities.adapters.tools.root import FileRoot
from orga.activities.ports import ToolError
from orga.workflows.types.json_text import inner_values
from orga.workflows.types.names import OWN_ACTIVITIES
from orga.workflows.types.text import LinearPattern, known_names_hint

TemplateTarget = Literal["argv", "stdin", "url", "query", "header", "json", "form", "text"]
"""The part of a command or a request that a text with placeholders belongs to."""

LIST_TARGETS: frozenset[TemplateTarget] = frozenset({"argv", "query", "json", "form"})
"""Targets in which a text can become a list, if it is only one placeholder."""

OPTIONAL_TARGETS: frozenset[TemplateTarget] = frozenset({"query", "header", "json", "form"})
"""Targets from which a text is left out if its argument has no value."""


@dataclass(frozen=True)
class TemplateUse:
    key: tuple[str, ...]
    """The path of keys to the text in the file."""
    target: TemplateTarget
    source: str
    when: str = ""
    """The argument that the text depends on: without its value the text is left out. Empty: it is always used."""


def template_uses(manifest: Manifest) -> Iterator[TemplateUse]:
    if manifest.command:
        for part in manifest.command.argv:
            yield from (TemplateUse(("command", "argv"), "argv", source, part.when) for source in part.argv)
        yield TemplateUse(("command", "stdin"), "stdin", manifest.command.stdin)
    if manifest.http:
        yield TemplateUse(("http", "url"), "url", manifest.http.url)
        yield from _table_uses("query", "query", manifest.http.query)
        yield from _table_uses("headers", "header", manifest.http.headers)
        yield from _table_uses("form", "form", manifest.http.form or {})
        yield from (TemplateUse(("http", "json"), "json", source) for source in _body_texts(manifest.http.json_body))
        yield TemplateUse(("http", "text"), "text", manifest.http.text or "")


def _table_uses(table: str, target: TemplateTarget, texts: dict[str, str]) -> Iterator[TemplateUse]:
    return (TemplateUse(("http", table, name), target, source) for name, source in texts.items())


def _body_texts(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    for item in inner_values(part):
        yield from _body_texts(item)


def use_flaws(manifest: Manifest) -> Iterator[Flaw]:
    used = {part.when for part in manifest.command.argv} if manifest.command else set[str]()
    for name in sorted(used - {"", *manifest.arguments}):
        yield Flaw(("command", "argv"), f"when: {name!r} is no argument", known_names_hint(name, manifest.arguments))
    for use in template_uses(manifest):
        try:
            template = parse_template(use.source)
        except ValueError as error:
            yield Flaw(use.key, str(error), "correct the placeholder")
            continue
        used |= {placeholder.name for placeholder in template_placeholders(template) if not placeholder.is_secret}
        yield from _template_flaws(use, template, manifest.arguments)
    for name in manifest.arguments:
        if name not in used:
            yield Flaw(("arguments", name), f"nothing uses the argument {name!r}", f"write {{{name}}} somewhere")


def _template_flaws(use: TemplateUse, template: Template, declared: dict[str, Argument]) -> Iterator[Flaw]:
    for placeholder in template_placeholders(template):
        name = placeholder.name
        if placeholder.is_secret:
            if use.target != "header":
                remedy = "name it in [command] env_from, or put it into a header of [http]"
                yield Flaw(use.key, f"a secret, {name}, is in a place where it would be seen", remedy)
        elif name not in declared:
            remedy = f"add [arguments.{name}]; {known_names_hint(name, declared)}"
            yield Flaw(use.key, f"{{{name}}} is no argument", remedy)
        else:
            yield from _placeholder_flaws(use, template, name, declared[name])


def _placeholder_flaws(use: TemplateUse, template: Template, name: str, argument: Argument) -> Iterator[Flaw]:
    is_alone = only_placeholder(template) is not None
    if argument.type == "array" and not (is_alone and use.target in LIST_TARGETS):
        yield Flaw(use.key, f"{{{name}}} is an array, and is used within a text", f'write "{{{name}}}" alone')
    can_be_left_out = use.when == name or (use.target in OPTIONAL_TARGETS and (is_alone or use.target != "json"))
    if argument.may_be_missing and not can_be_left_out:
        part = f', or write {{ when = "{name}", argv = [...] }}' if use.target == "argv" else ""
        yield Flaw(use.key, f"{{{name}}} may have no value", f"give it a default, or make it required{part}")
    kinds = {argument.type, argument.items.type if argument.items else ""}
    if use.target not in ("argv", "stdin") and "path" in kinds:
        yield Flaw(use.key, f"{{{name}}} is a path of this machine", 'use type = "string" for a path of a URL')


_OWN_HEADERS = {"host", "content-length", "transfer-encoding", "connection", "accept-encoding"}
"""Headers that the HTTP client sets itself."""

_AUTHORITY = re.compile(r"https?://[^/?#\\]+")


def http_flaws(http: Http) -> Iterator[Flaw]:
    try:
        yield from _url_flaws(http)
        yield from _header_flaws(http)
    except ValueError:
        pass  # `use_flaws` reports a broken placeholder
    bodies = [key for key in ("json_body", "form", "text") if getattr(http, key) is not None]
    if len(bodies) > 1:
        yield Flaw(("http",), "a request has one body", "keep one of json, form and text")
    if bodies and http.method in ("GET", "HEAD"):
        yield Flaw(("http", "method"), f"{http.method} has no body", 'set method = "POST"')
    if problem := _json_problem(http.json_body):
        yield Flaw(("http", "json"), problem, "write dates as texts")


def _json_problem(value: object) -> str:
    """Return why a value of a TOML file is no JSON, or ""."""
    try:
        json.dumps(value)
    except (TypeError, ValueError) as error:
        return f"is no JSON: {error}"
    return ""


def _url_flaws(http: Http) -> Iterator[Flaw]:
    template, key = parse_template(http.url), ("http", "url")
    if only_placeholder(template):
        if header_secrets(http):
            yield Flaw(key, "the model would choose who gets the secrets", "write the host into the manifest")
        return
    first = template[0] if template and isinstance(template[0], str) else ""
    authority = _AUTHORITY.match(first)
    ends_in_authority = authority is not None and authority.end() == len(first)
    if authority is None or (ends_in_authority and len(template) > 1):
        yield Flaw(key, "a value could change scheme or host", "write both out, and a slash before the first {...}")
        return
    shape = fill_template(template, lambda placeholder: "x")
    try:
        normalised_url(shape)
    except ValueError as error:
        yield Flaw(key, str(error), "write an absolute URL")
        return
    if "#" in shape:
        yield Flaw(key, "what follows # is never sent", "remove it")
    if header_secrets(http) and not shape.startswith("https://") and not is_loopback(shape):
        yield Flaw(key, "secrets would be sent in the clear", "begin it with https://")


def _header_flaws(http: Http) -> Iterator[Flaw]:
    for name, source in http.headers.items():
        if name.lower() in _OWN_HEADERS:
            yield Flaw(("http", "headers", name), f"{name} is set by the client", "remove it")
        texts = [part for part in parse_template(source) if isinstance(part, str)]
        if not all(text.isascii() and text.isprintable() for text in texts):
            yield Flaw(("http", "headers", name), "a header holds printable ASCII only", "remove the rest")


COMMON_KEYS = frozenset({"type", "description", "required", "default"})
"""Keys of arguments of every type."""


def argument_flaws(key: tuple[str, ...], argument: Argument) -> Iterator[Flaw]:
    flaws = [*_key_flaws(key, argument), *_contradiction_flaws(key, argument), *_pattern_flaws(key, argument)]
    yield from flaws or _value_flaws(key, argument)  # values can only be checked against a declaration without flaws


def _key_flaws(key: tuple[str, ...], argument: Argument) -> Iterator[Flaw]:
    keys = RULES_OF_TYPE[argument.type].keys
    for name in sorted(argument.model_fields_set - COMMON_KEYS - keys):
        remedy = f"remove it; {argument.type} knows: {', '.join(sorted(keys)) or 'no further key'}"
        yield Flaw((*key, name), f"{name} means nothing for type {argument.type!r}", remedy)
    if argument.type == "enum" and not argument.allowed:
        yield Flaw(key, "an enum needs its values", 'add allowed = ["...", "..."]')
    if argument.type == "array":
        yield from _item_flaws(key, argument)


def _item_flaws(key: tuple[str, ...], argument: Argument) -> Iterator[Flaw]:
    items = argument.items
    if items is None or items.type == "array":
        yield Flaw(key, "an array needs the type of its items, which is no array", 'add items = { type = "string" }')
        return
    if {"required", "default"} & items.model_fields_set:
        yield Flaw((*key, "items"), "an item is neither required nor has it a default", "say so of the array")
    yield from argument_flaws((*key, "items"), items)


def _contradiction_flaws(key: tuple[str, ...], argument: Argument) -> Iterator[Flaw]:
    if argument.required and argument.default is not None:
        yield Flaw((*key, "default"), "a required argument needs no default", "remove required or default")
    if argument.min is not None and argument.max is not None and argument.min > argument.max:
        yield Flaw((*key, "min"), "min is above max", "swap them")
    limits = [limit for limit in (argument.min, argument.max) if limit is not None]
    if argument.type in ("string", "array") and any(limit < 0 or limit != int(limit) for limit in limits):
        yield Flaw((*key, "min"), "a length is a whole number from 0", "correct min and max")


def _pattern_flaws(key: tuple[str, ...], argument: Argument) -> Iterator[Flaw]:
    if argument.pattern is not None:
        try:
            LinearPattern(argument.pattern)
        except ValueError as error:
            yield Flaw((*key, "pattern"), f"the pattern {error}", "write one of RE2")
    for entry in argument.scope:
        try:
            checked_scope_entry(entry)
        except ValueError as error:
            yield Flaw((*key, "scope"), f"{entry!r} {error}", "write a network, a host, or *.host")
    if problem := schema_problem(argument_schema(argument.without("default"))):
        yield Flaw(key, problem, "correct pattern, allowed, min or max")


def _value_flaws(key: tuple[str, ...], argument: Argument) -> Iterator[Flaw]:
    unlisted = argument.without("default", "allowed")
    for value in argument.allowed or ():
        if problem := _value_problem(unlisted, value):
            yield Flaw((*key, "allowed"), f"{value!r} is no {argument.type}: {problem}", "correct the value")
    if argument.default is not None and (problem := _value_problem(argument, argument.default)):
        yield Flaw((*key, "default"), f"{argument.default!r} does not fit: {problem}", "correct the default")


def _value_problem(argument: Argument, value: object) -> str:
    """Return why a value does not fit the argument, or "". Whether a path exists is only checked by a call."""
    try:
        if errors := argument_errors(argument_schema(argument), value):
            return "; ".join(errors)
        RULES_OF_TYPE[argument.type].read(value, argument.without("must_exist"), PathContext(FileRoot(Path.cwd())))
    except (ValueError, TypeError, ToolError) as error:
        return str(error)
    return ""


TOP_LEVEL_OPTIONS = ("effect", "timeout_s", "approval", "verified", "tags")
"""Options of tools that belong at the top of a manifest, not under `[options]`."""


def manifest_flaws(manifest: Manifest) -> Iterator[Flaw]:
    if manifest.name in RESERVED_NAMES | OWN_ACTIVITIES:
        yield Flaw(("name",), f"{manifest.name!r} is a name of the loop itself", "choose another")
    if (manifest.command is None) == (manifest.http is None):
        yield Flaw((), "a tool is either a command or a request", "give it one of [command] and [http]")
    for name, argument in manifest.arguments.items():
        yield from argument_flaws(("arguments", name), argument)
    yield from use_flaws(manifest)
    if manifest.command:
        yield from _command_flaws(manifest.command)
    if manifest.http:
        yield from http_flaws(manifest.http)
    yield from _output_flaws(manifest.output)
    yield from _option_flaws(manifest)


def _command_flaws(command: CommandSection) -> Iterator[Flaw]:
    key = ("command", "argv")
    if not command.argv:
        yield Flaw(key, "there is no program", 'write it first, as in argv = ["git", "log"]')
        return
    first = command.argv[0]
    program = first.argv[0]
    try:
        has_placeholder = any(template_placeholders(parse_template(program)))
        yield from code_flaws(command)
    except ValueError:
        return  # `use_flaws` reports a broken placeholder
    if first.when or has_placeholder:
        yield Flaw(key, "the program depends on an argument", "name one program, the first element")
    is_relative_path = "/" in program and not program.startswith("/")
    if not program or program.startswith("-") or is_relative_path:
        yield Flaw(key, f"{program!r} is no program", "write a bare name, as in git, or an absolute path")
    if any("\0" in element for part in command.argv for element in part.argv):
        yield Flaw(key, "an element contains a NUL character", "remove it")
    if command.sandbox.is_network_denied_in_vain:
        remedy = 'set isolation = "bubblewrap", or leave network out'
        yield Flaw(("command", "sandbox", "network"), "without isolation the network cannot be cut off", remedy)


def _output_flaws(output: Output) -> Iterator[Flaw]:
    if (output.parser == "regex") != (output.pattern is not None):
        yield Flaw(("output", "pattern"), 'a pattern belongs to parser = "regex"', "give both or neither")
    if output.pattern is not None:
        try:
            output_pattern(output.pattern)
        except ValueError as error:
            yield Flaw(("output", "pattern"), str(error), "write one of RE2")
    if output.strict and output.json_schema is None:
        yield Flaw(("output", "strict"), "there is no schema to be strict about", "add [output.schema]")
    schema = output.json_schema
    if schema is not None and (problem := _json_problem(schema) or schema_problem(schema)):
        yield Flaw(("output", "schema"), problem, "write a JSON Schema (2020-12)")


def _option_flaws(manifest: Manifest) -> Iterator[Flaw]:
    options = manifest.options
    for key in TOP_LEVEL_OPTIONS:
        if key in options.model_fields_set:
            yield Flaw(("options", key), f"{key} belongs at the top of a manifest", "move it above the first table")
    if options.execution == "local":
        yield Flaw(("options", "execution"), "a manifest's tool runs as an activity", "remove it")
    if options.isolation is not None:
        yield Flaw(("options", "isolation"), "is for Python functions", "see [command.sandbox] isolation")
    if manifest.effect == "irreversible" and (options.max_attempts or 1) > 1:
        remedy = 'set effect = "idempotent" if repeating a call does no harm'
        yield Flaw(("options", "max_attempts"), "an irreversible tool has one attempt", remedy)
