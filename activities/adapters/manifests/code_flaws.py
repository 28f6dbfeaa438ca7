"""Values that a shell or another interpreter would read as code."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import PurePosixPath

from activities.adapters.manifests.flaw import Flaw
from activities.adapters.manifests.manifest import Command
from activities.adapters.manifests.template import parsed, slots

_INTERPRETER = re.compile(r"(?:ba|da|z|k|c|tc|fi|a)?sh|busybox|python[\d.]*|perl|ruby|node|php|lua|eval|su|env")
_TAKES_CODE = re.compile(r"-[A-Za-z]*[cCeErS]|--(?:command|eval|execute|split-string)")


def code_flaws(command: Command) -> Iterator[Flaw]:
    """Yield each placeholder within the text behind `-c`, `-e` and their like."""
    elements = [element for part in command.argv for element in part.argv]
    if not any(_INTERPRETER.fullmatch(PurePosixPath(element).name) for element in elements):
        return
    for flag, code in pairwise(elements):
        for slot in slots(parsed(code)) if _TAKES_CODE.fullmatch(flag) else ():
            remedy = f'pass it beside the code: argv = ["sh", "-c", "... \\"$1\\"", "sh", "{{{slot.name}}}"]'
            yield Flaw(("command", "argv"), f"{{{slot.name}}} would be read as code", remedy)
