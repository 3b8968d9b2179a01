"""Access rules of pages for tenants: signed in, each tenant its own; errors are pages, nothing is cached."""

from collections.abc import Callable
from functools import wraps
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import resolve_url
from django_htmx.http import HttpResponseClientRedirect

from accounts.common_error_codes import METHOD_NOT_ALLOWED, not_found
from accounts.errors import ApiError
from documents.storage.buckets import storage_error
from portal.error_pages import error_page

View = Callable[..., HttpResponseBase]


def tenant_page(*methods: str) -> Callable[[View], View]:
    """Decorate a view for signed-in tenants: no cache keeps the response, and an error is a page, too."""

    def decorate(view: View) -> View:
        @wraps(view)
        def respond(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            try:
                if request.method not in methods:
                    raise ApiError(METHOD_NOT_ALLOWED)
                response = view(request, *args, **kwargs)
            except ApiError as error:
                response = error_page(error)
            except Http404:
                response = error_page(not_found())
            except OSError as error:  # the file store
                response = error_page(storage_error(error))
            response["Cache-Control"] = "no-store"
            return response

        signed_in = login_required(respond)

        @wraps(view)
        def respond_or_sign_in(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if getattr(request, "htmx", False) and not request.user.is_authenticated:
                # A fragment of a page after sign-out: the whole page must go to the form.
                return HttpResponseClientRedirect(resolve_url(settings.LOGIN_URL))
            response: HttpResponseBase = signed_in(request, *args, **kwargs)
            return response

        return respond_or_sign_in

    return decorate


def tenant_id(request: HttpRequest) -> UUID:
    """Return the tenant of the pages: the signed-in user. Staff have no more rights here than others."""
    return UUID(str(request.user.pk))
