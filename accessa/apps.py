from django.apps import AppConfig
from django.core import checks

from accessa.checks import database_is_prepared, files_are_kept_and_private, fit_for_production


class AccessaConfig(AppConfig):
    name = "accessa"

    def ready(self) -> None:
        checks.register(database_is_prepared, checks.Tags.database)
        checks.register(fit_for_production, checks.Tags.security, deploy=True)
        checks.register(files_are_kept_and_private, "storage", deploy=True)
