"""Baseline for the API: a WSGI application of one REST framework view that reads one row, without any middleware."""

import os
from typing import Any
from uuid import UUID

import django
from django.conf import settings
from django.db import connection

if not settings.configured:
    host, name = os.environ["BARE_VIEW_DATABASE"].split("|")
    settings.configure(
        ROOT_URLCONF=__name__,
        ALLOWED_HOSTS=["127.0.0.1"],
        INSTALLED_APPS=["rest_framework"],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "HOST": host,
                "NAME": name,
                "USER": "accessa_app",
                "CONN_MAX_AGE": 60,
            }
        },
        REST_FRAMEWORK={
            "DEFAULT_AUTHENTICATION_CLASSES": [],
            "DEFAULT_PERMISSION_CLASSES": [],
            "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
            "UNAUTHENTICATED_USER": None,
        },
        USE_TZ=True,
    )
    django.setup()

from django.core.wsgi import get_wsgi_application
from django.urls import path
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

COLUMNS = ("job_id", "stage", "state", "retry_count", "cost_cents", "document_id", "last_error", "updated_at")


class BareView(APIView):
    def get(self, request: Request, job_id: UUID) -> Response:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {', '.join(COLUMNS)} FROM upload_jobs WHERE job_id = %s", [job_id])
            row: Any = cursor.fetchone()
        return Response(dict(zip(COLUMNS, row, strict=True)))


urlpatterns = [path("job/<uuid:job_id>", BareView.as_view())]
application = get_wsgi_application()
