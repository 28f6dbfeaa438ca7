"""The `run_command` tool."""

import shutil
import signal
import tempfile
from collections.abc import Collection, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from activities.adapters.tools.parameters import Parameters
from activities.adapters.tools.path_errors import path_errors
from activities.adapters.tools.process_group import Ended, Limits, run_group
from activities.adapters.tools.root import Root
from activities.ports import ToolContext, ToolError
from workflows.types.tools import ToolOptions, ToolOutput, ToolSpec

SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin"
_MAX_TIMEOUT_S = 600
_DEFAULT_TIMEOUT_S = 60
_MAX_COMMAND_BYTES = 100_000
_MAX_ERROR_TAIL = 2_500
"""An error's text is cut at its end by the activity, and the end of an output says what failed."""

_Argument = Annotated[str, Field(pattern=r"^[^\x00]*$")]


class _Parameters(Parameters):
    command: list[_Argument] = Field(min_length=1, description="Program and arguments, passed as they are; no shell.")
    cwd: str = Field(default=".", description="Folder to run in, relative to the root.")
    timeout_s: float = Field(default=_DEFAULT_TIMEOUT_S, gt=0, le=_MAX_TIMEOUT_S, description="Seconds it may take.")


class RunCommand:
    """Runs programs from a list. A listed program can do all that its arguments let it do: list few."""

    def __init__(
        self, root: Root, programs: Collection[str], *, search_path: str = SEARCH_PATH, limits: Limits | None = None
    ) -> None:
        """Allow `programs`, bare names found on `search_path`."""
        for program in programs:
            if not program or "/" in program or program.startswith("-"):
                raise ValueError(f"commands: {program!r} is no bare program name; write it as in 'git'")
        self._root = root
        self._programs = tuple(programs)
        self._search_path = search_path
        self._limits = limits or Limits()

    @property
    def spec(self) -> ToolSpec:
        """Irreversible, since a program may do anything; calls are told apart by `command`."""
        return ToolSpec(
            name="run_command",
            description=f"Run one of the programs {', '.join(self._programs)}, without input; returns its output.",
            parameters=_Parameters.json_schema(),
            effect="irreversible",
            options=ToolOptions(timeout_s=_MAX_TIMEOUT_S + 30),
            main_argument="command",
        )

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Return what the program wrote.

        Raises:
            ToolError: Kind CommandRefused, CommandFailed (exit code not 0) or CommandTimedOut, with its output.
        """
        parameters = _Parameters.parse(arguments)
        program = self._program(parameters.command)
        context.heartbeat(f"running {parameters.command[0]}")
        with self._folder(parameters.cwd) as folder:
            ended = await self._run([program, *parameters.command[1:]], folder, parameters)
        return ToolOutput(content=_output(parameters, ended))

    def _program(self, command: list[str]) -> str:
        name = command[0]
        if name not in self._programs:
            allowed = ", ".join(self._programs)
            raise ToolError(f"program {name[:80]!r} is not allowed; use one of {allowed}", kind="CommandRefused")
        if any(_is_half_a_character(argument) for argument in command):
            raise ToolError("command: an argument is not valid Unicode; write it anew", kind="CommandRefused")
        if sum(len(argument.encode(errors="replace")) + 1 for argument in command) > _MAX_COMMAND_BYTES:
            raise ToolError(f"command: more than {_MAX_COMMAND_BYTES:,} bytes; pass a file", kind="CommandRefused")
        found = shutil.which(name, path=self._search_path)
        if found is None:
            raise ToolError(f"program {name!r} is not installed on {self._search_path}", kind="CommandRefused")
        return found

    @contextmanager
    def _folder(self, cwd: str) -> Generator[str]:
        """Open the folder and return a path that leads to what was opened, even if a link takes its place."""
        place = self._root.locate(cwd)
        with ExitStack() as opened:
            with path_errors(cwd):
                folder = opened.enter_context(self._root.folder(place))
            held = Path(f"/proc/self/fd/{folder}")
            yield str(held if held.exists() else self._root.path / place)

    async def _run(self, command: list[str], folder: str, parameters: _Parameters) -> Ended:
        with tempfile.TemporaryDirectory(prefix="orga-", ignore_cleanup_errors=True) as home:
            environment = {"PATH": self._search_path, "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8"}
            return await run_group(
                command, cwd=folder, environment=environment, timeout_s=parameters.timeout_s, limits=self._limits
            )


def _is_half_a_character(argument: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in argument)


def _output(parameters: _Parameters, ended: Ended) -> str:
    output = ended.output.rstrip("\n") or "(no output)"
    name = parameters.command[0]
    if ended.timed_out:
        why = f"{name} was stopped after {parameters.timeout_s:g} s; raise timeout_s or ask for less"
        raise ToolError(_with_tail(why, output), kind="CommandTimedOut")
    if ended.code < 0:
        how = f"was killed by signal {-ended.code} ({signal.strsignal(-ended.code)})"
        raise ToolError(_with_tail(f"{name} {how}", output), kind="CommandFailed")
    if ended.code:
        raise ToolError(_with_tail(f"{name} exited with code {ended.code}", output), kind="CommandFailed")
    return output


def _with_tail(why: str, output: str) -> str:
    part = "Its output" if len(output) <= _MAX_ERROR_TAIL else f"The last {_MAX_ERROR_TAIL:,} characters of its output"
    return f"{why}. {part}:\n{output[-_MAX_ERROR_TAIL:]}"
