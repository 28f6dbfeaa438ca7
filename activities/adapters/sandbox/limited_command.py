"""Runs a command with limits, in an environment of its own. All its processes end with the call."""

import asyncio
import logging
import marshal
import os
import secrets
import shutil
import signal
import socket
import stat
import tempfile
import threading
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakSet

from orga.activities.adapters.process_streams import ProcessStreams, process_channel
from orga.activities.adapters.rules import NO_RULES, Rules, is_generated
from orga.activities.adapters.sandbox.bubblewrap import SEARCH_PATH, bubblewrap_argv
from orga.activities.adapters.sandbox.removal import remove_folder
from orga.activities.adapters.sandbox.supervisor import LENGTH_BYTES
from orga.activities.ports import ToolError
from orga.child import held_program
from orga.own_code import bytecode_folder
from orga.workflows.types.text import escaped_line
from orga.workflows.types.tool_calls.sandbox import Sandbox, SandboxLimits

_MAX_UNDONE_SHOWN = 5


@dataclass(frozen=True)
class CommandResult:
    """The end of a command. Either `exit_code` or `signal` is set, also after a timeout."""

    exit_code: int | None
    signal: str | None
    """The name of the signal that ended the command, such as `SIGKILL`."""
    stdout: bytes
    stderr: bytes
    truncated: bool
    """True if a part of an output was dropped."""
    limit: str | None
    """The field of `SandboxLimits` that ended the command, if that is known."""
    timed_out: bool
    undone: tuple[str, ...] = ()
    """A text for each forbidden change to a file: how it was undone."""

    @property
    def warning(self) -> str:
        """A line for the model about undone changes, or "" if there are none."""
        if not self.undone:
            return ""
        shown = "; ".join(self.undone[:_MAX_UNDONE_SHOWN])
        more = f"; and {len(self.undone) - _MAX_UNDONE_SHOWN} more" if len(self.undone) > _MAX_UNDONE_SHOWN else ""
        return f"[Warning] No agent may write files that decide over agents or run as a program: {shown}{more}\n"


GRACE_S = 2.0
"""Seconds from SIGTERM to SIGKILL."""
_END_TIMEOUT_S = GRACE_S + 1.8
"""Seconds that the supervisor has to end its command. A run waits only a little longer for a cancelled call."""
_SUPERVISOR = "orga.activities.adapters.sandbox.supervisor"


@dataclass(frozen=True)
class SupervisorReport:
    cause: str
    """The cause of the end: the command's own `end`, an `order` to end it, or too many `processes`."""
    code: int | None
    """The exit code, or the negative number of a signal. None if the command has not ended."""
    cpu_s: float


async def run_supervised(
    order: bytes, streams: ProcessStreams, *, cwd: Path, stdin: bytes, timeout_s: float
) -> SupervisorReport | None:
    """Run a command under a supervisor, and return its report or None. A timeout or cancellation ends the command."""
    async with process_channel() as channel:
        process = await _start(channel.theirs, streams, cwd, stdin)
        report = asyncio.create_task(_read_report(channel.reader))
        try:
            channel.writer.write(order)
            await asyncio.wait((report,), timeout=timeout_s)
        finally:
            await asyncio.shield(_end_command(channel.writer, process, streams))
        return await report


async def _start(
    theirs: socket.socket, streams: ProcessStreams, cwd: Path, stdin: bytes
) -> asyncio.SubprocessTransport:
    number = theirs.fileno()
    program = held_program(_SUPERVISOR, str(number), site=False)
    with theirs:
        process, _ = await asyncio.get_running_loop().subprocess_exec(
            lambda: streams,
            *program.argv,
            cwd=cwd,
            env={},
            stdin=PIPE if stdin else DEVNULL,
            stderr=STDOUT if streams.merged else PIPE,
            pass_fds=(number, program.number),
            start_new_session=True,
        )
    if stdin:
        pipe = process.get_pipe_transport(0)
        assert isinstance(pipe, asyncio.WriteTransport)
        pipe.write(stdin)
        pipe.write_eof()
    return process


async def _read_report(reader: asyncio.StreamReader) -> SupervisorReport | None:
    try:
        words = (await reader.read()).decode().split()
    except OSError:
        words = []
    if not words:
        return None
    cause, status, cpu_s = words
    return SupervisorReport(cause, None if status == "None" else os.waitstatus_to_exitcode(int(status)), float(cpu_s))


async def _end_command(
    writer: asyncio.StreamWriter, process: asyncio.SubprocessTransport, streams: ProcessStreams
) -> None:
    with suppress(OSError):
        writer.write_eof()
    if not await streams.has_exited(_END_TIMEOUT_S):
        process.kill()
    await streams.close(process)


_LIMIT_OF_SIGNAL = {"SIGXCPU": "cpu_s", "SIGXFSZ": "file_bytes"}
_LIMIT_MESSAGES = {
    "memory_bytes": (b"MemoryError", b"Cannot allocate memory", b"std::bad_alloc", b"out of memory"),
    "open_files": (b"Too many open files",),
    "file_bytes": (b"File too large",),
}
"""Messages that show which limit was reached. The kernel only refuses these resources, and often sends no signal."""
_SIGNAL_BASE = 128
"""If a signal ends the command of a shell or of bubblewrap, their exit code is this number plus the signal."""
_SHELL_CODES = {_SIGNAL_BASE + 24: "SIGXCPU", _SIGNAL_BASE + 25: "SIGXFSZ"}


def _limit_reached(
    exit_code: int | None, signal: str | None, cpu_s: float, output: bytes, limits: SandboxLimits
) -> str | None:
    """Return the field of `limits` that a command with this processor time and error output has reached, or None."""
    has_used_up_cpu = limits.cpu_s is not None and cpu_s >= limits.cpu_s
    name = _LIMIT_OF_SIGNAL.get(signal or _SHELL_CODES.get(exit_code or 0, ""))
    if name is None and signal == "SIGKILL" and has_used_up_cpu:
        name = "cpu_s"
    if name is None and exit_code != 0:
        name = next((limit for limit, texts in _LIMIT_MESSAGES.items() if any(text in output for text in texts)), None)
    return name if name and getattr(limits, name) is not None else None


_RESOURCES = {
    "cpu_s": "RLIMIT_CPU",
    "memory_bytes": "RLIMIT_AS",
    "file_bytes": "RLIMIT_FSIZE",
    "open_files": "RLIMIT_NOFILE",
}
_GIT_ENVIRONMENT = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.bareRepository",
    "GIT_CONFIG_VALUE_0": "explicit",
}
"""Settings against fake repositories. Git takes any folder with `HEAD`, `config`, `objects` and `refs` for a
repository, and runs programs that its config names. A file tool could write such a folder. With these settings, git
only accepts `.git`, which no tool can write, and the folder of `--git-dir`."""
_DEFAULT_SANDBOX = Sandbox()
_RULES_SEARCH_S = 30.0
"""Seconds to search the folder for new rules after a command."""
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_log = logging.getLogger(__name__)


async def run_sandboxed(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float,
    sandbox: Sandbox = _DEFAULT_SANDBOX,
    stdin: bytes = b"",
    max_output_bytes: int,
    tail_bytes: int = 0,
    merged: bool = False,
    writable: Path | None = None,
    rules: Rules = NO_RULES,
) -> CommandResult:
    """Run a command in the existing folder `cwd` and return how it ended. All processes that it started end with it.

    - `argv` is a program (an absolute path, or a bare name on PATH) and its arguments. There is no shell.
    - `env` is its environment. PATH, LANG, and settings of git and Python are added. HOME and TMPDIR are a folder that
      exists only during the call.
    - `max_output_bytes` of each output are kept: its first bytes, then a mark, then its last `tail_bytes`. The rest is
      dropped. `merged` puts both outputs into `stdout`, in order.
    - With isolation, the command can write only to `writable` (by default `cwd`), but not to `rules` in it. It has a
      network only with `sandbox.network`. Files that are new rules after the command are renamed and reported.

    Raises:
        ToolError: Kind CommandRefused if the program is missing or isolation is impossible here. Kind CommandLost if it
            is unknown how the command ended or what it changed.
    """
    is_isolated = sandbox.isolation == "bubblewrap"
    async with _environment(env, is_isolated=is_isolated) as environment:
        command = [_program_path(argv[0], environment["PATH"]), *argv[1:]]
        protected = None
        if is_isolated:
            protected = await asyncio.to_thread(_protect_folder, writable or cwd, rules)
            command = await asyncio.to_thread(protected.isolated_argv, command, cwd, network=sandbox.network)
        order = _encoded_order(command, environment, sandbox.limits, is_wrapped=is_isolated)
        streams = ProcessStreams(max_output_bytes - tail_bytes, tail_bytes, merged=merged)
        undone: tuple[str, ...] = ()
        try:
            report = await run_supervised(order, streams, cwd=cwd, stdin=stdin, timeout_s=timeout_s)
        finally:
            if protected is not None:
                undone = await asyncio.shield(asyncio.to_thread(protected.undo))
    if report is None:
        why = f"{argv[0]}: its supervisor was killed, so nobody knows how it ended"
        raise ToolError(why, kind="CommandLost", acted="maybe")
    return _command_result(report, streams, sandbox.limits, undone, is_wrapped=is_isolated)


@asynccontextmanager
async def _environment(given: Mapping[str, str], *, is_isolated: bool) -> AsyncGenerator[dict[str, str]]:
    bytecode = {"PYTHONPYCACHEPREFIX": bytecode_folder()}
    defaults = {"PATH": SEARCH_PATH, "LANG": "C.UTF-8", **bytecode, **_GIT_ENVIRONMENT}
    if is_isolated:
        yield {**defaults, "HOME": "/tmp", "TMPDIR": "/tmp", **given}
        return
    home = tempfile.mkdtemp(prefix="orga-")
    try:
        yield {**defaults, "HOME": home, "TMPDIR": home, **given}
    finally:
        await asyncio.shield(asyncio.to_thread(remove_folder, Path(home)))


def _program_path(name: str, search_path: str) -> str:
    """Return the absolute path of a program. It does not depend on the worker's own folder."""
    found = shutil.which(name, path=search_path)
    if found is None or not Path(found).is_absolute():
        raise ToolError(f"program {name[:80]!r} is not installed on {search_path}", kind="CommandRefused")
    return found


@dataclass(frozen=True, eq=False)
class _ProtectedFolder:
    """The folder that an isolated command can write to, with the rules in it. The command must not write rules."""

    folder: Path
    rules: Rules
    kept: Sequence[Path]
    """The existing rules that are no links. They are mounted read-only."""
    before: Mapping[Path, Path | None]
    """All existing rules as spelled on disk. A link has its target as value, because it cannot be mounted read-only."""
    since_ns: int
    """Nanoseconds since 1970 at which the first of the commands that run in the folder began."""

    def isolated_argv(self, command: Sequence[str], cwd: Path, *, network: bool) -> list[str]:
        try:
            return bubblewrap_argv(command, writable=self.folder, folder=cwd.resolve(), network=network, kept=self.kept)
        except ValueError as error:
            raise ToolError(str(error), kind="CommandRefused") from error

    def undo(self) -> tuple[str, ...]:
        """Rename new rules, restore links that were rules, and return a text for each change.

        Files are renamed and not deleted, because a person may have made them during the command. Raise ToolError
        (CommandLost) if the changes cannot be found or undone.
        """
        try:
            links = {path: target for path, target in self.before.items() if target}
            changed = sorted(path for path in links if not path.is_symlink() or path.readlink() != links[path])
            done = [self._rename(path) for path in changed]
            done += [self._put_back(path) for path in changed]
            now = self.rules.present_in(self.folder, time.monotonic() + _RULES_SEARCH_S)
            done += [self._rename(path) for path in sorted(now) if not self._was_there(path)]
        except (OSError, ValueError) as error:
            why = f"the command may have made files that decide over agents, in {self.folder}: {error}"
            raise ToolError(f"{why}. Look for them there", kind="CommandLost", acted="maybe") from error
        finally:
            with _start_lock:
                _open_folders.discard(self)
        done = [each for each in done if each]
        for each in done:
            _log.warning("an isolated command changed what no agent may change, in %s: %s", self.folder, each)
        return tuple(done)

    def _was_there(self, path: Path) -> bool:
        if path in self.before:
            return True
        # Generated folders were not searched before the command.
        return is_generated(path.relative_to(self.folder)) and path.lstat().st_ctime_ns < self.since_ns

    def _rename(self, path: Path) -> str:
        """Rename a path, or the new link through which it leads. Return a text about it, or "" if nothing is left."""
        here = self.folder
        for part in path.relative_to(self.folder).parts:
            here /= part
            if not os.path.lexists(here):
                return ""
            if here.is_symlink() and here.lstat().st_ctime_ns >= self.since_ns:
                break
        parent, new = here.parent.resolve(), f"{here.name}.renamed-{secrets.token_hex(4)}"
        if not parent.is_relative_to(self.folder):
            return ""  # the command cannot write outside the folder
        with _open_subfolder(self.folder, parent) as opened:
            os.rename(here.name, new, src_dir_fd=opened, dst_dir_fd=opened)
        return f"{escaped_line(str(here.relative_to(self.folder)))} was renamed to {escaped_line(new)}"

    def _put_back(self, path: Path) -> str:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _open_subfolder(self.folder, path.parent.resolve()) as opened:
            os.symlink(str(self.before[path]), path.name, dir_fd=opened)
        return f"the link {escaped_line(str(path.relative_to(self.folder)))} was put back"


_open_folders: WeakSet[_ProtectedFolder] = WeakSet()
_start_lock = threading.Lock()
"""Held while the rules before a command are read. During that time no other command begins or counts as ended."""


def _protect_folder(folder: Path, rules: Rules) -> _ProtectedFolder:
    folder = folder.resolve()
    if folder == Path(folder.root):  # its folders cannot be searched for rules
        raise ToolError(f"{folder} cannot be isolated; choose a folder in it as the root", kind="CommandRefused")
    try:
        for each in (path.resolve() for path in (*rules.folders, *rules.installed)):
            if folder in each.parents:  # only existing folders can be made read-only
                each.mkdir(parents=True, exist_ok=True)
        with _start_lock:
            return _begin_protection(folder, rules)
    except ValueError as error:
        raise ToolError(str(error), kind="CommandRefused") from error
    except OSError as error:
        raise ToolError(f"the rules in {folder} cannot be protected: {error}", kind="CommandRefused") from error


def _begin_protection(folder: Path, rules: Rules) -> _ProtectedFolder:
    since_ns, present = time.time_ns(), rules.present_in(folder)
    before = present
    # In the folder of a running command, the rules from before that command count, not what it has made of them.
    for other in _open_folders:
        before = {path: target for path, target in before.items() if not path.is_relative_to(other.folder)}
        before |= {path: target for path, target in other.before.items() if path.is_relative_to(folder)}
        since_ns = min(since_ns, other.since_ns)
    begun = _ProtectedFolder(folder, rules, rules.paths_inside(folder, present), before, since_ns)
    _open_folders.add(begun)
    return begun


@contextmanager
def _open_subfolder(folder: Path, subfolder: Path) -> Generator[int]:
    """Open a subfolder for writing. Follow no links, because a command may have created them."""
    current = os.open(folder, _FOLDER_FLAGS)
    try:
        for part in subfolder.relative_to(folder).parts:
            inner = os.open(part, _FOLDER_FLAGS, dir_fd=current)
            os.close(current)
            current = inner
        os.fchmod(current, stat.S_IMODE(os.fstat(current).st_mode) | stat.S_IRWXU)
        yield current
    finally:
        os.close(current)


def _encoded_order(
    command: Sequence[str], environment: Mapping[str, str], limits: SandboxLimits, *, is_wrapped: bool
) -> bytes:
    wanted = {name: getattr(limits, field) for field, name in _RESOURCES.items()} | {"RLIMIT_CORE": 0}
    program = {
        "command": list(command),
        "environment": dict(environment),
        "limits": {name: limit for name, limit in wanted.items() if limit is not None},
        "no_new_privileges": not is_wrapped,
    }
    order = {"program": program, "processes": limits.processes, "grace_s": GRACE_S, "is_wrapped": is_wrapped}
    # marshal works because both ends run the same Python. Importing json would take longer than the supervisor's code.
    packed = marshal.dumps(order)
    return len(packed).to_bytes(LENGTH_BYTES, "big") + packed


def _command_result(
    report: SupervisorReport,
    streams: ProcessStreams,
    limits: SandboxLimits,
    undone: tuple[str, ...],
    *,
    is_wrapped: bool,
) -> CommandResult:
    name = _ending_signal(report.code, is_wrapped=is_wrapped)
    code = None if name else report.code
    out, err = streams.stdout, streams.stderr
    output = (out if streams.merged else err).data()
    timed_out = report.cause == "order"
    limit = "processes" if report.cause == "processes" else None
    if not limit and not timed_out:
        limit = _limit_reached(code, name, report.cpu_s, output, limits)
    return CommandResult(code, name, out.data(), err.data(), out.is_cut or err.is_cut, limit, timed_out, undone)


def _ending_signal(code: int | None, *, is_wrapped: bool) -> str | None:
    """Return the name of the signal that ended a command with this exit code, or None if none did."""
    if code is not None and code < 0:
        return _signal_name(-code)
    if code is not None and is_wrapped and code - _SIGNAL_BASE in signal.valid_signals():
        return _signal_name(code - _SIGNAL_BASE)
    return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


MAX_ARGV_BYTES = 100_000
"""Bytes of a program and its arguments together."""


def exceeds_argv_limit(argv: Iterable[str]) -> bool:
    return sum(len(element.encode(errors="replace")) + 1 for element in argv) > MAX_ARGV_BYTES
