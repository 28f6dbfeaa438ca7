"""Words: text as a sequence of stems, with identifiers split and unspaced scripts cut into pairs."""

import functools
import re
import unicodedata
from itertools import takewhile

from orga.activities.adapters.models.reader.languages import STOP_WORDS, Language
from orga.workflows.types.text import compatible

_PIECE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]+|[^\W_\u3040-\u30ff\u3400-\u9fff]+")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


_NUMBER_WORDS = {
    "2": "two zwei",
    "3": "three drei",
    "4": "four vier",
    "5": "five funf",
    "6": "six sechs",
    "7": "seven sieben",
    "8": "eight acht",
    "9": "nine neun",
    "10": "ten zehn",
    "11": "eleven elf",
    "12": "twelve zwolf",
    "13": "thirteen dreizehn",
    "14": "fourteen vierzehn",
    "15": "fifteen funfzehn",
    "16": "sixteen sechzehn",
    "17": "seventeen siebzehn",
    "18": "eighteen achtzehn",
    "19": "nineteen neunzehn",
    "20": "twenty zwanzig",
    "30": "thirty dreissig",
    "40": "forty vierzig",
    "50": "fifty funfzig",
    "60": "sixty sechzig",
    "70": "seventy siebzig",
    "80": "eighty achtzig",
    "90": "ninety neunzig",
    "100": "hundred hundert",
    "1000": "thousand tausend",
}
NUMBERS = {word: digits for digits, words in _NUMBER_WORDS.items() for word in words.split()}
"""Digits by word, so that `12` meets `twelve`."""


_OPPOSED = (
    ("old", "new"),
    ("first", "last"),
    ("alt alte altem alten alter altes", "neu neue neuem neuen neuer neues"),
    ("erste erstem ersten erster erstes", "letzte letztem letzten letzter letztes"),
)
OPPOSITES = {
    word: frozenset(other.split()) for one, other in (*_OPPOSED, *((b, a) for a, b in _OPPOSED)) for word in one.split()
}
"""What says, of two things of a kind, the other one."""


def words(text: str) -> list[str]:
    """Return the words in order: lower case, accents folded, `maxTokens` and `max_tokens` as two."""
    return [folded(part) for part in parts(text)]


def parts(text: str) -> list[str]:
    """Return the words as they are written."""
    found: list[str] = []
    for piece in _PIECE.findall(compatible(text)):
        unspaced = _UNSPACED.match(piece)
        found += [piece[i : i + 2] for i in range(max(1, len(piece) - 1))] if unspaced else _CAMEL.split(piece)
    return found


def stems(text: str) -> list[str]:
    """Return the stems of all words in order, stop words included: phrases need them."""
    return [stem(word) for word in words(text)]


def is_content(word: str, language: Language = "en") -> bool:
    """Whether a word says what a text in this language is about; kana alone are mostly grammar."""
    if _UNSPACED.match(word):
        return not re.fullmatch(r"[\u3040-\u309f]+", word)
    return word not in STOP_WORDS[language] and (len(word) > 1 or word.isdigit())


SHORT_FORMS = {
    "arg": "argument",
    "auth": "authentication",
    "config": "configuration",
    "dir": "directory",
    "env": "environment",
    "info": "information",
    "init": "initialise",
    "max": "maximum",
    "min": "minimum",
    "num": "number",
    "param": "parameter",
    "repo": "repository",
    "spec": "specification",
    "sync": "synchronise",
    "temp": "temporary",
}
"""Each begins its long form, so a search for it finds both."""


IRREGULAR = {
    "become": "became",
    "begin": "began begun",
    "break": "broke broken",
    "bring": "brought",
    "build": "built",
    "burn": "burnt",
    "buy": "bought",
    "catch": "caught",
    "choose": "chose chosen",
    "come": "came",
    "deal": "dealt",
    "draw": "drew drawn",
    "drink": "drank drunk",
    "drive": "drove driven",
    "eat": "ate eaten",
    "fall": "fallen",
    "fight": "fought",
    "find": "found",
    "fly": "flew flown",
    "forbid": "forbade forbidden",
    "forget": "forgot forgotten",
    "freeze": "froze frozen",
    "give": "gave given",
    "go": "went gone",
    "grow": "grew grown",
    "hang": "hung",
    "hear": "heard",
    "hide": "hid hidden",
    "hold": "held",
    "keep": "kept",
    "know": "knew known",
    "lay": "laid",
    "learn": "learnt",
    "lend": "lent",
    "lose": "lost",
    "make": "made",
    "mean": "meant",
    "meet": "met",
    "overcome": "overcame",
    "pay": "paid",
    "ride": "rode ridden",
    "rise": "risen",
    "run": "ran",
    "say": "said",
    "seek": "sought",
    "sell": "sold",
    "send": "sent",
    "shake": "shook shaken",
    "shoot": "shot",
    "show": "shown",
    "sing": "sang sung",
    "sleep": "slept",
    "speak": "spoke spoken",
    "spend": "spent",
    "stand": "stood",
    "steal": "stole stolen",
    "stick": "stuck",
    "strike": "struck",
    "sweep": "swept",
    "swim": "swam swum",
    "take": "took taken",
    "teach": "taught",
    "tear": "tore torn",
    "tell": "told",
    "think": "thought",
    "throw": "threw thrown",
    "undergo": "underwent undergone",
    "understand": "understood",
    "undertake": "undertook undertaken",
    "wake": "woke woken",
    "wear": "wore worn",
    "win": "won",
    "withdraw": "withdrew withdrawn",
    "write": "wrote written",
}
"""Forms of verbs that no ending tells; not those that mean something else, too (left, rose, saw)."""
_VERBS = {form: verb for verb, forms in IRREGULAR.items() for form in forms.split()}


@functools.lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Return a light English stem: plural, tense and the commonest endings go, so `decided` meets `decision`."""
    word = NUMBERS.get(word, SHORT_FORMS.get(word, _VERBS.get(word, word)))
    if len(word) <= 3 or not word.isascii():
        return word
    return _end(_derived(_tense(_singular(word))))


def shared_start(one: str, other: str) -> str:
    """Return the letters that two words begin with in common."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return "".join(letter for letter, _ in same)


def folded(word: str) -> str:
    """Return a word in lower case, without accents."""
    decomposed = unicodedata.normalize("NFKD", word.casefold())
    return "".join(char for char in decomposed if not unicodedata.combining(char))


def _singular(word: str) -> str:
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def _tense(word: str) -> str:
    if word.endswith("ied"):
        return word[:-3] + "y"
    for ending in ("ing", "ed"):
        root = word.removesuffix(ending)
        if root != word and len(root) >= 3 and re.search("[aeiouy]", root):
            return root[:-1] if root[-1] == root[-2] and root[-1] not in "lsz" else root
    return word


def _derived(word: str) -> str:
    for ending, instead in (("ision", "id"), ("ation", "at"), ("ition", "it"), ("ator", "at")):
        if word.endswith(ending) and len(word) >= len(ending) + 3:
            return word.removesuffix(ending) + instead
    for ending in ("ment", "ness", "able", "ible", "ly", "al", "er", "or"):
        if word.endswith(ending) and len(word) >= len(ending) + 4:
            return word.removesuffix(ending)
    return word


def _end(word: str) -> str:
    if word.endswith("e") and len(word) > 4:
        return word[:-1]
    return word[:-1] + "i" if word.endswith("y") and word[-2] not in "aeiou" else word
