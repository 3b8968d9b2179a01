"""What tenants say about the answers that they were given."""

import uuid

from django.db import models
from django.db.models.functions import Now


class AnswerFeedback(models.Model):
    """Whether the sentence at [start, end) of a document's parsed markdown answers a question.

    The answer's text is not stored: it is the document's, and gone with it.
    """

    feedback_id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    user_id = models.UUIDField()
    document = models.ForeignKey("documents.Document", on_delete=models.CASCADE, related_name="+")
    chunk_id = models.UUIDField()
    span_start = models.IntegerField()
    span_end = models.IntegerField()
    question = models.TextField()
    is_right = models.BooleanField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "answer_feedback"
        default_permissions = ()
        verbose_name_plural = "answer feedback"
        indexes = [models.Index("user_id", "created_at", name="ix_answer_feedback_user")]

    def __str__(self) -> str:
        return str(self.feedback_id)
