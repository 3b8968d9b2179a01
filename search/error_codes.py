"""Error codes of answers."""

from django.utils.translation import gettext_lazy as _

from accounts.errors import ErrorCode

NO_WORDS = ErrorCode(
    "NO_WORDS",
    _("Ask with words that the answer may have: “the”, “and” and “how many” stand in every document."),
)
TOO_MANY_TURNS = ErrorCode("TOO_MANY_TURNS", _("The conversation is too long. Ask your question anew."))
TOO_MANY_ANSWERS = ErrorCode(
    "TOO_MANY_ANSWERS", _("Too many answers are being written at once. Try again in a moment."), status=429
)
# Why a model's answer was not taken, beside the codes of vendors' calls and budgets: the field `fallback`.
ANSWER_EMPTY = ErrorCode("ANSWER_EMPTY", _("The model gave no sentence."))
ANSWER_MALFORMED = ErrorCode("ANSWER_MALFORMED", _("The model's answer cannot be read."))
ANSWER_UNGROUNDED = ErrorCode("ANSWER_UNGROUNDED", _("No sentence of the model stands in your documents."))

ANSWER_ERRORS = (NO_WORDS, TOO_MANY_TURNS, TOO_MANY_ANSWERS)
