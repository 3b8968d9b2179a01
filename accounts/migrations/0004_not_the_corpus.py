import uuid

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0003_console")]

    operations = [
        migrations.AddConstraint(
            model_name="user",
            constraint=models.CheckConstraint(
                condition=models.Q(("id", uuid.UUID("4c415753-0000-4000-8000-000000000000")), _negated=True),
                name="user_is_not_the_corpus",
            ),
        ),
    ]
