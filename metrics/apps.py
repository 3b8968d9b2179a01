from django.apps import AppConfig


class MeasuresConfig(AppConfig):
    name = "metrics"
