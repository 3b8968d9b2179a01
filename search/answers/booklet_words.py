"""Words of booklets for what members call otherwise: a question is also searched in those."""

import re

# Where a question has the words of the left, it is also searched with those of the right.
_PHRASES = (
    (r"add (?:my |our |a |the )?(?:newborn|new ?born|baby|new baby)", "enroll after a birth"),
    (r"add (?:my |our |a |the )?(?:new )?(?:spouse|wife|husband|partner)", "enroll after a marriage"),
    (r"add (?:my |our |a |the )?(?:child|kid|son|daughter|dependent)s?", "enroll a dependent child"),
    (r"(?:get|got|getting) married", "marriage"),
    (r"(?:see|visit) (?:my |a |the )?(?:family |regular )?doctor", "primary care office visit"),
    (r"(?:my |an? |the )?(?:annual|yearly) (?:physical|exam|check-?up)", "preventive care examination"),
    (r"(?:have|having) (?:a|my) baby", "delivery and maternity care"),
    (r"(?:(?:new|replacement|another) )?(?:id|insurance|membership) card|(?:new|lost) card", "replacement member card"),
    (r"(?:submit|send(?: in)?|make) (?:a |my )?claims?", "file a claim"),
    (r"(?:eye)?glasses", "vision lenses and frames"),
    (r"weight[- ]loss surgery", "bariatric surgery"),
    (r"chiropractor", "chiropractic care"),
    (
        r"(?:lose|lost|leave|left|quit) (?:my|the) job|(?:I|we) (?:quit|leave|retire)(?= *(?:[?.!,]|$))"
        r"|(?:get|got|am|was) (?:laid off|fired)",
        "leaving a job, keep coverage when employment ends",
    ),
    (r"(?:drop|cancel|kick out) (?:me|us|my (?:coverage|plan|policy))", "end coverage"),
    (
        r"claim (?:got|was|is|has been) (?:denied|rejected|refused)|(?:denied|rejected|refused) my claim",
        "appeal a denial",
    ),
    (r"(?:your |the )?(?:phone|opening|business) hours", "hours in which member services answer"),
    (r"where do (?:I|we) (?:mail|send) (?:my |our |a |the )?claims?", "address to send a claim"),
    (r"(?:sick|ill|hurt|treated) (?:abroad|overseas)", "care while traveling abroad"),
    (r"(?:therapist|counselor|psychologist) online", "virtual mental health visit"),
    (r"(?:find|choose) (?:a |my )?(?:doctor|provider)", "directory of providers"),
    (
        r"(?:until|to|at) what age (?:is|are|do|does|can|will) my (?:child|children|kids?|son|daughter)",
        "dependent child under age",
    ),
    (r"how old can my (?:child|children|kids?|son|daughter) be", "dependent child under age"),
    (r"(?:the )?most (?:I|we) (?:can|could|will|must|have to) (?:pay|spend)", "out-of-pocket limit"),
    (
        r"(?:in|to) (?:Europe|Asia|Africa|Mexico|Canada|(?:an)?other country|a foreign country)",
        "while traveling abroad",
    ),
    (r"(?:quit(?:ting)?|stop(?:ping)?) smoking", "tobacco cessation"),
    (r"in spanish|speaks? spanish", "interpreter, language assistance, español"),
    (r"stay in (?:the|a) hospital|hospital stay", "inpatient hospital stay"),
    (r"(?:drugs?|medicines?|prescriptions?) by mail", "mail order drugs"),
    (r"dental|(?:the )?dentist", "dental care"),
)
_TERMS = [(re.compile(rf"\b(?:{words})\b", re.IGNORECASE), booklet) for words, booklet in _PHRASES]


def reword(question: str) -> str | None:
    """Return the question in the words of booklets; None where it has them already."""
    reworded = question
    for words, booklet in _TERMS:
        reworded = words.sub(booklet, reworded)
    return None if reworded == question else reworded
