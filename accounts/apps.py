from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class AccountsConfig(AppConfig):
    name = "accounts"

    def ready(self) -> None:
        autodiscover_modules("error_codes")
