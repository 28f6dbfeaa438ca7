"""Passages of documents and how well they answer a question: BM25 over stems; names and numbers match exactly.

A passage answers if two sentences in a row hold most of the question's words, and the first or a title its names.
"""

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import snowballstemmer

from orga.workflows.types.recall import COMMON_WORDS

K1, B = 1.2, 0.75  # BM25: how fast a repeated word counts less, and how much a long passage loses
ENOUGH_COVERAGE = 0.6  # part of the question's words, weighted by rarity, in an answer
MAX_LINES = 8  # of a passage
SAME_FORM_WEIGHT, OTHER_FORM_WEIGHT, RELATED_WEIGHT = 1.0, 0.9, 0.7  # a word as asked, with another ending, longer stem
TITLE_WEIGHT, FORM_BONUS = 0.8, 0.5  # factor for a word in a title; addition, times rarity, for a word as asked
_STOP_WORDS = {
    "english": f"""{" ".join(COMMON_WORDS)} every ever get gets give given happen happens make makes many may might much
        must need needs one per since take takes use used uses using whether whose within without differ differs""",
    "german": """aber alle als am an auch auf aus bei bis das dass dem den der des die diese dieser du durch ein eine
        einem einen einer er es für gibt habe haben hat herr frau hier hoch ich ihr ihre im in ist jede jeder kann kein
        lange man mehr mein mir mit muss nach nicht noch nur oder ohne sein sich sie sind so soll um und uns unter viel
        viele vom von vor wann war warum was welche welchem welchen welcher welches wem wen wenn wer wie wir wird zu""",
    "french": "a au ce comment dans de des du elle en est et il la le les où par pour quand que quel quelle qui un une",
    "spanish": "como con cual cuando cuánto de del dónde el en es la las los para por qué que quien se un una y",
}
STOP_WORDS = {language: frozenset(text.split()) for language, text in _STOP_WORDS.items()}
_STEMMERS: Any = snowballstemmer  # the package has no types
_TASK = """answer compare describe detail details document documents explain file files find folder know list look mean
    means name project question quote read say says show source summarise summarize summary tell thing work suche"""
_HOW_MUCH = r"\b(?:how (?:many|much|often|long|old|far|late|big|large|high)|wie (?:lange|viele?|oft|hoch|groß))\b"
_NUMERALS = """two three four five six seven eight nine ten eleven twelve
    zwei drei vier fünf sechs sieben acht neun zehn elf zwölf"""
_NUMBERS = {word: str(2 + at % 11) for at, word in enumerate(_NUMERALS.split())}
_AMOUNTS = r"once|twice|half|never|none|daily|every|free|einmal|(?:twen|thir|for|fif|six|seven|eigh|nine)ty|hundred"
_AMOUNT = re.compile(rf"\d| (?:{_AMOUNTS}) |(?<!the) one (?!of |that |who |is )")
_OPPOSITES = {"old": "new", "new": "old", "first": "last", "last": "first", "alt": "neu", "neu": "alt"}
_AND = re.compile(r",? (?:and|und) (?=(?:how|what|which|when|where|who|why|wie|was|wann|wo|wer)\b)", re.I)
_PATH = re.compile(r"(?<![\w/])[\w./-]*[\w-]\.(?!\d)[A-Za-z][A-Za-z0-9]{0,4}\b(?!\()")
# identifiers and quoted phrases
_MARKED_WORD = re.compile(
    r"\b\w+(?:[_.]\w+)+\b|\b\w+-\d\w*|\b[a-zA-Z]*[a-z][A-Z]\w*|(?<=[`\"“„])[^`\"”“„\n]+(?=[`\"”“])"
)
_CAPITALS = re.compile(r"(?<![\w-])[A-ZÀ-ÖØ-Þ][\w-]*(?: [A-ZÀ-ÖØ-Þ][\w-]*)*")
_WORD = re.compile(r"\d+(?:[.,:]\d+)*|[\u3040-\u30ff\u3400-\u9fff]|[^\W\d_]+")
_HEADING = re.compile(r"(#{1,6})\s+(.+)|(\s*)(?:async )?(?:def|class|func|fn|function|interface|struct|type) +(\w+)")
_UNDERLINE = re.compile(r"([=\-~^\"'*+.#])\1{2,}\s*$")
_TABLE_RULE = re.compile(r"\s*\|[\s|:-]+$")
_LIST_ITEM = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+(?=\S)")
_SENTENCE = re.compile(r"(?<=[.!?])(?<!\b\w\.)(?<!\b\w\w\.)[\"')*_`]*\s+(?=[^\s\da-zäöü])")
# files that mention a subject more often than they explain it
_MINOR_PATH = re.compile(
    r"(^|/)((tests?|specs?|fixtures?|bench)/|test_|changelog|changes|history)|\.(jsonl?|csv|po)$", re.I
)
WordWeights = dict[str, list[float]]  # of the words that match each word of a question


def words_and_numbers(text: str) -> list[str]:
    return [_NUMBERS.get(word) or word for word in _WORD.findall(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).casefold())]


class ReaderQuestion:
    """A question, its parts that ask by themselves, and what an answer holds. Added text only helps to find it."""

    def __init__(self, question: str, added: str = "") -> None:
        plain, found = _PATH.sub(" ", question), words_and_numbers(question)
        language = max(STOP_WORDS, key=lambda each: sum(word in STOP_WORDS[each] for word in found))
        self.stem: Callable[[str], str] = _STEMMERS.stemmer(language).stemWord
        self.text, self.parts, self._weights = question, _AND.split(question), dict[str, list[tuple[str, float]]]()
        self.paths: list[str] = _PATH.findall(f"{question}\n{added}")
        self.wording = " ".join(found) if len(found) > 5 else "\n"  # a passage that repeats it does not answer it
        self.needs_amount = re.search(rf"{_HOW_MUCH}|\bcost\b|\bkostet", question, re.I) is not None
        marked = (tuple(words_and_numbers(row)) for row in (*_names(plain, language), *_MARKED_WORD.findall(plain)))
        numbers = ((word,) for word in words_and_numbers(plain) if word[0].isdigit())
        self.names = list(dict.fromkeys((*filter(None, marked), *numbers)))
        self.exact = [word for word in words_and_numbers(plain) if any(word in row for row in self.names)]
        self.patterns = [re.compile(rf" {re.escape(' '.join(row).removesuffix('s'))}s? ") for row in self.names]
        self.needed: dict[str, str] = {}  # the words that count, and how they were written
        self.helpful, stems = dict[str, str](), set[str]()  # helpful: they need not be in an answer
        for text, is_added in ((re.sub(_HOW_MUCH, " ", plain, flags=re.I), False), (_PATH.sub(" ", added), True)):
            for surface in re.findall(r"[^\W_]+(?:[.,:]\d+)*", text):
                for word in words_and_numbers(surface):
                    is_stop = (len(word) == 1 and word.isascii()) or {word, surface.casefold()} & STOP_WORDS[language]
                    if word in self.exact or not (is_stop or self.stem(word) in stems):
                        stems.add(self.stem(word))
                        is_helpful = is_added or (word in _TASK.split() and word not in self.exact)
                        (self.helpful if is_helpful else self.needed).setdefault(word, surface)

    def weights(self, found: Iterable[str]) -> WordWeights:
        """Return, for each word of the question, the weight of each word in `found` that matches it."""
        held: WordWeights = {}
        for word in found:
            if word not in self._weights:
                pairs = ((term, self._weight(term, word)) for term in (*self.needed, *self.helpful))
                self._weights[word] = [(term, weight) for term, weight in pairs if weight]
            for term, weight in self._weights[word]:
                held.setdefault(term, []).append(weight)
        return held

    def _weight(self, term: str, word: str) -> float:
        if word[0] != term[0] or term in self.exact or word == term:
            return SAME_FORM_WEIGHT if word.removesuffix("s") == term.removesuffix("s") else 0.0
        short, long = sorted((self.stem(word), self.stem(term)), key=len)
        if short == long:
            return OTHER_FORM_WEIGHT
        return RELATED_WEIGHT if len(short) > 4 and long.startswith(short) and len(long) - len(short) < 4 else 0.0


def _names(text: str, language: str) -> Iterator[str]:
    """Yield names: words with a capital inside a sentence. German nouns have one, too: there a name is two of them."""
    for row in _CAPITALS.finditer(text):
        name, before = row[0].split(), text[: row.start()].rstrip(" ")
        is_first = len(name) == 1 and (not before or before[-1] in ".?!:\n")
        name = name[1:] if name[0].casefold() in STOP_WORDS[language] else name
        name = name[:2] if language == "german" else [word for word in name if word.isupper() or not is_first]
        if len(name) > (language == "german"):
            yield " ".join(name)


class Passage:
    """Lines of a file that belong together, the titles above them, and the words of the question in both."""

    def __init__(self, path: str, first: int, lines: list[str], above: list[str], question: ReaderQuestion) -> None:
        self.path, self.first, self.lines, self.above = path, first, lines, above
        self.source = f"{path}:{first}" + (f"-{first + len(lines) - 1}" if len(lines) > 1 else "")
        self.text = _LIST_ITEM.sub("", "\n".join(lines), count=1)
        sentences = [f" {' '.join(words_and_numbers(part))} " for part in _SENTENCE.split(self.text)]
        self.windows = [(one, one + other) for one, other in itertools.pairwise([*sentences, ""])]
        self.words = "".join(sentences).replace(question.wording, "").split()
        self.title = f" {' '.join(words_and_numbers(' '.join((path, *above))))} "
        self.body, self.context = question.weights(self.words), question.weights(self.title.split())


def file_passages(path: str, lines: Mapping[int, str], question: ReaderQuestion) -> Iterator[Passage]:
    """Yield the passages of a file. A gap between known lines ends a passage."""
    above, block, previous = dict[int, str](), list[str](), 0

    def under(level: int, title: str) -> dict[int, str]:
        return {other: text for other, text in above.items() if other < level} | ({level: title} if title else {})

    for number in [*sorted(lines), 0]:  # 0 is after the end
        line, follows = lines.get(number, ""), number == previous + 1
        text, is_row, heading = line.strip(), line.lstrip().startswith("|"), _HEADING.match(line)
        if follows and len(block) == 1 and _UNDERLINE.match(line):
            above = under(1 + "=-~^".find(line[0]) % 5, block[0].strip())
            block, text = [], ""
        is_apart = not follows or heading or is_row or not text or _LIST_ITEM.match(line)
        if block and (is_apart or len(block) >= MAX_LINES):
            yield Passage(path, previous - len(block) + 1, block, [above[level] for level in sorted(above)], question)
            block = []
        previous, above = number, above if follows else {}
        if heading:
            above = under(len(heading[1]) if heading[1] else 10 + len(heading[3]), heading[2] or heading[4])
        has_columns = is_row and _TABLE_RULE.match(lines.get(number + 1, ""))
        if has_columns or not is_row:
            above = under(99, text.strip("|") if has_columns else "")  # below headings and definitions
        if text and (block or re.search(r"\w", text)) and not has_columns and not (heading and heading[1]):
            block.append(line)


@dataclass(frozen=True)
class PassageMatch:
    """A passage, its rank, and the words of the question that it holds with their weights."""

    passage: Passage
    answers: bool
    score: float
    held: Mapping[str, float]


def ranked_matches(question: ReaderQuestion, known: list[Passage]) -> list[PassageMatch]:
    """Return the passages that hold words of the question: those that answer first, the best of both groups first."""

    def rarity(holding: int) -> float:
        holding = max(holding, 1)  # a word that no passage holds is no rarer than a word in one passage
        return math.log(1 + (len(known) - holding + 0.5) / (holding + 0.5))

    def held_by(body: WordWeights, above: WordWeights) -> dict[str, float]:
        held = {term: [*body.get(term, ()), *(TITLE_WEIGHT * w for w in above.get(term, ()))] for term in body | above}
        return {term: (1 + rare[term]) * max(weights) for term, weights in held.items()}

    def cover(held: Mapping[str, float]) -> float:
        return sum(held.get(term, 0.0) for term in plain) / sum(1 + rare[term] for term in plain) if plain else 1.0

    average = sum(len(each.words) for each in known) / max(len(known), 1) or 1.0
    terms, plain = (*question.needed, *question.helpful), [x for x in question.needed if x not in question.exact]
    rare = {term: rarity(sum(term in each.body for each in known)) for term in terms}
    form = {term: rarity(sum(SAME_FORM_WEIGHT in each.body.get(term, ()) for each in known)) for term in terms}
    opposites = [(word, _OPPOSITES[word]) for word in question.needed if word in _OPPOSITES]
    matches = list[PassageMatch]()
    for each in (each for each in known if each.body):
        score, held, end = 0.0, held_by(each.body, each.context), each.text.rstrip(" \n*_`\"'")[-1:]
        for term in held:
            inside = each.body.get(term, [])
            times = sum(inside) + 0.5 * bool(inside and term in each.context)
            score += rare[term] * times * (K1 + 1) / (times + K1 * (1 - B + B * len(each.words) / average))
            score += FORM_BONUS * form[term] * (SAME_FORM_WEIGHT in inside)
        parts = [two for one, two in each.windows if all(name.search(one + each.title) for name in question.patterns)]
        covered = [cover(held_by(question.weights(part.split()), each.context)) for part in parts]
        answers = (
            max(covered, default=0.0) >= ENOUGH_COVERAGE
            and any(term in each.body for term in question.needed)
            and end != "?"
            and (not question.needs_amount or any(map(_AMOUNT.search, parts)))
            and not any(f" {y} " in one and f" {x} " not in one for x, y in opposites for one, _ in each.windows)
        )
        score *= cover(held) ** 2 * (0.7 if end == ":" else 1.0) * (0.6 if _MINOR_PATH.search(each.path) else 1.0)
        score *= 2.0 if any(f"/{each.path}".endswith(f"/{path}") for path in question.paths) else 1.0
        matches.append(PassageMatch(each, answers, score, held))
    return sorted(matches, key=lambda match: (not match.answers, -match.score, match.passage.path, match.passage.first))
