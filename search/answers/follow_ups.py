"""Follow-up questions: completed from the last turn's subject."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

# "and out of network?", "what about children?", "does it need approval?"
_CONTINUES = re.compile(
    r"\s*(?:(?:and|or|but|also|then|plus|so)\b[\s,]*"
    r"|(?:what|how) (?:about|if)\b\s*|(?:same )?for\b(?=\s)"
    r"|(?:in|out|with|without|after|before|on|at|per|by|from)\b(?=\s))",
    re.IGNORECASE,
)
_PRONOUN = re.compile(r"\b(?:it|its|they|them|their|that|this|these|those|one|there)\b", re.IGNORECASE)
# What a benefit has: a question of these words alone is about the benefit of the turn before.
_ATTRIBUTE = (
    r"(?:(?:prior|pre)[ -]?)?authori[sz]ations?|approvals?|referrals?|copay(?:ment)?s?|coinsurance|costs?|price|pay"
    r"|limits?|visits?|sessions?|days?|times?|network|age|many|much|often|long|covered|cover|allowed|required|needed"
    r"|need|get|free"
)
_ATTRIBUTES = re.compile(
    rf"\W*(?:(?:{_ATTRIBUTE}|is|are|do|does|can|will|would|i|we|you|a|an|the|any|my|what|when|how|who|to|there|of|for|in"
    r"|have|be|me|year|per)\b\W*)+",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    r"(?:how|what|which|when|where|who|do|does|did|is|are|can|could|will|would|must|should)\b", re.IGNORECASE
)
MAX_FOLLOW_UP_WORDS = 12  # a longer question has a subject of its own


@dataclass(frozen=True, slots=True)
class CompleteQuestion:
    """``text`` is what is searched; ``added`` the words that a follow-up adds to the subject of an earlier turn."""

    text: str
    added: str = ""

    @property
    def asked(self) -> str:
        """What tells the type of the answer: the follow-up, if it is a question by itself."""
        return self.added if _QUESTION.match(self.added) else self.text


def complete_question(question: str, history: Sequence[str] = ()) -> CompleteQuestion:
    """Return a follow-up together with the last question that was none; another question as it is."""
    subject = next((turn for turn in reversed(history) if turn.strip() and not is_follow_up(turn)), "")
    if not subject or not is_follow_up(question):
        return CompleteQuestion(question)
    continues = _CONTINUES.match(question)
    added = question[continues.end() if continues else 0 :].strip(" ?.!,") or question.strip()
    return CompleteQuestion(f"{subject.strip().rstrip('?.! ')}, {added}?", added)


def is_follow_up(question: str) -> bool:
    words = len(question.split())
    return 0 < words <= MAX_FOLLOW_UP_WORDS and bool(
        _CONTINUES.match(question) or _PRONOUN.search(question) or _ATTRIBUTES.fullmatch(question)
    )
