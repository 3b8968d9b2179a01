"""Error codes of answers."""

from django.utils.translation import gettext_lazy as _

from accounts.errors import ErrorCode

NO_WORDS = ErrorCode(
    "NO_WORDS",
    _("Ask with words that the answer may have: “the”, “and” and “how many” stand in every document."),
)
TOO_MANY_TURNS = ErrorCode("TOO_MANY_TURNS", _("The conversation is too long. Ask your question anew."))

ANSWER_ERRORS = (NO_WORDS, TOO_MANY_TURNS)
