"""Finds placeholders of a command whose values a shell or another interpreter would read as code."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from orga.activities.adapters.manifests.manifest import CommandSection, Flaw, parse_template, template_placeholders

_NO_OPERANDS, _FIRST, _SECOND, _AFTER_FIRST, _ALL = slice(0), slice(1), slice(1, 2), slice(1, None), slice(None)
"""Parts of the list of a program's operands."""


@dataclass(frozen=True)
class CodeInputs:
    """The flags, operands and stdin from which a program reads code. The content of files is not looked at."""

    flags: str = ""
    """Letters of flags whose value is code. The value may be in the same element or the next: `-c`, `-Ic`."""
    valued: str = ""
    """Letters of flags whose value is not code, such as an encoding."""
    long: tuple[str, ...] = ()
    """Long options whose value is code."""
    operands: slice = field(default_factory=lambda: _NO_OPERANDS)
    """The operands that are code if no flag gives code."""
    files: str = ""
    """Letters of flags whose value names a file or a module with code. Then neither operands nor stdin are code."""
    leading: bool = False
    """True if all flags come before the first operand."""
    input_with_operands: bool = False
    """True if the first operand is not a file with code. Then stdin can be code although there are operands."""
    operand_flags: str = ""
    """Letters of flags that are needed to make operands code, such as a shell's `-c`. Empty: no flag is needed."""
    stdin: bool = False
    """True if stdin is code when no flag or operand is code or names a file with code."""
    input_flags: str = ""
    """Letters of flags that always make stdin code."""
    long_valued: tuple[tuple[str, int], ...] = ()
    """Long options, each with the number of its values. These values are neither code nor operands."""
    subcommands: tuple[str, ...] = ()
    """Words that can be the first operand without being counted as one."""


_SHELL = CodeInputs(
    leading=True,
    valued="oO",
    operand_flags="c",
    operands=_FIRST,
    long=("--init-file", "--rcfile", "--command", "--init-command"),
    input_flags="s",
    stdin=True,
)
_PYTHON = CodeInputs(leading=True, flags="c", files="m", valued="WXQ", long=("--command",), input_flags="i", stdin=True)
_AWK = CodeInputs(
    leading=True,
    flags="e",
    files="fE",
    valued="Fvi",
    long=("--source",),
    operands=_FIRST,
    long_valued=(("--include", 1),),
)
_SED = CodeInputs(flags="e", files="f", valued="l", long=("--expression",), operands=_FIRST)
_EDITOR = CodeInputs(flags="cS", valued="u", long=("--cmd", "--eval", "--execute"), stdin=True)
_JS = CodeInputs(
    leading=True,
    flags="ep",
    valued="r",
    long=("--eval", "--print", "--import", "--require", "--loader", "--experimental-loader"),
    stdin=True,
)
_SQL = CodeInputs(
    input_with_operands=True,
    flags="ce",
    files="f",
    valued="dhpUuvoPS",
    long=("--command", "--execute", "--init-command"),
    stdin=True,
)

_CALCULATOR = CodeInputs(flags="e", long=("--eval", "--expression"), stdin=True)
_INTERPRETER = CodeInputs(flags="eE", long=("--eval", "-eval", "-run"), stdin=True)
_QUERY_CLIENT = CodeInputs(
    input_with_operands=True, flags="eqQ", long=("--execute", "--query", "--eval", "--command"), stdin=True
)
_JQ = CodeInputs(
    files="f",
    valued="L",
    operands=_FIRST,
    long_valued=(("--arg", 2), ("--argjson", 2), ("--slurpfile", 2), ("--rawfile", 2), ("--indent", 1)),
    subcommands=("eval", "e", "eval-all", "ea"),
)
_POWERSHELL = CodeInputs(long=("-c", "-Command", "-EncodedCommand"), operands=_FIRST, stdin=True)
_SSH = CodeInputs(flags="o", valued="bcDEeFIiJLlmOpQRSWw", operands=_AFTER_FIRST, input_with_operands=True, stdin=True)
_COPY = CodeInputs(flags="oS", valued="cFiJlPXBbDsR")
_DEBUGGER = CodeInputs(
    flags="o",
    long=("-ex", "--ex", "-iex", "--iex", "--eval-command", "--one-line", "--batch-command"),
    files="xs",
    stdin=True,
)
_GIT = CodeInputs(
    flags="c",
    valued="C",
    leading=True,
    long=(
        *("--config-env", "--config", "--exec-path", "--upload-pack", "--receive-pack", "--exec", "--extcmd"),
        *("--open-files-in-pager", "--tree-filter", "--index-filter", "--env-filter", "--msg-filter"),
    ),
)
_TAR = CodeInputs(
    flags="IF",
    valued="fCTXbgHLNVKm",
    long=(
        "--checkpoint-action",
        "--to-command",
        "--use-compress-program",
        "--rsh-command",
        "--info-script",
        "--new-volume-script",
    ),
)

CODE_INPUTS: dict[str, CodeInputs] = {
    **dict.fromkeys(("sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "rbash"), _SHELL),
    **dict.fromkeys(("csh", "tcsh", "fish", "yash", "osh", "nu", "xonsh", "elvish"), _SHELL),
    **dict.fromkeys(("python", "pypy", "ipython"), _PYTHON),
    "perl": CodeInputs(leading=True, flags="eEMm", valued="I", stdin=True),
    "ruby": CodeInputs(leading=True, flags="er", valued="ICE", stdin=True),
    "php": CodeInputs(
        leading=True, flags="rBRE", files="fF", valued="dcStz", long=("--run", "--process-code"), stdin=True
    ),
    **dict.fromkeys(("lua", "luajit"), CodeInputs(leading=True, flags="e", valued="l", stdin=True)),
    **dict.fromkeys(("node", "nodejs", "bun", "tsx"), _JS),
    "deno": CodeInputs(long=("eval",), operands=_SECOND, stdin=True),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk", "original-awk"), _AWK),
    **dict.fromkeys(("sed", "gsed"), _SED),
    **dict.fromkeys(("jq", "yq", "gojq"), _JQ),
    **dict.fromkeys(("vi", "vim", "nvim", "ex", "view", "emacs", "emacsclient"), _EDITOR),
    "ed": CodeInputs(input_with_operands=True, stdin=True),
    **dict.fromkeys(("bc", "dc", "gnuplot", "octave"), _CALCULATOR),
    **dict.fromkeys(("psql", "mysql", "mariadb"), _SQL),
    "duckdb": CodeInputs(input_with_operands=True, flags="cs", long=("-cmd",), operands=_AFTER_FIRST, stdin=True),
    **dict.fromkeys(("mongosh", "mongo", "cqlsh", "sqlcmd", "trino"), _QUERY_CLIENT),
    **dict.fromkeys(("presto", "hive", "beeline", "spark-sql", "snowsql"), _QUERY_CLIENT),
    **dict.fromkeys(("clickhouse", "clickhouse-client", "clickhouse-local"), _QUERY_CLIENT),
    "sqlite": CodeInputs(input_with_operands=True, long=("-cmd",), operands=_AFTER_FIRST, stdin=True),
    "osascript": CodeInputs(flags="e", valued="ls", stdin=True),
    **dict.fromkeys(("tclsh", "expect", "wish"), CodeInputs(flags="c", stdin=True)),
    **dict.fromkeys(("R", "Rscript", "julia", "ghc", "ghci"), _INTERPRETER),
    **dict.fromkeys(("sbcl", "racket", "elixir", "erl", "ocaml", "irb"), _INTERPRETER),
    **dict.fromkeys(("groovy", "scala", "kotlin", "clj", "clojure", "bb", "qjs", "d8", "ts-node"), _INTERPRETER),
    "guile": CodeInputs(flags="ce", stdin=True),
    **dict.fromkeys(("pwsh", "powershell"), _POWERSHELL),
    **dict.fromkeys(
        ("su", "runuser", "script", "flock"), CodeInputs(flags="c", long=("--command", "--session-command"))
    ),
    **dict.fromkeys(("ssh", "autossh", "rsh", "mosh", "plink", "dbclient"), _SSH),
    **dict.fromkeys(("scp", "sftp"), _COPY),
    "watch": CodeInputs(valued="nd", operands=_ALL),
    "parallel": CodeInputs(valued="jNnI", operands=_ALL, stdin=True),
    **dict.fromkeys(("at", "batch"), CodeInputs(input_with_operands=True, stdin=True)),
    "crontab": CodeInputs(stdin=True),
    "git": _GIT,
    "tar": _TAR,
    "rsync": CodeInputs(flags="e", long=("--rsh", "--rsync-path")),
    **dict.fromkeys(("make", "gmake"), CodeInputs(files="f", valued="CIjlo", long=("--eval",))),
    **dict.fromkeys(("gdb", "lldb"), _DEBUGGER),
    "env": CodeInputs(leading=True, flags="S", valued="uC", long=("--split-string",)),
    "split": CodeInputs(long=("--filter",)),
    "rg": CodeInputs(long=("--pre",)),
    "man": CodeInputs(flags="P", long=("--pager",)),
    **dict.fromkeys(("nc", "ncat"), CodeInputs(flags="ec", long=("--exec", "--sh-exec"))),
    "tcpdump": CodeInputs(flags="z"),
    "tmux": CodeInputs(valued="tcxyFnsLSfe", operands=_AFTER_FIRST),
    "ansible": CodeInputs(flags="a", long=("--args",)),
    "go": CodeInputs(long=("-exec", "-toolexec")),
    "zip": CodeInputs(long=("-TT", "--unzip-command")),
    "sort": CodeInputs(long=("--compress-program",)),
}
"""The code inputs of each program, by its name without a version."""


@dataclass(frozen=True)
class ProgramRunner:
    """A program that runs another program."""

    own_operands: int | None = 0
    """Its own operands before the other program. None: the other program only follows a flag like `-exec`."""
    valued: str = ""
    """Letters of its flags that have a value."""


_AFTER_FLAG = ProgramRunner(None)

RUNNERS: dict[str, ProgramRunner] = {
    "env": ProgramRunner(valued="uC"),
    **dict.fromkeys(("sudo", "doas"), ProgramRunner(valued="ugpCDRTUh")),
    **dict.fromkeys(("nice", "ionice", "chrt"), ProgramRunner(valued="ncpP")),
    "xargs": ProgramRunner(valued="nLPIsdEa"),
    **dict.fromkeys(("nohup", "setsid", "command", "exec", "busybox"), ProgramRunner()),
    **dict.fromkeys(("toybox", "fakeroot", "unshare"), ProgramRunner()),
    **dict.fromkeys(("stdbuf", "time", "strace", "ltrace"), ProgramRunner(valued="ioefp")),
    **dict.fromkeys(("timeout", "chroot", "taskset", "flock"), ProgramRunner(1, "skwE")),
    **dict.fromkeys(("find", "fd", "docker", "podman", "kubectl", "nsenter", "setpriv", "systemd-run"), _AFTER_FLAG),
    **dict.fromkeys(("uv", "uvx", "npx", "pipx", "poetry", "nix", "nix-shell"), _AFTER_FLAG),
    **dict.fromkeys(("watch", "entr", "proot", "parallel", "fdfind"), _AFTER_FLAG),
}

RUNNERS_FROM_INPUT = frozenset({"xargs", "parallel"})
"""Programs that turn their stdin into arguments of the program that they run."""

VARIABLES_ARE_CODE = frozenset({"make", "gmake"})
"""Programs that expand the value of an operand `NAME=value` like code."""

_VERSION = re.compile(r"[-.\d]+$")
_EXEC_FLAGS = frozenset({"-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"})
_STDIN_NAMES = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})


def code_flaws(command: CommandSection) -> Iterator[Flaw]:
    """Yield a flaw for each placeholder within code, in the arguments or the stdin of a command."""
    argv = [element for part in command.argv for element in part.argv]
    meanings: dict[str, str] = {}
    """The faulty placeholders, each with the meaning that its value would have: code, or the name of a program."""
    is_input_code = False
    for position in _program_positions(argv):
        name, rest = _program_name(argv[position]), argv[position + 1 :]
        if code := CODE_INPUTS.get(name):
            arguments = _ProgramArguments(rest, code)
            texts = arguments.code_texts() + (arguments.variables() if name in VARIABLES_ARE_CODE else [])
            meanings |= {placeholder: "code" for text in texts for placeholder in _placeholder_names(text)}
            is_input_code = is_input_code or arguments.is_input_code()
        if runner := RUNNERS.get(name):
            program_placeholders = _placeholder_names(_nested_program(rest, runner))
            meanings = dict.fromkeys(program_placeholders, "the name of a program") | meanings  # code remains code
            runs_interpreter = any(_program_name(element) in CODE_INPUTS for element in rest)
            is_input_code = is_input_code or (name in RUNNERS_FROM_INPUT and runs_interpreter)
    for placeholder, meaning in meanings.items():
        remedy = (
            f'pass it as an argument after the code: argv = ["sh", "-c", "... \\"$1\\"", "sh", "{{{placeholder}}}"]'
        )
        yield Flaw(("command", "argv"), f"{{{placeholder}}} would be read as {meaning}", remedy)
    for placeholder in _placeholder_names(command.stdin) if is_input_code else ():
        remedy = 'name the code in argv, as in ["sh", "-c", "..."], so that its input is data'
        yield Flaw(("command", "stdin"), f"{{{placeholder}}} would be read as code", remedy)


def _program_positions(argv: Sequence[str]) -> list[int]:
    """Return the indexes of programs: of the first element, and of known ones after a runner or before a flag."""
    begins_with_runner = bool(argv) and _program_name(argv[0]) in RUNNERS

    def is_later_program(index: int) -> bool:
        has_flag = "".join(argv[index + 1 : index + 2]).startswith("-")
        return (begins_with_runner or has_flag) and _program_name(argv[index]) in CODE_INPUTS | RUNNERS

    return [index for index in range(len(argv)) if index == 0 or is_later_program(index)]


def _program_name(element: str) -> str:
    name = PurePosixPath(element).name.removesuffix(".exe")
    return name if name in CODE_INPUTS else _VERSION.sub("", name)


def _placeholder_names(template: str) -> list[str]:
    return [placeholder.name for placeholder in template_placeholders(parse_template(template))]


class _ProgramArguments:
    """Divides the arguments of a program into code, operands and the rest."""

    def __init__(self, arguments: Sequence[str], code: CodeInputs) -> None:
        self._arguments = arguments
        self._code = code
        self._next = 0
        self._texts: list[str] = []
        self._operands: list[str] = []
        self._has_code_flag = False
        self._has_file_flag = False
        self._has_operand_flag = False
        self._has_input_flag = False
        self._divide()
        if self._operands[:1] and self._operands[0] in code.subcommands:
            del self._operands[0]

    def variables(self) -> list[str]:
        return [operand for operand in self._operands if "=" in operand]

    def code_texts(self) -> list[str]:
        return self._texts + self._code_operands()

    def is_input_code(self) -> bool:
        names_file = bool(self._operands) and self._operands[0] not in _STDIN_NAMES
        runs_file = names_file and not self._code.input_with_operands
        has_other_code = self._has_code_flag or self._has_file_flag or bool(self._code_operands()) or runs_file
        return self._has_input_flag or (self._code.stdin and not has_other_code)

    def _code_operands(self) -> list[str]:
        lacks_flag = bool(self._code.operand_flags) and not self._has_operand_flag
        if lacks_flag or self._has_code_flag or self._has_file_flag:
            return []
        return self._operands[self._code.operands]

    def _divide(self) -> None:
        are_flags_over = False  # True after `--`
        long_valued = dict(self._code.long_valued)
        while self._next < len(self._arguments):
            element = self._following()
            self._next += 1
            option, _, value = element.partition("=")
            if option in self._code.long:
                self._texts.append(value or self._take_following())
                # a shell also reads its `-c`, even if a long option has code
                self._has_code_flag = not self._code.operand_flags
            elif option in long_valued:
                self._next += long_valued[option] - bool(value)
            elif are_flags_over or self._is_operand(element):
                self._operands.append(element)
            elif element == "--":
                are_flags_over = True
            elif not element.startswith("--"):
                self._read_letters(element)

    def _is_operand(self, element: str) -> bool:
        is_after_flags = self._code.leading and bool(self._operands)
        return is_after_flags or element in _STDIN_NAMES or not element.startswith(("-", "+"))

    def _read_letters(self, element: str) -> None:
        """Read flags such as `-xc` or `-cCODE`. The first letter that takes a value takes the rest of the element."""
        code = self._code
        with_value = code.flags + code.files + code.valued
        first_with_value = (index for index, letter in enumerate(element[1:], 1) if letter in with_value)
        end = next(first_with_value, len(element)) + 1
        letters, value = element[1:end], element[end:]
        self._has_input_flag = self._has_input_flag or not set(letters).isdisjoint(code.input_flags)
        self._has_operand_flag = self._has_operand_flag or not set(letters).isdisjoint(code.operand_flags)
        last = letters[-1] if letters else "-"
        if last in code.flags:
            is_value = not set(value) <= set(code.flags)  # in `-pe CODE`, the rest `e` is a flag, not the value of `-p`
            self._texts.append(value if is_value else self._take_following())
            self._has_code_flag = True
        elif last in code.files + code.valued:
            following = self._following()
            if last in code.files:
                self._has_file_flag = True
                self._has_input_flag = self._has_input_flag or (value or following) in _STDIN_NAMES
            if not value and (following in _STDIN_NAMES or not following.startswith("-")):
                self._next += 1

    def _following(self) -> str:
        return self._arguments[self._next] if self._next < len(self._arguments) else ""

    def _take_following(self) -> str:
        following = self._following()
        self._next += 1
        return following


def _nested_program(rest: Sequence[str], runner: ProgramRunner) -> str:
    """Return the program that a runner with the arguments `rest` runs, or ""."""
    operands: list[str] = []
    previous = ""
    for element in rest:
        if previous in _EXEC_FLAGS:
            return element
        is_value = len(previous) == 2 and previous[0] == "-" and previous[1] in runner.valued
        if not is_value and not element.startswith("-") and "=" not in element:
            operands.append(element)
        previous = element
    if runner.own_operands is None:
        return ""
    return next(iter(operands[runner.own_operands :]), "")
