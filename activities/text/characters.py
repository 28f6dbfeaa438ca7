"""Removes invisible and terminal-control characters that can hide a message. All writing systems and emoji stay."""

import re
from collections import Counter
from collections.abc import Callable
from unicodedata import category

_SYMBOLS = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9\u21aa\u231a\u231b\u2328\u23cf\u23e9-\u23f3\u23f8-\u23fa"
    "\u24c2\u25aa\u25ab\u25b6\u25c0\u25fb-\u25fe\u2600-\u2604\u260e\u2611\u2614\u2615\u2618\u261d\u2620\u2622\u2623"
    "\u2626\u262a\u262e\u262f\u2638-\u263a\u2640\u2642\u2648-\u2653\u265f\u2660\u2663\u2665\u2666\u2668\u267b\u267e"
    "\u267f\u2692-\u2697\u2699\u269b\u269c\u26a0\u26a1\u26a7\u26aa\u26ab\u26b0\u26b1\u26bd\u26be\u26c4\u26c5\u26c8"
    "\u26ce\u26cf\u26d1\u26d3\u26d4\u26e9\u26ea\u26f0-\u26f5\u26f7-\u26fa\u26fd\u2702\u2705\u2708-\u270d\u270f\u2712"
    "\u2714\u2716\u271d\u2721\u2728\u2733\u2734\u2744\u2747\u274c\u274e\u2753-\u2755\u2757\u2763\u2764\u2795-\u2797"
    "\u27a1\u27b0\u27bf\u2934\u2935\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\u3030\u303d\u3297\u3299"
)
"""Source: Unicode, emoji-variation-sequences.txt, without digits, `#` and `*`, which are emoji in keycaps only."""

_EMOJI = re.compile(f"[{_SYMBOLS}\U0001f000-\U0001faff]")


def is_emoji(character: str) -> bool:
    return _EMOJI.fullmatch(character) is not None


TERMINAL_SEQUENCE = re.compile(
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])"  # a string: title, link, device
    r"[^\x07\x1b\x90\x98\x9c-\x9f]{0,4096}+(?:\x07|\x1b\\|\x9c)"
    r"|(?:\x1b\[|\x9b)[0-?]{0,64}+[ -/]{0,16}+[@-~]"  # a control sequence: colour, cursor, erase
    r"|\x1b[ -/]{0,8}+[0-~]"
)
"""Terminal sequences. A string ends where another begins, so many unfinished strings cost no more than one."""

_LINE_START = re.compile(r"\r(?!\n)|[\x85\u2028\u2029]")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")

_TAGS = "\U000e0000-\U000e007f"
_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef\u180b-\u180d\u180f"
_BIDI = "\u202a-\u202e\u2066-\u2069"
_ZERO_WIDTH = "\u200b-\u200f\u061c\u2060-\u2065\ufeff\u180e"
_OTHER = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u206a-\u206f\u3164\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a"
    "\u2800\U00013430-\U0001343f\U00016fe4\U0001bca0-\U0001bca3\U0001d159"
    "\U000e0080-\U000e00ff\U000e01f0-\U000e0fff"
)
_PRIVATE = "\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"
_UNASSIGNED = (
    "\ufdd0-\ufdef\ufffe\uffff\U0001fffe\U0001ffff\U0002fffe\U0002ffff\U0003fffe-\U000dffff"
    "\U000e1000-\U000effff\U000ffffe\U000fffff\U0010fffe\U0010ffff"
)
"""Code points that are never assigned or lie in unused planes. Later versions of Unicode may assign others."""

_RUN = re.compile(f"[{_TAGS}{_SELECTORS}{_BIDI}{_ZERO_WIDTH}{_OTHER}{_PRIVATE}{_UNASSIGNED}]+")
_KINDS = (
    ("tag characters", re.compile(f"[{_TAGS}]")),
    ("variation selectors", re.compile(f"[{_SELECTORS}]")),
    ("direction controls", re.compile(f"[{_BIDI}]")),
    ("zero-width characters", re.compile(f"[{_ZERO_WIDTH}]")),
    ("private-use characters", re.compile(f"[{_PRIVATE}]")),
    ("unassigned characters", re.compile(f"[{_UNASSIGNED}]")),
    ("other invisible characters", re.compile(f"[{_OTHER}]")),
)

_FLAGS = frozenset("".join(chr(0xE0000 + ord(c)) for c in f"{code}\x7f") for code in ("gbeng", "gbsct", "gbwls"))
"""The tags after a black flag in the flags of England, Scotland and Wales, the only ones in use."""

_JOINING = re.compile(
    "[\u0600-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u18af\u1a20-\u1aaf\u1b00-\u1bff\ua800-\uaaff\uabc0-\uabff"
    "\ufb50-\ufdff\ufe70-\ufefc\U00010a00-\U00011fff\U0001e900-\U0001e95f]"
)
"""Scripts in which a joiner or non-joiner changes a word."""

_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]")
_BRAILLE = re.compile("[\u2801-\u28ff]")
_HIEROGLYPH = re.compile("[\U00013000-\U0001342f\U00013440-\U000143ff]")
_NEAR_CHARS = 3
"""Characters before and after an invisible run that are read. The letter that needs the run may be so far away."""

_DIRECTION_MARKS = frozenset({"\u200e", "\u200f", "\u061c"})


_BREAKS = str.maketrans("", "", "\n\t")


def is_plain_ascii(text: str) -> bool:
    """Return whether a text has only printable ASCII, newlines and tabs. Most texts do, and nothing can hide there."""
    return text.isascii() and text.translate(_BREAKS).isprintable()


def without_sequences(text: str) -> tuple[str, Counter[str]]:
    """Return the text without terminal sequences and control characters. Other line ends become newlines."""
    text, sequences = TERMINAL_SEQUENCE.subn("", text)
    text, returns = _LINE_START.subn("\n", text)
    text, controls = _CONTROL.subn("", text)
    return text, +Counter({"terminal sequences": sequences, "control characters": returns + controls})


_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]",
)
"""C0 except tab and newline, C1, invisible characters, changes of the writing direction, and lone surrogates."""


def harmless_text(text: str) -> str:
    """Return the text for a screen, without terminal sequences and control characters. Tabs and newlines stay."""
    return _HARMFUL.sub("", TERMINAL_SEQUENCE.sub("", text.replace("\r\n", "\n")))


def without_invisible(text: str) -> tuple[str, Counter[str]]:
    """Return the text without invisible characters that no script or emoji needs, and their counts by kind."""
    removed: Counter[str] = Counter()

    def kept(match: re.Match[str]) -> str:
        run = match.group()
        before = text[max(match.start() - _NEAR_CHARS, 0) : match.start()]
        after = text[match.end() : match.end() + _NEAR_CHARS]
        needed = next((run[:n] for n in (len(run), 2, 1) if _is_needed(run[:n], before, after)), "")
        for name, kind in _KINDS:
            removed[name] += len(kind.findall(run[len(needed) :]))
        return needed

    return _RUN.sub(kept, text), +removed


def _is_needed(run: str, before: str, after: str) -> bool:
    """Return whether the text before and after an invisible run needs that run."""
    return bool(before) and any(run in runs and belongs(before, after) for runs, belongs in _NEEDED)


def _is_direction_needed(before: str, after: str) -> bool:
    """Return whether a direction mark can matter: right-to-left letters are near, and no other mark is."""
    return _RIGHT_TO_LEFT.search(before + after) is not None and _DIRECTION_MARKS.isdisjoint(before)


_NEEDED: tuple[tuple[frozenset[str], Callable[[str, str], bool]], ...] = (
    (frozenset("\ufe0e\ufe0f"), lambda before, after: is_emoji(before[-1])),
    (frozenset({"\u200d", "\ufe0f\u200d"}), lambda before, after: is_emoji(before[-1]) and is_emoji(after[:1])),
    (frozenset("\ufe0f"), lambda before, after: before[-1] in "0123456789#*" and after[:1] == "\u20e3"),
    (_FLAGS, lambda before, after: before[-1] == "\U0001f3f4"),
    (frozenset("\u200c\u200d"), lambda before, after: _JOINING.match(before[-1]) is not None),
    (_DIRECTION_MARKS, _is_direction_needed),
    (frozenset("\u180b\u180c\u180d\u180e\u180f"), lambda before, after: "\u1800" <= before[-1] <= "\u18af"),
    (
        frozenset("\u115f\u1160"),
        lambda before, after: "\u1100" <= before[-1] <= "\u11ff" or "\u1100" <= after[:1] <= "\u11ff",
    ),
    (frozenset("\u034f"), lambda before, after: "\u0590" <= before[-1] <= "\u05ff"),
    (frozenset("\u2800"), lambda before, after: bool(_BRAILLE.match(before[-1]) and _BRAILLE.match(after))),
    (frozenset(map(chr, range(0x13430, 0x13440))), lambda before, after: _HIEROGLYPH.match(before[-1]) is not None),
    (
        frozenset("\ufe00"),
        lambda before, after: "\u2205" <= before[-1] <= "\u2aff" and category(before[-1]) == "Sm",
    ),
)
"""Invisible runs, each with a test. It gets the text before and after the run, and decides if the run is needed."""
