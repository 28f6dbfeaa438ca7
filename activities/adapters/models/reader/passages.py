"""Passages: known lines of a file cut at paragraphs and headings into pieces fit to quote."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_HEADING = re.compile(r"^(#{1,6})\s+(.+?)\s*#*\s*$")
ITEM = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s|^\s*\|")
"""How a list item or the row of a table begins."""
_DEFINITION = re.compile(
    r"^(?P<indent>\s*)(?:(?:async|export|default|pub|public|private|static|abstract) )*"
    r"(?:def|class|fn|func|function|struct|interface|impl|trait|enum|module)\s+(?P<name>[A-Za-z_]\w*)"
)
_RULE = frozenset("|:- \t")
"""What the line below the header of a table is made of."""
_IMPORT = re.compile(r"^\s*(from .+ import |import |use |#include|require|export .+ from |__all__)")
_PROSE = re.compile(r"\.(md|markdown|mdx|rst|txt|adoc)$", re.I)
_LEADS_IN = ("@", "#", "//", "/*", "*")
"""Beginnings of lines that belong to the definition below them."""
_LONGEST = 14
"""Lines of one passage."""
_WIDEST = 1200
"""Characters after which a passage ends at the next line."""
_TITLE = 100
"""Characters of a first line that is a title."""
_OWN_ITEM = 160
"""Characters after which the next list item is a passage of its own: short items stay together."""


@dataclass(frozen=True)
class Passage:
    """Lines `first` to `last` of a file, under the headings seen above them, in code the definitions they are in."""

    path: str
    first: int
    lines: tuple[str, ...]
    headings: tuple[str, ...] = ()
    is_heading: bool = False
    """A heading whose text is not known."""
    is_fenced: bool = False
    """Code or data within a document."""
    title: str = ""
    """The first line of a document that has no headings, where it is known and short."""
    header: str = ""
    """The first row of the table that it is a part of."""

    @property
    def is_code(self) -> bool:
        """Whether the file is no document."""
        return not _PROSE.search(self.path)

    @property
    def surroundings(self) -> str:
        """What it stands under: headings or title, and the path, in words."""
        return " ".join([*self.headings, self.title, self.path])

    @property
    def last(self) -> int:
        """The number of its last line."""
        return self.first + len(self.lines) - 1

    @property
    def is_row(self) -> bool:
        """Whether it begins amid a table whose columns are not known."""
        return not self.header and self.lines[0].lstrip().startswith("|")

    @property
    def is_imports(self) -> bool:
        """Whether most of it names other modules."""
        return 2 * sum(_IMPORT.match(line) is not None for line in self.lines) >= len(self.lines)

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(self.lines)


def passages_of(path: str, lines: Mapping[int, str]) -> Iterator[Passage]:
    """Yield the passages of the known lines; a gap in the numbers ends a passage and its headings."""
    cutter = _Cutter(path)
    previous = 0
    for number in sorted(lines):
        if number != previous + 1:
            yield from cutter.flush()
            cutter.forget_headings()
        yield from cutter.take(number, lines[number])
        previous = number
    yield from cutter.flush()


class _Cutter:
    """Takes one line after the other and gives a passage whenever one is complete."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._has_headings = path.endswith((".md", ".markdown", ".mdx"))
        self._is_code = not _PROSE.search(path)
        self._is_fenced = self._is_amid = False
        self._headings: dict[int, str] = {}
        self._bare: Passage | None = None
        self._block: list[str] = []
        self._first = 0
        self._begins_fenced = False
        self._title = ""
        self._header = ""
        self._row = ""

    def take(self, number: int, text: str) -> Iterator[Passage]:
        if number == 1 and not self._is_code and not text.startswith("#") and len(text) <= _TITLE:
            self._title = text.strip()
        fence = self._has_headings and text.lstrip().startswith("```")
        if fence:
            self._pass_fence(text.strip())
        heading = _HEADING.match(text) if self._has_headings else None
        if heading and (not self._is_fenced or len(heading[1]) > 1):  # `# x` in a fence is a comment
            self._is_fenced = False
            yield from self.flush()
            self._enter(number, text, len(heading[1]), heading[2])
        elif not text.strip():
            yield from self._cut()
            self._leave_table()
        else:
            if _is_full(self._block, text) or (self._is_code and self._begins_definition(text)):
                yield from self._cut()
            if not self._block:
                self._first, self._begins_fenced = number, fence or self._is_fenced
            self._block.append(text)
            self._follow_code(text)
            self._follow_table(text)

    def flush(self) -> Iterator[Passage]:
        """Give what is left, or the heading under which nothing is known."""
        yield from self._cut()
        if self._bare is not None:
            yield self._bare
            self._bare = None

    def forget_headings(self) -> None:
        self._headings, self._is_fenced, self._is_amid = {}, False, True
        self._leave_table()

    def _pass_fence(self, text: str) -> None:
        """Begin code, or end it: behind a gap a fence that names no language ends what began above."""
        self._is_fenced = not self._is_fenced and not (self._is_amid and text == "```")
        self._is_amid = False

    def _follow_table(self, text: str) -> None:
        """Take the row above the rule for the header: of a table that is known from its middle on there is none."""
        if not text.lstrip().startswith("|"):
            self._leave_table()
        elif "-" in text and _RULE.issuperset(text):
            self._header = self._row
        else:
            self._row = text

    def _leave_table(self) -> None:
        self._header = self._row = ""

    def _begins_definition(self, text: str) -> bool:
        leads_in = bool(self._block) and self._block[-1].lstrip().startswith(_LEADS_IN)
        return not leads_in and (_DEFINITION.match(text) is not None or text.lstrip().startswith("@"))

    def _follow_code(self, text: str) -> None:
        """Enter a definition, leave those that are indented as far or further."""
        if not self._is_code or text.lstrip().startswith((")", "]", "}")):
            return
        depth = len(text) - len(text.lstrip())
        self._headings = {above: name for above, name in self._headings.items() if above < depth}
        if definition := _DEFINITION.match(text):
            self._headings[depth] = definition["name"]

    def _enter(self, number: int, text: str, level: int, title: str) -> None:
        self._headings = {depth: above for depth, above in self._headings.items() if depth < level}
        self._bare = Passage(self._path, number, (text,), tuple(self._headings.values()), is_heading=True)
        self._headings[level] = title

    def _cut(self) -> Iterator[Passage]:
        if self._block:
            headings = tuple(self._headings.values())
            yield Passage(
                self._path,
                self._first,
                tuple(self._block),
                headings,
                is_fenced=self._begins_fenced,
                title=self._title,
                header=self._header,
            )
            self._block, self._bare = [], None


def _is_full(block: list[str], text: str) -> bool:
    size = sum(len(line) for line in block)
    if len(block) >= _LONGEST or size >= _WIDEST:
        return True
    return size >= _OWN_ITEM and ITEM.match(text) is not None
