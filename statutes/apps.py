from django.apps import AppConfig


class StatutesConfig(AppConfig):
    name = "statutes"
