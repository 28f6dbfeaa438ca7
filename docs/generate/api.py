"""The public API: what `orga` and its public modules export, from their docstrings."""

import re
from collections.abc import Iterator

import griffe

from docs.generate.source import docstring_text, in_cell, module

MODULES = ("orga", "orga.runs", "orga.errors", "orga.workflow", "orga.ports", "orga.testing")


def api_page() -> str:
    """Return the page."""
    parts = [
        "# The public API\n\nWhat applications, modules of tools and tests import. All else is ours, and may change.\n"
    ]
    for name in MODULES:
        parts += [f"\n## `{name}`\n\n{_prose(docstring_text(module(name)))}\n", *_exported(name)]
    return "\n".join(parts)


def exported(name: str) -> dict[str, griffe.Object]:
    """Return what a module exports, as it is defined; a module that it exports has a section of its own."""
    found: dict[str, griffe.Object] = {}
    home = module(name)
    for each in home.exports or ():
        if f"{name}.{each}" in MODULES:
            continue
        place = home.imports.get(str(each)) or home.members[str(each)].path
        owner, _, own = place.rpartition(".")
        found[str(each)] = _defined(owner, own)
    return found


def _defined(owner: str, name: str) -> griffe.Object:
    """Return the definition of an object that a module may only re-export."""
    target = module(owner).members[name]
    if isinstance(target, griffe.Alias):
        place, _, own = target.target_path.rpartition(".")
        return _defined(place, own)
    return target


def _exported(name: str) -> Iterator[str]:
    for each, found in exported(name).items():
        yield f"### `{each}`\n"
        if isinstance(found, griffe.Function):
            yield from _function(found, each)
        elif isinstance(found, griffe.Class):
            yield from _class(found, each)
        else:
            yield f"{docstring_text(found)}\n"


def _class(found: griffe.Class, name: str) -> Iterator[str]:
    yield f"{_prose(docstring_text(found))}\n"
    fields = [each for each in found.attributes.values() if _is_public(each.name)]
    own = [each for each in fields if "property" not in each.labels and each.annotation is not None]
    if own:
        yield "| field | type | default | meaning |\n|---|---|---|---|"
        for each in own:
            default = "" if each.value is None else f"`{in_cell(_default(each))}`"
            yield f"| `{each.name}` | `{in_cell(_type(each))}` | {default} | {in_cell(docstring_text(each))} |"
        yield ""
    for each in fields:
        if "property" in each.labels:
            yield f"- `{name}.{each.name}`: {_prose(docstring_text(each))}\n"
    if handlers := _handlers(found):
        yield "| handler | kind | does |\n|---|---|---|"
        yield from (
            f"| `{name}` | {kind} | {in_cell(docstring_text(each))} |" for (name, kind), each in handlers.items()
        )
        yield ""
        return
    for each in found.functions.values():
        is_made = each.name == "__init__" and len(each.parameters) > 1
        if is_made or (_is_public(each.name) and docstring_text(each)):
            yield from _function(each, name if is_made else f"{name}.{each.name}")


_HANDLER = re.compile(r"(?:workflow\.)?(signal|update|query)(?:\(name='(\w+)'\))?")
"""The decorator of a handler with a name, which dynamic ones lack."""


def _handlers(found: griffe.Class) -> dict[tuple[str, str], griffe.Function]:
    """Return the signals, updates and queries of a workflow, by name and kind."""
    handlers: dict[tuple[str, str], griffe.Function] = {}
    for each in _methods(found):
        for match in (_HANDLER.fullmatch(str(decorator.value)) for decorator in each.decorators):
            if match:
                handlers.setdefault((match[2] or each.name, match[1]), each)
    return handlers


def _methods(found: griffe.Class) -> Iterator[griffe.Function]:
    """Return the methods of a class, then those of our classes that it inherits from."""
    yield from found.functions.values()
    for base in found.bases:
        name = str(base).partition("[")[0]
        owner, _, own = found.module.imports.get(name, f"{found.module.path}.{name}").rpartition(".")
        is_ours = owner.startswith("orga.") and name in found.module.members
        if is_ours and isinstance(inherited := _defined(owner, own), griffe.Class):
            yield from _methods(inherited)


def _default(field: griffe.Attribute) -> str:
    """Return a field's default, also from pydantic's `Field(...)`."""
    value = field.value
    if isinstance(value, griffe.ExprCall) and str(value.function) == "Field":
        given = {each.name: each.value for each in value.arguments if isinstance(each, griffe.ExprKeyword)}
        return str(given.get("default", "")) or "needed"
    return str(value)


def _type(field: griffe.Attribute) -> str:
    """Return a field's annotation, with the plain type in place of an alias of ours that also has bounds."""

    def plain(found: re.Match[str]) -> str:
        home = field.module.imports.get(found[1], "")
        alias = module(home).members.get(found[2]) if home.startswith("orga.") else None
        bounded = re.match(r"Annotated\[(\w+),", str(alias.value)) if isinstance(alias, griffe.Attribute) else None
        return bounded[1] if bounded else found[0]

    return re.sub(r"\b(\w+)\.(\w+)\b", plain, str(field.annotation))


def _is_public(name: str) -> bool:
    """Return whether a member is public. Our own methods for changed values are not."""
    return not name.startswith(("_", "with_")) and name != "model_config"


def _function(found: griffe.Function, name: str) -> Iterator[str]:
    yield f"```python\n{_signature(found, name)}\n```\n"
    if found.docstring is None:
        return
    for section in found.docstring.parse("google"):
        yield from _section(section)


def _section(section: griffe.DocstringSection) -> Iterator[str]:
    if isinstance(section, griffe.DocstringSectionText):
        yield f"{_prose(section.value)}\n"
    elif isinstance(section, griffe.DocstringSectionParameters):
        yield "\n".join(f"- `{each.name}`: {_prose(each.description)}" for each in section.value) + "\n"
    elif isinstance(section, griffe.DocstringSectionRaises):
        yield "Raises:\n"
        yield "\n".join(f"- `{each.annotation}`: {_prose(each.description)}" for each in section.value) + "\n"
    elif isinstance(section, griffe.DocstringSectionAdmonition):
        yield f"{section.title}: {_prose(section.value.description)}\n"


_STARS = {"variadic positional": "*", "variadic keyword": "**"}


def _signature(found: griffe.Function, name: str) -> str:
    """Return the signature, with one parameter per line if it is long."""
    shown: list[str] = []
    for each in found.parameters:
        if each.name in {"self", "cls"}:
            continue
        if (
            each.kind is griffe.ParameterKind.keyword_only
            and "*" not in shown
            and not any(s.startswith("*") for s in shown)
        ):
            shown.append("*")
        stars = _STARS.get(str(each.kind and each.kind.value), "")
        kind = f": {each.annotation}" if each.annotation is not None else ""
        default = "" if each.default is None or stars else f" = {each.default}" if kind else f"={each.default}"
        shown.append(f"{stars}{each.name}{kind}{default}")
    keyword = "async " if "async" in found.labels else ""
    back = f" -> {found.returns}" if found.returns is not None and found.name != "__init__" else ""
    line = f"{keyword}{name}({', '.join(shown)}){back}"
    if len(line) <= 100:
        return line
    return f"{keyword}{name}(\n" + "".join(f"    {each},\n" for each in shown) + f"){back}"


def _prose(text: str) -> str:
    """Return a docstring's text as Markdown: its own line breaks are no paragraphs."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
