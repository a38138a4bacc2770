"""The head word and the kind of an English mention in files that have no dependency trees.

The rule: a mention is cut before the first word that opens something behind the head (a preposition, comma,
conjunction, relative pronoun or verb), and the head is the last nominal word of what stands before the cut.
Where nothing nominal stands there ("the sleeping man", with parts of speech), the mention is cut at the next
such word instead. Words are judged by their part of speech, or without one by short lists of closed-class
words; what is in no list counts as nominal.
"""

from __future__ import annotations

from collections.abc import Sequence

from headlens.text.corpus import KINDS, Kind, Word


def _listed(words: str) -> frozenset[str]:
    return frozenset(words.split())


_CUTS = frozenset({"ADP", "SCONJ", "CCONJ", "VERB", "AUX", "PART", "PUNCT"})
_NOMINAL = frozenset({"NOUN", "PROPN", "PRON", "NUM"})
_SIGNS = _listed(", ; : . ! ? -- --- \u2013 \u2014 ( ) [ ] -LRB- -RRB- ' \" `` '' \u201c \u201d")
_POSSESSIVES = _listed("my your his her its our their whose thy 's ' \u2019s \u2019")
_DETERMINERS = _listed("a an the no every each")
_PRONOUNS = _listed(
    "i me mine myself you yours yourself yourselves ye thou thee thine he him himself she hers herself "
    "it itself we us ours ourselves they them theirs themselves oneself who whom 'em"
)
_ALONE = _listed("this that these those which")  # pronouns where they are the whole mention
_NO_NAMES = _listed(
    "some none many most all both others here there somebody someone anybody anyone everybody everyone "
    "nobody one two three men people"
)
_RELATIVES = _listed("that which whom whose what where when")
_CLOSED = _listed(
    "of in on at by for with from to into upon about over under between among against through during "
    "without within near behind beside beyond above below across after before like as than until towards "
    "toward around along off out and or but nor because if when where while who whom whose which that is "
    "are was were be been being am has have had having do does did will would can could may might must "
    "shall should called named"
)


def top_word(words: Sequence[Word], start: int, end: int) -> int:
    """Find the head word of a mention without a tree.

    It misleads where something that cuts stands before the head: adjectives with commas or "and" between them
    ("a conceited, silly father") when parts of speech are unknown, compounds such as "in-laws" written as
    several words, and titles of works. In names it takes the last word ("Sir Walter Elliot" is "Elliot"),
    where UD trees take the first. It knows English only.

    Args:
        words: the words of the sentence.
        start: index of the mention's first word.
        end: index of its last word, plus one.

    Returns:
        The index of the head word.
    """
    last = None
    for index in range(start, end):
        if index > start and _cuts(words[index]) and last is not None:
            return last
        if _nominal(words[index], index == end - 1):
            last = index
    if last is not None:
        return last
    return next((i for i in range(end - 1, start, -1) if not _punctuation(words[i])), start)


def mention_kind(words: Sequence[Word], start: int, end: int, head: int) -> Kind:
    """Tell the kind of a mention.

    Without parts of speech a capital letter makes a name, so that "the Captain", a noun in a headline, and a
    plain noun that begins its sentence without an article ("Men") are taken for one.

    Args:
        words: the words of the sentence.
        start: index of the mention's first word.
        end: index of its last word, plus one.
        head: index of its head word.

    Returns:
        "pronoun", "proper" or "nominal", by the head's part of speech where it has one; else by a list of
        pronouns and by capital letters. Possessives ("her") and "this" are pronouns where they stand alone.
    """
    word, alone = words[head], end - start == 1
    form = word.form.lower()
    if form in _PRONOUNS or (alone and form in _ALONE | _POSSESSIVES):
        return "pronoun"
    if word.upos:
        return KINDS.get(word.upos, "nominal")
    return "proper" if word.form[:1].isupper() and form not in _NO_NAMES else "nominal"


def _cuts(word: Word) -> bool:
    form = word.form.lower()
    if form in _POSSESSIVES or form == "-":
        return False
    if form in _PRONOUNS or form in _RELATIVES:
        return True
    return word.upos in _CUTS if word.upos else form in _CLOSED or form in _SIGNS


def _nominal(word: Word, is_last: bool) -> bool:
    form = word.form.lower()
    if form in _POSSESSIVES and not is_last:
        return False
    if word.upos:
        return word.upos in _NOMINAL
    return form != "-" and form not in _CLOSED | _SIGNS | _DETERMINERS | _POSSESSIVES


def _punctuation(word: Word) -> bool:
    return word.upos == "PUNCT" or word.form in _SIGNS
