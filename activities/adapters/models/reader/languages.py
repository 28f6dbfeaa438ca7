"""Languages: the words of each that say nothing of what a text is about, and which language a text is in."""

from collections.abc import Sequence
from typing import Literal

Language = Literal["en", "de", "fr", "es"]


def _each(text: str) -> frozenset[str]:
    return frozenset(text.split())


STOP_WORDS: dict[Language, frozenset[str]] = {
    "en": _each(
        """
        a about above actually after again all also am an and any are as at be because been before being below between
        both but by can could did do does doing done down during each either else ever every few for from further get
        gets give given go goes had happen happened happens has have having he her here his how i if in instead into is
        it its itself just let like may me might mine more most much many must my need needs no nor not now of off on
        once one only or other our out over own per please rather same shall she should so some such than that the their
        them then there these they this those through to too under until up us very was we were what when where whether
        which while who whom whose why will with within without would yes yet you your
        """
    ),
    "de": _each(
        """
        ab aber alle allem allen aller alles als also am an auch auf aus bei beim bin bis bist bitte da damit dann das
        dass dein dem den denn der des dich die dies diese diesem diesen dieser dieses dir doch du durch ein eine einem
        einen einer eines er es etwa etwas euer fur gegen gibt habe haben hat hatte hatten hier hoch ich ihm ihn ihnen
        ihr ihre ihrem ihren im in ins ist ja jede jedem jeden jeder jedes kann kein keine keinen konnen konnte lang
        lange man mehr mein mich mir mit muss mussen nach nicht nichts noch nun nur ob oder ohne sehr sei sein seine
        sich sie sind so soll sollen sollte uber um und uns unser unter viel viele vom von vor wann war waren warum was
        weil welche welchem welchen welcher welches wem wen wenn wer werde werden wessen wie wieder wieso will wir wird
        wo wohin wurde wurden zu zum zur zwischen
        """
    ),
    "fr": _each(
        """
        a ai au aux avec ce ces cette combien comment dans de des donc du elle en est et eu il ils je la le les leur
        leurs lui ma mais me mes mon ne nos notre nous on
        ou par pas plus pour pourquoi qu quand que quel quelle quelles quels
        qui quoi sa sans se ses si son sont sur ta te tes ton tu un une vos votre vous y
        """
    ),
    "es": _each(
        """
        a al como con cual cuales cuando cuanto cuantos de del donde e el ella ellos en entre era es esta este esto ha
        hay la las le les lo los mas me mi muy no nos o para pero por porque que quien se ser si sin sobre son su sus
        un una y yo
        """
    ),
}

TASK_WORDS: dict[Language, frozenset[str]] = {
    "en": _each(
        """
        answer ask brief briefly cite compare describe detail details directory doc docs document documentation
        documents exactly explain explanation file files find folder
        folders happen happens know list look mean means overview
        passage passages place project question quote quotes read repo repository say says sentence show source sources
        specific summarise summarize summary summaries tell thing things understand use used uses using want way work
        works write
        """
    ),
    "de": _each(
        """
        antworte auflisten beschreibe datei dateien dokument dokumente dokumentation erklare finde frage lies liste
        nenne ordner quelle quellen sage sagen sag schreibe steht suche uberblick zeige zitiere zusammenfassung
        """
    ),
    "fr": frozenset(),
    "es": frozenset(),
}
"""Words of a task that say what to do, not what about."""


_LANGUAGES: tuple[Language, ...] = ("en", "de", "fr", "es")


def language_of(words: Sequence[str]) -> Language:
    """Return the language whose commonest words are the most among these, folded ones; English where none is ahead."""
    ranked = [
        (sum(word in stop for word in words), language == "en", language) for language, stop in STOP_WORDS.items()
    ]
    return max(ranked)[2]
