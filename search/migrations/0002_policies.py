"""Row-level security."""

from django.db import migrations

from accounts.rls import enable_rls


class Migration(migrations.Migration):
    dependencies = [("search", "0001_initial"), ("accounts", "0002_policies")]

    operations = [
        enable_rls("answer_feedback", "answer_feedback_select_self"),
        enable_rls("saved_questions", "saved_questions_select_self"),
    ]
