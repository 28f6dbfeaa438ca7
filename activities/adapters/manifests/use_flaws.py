"""Placeholders that mean nothing, arguments that nothing uses, and values where they cannot stand."""

from collections.abc import Iterator

from orga.activities.adapters.manifests.argument import Argument
from orga.activities.adapters.manifests.flaw import Flaw
from orga.activities.adapters.manifests.manifest import Manifest
from orga.activities.adapters.manifests.template import Template, only_slot, parsed, slots
from orga.activities.adapters.manifests.uses import LISTS, OPTIONAL, Use, uses
from orga.workflows.types.text import there_are


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
