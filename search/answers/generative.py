"""Answers that a model writes: bought within a bound, checked sentence by sentence, with the reason of a failure."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from django.conf import settings

from accounts.errors import ErrorCode
from jobs.outcomes import StageFailure, Wait
from search.answers.groundedness import GroundednessCheck, GroundedSentence
from search.answers.openai import purchase_response
from search.answers.prompt import MAX_SENTENCES, DraftReader, MalformedAnswer, render_prompt
from search.answers.sources import Source
from search.error_codes import ANSWER_EMPTY, ANSWER_MALFORMED, ANSWER_UNGROUNDED

OPENAI = "openai"


@dataclass(frozen=True, slots=True)
class Generation:
    """``failure`` is the code of what kept the model from answering; None where ``sentences`` are the answer."""

    sentences: list[GroundedSentence]
    dropped: int
    cents: Decimal
    failure: str | None


def is_enabled() -> bool:
    return bool(settings.ANSWERER == OPENAI)


def generate_sentences(
    user_id: UUID, question: str, sources: Sequence[Source], *, is_connected: Callable[[], bool]
) -> Generator[GroundedSentence, None, Generation]:
    """Let the model answer, billed to the user: yield each sentence that is grounded, as soon as it is complete.

    What was yielded is no answer if the generation ends with a failure. Raises ``ClientGone`` where nobody waits.
    """
    reader, grounding = DraftReader(), GroundednessCheck(sources)
    grounded: list[GroundedSentence] = []
    drafts, cents, failure = 0, Decimal(0), None
    stream = None
    try:
        with purchase_response(user_id, render_prompt(question, sources), is_connected=is_connected) as stream:
            for delta in stream.deltas():
                for draft in reader.feed(delta):
                    drafts += 1
                    sentence = grounding.check(draft)
                    if sentence and len(grounded) < MAX_SENTENCES:
                        grounded.append(sentence)
                        yield sentence
        reader.close()
    except (Wait, StageFailure) as outcome:
        failure = str(outcome.reason if isinstance(outcome, Wait) else outcome.code)
    except MalformedAnswer:
        failure = ANSWER_MALFORMED
    if stream and stream.usage:
        cents = stream.usage.cents
    failure = failure or _shortfall(drafts, len(grounded))
    return Generation([] if failure else grounded, drafts - len(grounded), cents, failure)


def _shortfall(drafts: int, grounded: int) -> ErrorCode | None:
    if not drafts:
        return ANSWER_EMPTY
    return None if grounded else ANSWER_UNGROUNDED
