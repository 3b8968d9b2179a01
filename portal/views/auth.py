"""Sign-in form, and the access rules of tenants' pages: signed in, each tenant its own."""

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

from accounts.error_codes import METHOD_NOT_ALLOWED, ApiError, not_found
from documents.storage import storage_error
from portal.error_pages import error_page

View = Callable[..., HttpResponse]


class SignInForm(AuthenticationForm):
    error_messages = {
        "invalid_login": "The e-mail address and the password do not belong together, or there were too many attempts."
        " Check both, or come back in ten minutes.",
        "inactive": "",  # never shown: the backend knows no inactive account
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"].label = "E-mail address"
        self.fields["username"].widget = EmailInput(attrs={"autocomplete": "username", "autofocus": True})
        for field in self.fields.values():
            field.widget.attrs["aria-describedby"] = "refused"


@method_decorator(never_cache, name="dispatch")
class SignIn(LoginView):
    """Redirects to ``next`` only if that is one of our own pages: Django checks it."""

    form_class = SignInForm
    template_name = "portal/sign_in.html"
    redirect_authenticated_user = True

    def get_redirect_url(self) -> str:
        """Redirect home instead of to this form itself, where Django would stop with an error."""
        url = super().get_redirect_url()
        return "" if urlsplit(url).path == self.request.path else url


def tenant_page(*methods: str) -> Callable[[View], View]:
    """Decorate a view for signed-in tenants: no cache keeps the response, and an error is a page, too."""

    def decorate(view: View) -> View:
        @wraps(view)
        def respond(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
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
        def respond_or_sign_in(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            if getattr(request, "htmx", False) and not request.user.is_authenticated:
                # A fragment of a page after sign-out: the whole page must go to the form.
                return HttpResponseClientRedirect(resolve_url(settings.LOGIN_URL))
            response: HttpResponse = signed_in(request, *args, **kwargs)
            return response

        return respond_or_sign_in

    return decorate


def tenant_id(request: HttpRequest) -> UUID:
    """Return the tenant of the pages: the signed-in user. Staff have no more rights here than others."""
    return UUID(str(request.user.pk))
