"""Tenants' questions of the search page, and what tenants say about their answers."""

import uuid

from django.contrib.postgres.fields import ArrayField
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


class SavedQuestion(models.Model):
    """A question of the search page, whose address names it by its id: no URL has its words.

    ``history`` are the questions that it follows; ``scope`` is the chosen document's id, "laws", or empty.
    """

    question_id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    user_id = models.UUIDField()
    question = models.TextField()
    history = ArrayField(models.TextField(), default=list)
    mode = models.TextField()
    scope = models.TextField(blank=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "saved_questions"
        default_permissions = ()
        indexes = [
            models.Index("user_id", "created_at", name="ix_saved_questions_user"),
            models.Index("created_at", name="ix_saved_questions_age"),
        ]

    def __str__(self) -> str:
        return str(self.question_id)
