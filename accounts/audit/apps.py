from django.apps import AppConfig


class AuditConfig(AppConfig):
    name = "accounts.audit"
    label = "audit"
