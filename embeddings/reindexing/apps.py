from django.apps import AppConfig


class CampaignsConfig(AppConfig):
    name = "embeddings.reindexing"
    label = "reindexing"
