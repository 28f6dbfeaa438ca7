"""Which call a streamed tool-call delta belongs to, on servers that number calls, misnumber them or don't."""

from typing import Any

from pydantic_core import to_json

from orga.activities.adapters.models.assembly import Assembly
from orga.activities.adapters.models.calls import OpenCall
from orga.activities.adapters.models.json_shape import as_object, as_text


def add_call_delta(assembly: Assembly, delta: dict[str, Any]) -> OpenCall | None:
    """Add one entry of `tool_calls` to the reply, and return its call; None where it would be one too many.

    Arguments may be text or, against the protocol, an object.
    """
    function = as_object(delta.get("function"))
    call_id, name = as_text(delta.get("id")), as_text(function.get("name"))
    index = delta.get("index")
    call = _call_for(assembly, index if isinstance(index, int) else None, call_id, name)
    if call is None:
        return None
    call.call_id = call.call_id or assembly.fitting(call_id)
    if name != call.name:
        call.name += assembly.fitting(name)
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else to_json(arguments).decode() if arguments else ""
    assembly.add_arguments(call, text)
    return call


def _call_for(assembly: Assembly, index: int | None, call_id: str, name: str) -> OpenCall | None:
    """Return the call; None where it would be one too many."""
    calls = assembly.calls
    if index is not None:
        open_calls = [call for call in calls if call.index == index and not _begins_anew(call, call_id, name)]
    elif call_id:
        open_calls = [call for call in calls if call.call_id == call_id]
    else:
        open_calls = [] if name else calls
    if open_calls:
        return open_calls[-1]
    call = OpenCall(index=index)
    return call if assembly.open_call(call) else None


def _begins_anew(call: OpenCall, call_id: str, name: str) -> bool:
    """Tell whether a delta under the number of `call` is another call: some servers number every call 0."""
    if not name or not call.name:
        return False
    other_id = bool(call_id) and bool(call.call_id) and call_id != call.call_id
    return other_id or (name != call.name and any(call.arguments))
