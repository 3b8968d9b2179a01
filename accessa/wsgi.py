"""WSGI application."""

import os
from importlib import import_module

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.utils.module_loading import import_string

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "accessa.settings")
application = get_wsgi_application()
import_module(settings.ROOT_URLCONF)  # the pages and the admin, before the first request needs them
application.request_class = import_string("accessa.request_bodies.Utf8Request")  # loads models, so after the setup
