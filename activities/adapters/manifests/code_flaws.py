"""Finds values that a shell or another interpreter would read as code."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from orga.activities.adapters.manifests.manifest import CommandSection, Flaw, parse_template, template_placeholders

ALL_OPERANDS = 99
"""More operands than any command has."""


@dataclass(frozen=True)
class CodeInputs:
    """The places, other than files, from which a program reads code."""

    flags: str = ""
    """Letters of flags whose value is code, attached or in the next element: `-c`, `-Ic`."""
    valued: str = ""
    """Letters of flags with another value."""
    long: tuple[str, ...] = ()
    """Long options whose value is code."""
    operands: tuple[int, ...] = ()
    """Operands, counted from 0, that are code unless a flag gives code. `(1, ALL_OPERANDS)`: all after the first."""
    files: str = ""
    """Letters of flags whose value names a file or a module with code. With one, no operand is code, and no input."""
    leading: bool = False
    """True if all flags come before the first operand."""
    input_with_operands: bool = False
    """True if the first operand is not a file with code, so that the input is code even with operands."""
    only_with: str = ""
    """Letters of flags without which no operand is code. A shell's `-c` makes its first operand code."""
    stdin: bool = False
    """True if the input is code unless a flag or an operand is, or names a file with code."""
    fed_by: str = ""
    """Letters of flags that always make the input code."""
    parting: tuple[tuple[str, int], ...] = ()
    """Long options with the number of their values, which are neither code nor operands."""
    subcommands: tuple[str, ...] = ()
    """First operands after which the other operands are counted."""


_SHELL = CodeInputs(
    leading=True,
    valued="oO",
    only_with="c",
    operands=(0,),
    long=("--init-file", "--rcfile", "--command", "--init-command"),
    fed_by="s",
    stdin=True,
)
_PYTHON = CodeInputs(leading=True, flags="c", files="m", valued="WXQ", long=("--command",), fed_by="i", stdin=True)
_AWK = CodeInputs(
    leading=True, flags="e", files="fE", valued="Fvi", long=("--source",), operands=(0,), parting=(("--include", 1),)
)
_SED = CodeInputs(flags="e", files="f", valued="l", long=("--expression",), operands=(0,))
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
    operands=(0,),
    parting=(("--arg", 2), ("--argjson", 2), ("--slurpfile", 2), ("--rawfile", 2), ("--indent", 1)),
    subcommands=("eval", "e", "eval-all", "ea"),
)
_POWERSHELL = CodeInputs(long=("-c", "-Command", "-EncodedCommand"), operands=(0,), stdin=True)
_SSH = CodeInputs(
    flags="o", valued="bcDEeFIiJLlmOpQRSWw", operands=(1, ALL_OPERANDS), input_with_operands=True, stdin=True
)
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
    "deno": CodeInputs(long=("eval",), operands=(1,), stdin=True),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk", "original-awk"), _AWK),
    **dict.fromkeys(("sed", "gsed"), _SED),
    **dict.fromkeys(("jq", "yq", "gojq"), _JQ),
    **dict.fromkeys(("vi", "vim", "nvim", "ex", "view", "emacs", "emacsclient"), _EDITOR),
    "ed": CodeInputs(input_with_operands=True, stdin=True),
    **dict.fromkeys(("bc", "dc", "gnuplot", "octave"), _CALCULATOR),
    **dict.fromkeys(("psql", "mysql", "mariadb"), _SQL),
    "duckdb": CodeInputs(input_with_operands=True, flags="cs", long=("-cmd",), operands=(1, ALL_OPERANDS), stdin=True),
    **dict.fromkeys(("mongosh", "mongo", "cqlsh", "sqlcmd", "trino"), _QUERY_CLIENT),
    **dict.fromkeys(("presto", "hive", "beeline", "spark-sql", "snowsql"), _QUERY_CLIENT),
    **dict.fromkeys(("clickhouse", "clickhouse-client", "clickhouse-local"), _QUERY_CLIENT),
    "sqlite": CodeInputs(input_with_operands=True, long=("-cmd",), operands=(1, ALL_OPERANDS), stdin=True),
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
    "watch": CodeInputs(valued="nd", operands=(0, ALL_OPERANDS)),
    "parallel": CodeInputs(valued="jNnI", operands=(0, ALL_OPERANDS), stdin=True),
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
    "tmux": CodeInputs(valued="tcxyFnsLSfe", operands=(1, ALL_OPERANDS)),
    "ansible": CodeInputs(flags="a", long=("--args",)),
    "go": CodeInputs(long=("-exec", "-toolexec")),
    "zip": CodeInputs(long=("-TT", "--unzip-command")),
    "sort": CodeInputs(long=("--compress-program",)),
}
"""Code inputs by the program's name without a version."""

RUNS_ANOTHER: dict[str, tuple[int, str]] = {
    "env": (0, "uC"),
    **dict.fromkeys(("sudo", "doas"), (0, "ugpCDRTUh")),
    **dict.fromkeys(("nice", "ionice", "chrt"), (0, "ncpP")),
    "xargs": (0, "nLPIsdEa"),
    **dict.fromkeys(("nohup", "setsid", "command", "exec", "busybox", "toybox", "fakeroot", "unshare"), (0, "")),
    **dict.fromkeys(("stdbuf", "time", "strace", "ltrace"), (0, "ioefp")),
    **dict.fromkeys(("timeout", "chroot", "taskset", "flock"), (1, "skwE")),
    **dict.fromkeys(
        ("find", "fd", "docker", "podman", "kubectl", "nsenter", "setpriv", "systemd-run"), (ALL_OPERANDS, "")
    ),
    **dict.fromkeys(
        ("uv", "uvx", "npx", "pipx", "poetry", "nix", "nix-shell", "watch", "entr", "proot", "parallel", "fdfind"),
        (ALL_OPERANDS, ""),
    ),
}
"""Programs that run another one: the number of their own operands before it, and the letters of flags with a value.

`ALL_OPERANDS` means that the other program comes only after a flag such as `-exec`.
"""

RUNNERS_FROM_INPUT = frozenset({"xargs", "parallel"})
"""Programs that turn their input into arguments of the program that they run."""

VARIABLES_ARE_CODE = frozenset({"make", "gmake"})
"""Programs that expand `NAME=value` like code."""


_VERSION = re.compile(r"[-.\d]+$")
_EXEC_FLAGS = frozenset({"-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"})
_STDIN_NAMES = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})


def code_flaws(command: CommandSection) -> Iterator[Flaw]:
    """Yield a flaw for each placeholder within code, in a program's arguments or its input."""
    argv = [element for part in command.argv for element in part.argv]
    found: dict[str, str] = {}
    reads_input = False
    for at in _program_positions(argv):
        name = _program_name(argv[at])
        code = CODE_INPUTS.get(name)
        if code is not None:
            texts, is_read = _code_texts(argv[at + 1 :], code, name)
            found |= {slot: "code" for text in texts for slot in _placeholder_names(text)}
            reads_input = reads_input or is_read
        if name in RUNS_ANOTHER:
            run = _nested_program(argv[at + 1 :], *RUNS_ANOTHER[name])
            found = dict.fromkeys(_placeholder_names(run), "the name of a program") | found
            is_fed = name in RUNNERS_FROM_INPUT and any(_program_name(each) in CODE_INPUTS for each in argv[at + 1 :])
            reads_input = reads_input or is_fed
    for slot, what in found.items():
        remedy = f'pass it as an argument after the code: argv = ["sh", "-c", "... \\"$1\\"", "sh", "{{{slot}}}"]'
        yield Flaw(("command", "argv"), f"{{{slot}}} would be read as {what}", remedy)
    for slot in _placeholder_names(command.stdin) if reads_input else ():
        remedy = 'name the code in argv, as in ["sh", "-c", "..."], so that its input is data'
        yield Flaw(("command", "stdin"), f"{{{slot}}} would be read as code", remedy)


def _program_positions(argv: Sequence[str]) -> list[int]:
    """Return the indexes of programs: the first element, and known ones that another runs or that a flag follows."""
    runs_another = bool(argv) and _program_name(argv[0]) in RUNS_ANOTHER

    def is_program(at: int) -> bool:
        is_run = runs_another or "".join(argv[at + 1 : at + 2]).startswith("-")
        return is_run and _program_name(argv[at]) in CODE_INPUTS | RUNS_ANOTHER

    return [*range(len(argv[:1])), *filter(is_program, range(1, len(argv)))]


def _program_name(element: str) -> str:
    name = PurePosixPath(element).name.removesuffix(".exe")
    return name if name in CODE_INPUTS else _VERSION.sub("", name)


def _placeholder_names(template: str) -> list[str]:
    return [slot.name for slot in template_placeholders(parse_template(template))]


def _code_texts(rest: Sequence[str], code: CodeInputs, name: str) -> tuple[list[str], bool]:
    """Return the texts that are code, and whether the program's input is code."""
    texts: list[str] = []
    operands: list[str] = []
    parting = dict(code.parting)
    has_code, has_file, is_ready, is_over, is_fed, at = False, False, not code.only_with, False, False, 0
    while at < len(rest):
        element, at = rest[at], at + 1
        option, _, value = element.partition("=")
        following = "".join(rest[at : at + 1])
        if option in code.long:
            has_code, at = not code.only_with, at + (not value)
            texts.append(value or following)
        elif option in parting:
            at += parting[option] - bool(value)
        elif is_over or (code.leading and operands) or element in _STDIN_NAMES or not element.startswith(("-", "+")):
            operands.append(element)
        elif element == "--":
            is_over = True
        elif not element.startswith("--"):
            with_value = code.flags + code.files + code.valued
            end = next((place for place, letter in enumerate(element[1:], 2) if letter in with_value), len(element))
            letters = element[1:end]  # up to the one that takes the rest as its value
            value, last = element[1 + len(letters) :], letters[-1:]
            is_fed = is_fed or any(letter in code.fed_by for letter in letters)
            is_ready = is_ready or any(letter in code.only_with for letter in letters)
            if last and last in code.flags:
                value = "" if set(value) <= {*code.flags} else value
                has_code, at = True, at + (not value)
                texts.append(value or following)
            elif last and last in code.files + code.valued:
                is_fed = is_fed or (last in code.files and (value or following) in _STDIN_NAMES)
                has_file = has_file or last in code.files
                at += not value and (following in _STDIN_NAMES or not following.startswith("-"))
    if operands[:1] and operands[0] in code.subcommands:
        del operands[0]
    code_texts = _code_operands(operands, code) if is_ready and not has_code and not has_file else []
    texts += code_texts
    if name in VARIABLES_ARE_CODE:
        texts += [operand for operand in operands if "=" in operand]
    names_file = not code.input_with_operands and bool(operands) and operands[0] not in _STDIN_NAMES
    is_given = has_code or has_file or bool(code_texts) or names_file
    return texts, is_fed or (code.stdin and not is_given)


def _code_operands(operands: Sequence[str], code: CodeInputs) -> list[str]:
    if code.operands[-1:] == (ALL_OPERANDS,):
        return list(operands[code.operands[0] :])
    return [operands[place] for place in code.operands if place < len(operands)]


def _nested_program(rest: Sequence[str], own: int, valued: str) -> str:
    """Return the program that is run, or "". It comes after `own` operands, or as with `find` after `-exec`."""
    operands: list[str] = []
    before = ""
    for element in rest:
        if before in _EXEC_FLAGS:
            return element
        is_value = len(before) == 2 and before[0] == "-" and before[1] in valued
        if not is_value and not element.startswith("-") and "=" not in element:
            operands.append(element)
        before = element
    return "".join(operands[own : own + 1])
