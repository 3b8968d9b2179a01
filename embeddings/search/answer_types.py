"""Types of answer that questions ask for, a number, an age, a price, and the words of questions alone."""

import re

NUMBER, COUNT, DATE, MONEY = "number", "count", "date", "money"
AGE, DURATION, FREQUENCY = "age", "duration", "frequency"

# The first that matches tells the type.
_QUESTIONS = tuple(
    (kind, re.compile(rf"\b(?:{words})\b"))
    for kind, words in (
        (DATE, r"when|(?:which|what) (?:date|day|year|month)"),
        (AGE, r"how (?:old|young)|(?:what|which) age|age limit"),
        (COUNT, r"how many"),
        (FREQUENCY, r"how often"),
        (DURATION, r"how (?:long|soon|late|much (?:time|notice))|deadline"),
        (
            MONEY,
            r"copay(?:ment)?s?|coinsurance|costs?|prices?|fees?|free|deductible"
            r"|how much(?! (?:of|leave|weight))|(?:what|how much) (?:do|does|will|would|must) \w+ pay",
        ),
        (
            NUMBER,
            r"how (?:much|far|large|big|high|heavy|close|short|fast|tall|deep|wide)"
            r"|percentage|percent|rate|limit|maximum|minimum|amount|number|share|average|age|total|distance|diameter|max|min",
        ),
    )
)
_QUESTION_WORDS = re.compile(
    r"\b(?:how (?:many|much|long|often|far|old|large|big|high|heavy|late|soon|close|short|fast|tall|deep|wide)|how|when"
    r"|(?:which|what) (?:date|day|year|month|percentage|share|number|amount|age)|(?:what|who|when|where|how)['\u2019]?s"
    r"|which|what|who|where)\b",
    re.IGNORECASE,
)
# Words of questions alone: "what does it cost", "how many do I get", "what happens if I go out of network", "does my
# plan cover it". An address or a telephone number is told without those words.
_LIGHT_WORDS = re.compile(
    r"\b(?:costs?|prices?|free|pays?|paid|gets?|goes|go|happens?|sees?|wants?|needs?|covers?|covered"
    r"|somebody|someone|anybody|anyone|(?:tele)?phone(?: numbers?)?|(?<=fax )numbers?|(?:mailing |postal )?address)\b",
    re.IGNORECASE,
)

_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_WORDS = "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|half|once|twice|no (?:limit|charge)"
_SPANS = r"(?:minutes?|hours?|days?|weeks?|months?|years?)"
_ANSWERS = {
    kind: re.compile(words, re.IGNORECASE)
    for kind, words in {
        DATE: rf"\b(?:1[5-9]|20)\d\d\b|\b(?:{_MONTHS})\b|\b\d{{1,2}}[./]\d{{1,2}}[./]\d|\bdays?\b",
        MONEY: r"[$€£¥]|\d ?%|\b(?:percent|dollars|free|no charge)\b",
        AGE: (
            r"\b(?:aged?|ages|under|over|turns?|becomes?|reach(?:es)?|until|birthday|older than|younger than)\b"
            r"[^.;]{0,12}\b\d+\b"
            r"(?! (?:days|weeks|months))|\byears? (?:old|of age)\b"
        ),
        COUNT: rf"(?<![$€£¥\d.,])\d+(?:[.,]\d+)*(?![\d.,]* ?%)\b|\b(?:{_WORDS}|unlimited)\b",
        FREQUENCY: (
            rf"\b(?:every|each|once|twice|per|yearly|no limit)\b|\b(?:\d+|{_WORDS}) {_SPANS}\b"
            r"|\ba (?:\w+ )?(?:day|week|month|year)\b"
        ),
        DURATION: (
            rf"\b(?:\d+|{_WORDS})[ -](?:\w+ )?{_SPANS}\b|\bno (?:time )?limit\b"
            r"|\b\d+ (?:characters|letters|pages|feet|inches|miles|meters|metres|km|cm|mm)\b"
        ),
        NUMBER: rf"\d|\b(?:{_WORDS})\b",
    }.items()
}


def answer_type(question: str) -> str | None:
    """Return the type of answer that the question asks for; None of one that asks for words, or for yes or no."""
    asked = question.lower()
    return next((kind for kind, words in _QUESTIONS if words.search(asked)), None)


def answer_pattern(question: str) -> re.Pattern[str] | None:
    """Return the pattern of answers of the type that the question asks for."""
    kind = answer_type(question)
    return _ANSWERS[kind] if kind else None


def content_words(question: str) -> str:
    """Return the question without its question words: of "how many visits" the answer repeats only the last."""
    return _QUESTION_WORDS.sub(" ", question)


def subject_words(question: str) -> str:
    """Return the question's content words without those that its answer does not repeat either."""
    return _LIGHT_WORDS.sub(" ", content_words(question))
