"""A command with limits, in an environment and a process tree of its own that ends with the call."""

import asyncio
import marshal
import shutil
import signal
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from orga.activities.adapters.process_streams import ProcessStreams
from orga.activities.adapters.rules import NO_RULES, Rules
from orga.activities.adapters.sandbox.bubblewrap import SEARCH_PATH, check_writable, wrapped
from orga.activities.adapters.sandbox.finished import Finished
from orga.activities.adapters.sandbox.limit_reached import limit_reached
from orga.activities.adapters.sandbox.removal import remove_folder
from orga.activities.adapters.sandbox.supervised import GRACE_S, Report, supervised
from orga.activities.adapters.sandbox.supervisor import LENGTH_BYTES
from orga.activities.ports import ToolError
from orga.workflows.types.sandbox import Isolation, Limits

_RESOURCES = {
    "cpu_s": "RLIMIT_CPU",
    "memory_bytes": "RLIMIT_AS",
    "file_bytes": "RLIMIT_FSIZE",
    "open_files": "RLIMIT_NOFILE",
}
_OWN_REPOSITORIES = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.bareRepository",
    "GIT_CONFIG_VALUE_0": "explicit",
}
"""Git takes any folder with `HEAD`, `config`, `objects` and `refs` for a repository, and runs what its config names: a
file tool could write one. Only `.git`, which no tool writes, is one then, and what `--git-dir` names."""
_SIGNALLED = 128
"""Bubblewrap's exit code is this and the signal that ended its command."""
_DEFAULT_LIMITS = Limits()


async def run_sandboxed(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float,
    limits: Limits = _DEFAULT_LIMITS,
    isolation: Isolation = "none",
    network: bool = False,
    stdin: bytes = b"",
    max_output_bytes: int,
    tail_bytes: int = 0,
    merged: bool = False,
    writable: Path | None = None,
    rules: Rules = NO_RULES,
) -> Finished:
    """Run a command in the existing folder `cwd` and return how it ended; whatever it started ends with it.

    - `argv` is a program, absolute or a bare name found on PATH, and its arguments; no shell reads them.
    - `env` is all that it gets, but for PATH, LANG, a setting of git, and HOME and TMPDIR, a folder that lives as
      long as the call.
    - `max_output_bytes` are kept of each output; `tail_bytes` of these are its last ones, after a mark, all others its
      first ones. What is not kept is read all the same. `merged` puts both outputs into `stdout`, in order.
    - With isolation only `writable` can be written to, by default `cwd`, but for `rules`, and there is a network only
      with `network`.

    Raises:
        ToolError: Kind CommandRefused: there is no such program, or no isolation here; CommandLost: nobody knows how
            it ended.
    """
    async with _environment(env, isolation) as environment:
        command = [_program(argv[0], environment["PATH"]), *argv[1:]]
        if isolation == "bubblewrap":
            command = await asyncio.to_thread(_wrapped, command, cwd, writable or cwd, network, rules)
        order = _order(command, environment, limits, is_wrapped=isolation == "bubblewrap")
        streams = ProcessStreams(max_output_bytes - tail_bytes, tail_bytes, merged=merged)
        report = await supervised(order, streams, cwd=cwd, stdin=stdin, timeout_s=timeout_s)
    if report is None:
        why = f"{argv[0]}: its supervisor was killed, so nobody knows how it ended"
        raise ToolError(why, kind="CommandLost", acted="maybe")
    return _finished(report, streams, limits, is_wrapped=isolation == "bubblewrap")


@asynccontextmanager
async def _environment(given: Mapping[str, str], isolation: Isolation) -> AsyncGenerator[dict[str, str]]:
    defaults = {"PATH": SEARCH_PATH, "LANG": "C.UTF-8", **_OWN_REPOSITORIES}
    if isolation == "bubblewrap":
        yield {**defaults, "HOME": "/tmp", "TMPDIR": "/tmp", **given}
        return
    home = tempfile.mkdtemp(prefix="orga-")
    try:
        yield {**defaults, "HOME": home, "TMPDIR": home, **given}
    finally:
        await asyncio.shield(asyncio.to_thread(remove_folder, Path(home)))


def _program(name: str, search_path: str) -> str:
    """Return where it is: never a path that depends on where the worker was started."""
    found = shutil.which(name, path=search_path)
    if found is None or not Path(found).is_absolute():
        raise ToolError(f"program {name[:80]!r} is not installed on {search_path}", kind="CommandRefused")
    return found


def _wrapped(command: Sequence[str], cwd: Path, writable: Path, network: bool, rules: Rules) -> list[str]:
    writable = writable.resolve()
    try:
        check_writable(writable)
        _make_missing(rules, writable)
        return wrapped(command, writable=writable, folder=cwd.resolve(), network=network, kept=rules.inside(writable))
    except ValueError as error:
        raise ToolError(str(error), kind="CommandRefused") from error
    except OSError as error:
        raise ToolError(f"the rules in {writable} cannot be closed: {error}", kind="CommandRefused") from error


def _make_missing(rules: Rules, writable: Path) -> None:
    """Make the folders of rules that are not there: only what exists can be closed."""
    for folder in (path.resolve() for path in rules.folders):
        if folder.is_relative_to(writable):
            folder.mkdir(parents=True, exist_ok=True)


def _order(command: Sequence[str], environment: Mapping[str, str], limits: Limits, *, is_wrapped: bool) -> bytes:
    wanted = {name: getattr(limits, field) for field, name in _RESOURCES.items()} | {"RLIMIT_CORE": 0}
    program = {
        "command": list(command),
        "environment": dict(environment),
        "limits": {name: limit for name, limit in wanted.items() if limit is not None},
        "no_new_privileges": not is_wrapped,
    }
    order = {"program": program, "processes": limits.processes, "grace_s": GRACE_S, "is_wrapped": is_wrapped}
    # Both ends are the same Python; importing json would take longer than the supervisor's own code.
    packed = marshal.dumps(order)
    return len(packed).to_bytes(LENGTH_BYTES, "big") + packed


def _finished(report: Report, streams: ProcessStreams, limits: Limits, *, is_wrapped: bool) -> Finished:
    code, number = report.code, 0
    if code is not None and code < 0:
        code, number = None, -code
    elif code is not None and is_wrapped and code - _SIGNALLED in signal.valid_signals():
        code, number = None, code - _SIGNALLED
    name = _name(number) if number else None
    out, err = streams.stdout, streams.stderr
    said = (out if streams.merged else err).data()
    timed_out = report.came == "order"
    limit = "processes" if report.came == "processes" else None
    if not limit and not timed_out:
        limit = limit_reached(code, name, report.cpu_s, said, limits)
    return Finished(code, name, out.data(), err.data(), out.is_cut or err.is_cut, limit, timed_out)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
