from typing import Any

from django.apps import AppConfig
from django.contrib import admin
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core import checks

from accessa.checks.active_models import check_embedding_models
from accessa.checks.bucket_probe import check_buckets
from accessa.checks.database import check_database
from accessa.checks.deployment import check_deployment
from accessa.checks.settings import check_settings
from accessa.observability import receivers


class AccessaConfig(AppConfig):
    name = "accessa"

    def ready(self) -> None:
        checks.register(check_database, checks.Tags.database)
        checks.register(check_embedding_models, checks.Tags.database)
        checks.register(check_settings, "accessa")
        checks.register(receivers.check_packages, "accessa")
        checks.register(check_deployment, checks.Tags.security, deploy=True)
        checks.register(check_buckets, "storage", deploy=True)
        receivers.register_receivers()


class AdminConfig(SimpleAdminConfig):
    """The admin; its modules are loaded with the URLs, or to be checked. Workers start in two thirds of the time."""

    default_site = "unfold.sites.UnfoldAdminSite"

    def ready(self) -> None:
        checks.register(check_dependencies, checks.Tags.admin)
        checks.register(_check_admin, checks.Tags.admin)


def _check_admin(**options: Any) -> list[checks.CheckMessage]:
    admin.autodiscover()
    return check_admin_app(**options)
