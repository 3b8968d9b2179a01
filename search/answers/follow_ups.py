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
MAX_FOLLOW_UP_WORDS = 12  # a longer question has a subject of its own


@dataclass(frozen=True, slots=True)
class CompleteQuestion:
    """``text`` is what is searched; ``added`` the words that a follow-up adds to the subject of an earlier turn."""

    text: str
    added: str = ""


def complete_question(question: str, history: Sequence[str] = ()) -> CompleteQuestion:
    """Return a follow-up together with the last question that was none; another question as it is."""
    subject = next((turn for turn in reversed(history) if turn.strip() and not is_follow_up(turn)), "")
    if not subject or not is_follow_up(question):
        return CompleteQuestion(question)
    added = _CONTINUES.sub("", question, count=1).strip(" ?.!,") or question.strip()
    return CompleteQuestion(f"{subject.strip().rstrip('?.! ')}, {added}?", added)


def is_follow_up(question: str) -> bool:
    words = len(question.split())
    return 0 < words <= MAX_FOLLOW_UP_WORDS and bool(_CONTINUES.match(question) or _PRONOUN.search(question))
