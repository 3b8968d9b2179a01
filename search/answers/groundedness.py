"""Groundedness of a model's sentences: each fact must stand in a passage that the sentence cites."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from embeddings.search.passage_sentences import Sentence
from search.answers.bounds import keeps_bounds
from search.answers.facts import Facts
from search.answers.prompt import Draft
from search.answers.sources import Source

# Of its longer words, by their beginnings: a sentence without a figure or a name is no invention of the model's either.
LEAST_WORDS = 0.6
WORD_CHARS, STEM_CHARS = 4, 5
UNIT_STEMS = {"perce", "dolla", "euros", "pesos"}
MAX_CITATIONS = 3

# A negation, and the word that it denies: "not covered", "no prior referral".
_NEGATION = re.compile(
    r"\b(?:not?|never|cannot|\w+n['\u2019]t|none|nor|neither|without|nothing|except\w*|exclu\w*|unless|only|denied|deny"
    r"|nunca|sin|ni|ning[uú]n\w*|nada|salvo|s[oó]lo|solamente)\b",
    re.IGNORECASE,
)
_DENIAL = re.compile(
    r"\b(?:not?|never|cannot|\w+n['\u2019]t|nunca)\b"
    r"(?!\s+(?:to\s+)?(?:more|less|fewer|later|sooner|earlier|longer|exceed\w*|only|m[aá]s|menos)\b)",
    re.IGNORECASE,
)
_DENIED = re.compile(r"\b(?:not?|never|cannot|\w+n['\u2019]t|nunca)((?:\s+[^\W\d_]+){1,2})", re.IGNORECASE)

# Sentences that address a model instead of a reader state nothing.
_ORDER = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass|ignora|ignore|olvida)\b.{0,60}"
    r"\b(?:instruct\w*|rules?|prompts?|guidelines?|directions?|above|previous|instrucci\w*|reglas)\b"
    r"|\b(?:system|developer) ?(?:prompt|message|override|note|mode)\b|\bnew instructions?\b|\bjailbreak\b"
    r"|\b(?:you are|act as|pretend to be|as) (?:now )?(?:an?|the) (?:\w+ )?(?:AI|assistant|model|chatbot)\b"
    r"|\b(?:AI|assistants?|language models?|LLMs?|chatbots?)\b.{0,60}\b(?:must|should|shall|please|reading|have to)\b"
    r"|^\W*(?:please )?(?:now )?(?:say|answer|respond|reply|output|print|repeat|tell (?:the user|everyone)|cite)\b"
    r"|\[/?INST\]|<\||</?(?:passages?|question|system|user|assistant|instructions?)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class GroundedSentence:
    """``places`` are the sources that it cites, each with the offsets of its sentence that supports it best."""

    text: str
    places: list[tuple[Source, int, int]]


class _Evidence:
    """What a source states: its sentences and rows, its title and headings."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.sentences = [each for each in source.sentences if not _ORDER.search(each.text)]
        self.text = "\n".join([source.title, *source.headings, *(each.text for each in self.sentences)])

    def closest(self, stems: set[str], facts: Facts) -> list[Sentence]:
        """Return the sentences that support others of these words and facts best, in reading order."""
        own = [each for each in self.sentences if each.start >= self.source.repeated]
        scores = [_overlap(each, stems, facts) for each in own]
        return [each for each, score in zip(own, scores, strict=True) if score == max(scores)]

    def place(self, sentences: Sequence[Sentence]) -> tuple[Source, int, int]:
        return self.source, *((sentences[0].start, sentences[0].end) if sentences else (0, len(self.source.text)))


class GroundednessCheck:
    """Checks sentences against the passages of one prompt."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._evidence: dict[int, _Evidence] = {}

    def check(self, draft: Draft) -> GroundedSentence | None:
        """Return the sentence with its citations; None for one that is not grounded in the passages that it cites."""
        known = [number for number in draft.passages if 1 <= number <= len(self._sources)]
        cited = [self._read(number) for number in known[:MAX_CITATIONS]]
        if not cited:
            return None
        facts, stems = Facts.read(draft.text), _stems(draft.text)
        evidence = "\n".join(each.text for each in cited)
        stated, supported = Facts.read(evidence), stems & _stems(evidence)
        has_words = bool(stems) and len(supported) >= LEAST_WORDS * len(stems)
        if not has_words or not all(map(stated.support, facts.stated)):
            return None
        closest = [each.closest(stems, facts) for each in cited]
        near = "\n".join(f"{each.title}: {each.lead} {each.text}" for sentences in closest for each in sentences)
        if _affirms_denied(draft.text, near) or _affirms_denied(draft.text, evidence):
            return None
        if _DENIAL.search(draft.text) and not _NEGATION.search(near):
            return None
        if not keeps_bounds(draft.text, evidence):
            return None
        return GroundedSentence(draft.text, [each.place(own) for each, own in zip(cited, closest, strict=True)])

    def _read(self, number: int) -> _Evidence:
        if number not in self._evidence:
            self._evidence[number] = _Evidence(self._sources[number - 1])
        return self._evidence[number]


def _overlap(sentence: Sentence, stems: set[str], facts: Facts) -> int:
    own = Facts.read(sentence.text)
    return 2 * sum(map(own.support, facts.stated)) + len(stems & _stems(sentence.text))


def _affirms_denied(text: str, evidence: str) -> bool:
    """Tell whether a text without a negation has a word that the evidence only denies."""
    if _NEGATION.search(text):
        return False
    denied = _stems(" ".join(_DENIED.findall(evidence)))
    return bool(_stems(text) & denied - _stems(_DENIED.sub(" ", evidence)))


def _stems(text: str) -> set[str]:
    """Return the beginnings of the longer words, but for units of figures, which have signs too."""
    return {word[:STEM_CHARS] for word in re.findall(rf"[^\W\d_]{{{WORD_CHARS},}}", text.lower())} - UNIT_STEMS
