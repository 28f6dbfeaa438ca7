"""Splits files into passages, and ranks them by how well they answer a question. The offline reader quotes the best.

The rank is BM25 over stems. Names and numbers match exactly. A passage answers if two sentences in a row hold most of
the question's words, and the first of them or a title holds its names.
"""

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import snowballstemmer

from orga.workflows.types.recall import COMMON_WORDS

K1, B = 1.2, 0.75  # BM25: how fast a repeated word loses weight, and how much a long passage loses
ENOUGH_COVERAGE = 0.6  # share of the question's words, weighted by rarity, that an answer holds
MAX_LINES = 8  # lines of a passage
SAME_FORM_WEIGHT = 1.0  # weight of a word in the question's own form
OTHER_FORM_WEIGHT = 0.9  # weight of a word with the same stem
RELATED_WEIGHT = 0.7  # weight of a word if one of the two stems begins with the other
TITLE_FACTOR = 0.8  # factor for the weight of a word in a title
TITLE_TIMES = 0.5  # added to the count of a word in a passage if a title repeats it
FORM_BONUS = 0.5  # bonus for a word in the question's own form, times its rarity
INTRODUCTION_FACTOR = 0.7  # factor for a passage that ends in a colon: the content is in the next one
MINOR_PATH_FACTOR, NAMED_PATH_FACTOR = 0.6, 2.0  # factors for `_MINOR_PATH`, and for a path that the question names
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
_TASK_WORDS = frozenset(_TASK.split())  # they say what to do, not what it is about
_HOW_MUCH = r"\b(?:how (?:many|much|often|long|old|far|late|big|large|high)|wie (?:lange|viele?|oft|hoch|groß))\b"
_NUMERALS = """two three four five six seven eight nine ten eleven twelve
    zwei drei vier fünf sechs sieben acht neun zehn elf zwölf"""
_NUMBERS = {word: str(2 + index % 11) for index, word in enumerate(_NUMERALS.split())}
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
WordWeights = dict[str, list[float]]  # weights of the matching words of a text, by word of the question


def words_and_numbers(text: str) -> list[str]:
    return [_NUMBERS.get(word) or word for word in _WORD.findall(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).casefold())]


class ReaderQuestion:
    """A question, its parts that are questions, too, and the words of an answer. `added` only helps to find one."""

    def __init__(self, question: str, added: str = "") -> None:
        plain, words = _PATH.sub(" ", question), words_and_numbers(question)
        plain_words = words_and_numbers(plain)
        language = max(STOP_WORDS, key=lambda each: sum(word in STOP_WORDS[each] for word in words))
        self.text, self.parts = question, _AND.split(question)
        self.stem: Callable[[str], str] = _STEMMERS.stemmer(language).stemWord
        self.paths: list[str] = _PATH.findall(f"{question}\n{added}")
        self.wording = " ".join(words) if len(words) > 5 else "\n"  # a passage that repeats the question is no answer
        self.needs_amount = re.search(rf"{_HOW_MUCH}|\bcost\b|\bkostet", question, re.I) is not None
        marked = (tuple(words_and_numbers(name)) for name in (*_names(plain, language), *_MARKED_WORD.findall(plain)))
        numbers = ((word,) for word in plain_words if word[0].isdigit())
        self.names = list(dict.fromkeys((*filter(None, marked), *numbers)))  # each as a tuple of words
        self.exact = [word for word in plain_words if any(word in name for name in self.names)]
        self.patterns = [re.compile(rf" {re.escape(' '.join(name).removesuffix('s'))}s? ") for name in self.names]
        self.needed = dict[str, str]()  # the words that an answer has, and how the question writes them
        self.helpful = dict[str, str]()  # words that only help to find an answer
        self._stop_words, self._stems = STOP_WORDS[language], set[str]()
        self._add_words(re.sub(_HOW_MUCH, " ", plain, flags=re.I), is_added=False)
        self._add_words(_PATH.sub(" ", added), is_added=True)
        self._weights = dict[str, list[tuple[str, float]]]()  # by a text's word: the question's words that match

    def _add_words(self, text: str, *, is_added: bool) -> None:
        """Add one word of each stem, and no stop words. All words of names are added."""
        for written in re.findall(r"[^\W_]+(?:[.,:]\d+)*", text):
            for word in words_and_numbers(written):
                is_letter, is_exact = len(word) == 1 and word.isascii(), word in self.exact
                is_stop = is_letter or not self._stop_words.isdisjoint({word, written.casefold()})
                if is_exact or not (is_stop or self.stem(word) in self._stems):
                    self._stems.add(self.stem(word))
                    is_helpful = is_added or (word in _TASK_WORDS and not is_exact)
                    (self.helpful if is_helpful else self.needed).setdefault(word, written)

    def weights(self, words: Iterable[str]) -> WordWeights:
        """Return the weights of the matches of these words, by word of the question."""
        weights: WordWeights = {}
        for word in words:
            if word not in self._weights:
                pairs = ((term, self._weight(term, word)) for term in (*self.needed, *self.helpful))
                self._weights[word] = [(term, weight) for term, weight in pairs if weight]
            for term, weight in self._weights[word]:
                weights.setdefault(term, []).append(weight)
        return weights

    def _weight(self, term: str, word: str) -> float:
        """Return the weight of a text's word that matches `term` of the question, or 0."""
        if word[0] != term[0] or term in self.exact or word == term:
            return SAME_FORM_WEIGHT if word.removesuffix("s") == term.removesuffix("s") else 0.0
        short, long = sorted((self.stem(word), self.stem(term)), key=len)
        if short == long:
            return OTHER_FORM_WEIGHT
        return RELATED_WEIGHT if len(short) > 4 and long.startswith(short) and len(long) - len(short) < 4 else 0.0


def _names(text: str, language: str) -> Iterator[str]:
    """Yield names: capitalised words inside a sentence. German capitalises all nouns, so a name is two such words."""
    is_german = language == "german"
    for capitals in _CAPITALS.finditer(text):
        name, before = capitals[0].split(), text[: capitals.start()].rstrip(" ")
        is_first = len(name) == 1 and (not before or before[-1] in ".?!:\n")
        name = name[1:] if name[0].casefold() in STOP_WORDS[language] else name
        name = name[:2] if is_german else [word for word in name if word.isupper() or not is_first]
        if len(name) >= (2 if is_german else 1):
            yield " ".join(name)


class Passage:
    """Lines of a file that belong together, the titles above them, and the words of the question in both."""

    def __init__(self, path: str, first: int, lines: list[str], titles: list[str], question: ReaderQuestion) -> None:
        self.path, self.first, self.lines, self.titles = path, first, lines, titles
        self.source = f"{path}:{first}" + (f"-{first + len(lines) - 1}" if len(lines) > 1 else "")
        self.text = _LIST_ITEM.sub("", "\n".join(lines), count=1)
        sentences = [f" {' '.join(words_and_numbers(part))} " for part in _SENTENCE.split(self.text)]
        self.windows = [(one, one + following) for one, following in itertools.pairwise([*sentences, ""])]
        self.words = "".join(sentences).replace(question.wording, "").split()
        self.title_text = f" {' '.join(words_and_numbers(' '.join((path, *titles))))} "
        self.weights = question.weights(self.words)
        self.title_weights = question.weights(self.title_text.split())

    @property
    def last_character(self) -> str:
        return self.text.rstrip(" \n*_`\"'")[-1:]


TABLE_LEVEL = 99  # level of a table's head: below headings (1 to 6) and definitions (10 plus indent)


def file_passages(path: str, lines: Mapping[int, str], question: ReaderQuestion) -> Iterator[Passage]:
    """Yield the passages of a file. A gap between known lines ends a passage."""
    titles, block, previous = dict[int, str](), list[str](), 0  # titles: by level

    def titles_with(level: int, title: str) -> dict[int, str]:
        higher = {other: text for other, text in titles.items() if other < level}
        return higher | ({level: title} if title else {})

    for number in [*sorted(lines), 0]:  # 0 marks the end
        line, is_next = lines.get(number, ""), number == previous + 1
        text, is_row, heading = line.strip(), line.lstrip().startswith("|"), _HEADING.match(line)
        if is_next and len(block) == 1 and _UNDERLINE.match(line):
            level = 1 + "=-~^".find(line[0]) % 5  # 5 for other underlines
            titles = titles_with(level, block[0].strip())
            block, text = [], ""
        is_apart = not is_next or heading or is_row or not text or _LIST_ITEM.match(line)
        if block and (is_apart or len(block) >= MAX_LINES):
            ordered_titles = [titles[level] for level in sorted(titles)]
            yield Passage(path, previous - len(block) + 1, block, ordered_titles, question)
            block = []
        titles = titles if is_next else {}
        previous = number
        if heading:
            level = len(heading[1]) if heading[1] else 10 + len(heading[3])
            titles = titles_with(level, heading[2] or heading[4])
        is_table_head = is_row and _TABLE_RULE.match(lines.get(number + 1, ""))
        if is_table_head or not is_row:
            titles = titles_with(TABLE_LEVEL, text.strip("|") if is_table_head else "")
        is_markdown_heading = heading and heading[1]
        if text and (block or re.search(r"\w", text)) and not is_table_head and not is_markdown_heading:
            block.append(line)


@dataclass(frozen=True)
class PassageMatch:
    """A passage, its score, and the words of the question that it holds, with their weights."""

    passage: Passage
    answers: bool
    score: float
    held: Mapping[str, float]


class _Ranking:
    """Compares the passages that hold a question's words. A word in fewer of them has more weight."""

    def __init__(self, question: ReaderQuestion, passages: list[Passage]) -> None:
        self._question, self._count = question, len(passages)
        self._average_words = sum(len(each.words) for each in passages) / max(len(passages), 1) or 1.0
        terms = (*question.needed, *question.helpful)
        self._rarity = {term: self._rarity_of(sum(term in each.weights for each in passages)) for term in terms}
        same_form = {term: sum(SAME_FORM_WEIGHT in each.weights.get(term, ()) for each in passages) for term in terms}
        self._form_rarity = {term: self._rarity_of(holding) for term, holding in same_form.items()}
        self._plain_terms = [term for term in question.needed if term not in question.exact]
        self._opposites = [(word, _OPPOSITES[word]) for word in question.needed if word in _OPPOSITES]

    def match(self, passage: Passage) -> PassageMatch:
        held = self._held(passage.weights, passage.title_weights)
        return PassageMatch(passage, self._is_answer(passage), self._score(passage, held), held)

    def _rarity_of(self, holding: int) -> float:
        """Return the rarity of a word by the number of passages that hold it. 0 counts as 1."""
        holding = max(holding, 1)
        return math.log(1 + (self._count - holding + 0.5) / (holding + 0.5))

    def _held(self, weights: WordWeights, title_weights: WordWeights) -> dict[str, float]:
        in_titles = {term: [TITLE_FACTOR * weight for weight in each] for term, each in title_weights.items()}
        held = {term: [*weights.get(term, ()), *in_titles.get(term, ())] for term in weights | title_weights}
        return {term: (1 + self._rarity[term]) * max(each) for term, each in held.items()}

    def _coverage(self, held: Mapping[str, float]) -> float:
        """Return the share of the question's words that are held. Names do not count, because patterns check them."""
        if not self._plain_terms:
            return 1.0
        whole = sum(1 + self._rarity[term] for term in self._plain_terms)
        return sum(held.get(term, 0.0) for term in self._plain_terms) / whole

    def _score(self, passage: Passage, held: Mapping[str, float]) -> float:
        score, length_factor = 0.0, 1 - B + B * len(passage.words) / self._average_words
        for term in held:
            weights = passage.weights.get(term, [])
            times = sum(weights) + TITLE_TIMES * bool(weights and term in passage.title_weights)
            score += self._rarity[term] * times * (K1 + 1) / (times + K1 * length_factor)
            score += FORM_BONUS * self._form_rarity[term] * (SAME_FORM_WEIGHT in weights)
        factor = self._coverage(held) ** 2 * (INTRODUCTION_FACTOR if passage.last_character == ":" else 1.0)
        score *= factor * (MINOR_PATH_FACTOR if _MINOR_PATH.search(passage.path) else 1.0)
        is_named = any(f"/{passage.path}".endswith(f"/{path}") for path in self._question.paths)
        return score * (NAMED_PATH_FACTOR if is_named else 1.0)

    def _is_answer(self, passage: Passage) -> bool:
        question, sentences = self._question, [one for one, _ in passage.windows]
        named_windows = [
            window
            for one, window in passage.windows
            if all(name.search(one + passage.title_text) for name in question.patterns)
        ]
        held = (self._held(question.weights(window.split()), passage.title_weights) for window in named_windows)
        is_covered = max(map(self._coverage, held), default=0.0) >= ENOUGH_COVERAGE
        says_opposite = any(
            f" {opposite} " in sentence and f" {word} " not in sentence
            for word, opposite in self._opposites
            for sentence in sentences
        )
        return (
            is_covered
            and any(term in passage.weights for term in question.needed)
            and passage.last_character != "?"
            and (not question.needs_amount or any(map(_AMOUNT.search, named_windows)))
            and not says_opposite
        )


def ranked_matches(question: ReaderQuestion, passages: list[Passage]) -> list[PassageMatch]:
    """Return the passages that hold words of the question, the best first. Those that answer come before all others."""
    ranking = _Ranking(question, passages)
    matches = [ranking.match(passage) for passage in passages if passage.weights]
    return sorted(matches, key=lambda match: (not match.answers, -match.score, match.passage.path, match.passage.first))
