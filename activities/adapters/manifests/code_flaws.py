"""Finds values that a shell or another interpreter would read as code."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from orga.activities.adapters.manifests.manifest import Command, Flaw
from orga.activities.adapters.manifests.template import parsed, slots

ALL = 99


@dataclass(frozen=True)
class CodeOf:
    """Where a program reads code from, beside files."""

    flags: str = ""
    """Letters whose value is code, attached or in the next element: `-c`, `-Ic`."""
    valued: str = ""
    """Letters with another value."""
    long: tuple[str, ...] = ()
    """Longer options whose value is code."""
    operands: tuple[int, ...] = ()
    """Places of operands that are code, where no flag brought code; `ALL` behind one for all that follow."""
    files: str = ""
    """Letters whose value names a file of code, or a module: neither an operand nor the input is any then."""
    leading: bool = False
    """Whether flags mean so only before the first operand."""
    input_beside_operands: bool = False
    """Whether its operands name no code, so that its input is code beside them."""
    only_with: str = ""
    """Letters without which no operand is code: the code of a shell's `-c` is its first operand, flags between."""
    stdin: bool = False
    """Whether its input is code where neither a flag nor an operand is."""
    fed_by: str = ""
    """Letters that make its input code, whatever stands beside them."""
    parting: tuple[tuple[str, int], ...] = ()
    """Longer options with so many values that are neither code nor operands."""
    subcommands: tuple[str, ...] = ()
    """First operands behind which the others are counted."""


_SHELL = CodeOf(
    leading=True,
    valued="oO",
    only_with="c",
    operands=(0,),
    long=("--init-file", "--rcfile", "--command", "--init-command"),
    fed_by="s",
    stdin=True,
)
_PYTHON = CodeOf(leading=True, flags="c", files="m", valued="WXQ", long=("--command",), fed_by="i", stdin=True)
_AWK = CodeOf(
    leading=True, flags="e", files="fE", valued="Fvi", long=("--source",), operands=(0,), parting=(("--include", 1),)
)
_SED = CodeOf(flags="e", files="f", valued="l", long=("--expression",), operands=(0,))
_EDITOR = CodeOf(flags="cS", valued="u", long=("--cmd", "--eval", "--execute"), stdin=True)
_JS = CodeOf(
    leading=True,
    flags="ep",
    valued="r",
    long=("--eval", "--print", "--import", "--require", "--loader", "--experimental-loader"),
    stdin=True,
)
_SQL = CodeOf(
    input_beside_operands=True,
    flags="ce",
    files="f",
    valued="dhpUuvoPS",
    long=("--command", "--execute", "--init-command"),
    stdin=True,
)

_MATHS = CodeOf(flags="e", long=("--eval", "--expression"), stdin=True)
_LANGUAGE = CodeOf(flags="eE", long=("--eval", "-eval", "-run"), stdin=True)
_QUERY = CodeOf(
    input_beside_operands=True, flags="eqQ", long=("--execute", "--query", "--eval", "--command"), stdin=True
)
_JQ = CodeOf(
    files="f",
    valued="L",
    operands=(0,),
    parting=(("--arg", 2), ("--argjson", 2), ("--slurpfile", 2), ("--rawfile", 2), ("--indent", 1)),
    subcommands=("eval", "e", "eval-all", "ea"),
)
_POWERSHELL = CodeOf(long=("-c", "-Command", "-EncodedCommand"), operands=(0,), stdin=True)
_SSH = CodeOf(flags="o", valued="bcDEeFIiJLlmOpQRSWw", operands=(1, ALL), input_beside_operands=True, stdin=True)
_COPY = CodeOf(flags="oS", valued="cFiJlPXBbDsR")
_DEBUGGER = CodeOf(
    flags="o",
    long=("-ex", "--ex", "-iex", "--iex", "--eval-command", "--one-line", "--batch-command"),
    files="xs",
    stdin=True,
)
_GIT = CodeOf(
    flags="c",
    valued="C",
    leading=True,
    long=(
        *("--config-env", "--config", "--exec-path", "--upload-pack", "--receive-pack", "--exec", "--extcmd"),
        *("--open-files-in-pager", "--tree-filter", "--index-filter", "--env-filter", "--msg-filter"),
    ),
)
_TAR = CodeOf(
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

CODE: dict[str, CodeOf] = {
    **dict.fromkeys(("sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "rbash"), _SHELL),
    **dict.fromkeys(("csh", "tcsh", "fish", "yash", "osh", "nu", "xonsh", "elvish"), _SHELL),
    **dict.fromkeys(("python", "pypy", "ipython"), _PYTHON),
    "perl": CodeOf(leading=True, flags="eEMm", valued="I", stdin=True),
    "ruby": CodeOf(leading=True, flags="er", valued="ICE", stdin=True),
    "php": CodeOf(leading=True, flags="rBRE", files="fF", valued="dcStz", long=("--run", "--process-code"), stdin=True),
    **dict.fromkeys(("lua", "luajit"), CodeOf(leading=True, flags="e", valued="l", stdin=True)),
    **dict.fromkeys(("node", "nodejs", "bun", "tsx"), _JS),
    "deno": CodeOf(long=("eval",), operands=(1,), stdin=True),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk", "original-awk"), _AWK),
    **dict.fromkeys(("sed", "gsed"), _SED),
    **dict.fromkeys(("jq", "yq", "gojq"), _JQ),
    **dict.fromkeys(("vi", "vim", "nvim", "ex", "view", "emacs", "emacsclient"), _EDITOR),
    "ed": CodeOf(input_beside_operands=True, stdin=True),
    **dict.fromkeys(("bc", "dc", "gnuplot", "octave"), _MATHS),
    **dict.fromkeys(("psql", "mysql", "mariadb"), _SQL),
    "duckdb": CodeOf(input_beside_operands=True, flags="cs", long=("-cmd",), operands=(1, ALL), stdin=True),
    **dict.fromkeys(("mongosh", "mongo", "cqlsh", "sqlcmd", "trino"), _QUERY),
    **dict.fromkeys(("presto", "hive", "beeline", "spark-sql", "snowsql"), _QUERY),
    **dict.fromkeys(("clickhouse", "clickhouse-client", "clickhouse-local"), _QUERY),
    "sqlite": CodeOf(input_beside_operands=True, long=("-cmd",), operands=(1, ALL), stdin=True),
    "osascript": CodeOf(flags="e", valued="ls", stdin=True),
    **dict.fromkeys(("tclsh", "expect", "wish"), CodeOf(flags="c", stdin=True)),
    **dict.fromkeys(("R", "Rscript", "julia", "ghc", "ghci"), _LANGUAGE),
    **dict.fromkeys(("sbcl", "racket", "elixir", "erl", "ocaml", "irb"), _LANGUAGE),
    **dict.fromkeys(("groovy", "scala", "kotlin", "clj", "clojure", "bb", "qjs", "d8", "ts-node"), _LANGUAGE),
    "guile": CodeOf(flags="ce", stdin=True),
    **dict.fromkeys(("pwsh", "powershell"), _POWERSHELL),
    **dict.fromkeys(("su", "runuser", "script", "flock"), CodeOf(flags="c", long=("--command", "--session-command"))),
    **dict.fromkeys(("ssh", "autossh", "rsh", "mosh", "plink", "dbclient"), _SSH),
    **dict.fromkeys(("scp", "sftp"), _COPY),
    "watch": CodeOf(valued="nd", operands=(0, ALL)),
    "parallel": CodeOf(valued="jNnI", operands=(0, ALL), stdin=True),
    **dict.fromkeys(("at", "batch"), CodeOf(input_beside_operands=True, stdin=True)),
    "crontab": CodeOf(stdin=True),
    "git": _GIT,
    "tar": _TAR,
    "rsync": CodeOf(flags="e", long=("--rsh", "--rsync-path")),
    **dict.fromkeys(("make", "gmake"), CodeOf(files="f", valued="CIjlo", long=("--eval",))),
    **dict.fromkeys(("gdb", "lldb"), _DEBUGGER),
    "env": CodeOf(leading=True, flags="S", valued="uC", long=("--split-string",)),
    "split": CodeOf(long=("--filter",)),
    "rg": CodeOf(long=("--pre",)),
    "man": CodeOf(flags="P", long=("--pager",)),
    **dict.fromkeys(("nc", "ncat"), CodeOf(flags="ec", long=("--exec", "--sh-exec"))),
    "tcpdump": CodeOf(flags="z"),
    "tmux": CodeOf(valued="tcxyFnsLSfe", operands=(1, ALL)),
    "ansible": CodeOf(flags="a", long=("--args",)),
    "go": CodeOf(long=("-exec", "-toolexec")),
    "zip": CodeOf(long=("-TT", "--unzip-command")),
    "sort": CodeOf(long=("--compress-program",)),
}  # fmt: skip
"""By the program's name, a version left off."""

RUNS_ANOTHER: dict[str, tuple[int, str]] = {
    "env": (0, "uC"),
    **dict.fromkeys(("sudo", "doas"), (0, "ugpCDRTUh")),
    **dict.fromkeys(("nice", "ionice", "chrt"), (0, "ncpP")),
    "xargs": (0, "nLPIsdEa"),
    **dict.fromkeys(("nohup", "setsid", "command", "exec", "busybox", "toybox", "fakeroot", "unshare"), (0, "")),
    **dict.fromkeys(("stdbuf", "time", "strace", "ltrace"), (0, "ioefp")),
    **dict.fromkeys(("timeout", "chroot", "taskset", "flock"), (1, "skwE")),
    **dict.fromkeys(("find", "fd", "docker", "podman", "kubectl", "nsenter", "setpriv", "systemd-run"), (ALL, "")),
    **dict.fromkeys(
        ("uv", "uvx", "npx", "pipx", "poetry", "nix", "nix-shell", "watch", "entr", "proot", "parallel", "fdfind"),
        (ALL, ""),
    ),
}
"""Programs that run another one: how many operands of their own stand before it, and the flags with a value."""

FROM_INPUT = frozenset({"xargs", "parallel"})
"""Those that make arguments of their input."""

VARIABLES_ARE_CODE = frozenset({"make", "gmake"})
"""Their `NAME=value` is expanded as code is."""


_VERSION = re.compile(r"[-.\d]+$")
_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"})
_INPUT = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})


def code_flaws(command: Command) -> Iterator[Flaw]:
    """Yield each placeholder within what a program takes for code, in its arguments or in its input."""
    argv = [element for part in command.argv for element in part.argv]
    found: dict[str, str] = {}
    reads_input = False
    for at in _programs(argv):
        name = _name(argv[at])
        code = CODE.get(name)
        if code is not None:
            texts, is_read = _code_in(argv[at + 1 :], code, name)
            found |= {slot: "code" for text in texts for slot in _slots(text)}
            reads_input = reads_input or is_read
        if name in RUNS_ANOTHER:
            run = _run_by(argv[at + 1 :], *RUNS_ANOTHER[name])
            found = dict.fromkeys(_slots(run), "the name of a program") | found
            is_fed = name in FROM_INPUT and any(_name(each) in CODE for each in argv[at + 1 :])
            reads_input = reads_input or is_fed
    for slot, what in found.items():
        remedy = f'pass it beside the code: argv = ["sh", "-c", "... \\"$1\\"", "sh", "{{{slot}}}"]'
        yield Flaw(("command", "argv"), f"{{{slot}}} would be read as {what}", remedy)
    for slot in _slots(command.stdin) if reads_input else ():
        remedy = 'name the code in argv, as in ["sh", "-c", "..."], so that its input is data'
        yield Flaw(("command", "stdin"), f"{{{slot}}} would be read as code", remedy)


def _programs(argv: Sequence[str]) -> list[int]:
    """Return where programs stand: the first element, and any behind it that is run, or has options of its own."""
    runs_another = bool(argv) and _name(argv[0]) in RUNS_ANOTHER

    def is_program(at: int) -> bool:
        is_run = runs_another or "".join(argv[at + 1 : at + 2]).startswith("-")
        return is_run and _name(argv[at]) in CODE | RUNS_ANOTHER

    return [*range(len(argv[:1])), *filter(is_program, range(1, len(argv)))]


def _name(element: str) -> str:
    name = PurePosixPath(element).name.removesuffix(".exe")
    return name if name in CODE else _VERSION.sub("", name)


def _slots(template: str) -> list[str]:
    return [slot.name for slot in slots(parsed(template))]


def _code_in(rest: Sequence[str], code: CodeOf, name: str) -> tuple[list[str], bool]:
    """Return the texts that are code, and whether the program's input is."""
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
        elif is_over or (code.leading and operands) or element in _INPUT or not element.startswith(("-", "+")):
            operands.append(element)
        elif element == "--":
            is_over = True
        elif not element.startswith("--"):
            letters = _letters(element, code)
            value, last = element[1 + len(letters) :], letters[-1:]
            is_fed = is_fed or any(letter in code.fed_by for letter in letters)
            is_ready = is_ready or any(letter in code.only_with for letter in letters)
            if last and last in code.flags:
                value = "" if set(value) <= {*code.flags} else value
                has_code, at = True, at + (not value)
                texts.append(value or following)
            elif last and last in code.files + code.valued:
                is_fed = is_fed or (last in code.files and (value or following) in _INPUT)
                has_file = has_file or last in code.files
                at += not value and (following in _INPUT or not following.startswith("-"))
    if operands[:1] and operands[0] in code.subcommands:
        del operands[0]
    said = _code_operands(operands, code) if is_ready and not has_code and not has_file else []
    texts += said
    if name in VARIABLES_ARE_CODE:
        texts += [operand for operand in operands if "=" in operand]
    names_file = not code.input_beside_operands and bool(operands) and operands[0] not in _INPUT
    is_given = has_code or has_file or bool(said) or names_file
    return texts, is_fed or (code.stdin and not is_given)


def _code_operands(operands: Sequence[str], code: CodeOf) -> list[str]:
    if code.operands[-1:] == (ALL,):
        return list(operands[code.operands[0] :])
    return [operands[place] for place in code.operands if place < len(operands)]


def _letters(element: str, code: CodeOf) -> str:
    """Return the flags of a cluster, up to the one that takes the rest for its value."""
    for place, letter in enumerate(element[1:], 1):
        if letter in code.flags + code.files + code.valued:
            return element[1 : place + 1]
    return element[1:]


def _run_by(rest: Sequence[str], own: int, valued: str) -> str:
    """Return the element that names the program which is run; a search names it behind `-exec` or its like."""
    operands: list[str] = []
    before = ""
    for element in rest:
        if before in _RUNS:
            return element
        is_value = len(before) == 2 and before[0] == "-" and before[1] in valued
        if not is_value and not element.startswith("-") and "=" not in element:
            operands.append(element)
        before = element
    return "".join(operands[own : own + 1])
