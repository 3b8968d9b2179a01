from django.apps import AppConfig
from django.core import checks

from accessa import observability
from accessa.checks import database_is_prepared, files_are_kept_and_private, fit_for_production, models_are_known
from accessa.checks.conflicts import contradictions


class AccessaConfig(AppConfig):
    name = "accessa"

    def ready(self) -> None:
        checks.register(database_is_prepared, checks.Tags.database)
        checks.register(models_are_known, checks.Tags.database)
        checks.register(contradictions, "accessa")
        checks.register(observability.packages_are_installed)
        observability.listen()
        checks.register(fit_for_production, checks.Tags.security, deploy=True)
        checks.register(files_are_kept_and_private, "storage", deploy=True)
