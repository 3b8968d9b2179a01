"""Who may see tenants' pages: whoever is signed in, each their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.forms import EmailInput
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import resolve_url
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django_htmx.http import HttpResponseClientRedirect

from accounts.errors import METHOD_NOT_ALLOWED, ApiError, not_found
from documents.storage import storage_error
from portal import error_pages

View = Callable[..., HttpResponse]


class SignInForm(AuthenticationForm):
    error_messages = {
        "invalid_login": "The e-mail address and the password do not belong together, or there were too many tries."
        " Check both, or come back in ten minutes.",
        "inactive": "",  # never said: the backend knows no inactive account
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"].label = "E-mail address"
        self.fields["username"].widget = EmailInput(attrs={"autocomplete": "username", "autofocus": True})
        for field in self.fields.values():
            field.widget.attrs["aria-describedby"] = "refused"


@method_decorator(never_cache, name="dispatch")
class SignIn(LoginView):
    """Leads on to ``next`` only if that is one of our own pages: Django checks it."""

    form_class = SignInForm
    template_name = "portal/sign_in.html"
    redirect_authenticated_user = True

    def get_redirect_url(self) -> str:
        """Whoever is signed in and was to be led to this very form is led home: Django would break off the circle."""
        url = super().get_redirect_url()
        return "" if urlsplit(url).path == self.request.path else url


def page(view: View) -> View:
    """Let a signed-in tenant see what a view shows; nobody keeps it, and what is refused is a page too."""

    @wraps(view)
    def shown(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            answer = view(request, *args, **kwargs)
        except ApiError as refused:
            answer = error_pages.page(request, refused)
        except Http404:
            answer = error_pages.page(request, not_found())
        except OSError as error:  # the file store
            answer = error_pages.page(request, storage_error(error))
        answer["Cache-Control"] = "no-store"
        return answer

    signed_in = login_required(shown)

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if getattr(request, "htmx", False) and not request.user.is_authenticated:
            # A fragment of the page that somebody has signed out of: the whole page goes to the form.
            return HttpResponseClientRedirect(resolve_url(settings.LOGIN_URL))
        answer: HttpResponse = signed_in(request, *args, **kwargs)
        return answer

    return guarded


def tenant(request: HttpRequest) -> UUID:
    """Return whose pages these are. Staff have no more rights here than anybody."""
    return UUID(str(request.user.pk))


def only(request: HttpRequest, *methods: str) -> None:
    if request.method not in methods:
        detail = "This page cannot be asked for in this way."
        raise ApiError(METHOD_NOT_ALLOWED, detail)
