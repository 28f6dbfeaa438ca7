"""How large a JSON Schema is once its references are put in: forty lines of them can stand for a trillion."""

from typing import Any, cast
from urllib.parse import unquote

MAX_PARTS = 50_000
"""Of a schema with its references put in; an honest one of 50 kB has a few thousand."""

MAX_DEPTH = 100
"""Lists and objects inside each other, references put in."""

_DATA = frozenset({"enum", "const", "default", "examples"})
_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
"""Keywords whose object holds schemas by any name."""

_PLAIN = frozenset(
    {"$schema", "$ref", "$defs", "definitions", "$comment", "title", "description", "deprecated", "readOnly"}
    | {"type", "enum", "const", "default", "examples", "format"}
    | {"properties", "required", "additionalProperties", "items", "anyOf", "oneOf", "allOf"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems"}
)
"""Keywords whose work grows with the parts of the schema times those of the value, and no faster."""


class SchemaTooLarge(ValueError):
    """A schema that stands for more than can be looked at."""


class SchemaSize:
    """What is known of a schema before it is compiled."""

    def __init__(self, schema: Any) -> None:
        """Count.

        Raises:
            SchemaTooLarge: More than `MAX_PARTS`, or deeper than `MAX_DEPTH`.
        """
        self._root = schema
        self._referred: dict[str, tuple[int, int]] = {}
        self._open: set[str] = set()
        self.is_plain = True
        """Whether no part stands inside itself, and only keywords are used that are known to be quick."""
        self.parts, _ = self._size(schema, 0)

    def _size(self, schema: Any, depth: int, *, is_map: bool = False) -> tuple[int, int]:
        """Return the parts of a schema, or of several, and how deep they stand inside each other."""
        if depth > MAX_DEPTH:
            raise SchemaTooLarge(f"its schema is nested deeper than {MAX_DEPTH} levels, references put in")
        parts, height = 1, 0
        for key, inner in _items(schema):
            is_keyword = isinstance(schema, dict) and not is_map
            self.is_plain = self.is_plain and (not is_keyword or key in _PLAIN)
            if is_keyword and key == "$ref" and isinstance(inner, str):
                more, high = self._meant(inner, depth)
            elif isinstance(inner, (dict, list)) and not (is_keyword and key in _DATA):
                more, high = self._size(inner, depth + 1, is_map=is_keyword and key in _MAPS)
            else:
                continue
            parts, height = parts + more, max(height, high + 1)
            if parts > MAX_PARTS:
                raise SchemaTooLarge(f"its schema has more than {MAX_PARTS:,} parts, references put in")
        return parts, height

    def _meant(self, ref: str, depth: int) -> tuple[int, int]:
        """Return the size of what a reference means, which is counted once."""
        if ref in self._open:
            self.is_plain = False  # its work grows with the depth of the value
            return 1, 0
        if ref not in self._referred:
            self._open.add(ref)
            self._referred[ref] = self._size(_at(self._root, ref), depth + 1)
            self._open.discard(ref)
        parts, height = self._referred[ref]
        if depth + height > MAX_DEPTH:
            raise SchemaTooLarge(f"its schema is nested deeper than {MAX_DEPTH} levels, references put in")
        return parts, height


def _items(schema: Any) -> list[tuple[Any, Any]]:
    if isinstance(schema, dict):
        return list(cast("dict[Any, Any]", schema).items())
    return list(enumerate(cast("list[Any]", schema))) if isinstance(schema, list) else []


def _at(root: Any, ref: str) -> Any:
    """Return what a reference within the document means; any other is left to the validator."""
    if not ref.startswith("#"):
        return None
    here = root
    for step in unquote(ref[1:]).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(here, dict):
            here = cast("dict[str, Any]", here).get(name)
        else:
            here = {str(key): inner for key, inner in _items(here)}.get(name)
    return here
