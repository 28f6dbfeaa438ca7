"""Fits a model's arguments to the tool's schema, if they can mean one thing only.

- `null` for an optional parameter that does not accept `null`: the parameter is left out.
- A list, an object, a number or a truth value as JSON text, for a parameter that accepts no text: it is parsed.
- `null`, `[]` or an object as JSON text instead of all arguments: no arguments, or those of the object.

The reply is changed before it is recorded, so the gate, people, the journal and the tool see the same arguments.
Nothing that fits the schema is changed.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from orga.workflows.types.json_text import MAX_DEPTH, is_deeper, parsed_answer_json
from orga.workflows.types.messages import Reply
from orga.workflows.types.parts import ToolCall
from orga.workflows.types.tool_calls.loop_tools import loop_tool
from orga.workflows.types.tool_calls.tools import ToolSpec

MAX_VISITS = 20_000
"""Parts of schemas and arguments that are visited for one reply. Everything beyond stays unchanged."""

Json = dict[str, Any]


def with_fitted_arguments(reply: Reply, tools: Sequence[ToolSpec]) -> Reply:
    fitting = _ArgumentFitter({tool.name: tool.parameters for tool in tools})
    parts = tuple(fitting.fitted_call(part) if isinstance(part, ToolCall) else part for part in reply.parts)
    return reply.with_differences(parts=parts)


class _ArgumentFitter:
    """Fits one reply within a bounded number of visits."""

    def __init__(self, schemas: Mapping[str, Json]) -> None:
        self._schemas = schemas
        self._root: Json = {}
        self._looks = MAX_VISITS

    def fitted_call(self, call: ToolCall) -> ToolCall:
        schema = self._schemas.get(call.name)
        if schema is None:
            return call
        given: Any = call.arguments
        if call.malformed is not None:
            given = _parsed_arguments(call.malformed)
        if not _is_object(given):
            return call
        try:
            fitted = self._fitted_arguments(schema, given)
            fitted = self._fitted_plan(fitted) if loop_tool(call.name).is_plan else fitted
        except RecursionError:  # JSON texts nested in JSON texts
            return call
        return call if is_deeper(fitted, MAX_DEPTH) else call.with_differences(arguments=fitted, malformed=None)

    def _fitted_arguments(self, schema: Json, arguments: Json) -> Json:
        self._root = schema
        fitted = self._fitted_value(arguments, schema)
        return fitted if _is_object(fitted) else arguments

    def _fitted_plan(self, arguments: Json) -> Json:
        """Return a plan whose own calls have fitted arguments, too."""
        steps = arguments.get("steps")
        return arguments | {"steps": [self._fitted_step(step) for step in steps]} if _is_list(steps) else arguments

    def _fitted_step(self, step: Any) -> Any:
        if not _is_object(step):
            return step
        changed = {"compensation": self._fitted_step(step["compensation"])} if "compensation" in step else {}
        schema, given = self._schemas.get(str(step.get("tool"))), step.get("arguments")
        if schema is not None and _is_object(given):
            changed["arguments"] = self._fitted_arguments(schema, given)
        return step | changed

    def _fitted_value(self, value: Any, schema: Any) -> Any:
        forms = self._alternatives(schema)
        if isinstance(value, str):
            read = _parsed_value(value, forms)
            return value if read is value else self._fitted_value(read, schema)
        if _is_object(value):
            return self._fitted_object(value, [form for form in forms if _accepts_type(form, {"object"})])
        if _is_list(value):
            return self._fitted_list(value, [form for form in forms if _accepts_type(form, {"array"})])
        return value

    def _fitted_object(self, value: Json, forms: list[Json]) -> Json:
        if len(forms) != 1 or "patternProperties" in forms[0]:
            return value
        (form,) = forms
        properties, required, other = form.get("properties"), form.get("required", ()), form.get("additionalProperties")
        known: Json = properties if _is_object(properties) else {}
        kept = {
            key: item
            for key, item in value.items()
            if item is not None or key not in known or key in required or self._may_be_null(known[key])
        }
        return {key: self._fitted_value(item, known.get(key, other)) for key, item in kept.items()}

    def _fitted_list(self, value: list[Any], forms: list[Json]) -> list[Any]:
        if len(forms) != 1 or "prefixItems" in forms[0]:
            return value
        return [self._fitted_value(item, forms[0].get("items")) for item in value]

    def _may_be_null(self, schema: Any) -> bool:
        forms = self._alternatives(schema)
        return not forms or any(_accepts_type(form, {"null"}) for form in forms)

    def _alternatives(self, schema: Any) -> list[Json]:
        """Return the alternatives of a schema. The list is empty if they are unknown, so nothing is fitted."""
        found: list[Json] = []
        waiting, referred = [schema], set[str]()
        while waiting:
            self._looks -= 1
            each = waiting.pop()
            if self._looks < 0 or not _is_object(each):
                return []
            ref, several = each.get("$ref"), each.get("anyOf", each.get("oneOf", each.get("allOf")))
            if "type" in each or "enum" in each or "const" in each:
                found.append(each)
            elif isinstance(ref, str) and ref not in referred:
                referred.add(ref)
                waiting.append(self._resolve_ref(ref))
            elif _is_list(several) and ("allOf" not in each or len(several) == 1):
                waiting += several
            else:
                return []
        return found

    def _resolve_ref(self, ref: str) -> Any:
        here: Any = self._root
        for name in ref.removeprefix("#").split("/")[1:]:
            here = here.get(name.replace("~1", "/").replace("~0", "~")) if _is_object(here) else None
        return here if ref.startswith("#") else None


def _parsed_arguments(malformed: str) -> Any:
    """Return the arguments that a text means although it is no object, or None."""
    try:
        value = parsed_answer_json(malformed)
        value = parsed_answer_json(value) if isinstance(value, str) else value
    except ValueError:
        return None
    return {} if value in (None, []) else value


def _parsed_value(text: str, forms: list[Json]) -> Any:
    """Return the value of a JSON text, if its place accepts that value and no text."""
    if not forms or any(_accepts_type(form, {"string"}) for form in forms):
        return text
    try:
        value = parsed_answer_json(text)
    except ValueError:
        return text
    kinds = _json_types(value) - {"string", "null"}
    return value if any(_accepts_type(form, kinds) for form in forms) else text


def _accepts_type(form: Json, kinds: set[str]) -> bool:
    """Return whether a form accepts a value of one of these types, by its `type` or by the values that it lists."""
    types = form.get("type")
    if "type" not in form:
        listed = form["enum"] if "enum" in form else [form["const"]]
        types = [kind for value in listed for kind in _json_types(value)] if _is_list(listed) else sorted(kinds)
    return bool(kinds & ({types} if isinstance(types, str) else set(types) if _is_list(types) else kinds))


def _json_types(value: Any) -> set[str]:
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int):
        return {"integer", "number"}
    named = {"str": "string", "float": "number", "dict": "object", "list": "array", "NoneType": "null"}
    return {named.get(type(value).__name__, "")}


def _is_object(value: Any) -> TypeGuard[Json]:
    return isinstance(value, dict)


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)
