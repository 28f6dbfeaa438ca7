"""Makes a provider's reply safe for the history: unique call ids, valid text, bounded size, and fitting arguments."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, get_args

from pydantic_core import from_json, to_json

from orga.workflows.types.json_text import MAX_DEPTH, is_deeper, is_list, is_object, parsed_answer_json
from orga.workflows.types.messages import FinishReason, Message, Reply
from orga.workflows.types.parts import (
    OpaquePart,
    Part,
    Parts,
    TextPart,
    ThinkingPart,
    ToolCall,
    text_of,
    text_part,
    with_text,
)
from orga.workflows.types.questions import ANSWER
from orga.workflows.types.text import clean_json, clean_text, clip_json, json_prefix
from orga.workflows.types.tool_calls.loop_tools import loop_tool
from orga.workflows.types.tool_calls.tools import ToolSpec

MAX_CALLS = 32
"""Calls of one reply that are accepted. The model gets a note about the others."""

MAX_OMITTED_TOOLS = 20
"""Tools that the note names."""

MAX_OMITTED_NAME_CHARS = 64

_CONTENT_FIELDS = frozenset({"parts", "left_out", "left_out_tools"})

MAX_TEXT_BYTES = 300_000
"""Bytes of all texts of a reply together, as JSON."""

TEXT_OVERHEAD = 40
"""Bytes of JSON around each text, if there are several."""

MAX_CALLS_BYTES = 150_000
"""Bytes of all blocks and arguments together, as JSON. Each later request sends them back, so they cannot be cut."""

MIN_CALLS_BYTES = 64_000
"""Bytes of blocks and arguments that every reply may have, however small its token limit is."""

MIN_CALL_BYTES = 500
"""Bytes that the arguments of each call may have, however large those of the other calls are."""

SHARED_LIMIT_HINT = ", the room that the rest of this reply leaves; make fewer or shorter calls at once"

MAX_BYTES_PER_TOKEN = 6
"""With every provider, a token has fewer bytes on average."""

MAX_NAME_CHARS = 200

MAX_PARTS = 1_000
"""Parts of a reply that keep their order. A reply with more parts keeps only its calls, and its texts as one."""

MAX_COUNT = 10**15
"""Tokens of one call. No real call reaches it."""


def calls_byte_limit(max_output_tokens: int) -> int:
    """Return the bytes that blocks and arguments of a reply may have: as many as its tokens can hold, within bounds."""
    return min(max(max_output_tokens * MAX_BYTES_PER_TOKEN, MIN_CALLS_BYTES), MAX_CALLS_BYTES)


def normalised_reply(reply: Reply, earlier: Iterable[Message], room: int = MAX_CALLS_BYTES) -> Reply:
    """Return the reply as it is written to history. Each call's id is unique in the conversation.

    Blocks that do not fit into `room` are left out. Arguments beyond it are refused as malformed rather than cut.
    """
    parts = _with_fitting_texts(reply.parts)
    blocks = tuple(part for part in parts if not isinstance(part, (TextPart, ToolCall)))
    fitting_blocks = _fitting_blocks(blocks, room) if len(parts) <= MAX_PARTS else ()
    if fitting_blocks:
        room -= len(to_json(fitting_blocks))
    next_calls = _normalised_calls(reply.calls[:MAX_CALLS], earlier, room)
    next_blocks = iter(fitting_blocks)
    normalised: list[Part] = []
    for part in parts:
        if isinstance(part, TextPart):
            normalised.append(part)
        elif replacement := next(next_calls if isinstance(part, ToolCall) else next_blocks, None):
            normalised.append(replacement)  # without a replacement, the part is left out
    return _with_sane_metadata(_with_omitted_calls(reply)).with_differences(parts=tuple(normalised))


def _with_omitted_calls(reply: Reply) -> Reply:
    """Return the reply with the number and the tools of the calls beyond `MAX_CALLS`, if there are some."""
    omitted = reply.calls[MAX_CALLS:]
    if not omitted:
        return reply
    counts = Counter(call.name[:MAX_OMITTED_NAME_CHARS] for call in omitted)
    tools = {_bounded_name(name, "unnamed"): count for name, count in counts.most_common(MAX_OMITTED_TOOLS)}
    return reply.with_differences(left_out=len(omitted), left_out_tools=tools)


def text_only_reply(reply: Reply, text: str) -> Reply:
    """Return the reply with only that text as content. Unset fields stay unset."""
    fields = {name: getattr(reply, name) for name in reply.model_fields_set - _CONTENT_FIELDS}
    return Reply.of(text, **fields)


def _with_fitting_texts(parts: Parts) -> Parts:
    """Return the parts with clean texts. If the texts are too long, they become one text that is cut."""
    cleaned = tuple(text_part(clean_text(part.text)) if isinstance(part, TextPart) else part for part in parts)
    whole, count = text_of(cleaned), sum(isinstance(part, TextPart) for part in cleaned)
    overhead = count * TEXT_OVERHEAD if count > 1 else 0
    have_room = len(to_json(whole)) + overhead <= MAX_TEXT_BYTES
    if have_room and (count < 2 or len(parts) <= MAX_PARTS):
        return tuple(part for part in cleaned if not isinstance(part, TextPart) or part.text)
    return with_text(cleaned, clip_json(whole, MAX_TEXT_BYTES))


def _normalised_calls(calls: Iterable[ToolCall], earlier: Iterable[Message], room: int) -> Iterator[ToolCall]:
    """Yield the calls, each with its own id and within the room that the calls before it leave."""
    taken = {call.call_id for message in earlier for call in message.calls}
    for call in calls:
        call_id, name = _unique_call_id(call.call_id, taken), _bounded_name(call.name, "unnamed")
        taken.add(call_id)
        bounded = _bounded_call(call.with_differences(call_id=call_id, name=name), max(room, MIN_CALL_BYTES))
        room -= len(to_json(bounded.arguments)) + len(to_json(bounded.malformed or ""))
        yield bounded


def _with_sane_metadata(reply: Reply) -> Reply:
    """Return the reply with sane counts and costs, whatever an adapter reports. A budget's use must never shrink."""
    used, cost = reply.usage, reply.cost_usd
    return reply.with_differences(
        finish=reply.finish if reply.finish in get_args(FinishReason) else "stop",
        usage=used.with_differences(
            input_tokens=_sane_count(used.input_tokens),
            output_tokens=_sane_count(used.output_tokens),
            cached_input_tokens=_sane_count(used.cached_input_tokens),
            thinking_tokens=_sane_count(used.thinking_tokens),
        ),
        cost_usd=cost if cost is not None and isfinite(cost) and cost >= 0 else None,
        model=None if reply.model is None else _bounded_name(reply.model, "unnamed"),
    )


def _sane_count(count: int) -> int:
    return min(max(count, 0), MAX_COUNT)


def _unique_call_id(call_id: str, taken: set[str]) -> str:
    wanted = _bounded_name(call_id, "call")
    unique, number = wanted, 2
    while unique in taken:
        suffix = f"_{number}"
        unique = wanted[: MAX_NAME_CHARS - len(suffix)] + suffix
        number += 1
    return unique


def _bounded_name(text: str, otherwise: str) -> str:
    """Return a name of at most `MAX_NAME_CHARS` bytes, and twice as many as JSON with escapes. Blank: `otherwise`.

    The name `ANSWER` is replaced, too, because the run uses it to propose a final answer.
    """
    name = clean_text(text).strip()[:MAX_NAME_CHARS].strip()
    name = name.encode()[:MAX_NAME_CHARS].decode(errors="ignore")
    name = json_prefix(name, 2 * MAX_NAME_CHARS).strip() or otherwise
    return otherwise if name == ANSWER else name


def _fitting_blocks(blocks: Parts, max_bytes: int) -> Parts:
    """Return the blocks in a form that can be written to history, or none of them if they do not fit together."""
    if any(isinstance(block, (ThinkingPart, OpaquePart)) and is_deeper(block.data, MAX_DEPTH) for block in blocks):
        return ()
    cleaned = tuple(map(_clean_block, blocks))
    text = to_json(cleaned)
    return cleaned if len(text) <= max_bytes and _is_readable_json(text) else ()


def _clean_block(block: Part) -> Part:
    match block:
        case ThinkingPart():
            return block.with_content(clean_text(block.format), clean_text(block.text), clean_json(block.data))
        case OpaquePart():
            return block.with_content(clean_text(block.format), clean_json(block.data))
        case _:
            return block


def _bounded_call(call: ToolCall, max_bytes: int) -> ToolCall:
    if call.malformed is not None:
        return call.with_differences(arguments={}, malformed=clip_json(clean_text(call.malformed), max_bytes))
    if is_deeper(call.arguments, MAX_DEPTH):
        return call.with_differences(arguments={}, malformed=f"(nested more than {MAX_DEPTH} deep)")
    arguments = clean_json(call.arguments)
    text = to_json(arguments)
    if len(text) > max_bytes:
        return call.with_differences(arguments={}, malformed=f"(more than {max_bytes} bytes{SHARED_LIMIT_HINT})")
    if not _is_readable_json(text):
        return call.with_differences(arguments={}, malformed="(a number out of range)")
    return call.with_differences(arguments=arguments)


def _is_readable_json(text: bytes) -> bool:
    """Return whether our own JSON can be read. An integer of more than 4,300 digits can be written but not read."""
    try:
        from_json(text)
    except ValueError:
        return False
    return True


MAX_VISITS = 20_000
"""Parts of schemas and arguments that are visited for one reply. Everything beyond stays unchanged."""

Json = dict[str, Any]


def with_fitted_arguments(reply: Reply, tools: Sequence[ToolSpec]) -> Reply:
    """Return the reply with arguments that fit the tools' schemas. They change only if their meaning is clear.

    - `null` for an optional parameter that does not accept `null`: the parameter is left out.
    - A list, an object, a number or a truth value as JSON text, for a parameter that accepts no text: it is parsed.
    - `null` or `[]` instead of an object with all arguments: the call has no arguments.
    - A JSON text instead of an object with all arguments: it is parsed.

    The reply is changed before it is recorded, so the gate, people, the journal and the tool see the same arguments.
    """
    fitting = _ArgumentFitter({tool.name: tool.parameters for tool in tools})
    parts = tuple(fitting.fitted_call(part) if isinstance(part, ToolCall) else part for part in reply.parts)
    return reply.with_differences(parts=parts)


class _ArgumentFitter:
    """Fits the arguments of one reply, and visits a bounded number of values and schemas."""

    def __init__(self, schemas: Mapping[str, Json]) -> None:
        self._schemas = schemas
        self._root: Json = {}
        """The schema of the current tool, which references point into."""
        self._visits_left = MAX_VISITS

    def fitted_call(self, call: ToolCall) -> ToolCall:
        schema = self._schemas.get(call.name)
        if schema is None:
            return call
        arguments: Any = call.arguments if call.malformed is None else _parsed_arguments(call.malformed)
        if not is_object(arguments):
            return call
        try:
            fitted = self._fitted_arguments(schema, arguments)
            if loop_tool(call.name).is_saga and is_list(steps := fitted.get("steps")):
                fitted = {**fitted, "steps": [self._fitted_step(step) for step in steps]}
        except RecursionError:  # JSON texts nested in JSON texts
            return call
        return call if is_deeper(fitted, MAX_DEPTH) else call.with_differences(arguments=fitted, malformed=None)

    def _fitted_arguments(self, schema: Json, arguments: Json) -> Json:
        self._root = schema
        fitted = self._fitted_value(arguments, schema)
        return fitted if is_object(fitted) else arguments

    def _fitted_step(self, step: Any) -> Any:
        if not is_object(step):
            return step
        changed = {"compensation": self._fitted_step(step["compensation"])} if "compensation" in step else {}
        schema, arguments = self._schemas.get(str(step.get("tool"))), step.get("arguments")
        if schema is not None and is_object(arguments):
            changed["arguments"] = self._fitted_arguments(schema, arguments)
        return step | changed

    def _fitted_value(self, value: Any, schema: Any) -> Any:
        forms = self._alternatives(schema)
        if isinstance(value, str):
            parsed = _parsed_value(value, forms)
            return value if parsed is value else self._fitted_value(parsed, schema)
        if is_object(value):
            return self._fitted_object(value, [form for form in forms if _accepts_type(form, {"object"})])
        lists = [form for form in forms if _accepts_type(form, {"array"})]
        if is_list(value) and len(lists) == 1 and "prefixItems" not in lists[0]:
            return [self._fitted_value(item, lists[0].get("items")) for item in value]
        return value

    def _fitted_object(self, value: Json, forms: list[Json]) -> Json:
        if len(forms) != 1 or "patternProperties" in forms[0]:
            return value
        (form,) = forms
        properties, additional = form.get("properties"), form.get("additionalProperties")
        required = form.get("required", ())
        declared: Json = properties if is_object(properties) else {}

        def is_surplus_null(key: str, item: Any) -> bool:
            is_optional = key in declared and key not in required
            return item is None and is_optional and not self._may_be_null(declared[key])

        items = {key: item for key, item in value.items() if not is_surplus_null(key, item)}
        return {key: self._fitted_value(item, declared.get(key, additional)) for key, item in items.items()}

    def _may_be_null(self, schema: Any) -> bool:
        forms = self._alternatives(schema)
        return not forms or any(_accepts_type(form, {"null"}) for form in forms)

    def _alternatives(self, schema: Any) -> list[Json]:
        """Return the alternatives of a schema. If they are unknown, the list is empty, so nothing is fitted."""
        forms: list[Json] = []
        waiting, resolved = [schema], set[str]()
        while waiting:
            self._visits_left -= 1
            form = waiting.pop()
            if self._visits_left < 0 or not is_object(form):
                return []
            ref = form.get("$ref")
            parts = next((form[key] for key in ("anyOf", "oneOf", "allOf") if key in form), None)
            if "type" in form or "enum" in form or "const" in form:
                forms.append(form)
            elif isinstance(ref, str) and ref not in resolved:
                resolved.add(ref)
                waiting.append(self._resolve_ref(ref))
            elif is_list(parts) and ("allOf" not in form or len(parts) == 1):
                waiting += parts  # several schemas of `allOf` hold at once, so they are no alternatives
            else:
                return []
        return forms

    def _resolve_ref(self, ref: str) -> Any:
        target: Any = self._root
        for name in ref.removeprefix("#").split("/")[1:]:
            target = target.get(name.replace("~1", "/").replace("~0", "~")) if is_object(target) else None
        return target if ref.startswith("#") else None


def _parsed_arguments(malformed: str) -> Any:
    """Return the arguments that a malformed text means, or None if that is unclear."""
    try:
        value = parsed_answer_json(malformed)
        value = parsed_answer_json(value) if isinstance(value, str) else value
    except ValueError:
        return None
    return {} if value in (None, []) else value


def _parsed_value(text: str, forms: list[Json]) -> Any:
    """Return the value of a JSON text if these forms accept it but accept no text. Otherwise return the text."""
    if not forms or any(_accepts_type(form, {"string"}) for form in forms):
        return text
    try:
        value = parsed_answer_json(text)
    except ValueError:
        return text
    types = _json_types(value) - {"string", "null"}
    return value if any(_accepts_type(form, types) for form in forms) else text


def _accepts_type(form: Json, types: set[str]) -> bool:
    """Return whether a form accepts a value of one of these types, by its `type` or by the values that it lists."""
    if "type" in form:
        accepted = form["type"]
    else:
        values = form["enum"] if "enum" in form else [form["const"]]
        accepted = [name for value in values for name in _json_types(value)] if is_list(values) else None
    if isinstance(accepted, str):
        return accepted in types
    if is_list(accepted):
        return not types.isdisjoint(accepted)
    return bool(types)  # an invalid schema accepts everything


def _json_types(value: Any) -> set[str]:
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int):
        return {"integer", "number"}
    names = {"str": "string", "float": "number", "dict": "object", "list": "array", "NoneType": "null"}
    return {names.get(type(value).__name__, "")}
