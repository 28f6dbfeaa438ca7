"""Which call a streamed tool-call delta belongs to, on servers that number calls, misnumber them or don't."""

from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from orga.activities.adapters.models.assembly import Assembly
from orga.activities.adapters.models.calls import OpenCall
from orga.activities.adapters.models.json_shape import as_object, as_text


@dataclass(frozen=True)
class _Delta:
    """One entry of `tool_calls`."""

    index: int | None
    call_id: str
    name: str
    arguments: str
    brings_arguments: bool


def add_call_delta(assembly: Assembly, entry: dict[str, Any], *, is_streamed: bool = True) -> OpenCall | None:
    """Add one entry of `tool_calls` to the reply, and return its call; None where it would be one too many.

    Arguments may be text or, against the protocol, an object. Of a reply that is not streamed each entry is a call
    of its own.
    """
    delta = _delta(entry)
    call = _open_call_of(assembly.calls, delta) if is_streamed else None
    if call is None:
        call = OpenCall(index=delta.index)
        if not assembly.open_call(call):
            return None
    call.call_id = call.call_id or assembly.fitting(delta.call_id)
    if delta.name != call.name:
        call.name += assembly.fitting(delta.name)
    assembly.add_arguments(call, delta.arguments)
    return call


def _delta(entry: dict[str, Any]) -> _Delta:
    function, index = as_object(entry.get("function")), entry.get("index")
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else to_json(arguments).decode() if arguments else ""
    return _Delta(
        index=index if isinstance(index, int) else None,
        call_id=as_text(entry.get("id")),
        name=as_text(function.get("name")),
        arguments=text,
        brings_arguments=bool(text.strip()) or isinstance(arguments, dict),
    )


def _open_call_of(calls: list[OpenCall], delta: _Delta) -> OpenCall | None:
    """Return the call that goes on with `delta`; None where it begins one."""
    if delta.index is not None:
        matching = [call for call in calls if call.index == delta.index]
    elif delta.call_id:
        matching = [call for call in calls if call.call_id == delta.call_id]
    else:
        matching = [] if delta.name else calls
    same_id = [call for call in matching if delta.call_id and call.call_id == delta.call_id]
    latest = (same_id or matching)[-1:]
    return next((call for call in latest if not _begins_anew(call, delta)), None)


def _begins_anew(call: OpenCall, delta: _Delta) -> bool:
    """Tell whether a delta under the number of `call` is another call: some servers number every call 0.

    Names may come in pieces, or again with every piece of the arguments; those may begin with `{}` as a placeholder.
    """
    if not delta.name or not call.name:
        return False
    if call.call_id and delta.call_id and call.call_id != delta.call_id:
        return True
    if delta.name != call.name:
        return any(call.arguments) or (delta.brings_arguments and not call.call_id)
    has_arguments = "".join(call.arguments).strip() != "{}" and call.is_whole()
    return delta.brings_arguments and not (call.call_id and delta.call_id) and has_arguments
