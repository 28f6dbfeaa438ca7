"""Finds all that is wrong with a manifest whose keys and types are right: arguments, placeholders and requests."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from orga.activities.adapters.http import is_loopback
from orga.activities.adapters.manifests.argument_types import KINDS, Ground, schema_of, scope_entry, url
from orga.activities.adapters.manifests.code_flaws import code_flaws
from orga.activities.adapters.manifests.manifest import Argument, Command, Flaw, Http, Manifest, Output
from orga.activities.adapters.manifests.parsers import output_pattern
from orga.activities.adapters.manifests.secrets import header_variables
from orga.activities.adapters.manifests.template import Template, filled, only_slot, parsed, slots
from orga.activities.adapters.schemas.arguments import argument_errors, schema_problem
from orga.activities.adapters.tools.catalog import RESERVED
from orga.activities.adapters.tools.root import Root
from orga.activities.ports import ToolError
from orga.workflows.types.names import OWN_ACTIVITIES
from orga.workflows.types.text import LinearPattern, there_are

Where = Literal["argv", "stdin", "url", "query", "header", "json", "form", "text"]

LISTS: frozenset[Where] = frozenset({"argv", "query", "json", "form"})
"""Where a list may stand, as all of a text."""

OPTIONAL: frozenset[Where] = frozenset({"query", "header", "json", "form"})
"""Where a text whose argument has no value is left out."""


@dataclass(frozen=True)
class Use:
    """One text that may hold placeholders."""

    key: tuple[str, ...]
    """Of the text, in the file."""
    where: Where
    source: str
    when: str = ""
    """The argument without which the text is left out."""


def uses(manifest: Manifest) -> Iterator[Use]:
    """Yield every text in which a placeholder can stand."""
    if manifest.command:
        for part in manifest.command.argv:
            yield from (Use(("command", "argv"), "argv", source, part.when) for source in part.argv)
        yield Use(("command", "stdin"), "stdin", manifest.command.stdin)
    if manifest.http:
        yield Use(("http", "url"), "url", manifest.http.url)
        yield from _in_table("query", "query", manifest.http.query)
        yield from _in_table("headers", "header", manifest.http.headers)
        yield from _in_table("form", "form", manifest.http.form or {})
        yield from (Use(("http", "json"), "json", source) for source in _texts(manifest.http.json_body))
        yield Use(("http", "text"), "text", manifest.http.text or "")


def _in_table(table: str, where: Where, texts: dict[str, str]) -> Iterator[Use]:
    return (Use(("http", table, name), where, source) for name, source in texts.items())


def _texts(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, list):
        for item in cast("list[Any]", part):
            yield from _texts(item)
    elif isinstance(part, dict):
        for item in cast("dict[str, Any]", part).values():
            yield from _texts(item)


def use_flaws(manifest: Manifest) -> Iterator[Flaw]:
    """Yield every one of them."""
    used = {part.when for part in manifest.command.argv} if manifest.command else set[str]()
    yield from _unknown_conditions(used - {""}, manifest)
    for use in uses(manifest):
        try:
            template = parsed(use.source)
        except ValueError as error:
            yield Flaw(use.key, str(error), "mend the placeholder")
            continue
        used |= {slot.name for slot in slots(template) if not slot.is_secret}
        yield from _in_text(use, template, manifest.arguments)
    for name in [name for name in manifest.arguments if name not in used]:
        yield Flaw(("arguments", name), f"nothing uses the argument {name!r}", f"write {{{name}}} somewhere")


def _unknown_conditions(names: set[str], manifest: Manifest) -> Iterator[Flaw]:
    for name in sorted(names - manifest.arguments.keys()):
        yield Flaw(("command", "argv"), f"when: {name!r} is no argument", there_are(name, manifest.arguments))


def _in_text(use: Use, template: Template, declared: dict[str, Argument]) -> Iterator[Flaw]:
    for slot in slots(template):
        if slot.is_secret:
            if use.where != "header":
                remedy = "name it in [command] env_from, or put it into a header of [http]"
                yield Flaw(use.key, f"a secret, {slot.name}, stands where it would be seen", remedy)
        elif slot.name not in declared:
            remedy = f"add [arguments.{slot.name}]; {there_are(slot.name, declared)}"
            yield Flaw(use.key, f"{{{slot.name}}} is no argument", remedy)
        else:
            yield from _misused(use, template, slot.name, declared[slot.name])


def _misused(use: Use, template: Template, name: str, argument: Argument) -> Iterator[Flaw]:
    is_alone = only_slot(template) is not None
    if argument.type == "array" and not (is_alone and use.where in LISTS):
        yield Flaw(use.key, f"{{{name}}} is an array, and stands within a text", f'write "{{{name}}}" alone')
    can_be_left_out = use.when == name or (use.where in OPTIONAL and (is_alone or use.where != "json"))
    if argument.may_be_missing and not can_be_left_out:
        part = f', or write {{ when = "{name}", argv = [...] }}' if use.where == "argv" else ""
        yield Flaw(use.key, f"{{{name}}} may have no value", f"give it a default, or make it required{part}")
    kinds = {argument.type, argument.items.type if argument.items else ""}
    if use.where not in ("argv", "stdin") and "path" in kinds:
        yield Flaw(use.key, f"{{{name}}} is a path of this machine", 'use type = "string" for a path of a URL')


_OURS = {"host", "content-length", "transfer-encoding", "connection", "accept-encoding"}
_AUTHORITY = re.compile(r"https?://[^/?#\\]+")


def http_flaws(http: Http) -> Iterator[Flaw]:
    """Yield every one of them."""
    try:
        yield from _in_url(http)
        yield from _in_headers(http)
    except ValueError:
        pass  # a broken placeholder is told where placeholders are looked at
    bodies = [key for key in ("json_body", "form", "text") if getattr(http, key) is not None]
    if len(bodies) > 1:
        yield Flaw(("http",), "a request has one body", "keep one of json, form and text")
    if bodies and http.method in ("GET", "HEAD"):
        yield Flaw(("http", "method"), f"{http.method} has no body", 'set method = "POST"')
    try:
        json.dumps(http.json_body)
    except (TypeError, ValueError) as error:
        yield Flaw(("http", "json"), f"is no JSON: {error}", "write dates as texts")


def _in_url(http: Http) -> Iterator[Flaw]:
    template, key = parsed(http.url), ("http", "url")
    if only_slot(template):
        if header_variables(http):
            yield Flaw(key, "the model would choose who is told the secrets", "write the host into the manifest")
        return
    first = template[0] if template and isinstance(template[0], str) else ""
    authority = _AUTHORITY.match(first)
    if authority is None or (authority.end() == len(first) and len(template) > 1):
        yield Flaw(key, "a value could change scheme or host", "write both out, and a slash before the first {...}")
        return
    shape = filled(template, lambda slot: "x")
    try:
        url(shape)
    except ValueError as error:
        yield Flaw(key, str(error), "write an absolute URL")
        return
    if "#" in shape:
        yield Flaw(key, "what follows # is never sent", "remove it")
    if header_variables(http) and not shape.startswith("https://") and not is_loopback(shape):
        yield Flaw(key, "secrets would be sent in the clear", "begin it with https://")


def _in_headers(http: Http) -> Iterator[Flaw]:
    for name, source in http.headers.items():
        if name.lower() in _OURS:
            yield Flaw(("http", "headers", name), f"{name} is set by the client", "remove it")
        if any(isinstance(part, str) and not (part.isascii() and part.isprintable()) for part in parsed(source)):
            yield Flaw(("http", "headers", name), "a header holds printable ASCII only", "remove the rest")


EVERY_TYPE = frozenset({"type", "description", "required", "default"})


def argument_flaws(key: tuple[str, ...], argument: Argument) -> Iterator[Flaw]:
    """Yield every one of them."""
    found = [*_misplaced(key, argument), *_contradictions(key, argument), *_broken(key, argument)]
    yield from found or _unfit(key, argument)


def _misplaced(key: tuple[str, ...], argument: Argument) -> Iterator[Flaw]:
    kind = KINDS[argument.type]
    for name in sorted(argument.model_fields_set - EVERY_TYPE - kind.keys):
        remedy = f"remove it; {argument.type} knows: {', '.join(sorted(kind.keys)) or 'no further key'}"
        yield Flaw((*key, name), f"{name} means nothing for type {argument.type!r}", remedy)
    if argument.type == "enum" and not argument.allowed:
        yield Flaw(key, "an enum needs its values", 'add allowed = ["...", "..."]')
    if argument.type == "array":
        yield from _items(key, argument)


def _items(key: tuple[str, ...], argument: Argument) -> Iterator[Flaw]:
    items = argument.items
    if items is None or items.type == "array":
        yield Flaw(key, "an array needs the type of its items, which is no array", 'add items = { type = "string" }')
        return
    if {"required", "default"} & items.model_fields_set:
        yield Flaw((*key, "items"), "an item is neither required nor has it a default", "say so of the array")
    yield from argument_flaws((*key, "items"), items)


def _contradictions(key: tuple[str, ...], argument: Argument) -> Iterator[Flaw]:
    if argument.required and argument.default is not None:
        yield Flaw((*key, "default"), "a required argument needs no default", "remove required or default")
    if argument.min is not None and argument.max is not None and argument.min > argument.max:
        yield Flaw((*key, "min"), "min is above max", "swap them")
    if argument.type in ("string", "array") and any(
        limit is not None and (limit < 0 or limit != int(limit)) for limit in (argument.min, argument.max)
    ):
        yield Flaw((*key, "min"), "a length is a whole number from 0", "mend min and max")


def _broken(key: tuple[str, ...], argument: Argument) -> Iterator[Flaw]:
    if argument.pattern is not None:
        try:
            LinearPattern(argument.pattern)
        except ValueError as error:
            yield Flaw((*key, "pattern"), f"the pattern {error}", "write one of RE2")
    for entry in argument.scope:
        try:
            scope_entry(entry)
        except ValueError as error:
            yield Flaw((*key, "scope"), f"{entry!r} {error}", "write a network, a host, or *.host")
    if problem := schema_problem(schema_of(argument.without_default())):
        yield Flaw(key, problem, "mend pattern, allowed, min or max")


def _unfit(key: tuple[str, ...], argument: Argument) -> Iterator[Flaw]:
    bare = argument.without_values()
    for value in argument.allowed or ():
        if problem := _problem(bare, value):
            yield Flaw((*key, "allowed"), f"{value!r} is no {argument.type}: {problem}", "mend the value")
    if argument.default is not None and (problem := _problem(argument, argument.default)):
        yield Flaw((*key, "default"), f"{argument.default!r} does not fit: {problem}", "mend the default")


def _problem(argument: Argument, value: object) -> str:
    """Return why a value is none of the argument, or ""; whether a path exists is a matter of the call."""
    try:
        if errors := argument_errors(schema_of(argument), value):
            return "; ".join(errors)
        KINDS[argument.type].read(value, argument.without_existence(), Ground(Root(Path.cwd())))
    except (ValueError, TypeError, ToolError) as error:
        return str(error)
    return ""


AT_THE_TOP = ("effect", "timeout_s", "approval", "verified", "tags")


def flaws(manifest: Manifest) -> Iterator[Flaw]:
    """Yield every one of them."""
    if manifest.name in RESERVED | OWN_ACTIVITIES:
        yield Flaw(("name",), f"{manifest.name!r} is a name of the loop itself", "choose another")
    if (manifest.command is None) == (manifest.http is None):
        yield Flaw((), "a tool is either a command or a request", "give it one of [command] and [http]")
    for name, argument in manifest.arguments.items():
        yield from argument_flaws(("arguments", name), argument)
    yield from use_flaws(manifest)
    if manifest.command:
        yield from _in_command(manifest.command)
    if manifest.http:
        yield from http_flaws(manifest.http)
    yield from _in_output(manifest.output)
    yield from _in_options(manifest)


def _in_command(command: Command) -> Iterator[Flaw]:
    key = ("command", "argv")
    if not command.argv:
        yield Flaw(key, "there is no program", 'write it first, as in argv = ["git", "log"]')
        return
    first = command.argv[0]
    program = first.argv[0]
    try:
        has_slot = any(slots(parsed(program)))
        yield from code_flaws(command)
    except ValueError:
        return  # is told where placeholders are looked at
    if first.when or has_slot:
        yield Flaw(key, "the program depends on an argument", "name one program, the first element")
    if not program or program.startswith("-") or ("/" in program and not program.startswith("/")):
        yield Flaw(key, f"{program!r} is no program", "write a bare name, as in git, or an absolute path")
    if any("\0" in element for part in command.argv for element in part.argv):
        yield Flaw(key, "an element contains a NUL character", "remove it")
    if command.sandbox.is_network_denied_in_vain:
        remedy = 'set isolation = "bubblewrap", or leave network out'
        yield Flaw(("command", "sandbox", "network"), "without isolation the network cannot be cut off", remedy)


def _in_output(output: Output) -> Iterator[Flaw]:
    if (output.parser == "regex") != (output.pattern is not None):
        yield Flaw(("output", "pattern"), 'a pattern belongs to parser = "regex"', "give both or neither")
    if output.pattern is not None:
        try:
            output_pattern(output.pattern)
        except ValueError as error:
            yield Flaw(("output", "pattern"), str(error), "write one of RE2")
    if output.strict and output.json_schema is None:
        yield Flaw(("output", "strict"), "there is no schema to be strict about", "add [output.schema]")
    if output.json_schema is not None and (problem := _schema_problem(output)):
        yield Flaw(("output", "schema"), problem, "write a JSON Schema (2020-12)")


def _schema_problem(output: Output) -> str:
    try:
        json.dumps(output.json_schema)
    except (TypeError, ValueError) as error:
        return f"is no JSON: {error}"
    return schema_problem(output.json_schema or {})


def _in_options(manifest: Manifest) -> Iterator[Flaw]:
    options = manifest.options
    for key in AT_THE_TOP:
        if key in options.model_fields_set:
            yield Flaw(("options", key), f"{key} stands at the top of a manifest", "move it above the first table")
    if options.execution == "local":
        yield Flaw(("options", "execution"), "a manifest's tool runs as an activity", "remove it")
    if options.isolation is not None:
        yield Flaw(("options", "isolation"), "is for Python functions", "see [command.sandbox] isolation")
    if manifest.effect == "irreversible" and (options.max_attempts or 1) > 1:
        remedy = 'set effect = "idempotent" if repeating a call does no harm'
        yield Flaw(("options", "max_attempts"), "an irreversible tool has one attempt", remedy)
