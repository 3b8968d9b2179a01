"""WSGI application with one more view, which leaks."""

from importlib import import_module

from django.core.wsgi import get_wsgi_application
from django.urls import path

from testing.log_leaks import view

application = get_wsgi_application()
import_module("accessa.urls").urlpatterns.insert(0, path("leak", view))
