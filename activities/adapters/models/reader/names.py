"""Names: what a question writes with a capital and means exactly; Mario never stands for Maria."""

import re

from orga.activities.adapters.models.reader.languages import STOP_WORDS, TASK_WORDS, Language
from orga.activities.adapters.models.reader.words import folded, words

_BEGINS = re.compile(r"(?:^|[.!?:;]\s+|\n)\s*[\"'“(]*$")
_TITLE = re.compile(r"\b(?:Herrn?|Frau|Dr|Firma|Mr|Mrs|Ms|Prof)\.? $")
_ABBREVIATION = re.compile(r"[A-Z]{2,}\w*")


def names_in(text: str, language: Language) -> tuple[str, ...]:
    """Return the names, of one word or several in a row.

    In German every noun has its capital: there a name is what follows a title, or two capitals in a row.
    """
    runs = _capital_runs(text)
    if any(folded(word) in STOP_WORDS["en"] for _, run, begins in runs for word in run[begins:] if len(word) > 1):
        return ()  # Every Word Has One
    found: list[str] = []
    for place, run, begins in runs:
        bare = [word for word in run if not _says_nothing(word, language)]
        lone = begins or (language == "de" and not _TITLE.search(text[:place]))
        if len(bare) > 1 or (bare and (not lone or _ABBREVIATION.fullmatch(bare[0]))):
            found.append(" ".join(bare))
    return tuple(dict.fromkeys(found))


def _capital_runs(text: str) -> list[tuple[int, list[str], bool]]:
    """Return words with capitals that stand side by side: where, which, and whether they begin a sentence."""
    runs: list[tuple[int, list[str], bool]] = []
    for match in re.finditer(r"(?<!\w)[^\W\d_]\w*(?:(?: |-)[^\W\d_]\w*)*", text):
        offset = match.start()
        words_here = [(offset + m.start(), m[0]) for m in re.finditer(r"\w+", match[0])]
        run: list[tuple[int, str]] = []
        for place, word in [*words_here, (-1, "")]:
            if word[:1].isupper():
                run.append((place, word))
            elif run:
                runs.append((run[0][0], [w for _, w in run], _BEGINS.search(text[: run[0][0]]) is not None))
                run = []
    return runs


def _says_nothing(word: str, language: Language) -> bool:
    return len(word) < 2 or not words(word) or folded(word) in STOP_WORDS[language] | TASK_WORDS[language]
