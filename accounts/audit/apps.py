from django.apps import AppConfig


class AuditingConfig(AppConfig):
    name = "accounts.audit"
    label = "audit"
