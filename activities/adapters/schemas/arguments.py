"""Checks values, such as arguments or final answers, against any JSON Schema, within a bounded time.

Schemas and values come from models, starters and MCP servers, so they may be hostile. A check that may take long runs
in a process of its own. The process ends when it has used up its time or its memory.
"""

import atexit
import json
import os
import select
import signal
import struct
import sys
import threading
import time
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from subprocess import DEVNULL, PIPE, Popen
from typing import Any, NamedTuple, cast
from urllib.parse import unquote

from jsonschema_rs import ReferencingError, RegexOptions, ValidationError, Validator, validator_cls_for

from orga.activities.adapters.process_streams import limit_this_process
from orga.activities.adapters.threads import Threads
from orga.child import held_program
from orga.workflows.types.json_text import inner_values
from orga.workflows.types.text import cut_line

WAIT_S = 20.0
"""Seconds to wait for an answer. On a busy machine, the second of processor time of a check takes longer."""

_MAX_IDLE_PROCESSES = 2
_LENGTH = struct.Struct("!I")
_MAX_ANSWER_BYTES = 100_000
_idle_processes: list[Popen[bytes]] = []
_lock = threading.Lock()


class CheckFailed(Exception):
    """The process of a check has used up its time or its memory."""


def check_in_process(schema: str, value: bytes | None) -> list[str]:
    """Check a value, given as JSON, and return its errors. Without a value, check only the schema.

    Raise CheckFailed if the check takes too much time or memory, and ValueError if the schema cannot be used.
    """
    request = [schema, None if value is None else value.decode()]
    answer = json.loads(_ask_process(json.dumps(request).encode()))
    if "broken" in answer:
        raise ValueError(answer["broken"])
    return answer["errors"]


def _ask_process(request: bytes) -> bytes:
    with _lock:
        process = _idle_processes.pop() if _idle_processes else None
    if process is None or process.poll() is not None:
        program = held_program(__name__)
        held = (program.number,)
        process = Popen(program.argv, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, bufsize=0, env={}, pass_fds=held)
    try:
        answer = _exchange_bytes(process, request)
    except (OSError, EOFError):
        _end_process(process)
        raise CheckFailed from None
    with _lock:
        if len(_idle_processes) < _MAX_IDLE_PROCESSES:
            _idle_processes.append(process)
            return answer
    _end_process(process)
    return answer


def _exchange_bytes(process: Popen[bytes], request: bytes) -> bytes:
    assert process.stdin
    assert process.stdout
    process.stdin.write(_LENGTH.pack(len(request)))
    data = memoryview(request)
    while data:
        data = data[process.stdin.write(data) :]
    until = time.monotonic() + WAIT_S
    (length,) = _LENGTH.unpack(_read_bytes(process.stdout.fileno(), _LENGTH.size, until))
    return _read_bytes(process.stdout.fileno(), min(length, _MAX_ANSWER_BYTES), until)


def _read_bytes(stream: int, size: int, until: float) -> bytes:
    data, watched = b"", select.poll()
    watched.register(stream, select.POLLIN)
    while len(data) < size:
        ready = watched.poll(max(until - time.monotonic(), 0) * 1_000)
        piece = os.read(stream, size - len(data)) if ready else b""
        if not piece:
            raise EOFError
        data += piece
    return data


def _end_process(process: Popen[bytes]) -> None:
    process.kill()
    for stream in (process.stdin, process.stdout):
        if stream:
            with suppress(OSError):
                stream.close()
    process.wait()


@atexit.register
def _end_idle_processes() -> None:
    while _idle_processes:
        _end_process(_idle_processes.pop())


WORK_S = 1.0
"""Seconds of processor time for one check."""

MEMORY_BYTES = 2_000_000_000


def main() -> None:
    """Carry out the checks of a worker, as a program, one at a time until the worker closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches this process too, but the worker decides its end
    limit_this_process(MEMORY_BYTES)
    while head := sys.stdin.buffer.read(_LENGTH.size):
        schema, value = json.loads(sys.stdin.buffer.read(_LENGTH.unpack(head)[0]))
        signal.setitimer(signal.ITIMER_PROF, WORK_S)  # when it is over, a signal ends this process
        try:
            schema_validator(schema)
            answer: dict[str, Any] = {"errors": [] if value is None else schema_errors(schema, json.loads(value))}
        except ValueError as error:
            answer = {"broken": str(error)}
        signal.setitimer(signal.ITIMER_PROF, 0)
        body = json.dumps(answer).encode()
        sys.stdout.buffer.write(_LENGTH.pack(len(body)) + body)
        sys.stdout.buffer.flush()


MAX_ERRORS = 10
MAX_CHARACTERS = 200


@lru_cache(maxsize=256)
def schema_validator(schema: str) -> Validator:
    """Return the validator of a schema, given as JSON. Without `$schema`, its draft is 2020-12.

    Raise ValueError if the schema is invalid, or refers to another document. Patterns with look-around or
    back-references are invalid too, because they cannot be matched in linear time.
    """
    try:
        given = json.loads(schema)
        # Without `offline`, the library would fetch a remote `$ref` over the network.
        return validator_cls_for(given)(given, pattern_options=RegexOptions(), offline=True)
    except (ValidationError, ReferencingError, ValueError) as error:
        why = str(error).strip().splitlines()[0]
        raise ValueError(cut_line(f"its schema is invalid: {why}", MAX_CHARACTERS)) from error


def schema_errors(schema: str, value: Any) -> list[str]:
    validator, errors = schema_validator(schema), list[str]()
    if validator.is_valid(value):
        return []
    for error in islice(validator.iter_errors(value), MAX_ERRORS):
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)
        errors.append(cut_line(f"${path}: {error.message}", MAX_CHARACTERS))
    return errors


MAX_PARTS = 50_000
"""Parts of a schema with resolved references. A real schema of 50 kB has a few thousand."""

MAX_DEPTH = 100
"""Nesting levels of lists and objects, with resolved references."""

_DATA_KEYWORDS = frozenset({"enum", "const", "default", "examples"})
_SCHEMA_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
"""Keywords whose value maps names to schemas. These names are no keywords."""

_PLAIN_KEYWORDS = frozenset(
    {"$schema", "$ref", "$defs", "definitions", "$comment", "title", "description", "deprecated", "readOnly"}
    | {"type", "enum", "const", "default", "examples", "format"}
    | {"properties", "required", "additionalProperties", "items", "anyOf", "oneOf", "allOf"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems"}
)
"""Keywords whose check takes at most the parts of the schema times the parts of the value in steps."""


class SchemaTooLarge(ValueError):
    """A schema with more parts than can be checked."""


class _Extent(NamedTuple):
    parts: int
    height: int
    """Nesting levels of the parts."""


class SchemaSize:
    """The size of a schema, measured before it is compiled."""

    def __init__(self, schema: Any) -> None:
        """Measure the schema. Raise SchemaTooLarge above `MAX_PARTS` or `MAX_DEPTH`."""
        self._root = schema
        self._referred: dict[str, _Extent] = {}
        """The sizes of the targets of references."""
        self._open: set[str] = set()
        """The references whose targets are being measured."""
        self.is_plain = True
        """True if the schema is not recursive, and all its keywords are known to be quick."""
        self.parts = self._extent(schema, 0).parts

    def _extent(self, schema: Any, depth: int, *, is_map: bool = False) -> _Extent:
        """Measure a part of the schema at this depth. With `is_map`, it maps names to schemas."""
        if depth > MAX_DEPTH:
            raise SchemaTooLarge(f"its schema is nested deeper than {MAX_DEPTH} levels, references put in")
        parts, height = 1, 0
        for key, inner in _schema_items(schema):
            is_keyword = isinstance(schema, dict) and not is_map
            self.is_plain = self.is_plain and (not is_keyword or key in _PLAIN_KEYWORDS)
            if is_keyword and key == "$ref" and isinstance(inner, str):
                extent = self._referred_extent(inner, depth)
            elif isinstance(inner, (dict, list)) and not (is_keyword and key in _DATA_KEYWORDS):
                extent = self._extent(inner, depth + 1, is_map=is_keyword and key in _SCHEMA_MAPS)
            else:
                continue
            parts += extent.parts
            height = max(height, extent.height + 1)
            if parts > MAX_PARTS:
                raise SchemaTooLarge(f"its schema has more than {MAX_PARTS:,} parts, references put in")
        return _Extent(parts, height)

    def _referred_extent(self, ref: str, depth: int) -> _Extent:
        """Measure the target of a reference, but each target only once."""
        if ref in self._open:
            self.is_plain = False  # the check of a recursive schema takes longer, the deeper the value is
            return _Extent(1, 0)
        if ref not in self._referred:
            self._open.add(ref)
            self._referred[ref] = self._extent(_resolve_ref(self._root, ref), depth + 1)
            self._open.discard(ref)
        extent = self._referred[ref]
        if depth + extent.height > MAX_DEPTH:
            raise SchemaTooLarge(f"its schema is nested deeper than {MAX_DEPTH} levels, references put in")
        return extent


def _schema_items(schema: Any) -> list[tuple[Any, Any]]:
    if isinstance(schema, dict):
        return list(cast("dict[Any, Any]", schema).items())
    return list(enumerate(cast("list[Any]", schema))) if isinstance(schema, list) else []


def _resolve_ref(root: Any, ref: str) -> Any:
    """Return the target of a reference within the document, or None. The validator handles other references."""
    if not ref.startswith("#"):
        return None
    here = root
    for step in unquote(ref[1:]).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(here, dict):
            here = cast("dict[str, Any]", here).get(name)
        else:
            here = {str(key): inner for key, inner in _schema_items(here)}.get(name)
    return here


_MAX_PAIRS = 5_000
"""Parts of the schema times parts of the value. Up to this product, a thread checks the value: it takes some 30 ms."""

_MAX_BYTES = 2_000_000
"""Parts of the schema times bytes of the value, as the other limit. Each part may repeat the value in its error."""

_IN_THREAD = Threads("schemas", 2)
_BY_PROCESS = Threads("schemas-by-process", 4)
"""Threads that wait for a process. They are separate, so that a quick check does not wait for a slow one."""


async def find_argument_errors(schema: dict[str, Any], arguments: Any) -> list[str]:
    """Return the same as `argument_errors`, without blocking the event loop. Its threads do no other work."""
    found = await _IN_THREAD.run(_errors_in_thread, schema, arguments)
    return await _BY_PROCESS.run(_errors_by_process, schema, arguments) if found is None else found


def argument_errors(schema: dict[str, Any], arguments: Any) -> list[str]:
    """Return the errors of `arguments`: at most 10 of 200 characters, each with its JSON path (`$.limit: ...`).

    This may wait a second or two for a process. In an event loop, use `find_argument_errors`. Raise ValueError if the
    schema is invalid (see `schema_validator`) or too large.
    """
    found = _errors_in_thread(schema, arguments)
    return _errors_by_process(schema, arguments) if found is None else found


def _errors_in_thread(schema: dict[str, Any], arguments: Any) -> list[str] | None:
    """Return the errors, or None if the check may take too long for a thread."""
    text = _schema_text(schema)
    size = _schema_size(text)
    try:
        value = _json_bytes(arguments)
    except UnicodeEncodeError:
        return ["$: contains text that is not valid Unicode"]
    except RecursionError:
        return ["$: is nested too deep"]
    has_short_errors = size.parts * len(value) <= _MAX_BYTES
    is_quick = size.is_plain and has_short_errors and _is_small(arguments, _MAX_PAIRS // size.parts)
    return schema_errors(text, arguments) if is_quick else None


def _errors_by_process(schema: dict[str, Any], arguments: Any) -> list[str]:
    try:
        return check_in_process(_schema_text(schema), _json_bytes(arguments))
    except CheckFailed:
        return ["$: cannot be checked against its schema within a second; make it smaller"]


def schema_problem(schema: dict[str, Any]) -> str:
    """Return why a schema cannot be used, or "" if it can."""
    try:
        text = _schema_text(schema)
        if _schema_size(text).is_plain:
            schema_validator(text)
        else:
            check_in_process(text, None)
    except CheckFailed:
        return "its schema is too much work to read"
    except ValueError as error:
        return str(error)
    return ""


def _json_bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _schema_text(schema: dict[str, Any]) -> str:
    try:
        return json.dumps(schema, sort_keys=True)
    except RecursionError:
        raise ValueError("its schema is nested too deep") from None


@lru_cache(maxsize=256)
def _schema_size(schema: str) -> SchemaSize:
    return SchemaSize(json.loads(schema))


def _is_small(value: Any, parts: int) -> bool:
    """Return whether a value has at most this number of parts. The count stops at the limit."""
    level = [value]
    while level and parts >= 0:
        parts -= len(level)
        level = [inner for outer in level for inner in inner_values(outer)]
    return parts >= 0
