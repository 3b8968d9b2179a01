from django.apps import AppConfig


class ReindexingConfig(AppConfig):
    name = "embeddings.reindexing"
    label = "reindexing"
