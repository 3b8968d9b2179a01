"""Request and response serializers of ``POST /answer``."""

from drf_spectacular.utils import inline_serializer
from rest_framework import serializers

from accounts.strict_fields import StrictBooleanField, StrictCharField
from search.answers.services import MAX_TURNS
from search.serializers import MAX_BODY_CHARS, ScopeRequest


class TurnRequest(serializers.Serializer[object]):
    question = StrictCharField(allow_blank=True, max_length=MAX_BODY_CHARS, trim_whitespace=False)


class AnswerRequest(ScopeRequest):
    question = StrictCharField(
        allow_blank=True, max_length=MAX_BODY_CHARS, trim_whitespace=False, help_text="a question, or a follow-up"
    )
    history = TurnRequest(
        many=True,
        required=False,
        help_text=f"the conversation so far, oldest first, at most {MAX_TURNS} turns: completes a follow-up",
    )
    stream = StrictBooleanField(default=False, help_text="answer in server-sent events, a sentence each")


class AnswerCitationResponse(serializers.Serializer[object]):
    chunk_id = serializers.UUIDField(help_text="of the passage")
    document_id = serializers.UUIDField(allow_null=True, help_text="null: a statute")
    law_id = serializers.CharField(allow_null=True, help_text="null: a document")
    title = serializers.CharField(help_text="file name; of a statute, title, version and article")
    dated_at = serializers.DateTimeField(allow_null=True, help_text="when the document was uploaded")
    headings = serializers.ListField(child=serializers.CharField(), help_text="heading path of the passage")
    page = serializers.IntegerField(allow_null=True, help_text="on which the span begins")
    span = serializers.ListField(
        child=serializers.IntegerField(), help_text="start and end in the parsed markdown, in characters"
    )


class AnswerSentenceResponse(serializers.Serializer[object]):
    text = serializers.CharField(
        help_text="a sentence or list item; of a table's row, its cells with their column heads"
    )
    html = serializers.CharField(help_text="a row as a table, as safe HTML; else empty")
    grounded = serializers.FloatField(
        help_text="share of its figures, dates and names that stand in what it cites, 0 to 1; of a quotation, 1"
    )
    citations = AnswerCitationResponse(many=True)


class SearchedResponse(serializers.Serializer[object]):
    question = serializers.CharField(help_text="what was searched: a follow-up is completed")
    passages = serializers.IntegerField()
    documents = serializers.IntegerField()


class AnswerResponse(serializers.Serializer[object]):
    answered = serializers.BooleanField(help_text="false: not in the documents")
    text = serializers.CharField(help_text="the sentences, the best first; or that the documents do not say")
    sentences = AnswerSentenceResponse(many=True)
    contradiction = AnswerSentenceResponse(
        many=True, help_text="where documents differ: one sentence of each, with document and date; else empty"
    )
    nearest = AnswerCitationResponse(many=True, help_text="where nothing answers: the passages that came closest")
    answerer = serializers.CharField(help_text="extractive: quotations only; openai: sentences of a model")
    fallback = serializers.CharField(
        allow_null=True, help_text="code of what kept the model from answering: the answer is extractive"
    )
    dropped_sentences = serializers.IntegerField(help_text="of the model: not grounded in what they cite, or too many")
    searched = SearchedResponse()
    cost_cents = serializers.DecimalField(max_digits=12, decimal_places=6, coerce_to_string=False)


# One server-sent event of a streamed answer. Inline: a serializer has an attribute `data` of its own.
AnswerEventResponse = inline_serializer(
    "AnswerEventResponse",
    {
        "event": serializers.ChoiceField(["searched", "sentence", "done", "error"]),
        "data": serializers.CharField(help_text="JSON: what was searched, a sentence, the whole answer, or an error"),
    },
)
