"""Values that a shell or another interpreter would read as code."""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from orga.activities.adapters.manifests.code_programs import (
    ALL,
    CODE,
    FROM_INPUT,
    RUNS_ANOTHER,
    VARIABLES_ARE_CODE,
    CodeOf,
)
from orga.activities.adapters.manifests.flaw import Flaw
from orga.activities.adapters.manifests.manifest import Command
from orga.activities.adapters.manifests.template import parsed, slots

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
