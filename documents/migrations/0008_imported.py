from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("documents", "0007_console"),
    ]

    operations = [
        migrations.AddField(
            model_name="document",
            name="imported",
            field=models.BooleanField(db_default=False),
        ),
    ]
