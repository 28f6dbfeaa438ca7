"""All that is wrong with a manifest whose keys and types are right."""

import json
from collections.abc import Iterator

from orga.activities.adapters.manifests.argument_flaws import argument_flaws
from orga.activities.adapters.manifests.code_flaws import code_flaws
from orga.activities.adapters.manifests.flaw import Flaw
from orga.activities.adapters.manifests.http_flaws import http_flaws
from orga.activities.adapters.manifests.manifest import Command, Manifest, Output
from orga.activities.adapters.manifests.parsers import output_pattern
from orga.activities.adapters.manifests.template import parsed, slots
from orga.activities.adapters.manifests.use_flaws import use_flaws
from orga.activities.adapters.schemas.arguments import schema_problem
from orga.activities.adapters.tools.catalog import RESERVED
from orga.workflows.types.names import OWN_ACTIVITIES

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
