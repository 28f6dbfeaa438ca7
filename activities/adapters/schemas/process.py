"""Processes that check values against schemas, kept for the next check, and killed when one takes too long."""

import atexit
import json
import os
import select
import struct
import sys
import threading
import time
from contextlib import suppress
from subprocess import DEVNULL, PIPE, Popen

from orga.activities.adapters.schemas import check_child

WAIT_S = 20.0
"""For an answer: a busy machine gives little of it to the process, whose own time ends after a second of work."""

_MAX_KEPT = 2
_LENGTH = struct.Struct("!I")
_MAX_ANSWER_BYTES = 100_000
_kept: list[Popen[bytes]] = []
_lock = threading.Lock()


class CheckFailed(Exception):
    """The process used up its time or its memory."""


def check_in_process(schema: str, value: bytes | None) -> list[str]:
    """Return what is wrong with a value, given as JSON; without one the schema alone is read.

    Raises:
        CheckFailed: It was too much work.
        ValueError: The schema cannot be used.
    """
    request = [schema, None if value is None else value.decode()]
    answer = json.loads(_answer(json.dumps(request).encode()))
    if "broken" in answer:
        raise ValueError(answer["broken"])
    return answer["errors"]


def _answer(request: bytes) -> bytes:
    with _lock:
        process = _kept.pop() if _kept else None
    if process is None or process.poll() is not None:
        process = _started()
    try:
        answer = _exchange(process, request)
    except (OSError, EOFError):
        _end(process)
        raise CheckFailed from None
    with _lock:
        if len(_kept) < _MAX_KEPT:
            _kept.append(process)
            return answer
    _end(process)
    return answer


def _started() -> Popen[bytes]:
    command = [sys.executable, "-I", check_child.__file__]
    return Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, bufsize=0, env={})


def _exchange(process: Popen[bytes], request: bytes) -> bytes:
    assert process.stdin
    assert process.stdout
    process.stdin.write(_LENGTH.pack(len(request)))
    data = memoryview(request)
    while data:
        data = data[process.stdin.write(data) :]
    until = time.monotonic() + WAIT_S
    (length,) = _LENGTH.unpack(_read(process.stdout.fileno(), _LENGTH.size, until))
    return _read(process.stdout.fileno(), min(length, _MAX_ANSWER_BYTES), until)


def _read(stream: int, size: int, until: float) -> bytes:
    data, watched = b"", select.poll()
    watched.register(stream, select.POLLIN)
    while len(data) < size:
        ready = watched.poll(max(until - time.monotonic(), 0) * 1_000)
        piece = os.read(stream, size - len(data)) if ready else b""
        if not piece:
            raise EOFError
        data += piece
    return data


def _end(process: Popen[bytes]) -> None:
    process.kill()
    for stream in (process.stdin, process.stdout):
        if stream:
            with suppress(OSError):
                stream.close()
    process.wait()


@atexit.register
def _end_all() -> None:
    while _kept:
        _end(_kept.pop())
