"""Each key of `orga.toml`: type, default, unit, meaning, and the page that explains it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from docs.generate.explained import page_of
from docs.generate.source import docstring_text, in_cell, module
from orga.client.config.sections import OrgaConfig

UNITS = {"_s": "s", "_ms": "ms", "_usd": "USD", "_tokens": "tokens", "_bytes": "bytes", "_chars": "characters"}
"""Units by the end of a key's name. The meaning of other keys names their unit."""


@dataclass(frozen=True)
class Key:
    """One key."""

    section: str
    """`agents.NAME.config`: a table of the file; "" for the whole."""
    name: str
    kind: str
    default: str
    unit: str
    meaning: str
    page: str
    """File below `docs/`; "" if none explains it."""

    @property
    def path(self) -> str:
        """The key with its section."""
        return f"{self.section}.{self.name}" if self.section else self.name


@cache
def keys() -> tuple[Key, ...]:
    """Return every key of the file, in the order of its sections."""
    return tuple(_keys(OrgaConfig, "", ()))


def configuration_page() -> str:
    """Return the page."""
    parts = [
        "# Reference of `orga.toml`\n\n"
        "Every key, by its section. A section with `NAME` stands once for each name that you give: `[agents.researcher]`. A\n"
        "variable `ORGA_SECTION__KEY` of the environment wins over the file: `ORGA_TEMPORAL__ADDRESS`. An unknown key is an\n"
        "error that names the line. A key whose default is — need not be given; one that is _needed_ has to be. Some keys can\n"
        "also be set [at run time](../settings.md), which wins over the file and the environment.\n"
    ]
    sections = dict.fromkeys(key.section for key in keys())
    for section in sections:
        parts.append(
            f"\n## `[{section}]`\n\n| key | type | default | unit | meaning | explained in |\n|---|---|---|---|---|---|"
        )
        parts += [_row(key) for key in keys() if key.section == section]
    return "\n".join(parts)


def _row(key: Key) -> str:
    page = f"[{Path(key.page).stem}](../{key.page})" if key.page else ""
    return f"| `{key.name}` | {in_cell(key.kind)} | {in_cell(key.default)} | {key.unit} | {in_cell(key.meaning)} | {page} |"


def _keys(model: type[BaseModel], section: str, above: tuple[type[BaseModel], ...]) -> Iterator[Key]:
    inner: list[tuple[type[BaseModel], str]] = []
    for name, field in model.model_fields.items():
        found = _model_in(field.annotation)
        if found is not None and found[0] not in above and found[0].model_fields:
            inner_model, middle = found
            inner.append((inner_model, ".".join(filter(None, (section, name, middle)))))
            continue
        yield _key(model, section, name, field)
    for inner_model, place in inner:
        yield from _keys(inner_model, place, (*above, model))


def _key(model: type[BaseModel], section: str, name: str, field: FieldInfo) -> Key:
    unit = next((unit for end, unit in UNITS.items() if name.endswith(end)), "")
    shown = field.alias or name
    return Key(
        section,
        shown,
        _kind(field.annotation),
        _default(field),
        unit,
        _meaning(model, name, field),
        page_of(section, shown),
    )


def _meaning(model: type[BaseModel], name: str, field: FieldInfo) -> str:
    if field.description:
        return field.description
    for base in model.__mro__:
        if issubclass(base, BaseModel) and name in base.__annotations__ and base.__module__.startswith("orga."):
            source = module(base.__module__)
            return docstring_text(source[base.__name__].members.get(name))
    return ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "_needed_"
    value: Any = field.get_default(call_default_factory=not field.default_factory_takes_validated_data)
    if value is None or value is PydanticUndefined:
        return "—"
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_defaults=True)
    if isinstance(value, (tuple, frozenset, set)):
        value = sorted(value) if isinstance(value, (frozenset, set)) else list(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return f"`{_toml(value)}`"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, dict):
        pairs = [f"{key} = {_toml(item)}" for key, item in value.items()]  # pyright: ignore[reportUnknownVariableType]
        return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
    if isinstance(value, int):
        return f"{value:_}" if value >= 10_000 else str(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _model_in(annotation: Any) -> tuple[type[BaseModel], str] | None:
    """Return the table that a key is, with `NAME` where it holds one by name, `[]` where a list of them."""
    annotation = _bare(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, ""
    origin, parts = get_origin(annotation), [each for each in get_args(annotation) if each is not NoneType]
    if origin in {Union, UnionType}:
        models = [found for part in parts if (found := _model_in(part)) is not None]
        return models[0] if len(models) == 1 else None
    if origin is dict and (found := _model_in(parts[1])):
        return found[0], "NAME" + (f".{found[1]}" if found[1] else "")
    if origin in {tuple, list} and (found := _model_in(parts[0])):
        return found[0], "[]" + found[1]
    return None


_NAMES = {str: "text", int: "integer", float: "number", bool: "`true` or `false`", Path: "path", Any: "any"}


def _bare(annotation: Any) -> Any:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation


def _kind(annotation: Any) -> str:
    annotation = _bare(annotation)
    if annotation in _NAMES:
        return _NAMES[annotation]
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        # sorted: typing hands out any equal literal that was written before, in the order that it had there
        return ", ".join(sorted(f'`"{part}"`' if isinstance(part, str) else f"`{part}`" for part in parts))
    if origin in {Union, UnionType}:
        return " or ".join(dict.fromkeys(_kind(part) for part in parts if part is not NoneType))
    if origin in {tuple, list, frozenset, set}:
        return f"list of {_kind(parts[0])}"
    if origin is dict:
        return f"{_kind(parts[1])} by name"
    return "table" if _model_in(annotation) is not None else re.sub(r"\b(\w+\.)+", "", str(annotation))
