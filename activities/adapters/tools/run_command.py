"""The `run_command` tool: runs a program that the configuration lists, within the limits of a sandbox."""

import signal
from collections.abc import Collection, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from orga.activities.adapters.sandbox.bubblewrap import SEARCH_PATH, check_isolation
from orga.activities.adapters.sandbox.limited_command import (
    MAX_ARGV_BYTES,
    CommandResult,
    exceeds_argv_limit,
    run_sandboxed,
)
from orga.activities.adapters.tools.parameters import Parameters
from orga.activities.adapters.tools.root import FileRoot, path_errors
from orga.activities.ports import ToolContext, ToolError
from orga.workflows.types.tool_calls.sandbox import Sandbox
from orga.workflows.types.tool_calls.tools import ToolOptions, ToolOutput

_MAX_TIMEOUT_S = 600
_DEFAULT_TIMEOUT_S = 60
_MAX_OUTPUT_BYTES = 12_000
_OUTPUT_TAIL_BYTES = 8_000
_MAX_ERROR_TAIL = 2_500
"""Characters of the output's end in an error. The activity cuts long errors at the end, which shows what failed."""

_Argument = Annotated[str, Field(pattern=r"^[^\x00]*$")]


class _CommandParameters(Parameters):
    command: list[_Argument] = Field(min_length=1, description="Program and arguments, passed as they are; no shell.")
    cwd: str = Field(default=".", description="Folder to run in, relative to the root.")
    timeout_s: float = Field(default=_DEFAULT_TIMEOUT_S, gt=0, le=_MAX_TIMEOUT_S, description="Seconds it may take.")


class RunCommand:
    """Runs programs from a list. An agent can do everything that a listed program can do, so list few programs."""

    def __init__(
        self,
        root: FileRoot,
        programs: Collection[str],
        *,
        search_path: str = SEARCH_PATH,
        sandbox: Sandbox | None = None,
    ) -> None:
        """Allow bare names on `search_path`. Raise ValueError for any other name, or if the isolation is impossible."""
        for program in programs:
            if not program or "/" in program or program.startswith("-"):
                raise ValueError(f"commands: {program!r} is no bare program name; write it as in 'git'")
        self._root = root
        self._programs = tuple(programs)
        self._search_path = search_path
        self._sandbox = sandbox or Sandbox()
        _check_sandbox(self._sandbox)
        what = f"Run one of the programs {', '.join(self._programs)}, without input; returns its output."
        spec = _CommandParameters.tool_spec("run_command", "irreversible", what)  # a program may do anything
        self.spec = spec.with_options(ToolOptions(timeout_s=_MAX_TIMEOUT_S + 30))

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Return the program's output. If the program fails, raise ToolError with the output."""
        parameters = _CommandParameters.parse(arguments)
        self._refuse_unfit(parameters.command)
        context.heartbeat(f"running {parameters.command[0]}")
        with self._folder(parameters.cwd) as folder:
            ended = await run_sandboxed(
                parameters.command,
                cwd=folder,
                env={"PATH": self._search_path},
                timeout_s=parameters.timeout_s,
                sandbox=self._sandbox,
                max_output_bytes=_MAX_OUTPUT_BYTES,
                tail_bytes=_OUTPUT_TAIL_BYTES,
                merged=True,
                writable=self._root.path,
                rules=self._root.rules,
            )
        return ToolOutput(content=_output_text(parameters, ended))

    def _refuse_unfit(self, command: list[str]) -> None:
        name = command[0]
        if name not in self._programs:
            allowed = ", ".join(self._programs)
            raise ToolError(f"program {name[:80]!r} is not allowed; use one of {allowed}", kind="CommandRefused")
        if any("\ud800" <= character <= "\udfff" for argument in command for character in argument):
            raise ToolError("command: an argument is not valid Unicode; write it again", kind="CommandRefused")
        if exceeds_argv_limit(command):
            raise ToolError(f"command: more than {MAX_ARGV_BYTES:,} bytes; pass a file", kind="CommandRefused")

    @contextmanager
    def _folder(self, cwd: str) -> Generator[Path]:
        """Open the folder, and yield a path that stays valid even if a link replaces the folder."""
        target = self._root.locate(cwd)
        with ExitStack() as opened:
            with path_errors(cwd):
                folder = opened.enter_context(self._root.folder(target))
            held = Path(f"/proc/self/fd/{folder}")
            yield held if held.exists() else self._root.path / target


def _check_sandbox(sandbox: Sandbox) -> None:
    section = "tools.commands.sandbox"
    if sandbox.is_network_denied_in_vain:
        raise ValueError(f'{section}.network: only isolated commands have none; set isolation = "bubblewrap" too')
    try:
        check_isolation(sandbox.isolation)
    except ValueError as error:
        raise ValueError(f"{section}.isolation: {error}") from error


def _output_text(parameters: _CommandParameters, ended: CommandResult) -> str:
    output = ended.stdout.decode(errors="replace").rstrip("\n") or "(no output)"
    if ended.exit_code == 0 and not ended.timed_out:
        return f"{ended.warning}{output}"
    name = parameters.command[0]
    if ended.timed_out:
        why = f"{name} was stopped after {parameters.timeout_s:g} s; raise timeout_s or ask for less"
        raise ToolError(_with_tail(f"{ended.warning}{why}", output), kind="CommandTimedOut", acted="maybe")
    why = f"{name} exited with code {ended.exit_code}"
    if ended.signal is not None:
        number = signal.Signals.__members__.get(ended.signal)
        why = f"{name} was killed by {ended.signal}" + (f" ({signal.strsignal(number)})" if number else "")
    why += f"; it reached its limit {ended.limit}" if ended.limit else ""
    raise ToolError(_with_tail(f"{ended.warning}{why}", output), kind="CommandFailed", acted="maybe")


def _with_tail(why: str, output: str) -> str:
    part = "Its output" if len(output) <= _MAX_ERROR_TAIL else f"The last {_MAX_ERROR_TAIL:,} characters of its output"
    return f"{why}. {part}:\n{output[-_MAX_ERROR_TAIL:]}"
