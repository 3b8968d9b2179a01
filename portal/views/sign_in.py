"""Sign-in form of the portal."""

from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.forms import EmailInput
from django.http import HttpResponse
from django.utils.decorators import method_decorator
from django.utils.translation import get_language
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache

from portal.language import store_language


class SignInForm(AuthenticationForm):
    error_messages = {
        "invalid_login": _(
            "The e-mail address and the password do not belong together, or there were too many attempts."
            " Check both, or come back in ten minutes."
        ),
        "inactive": "",  # never shown: the backend knows no inactive account
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"].label = _("E-mail address")
        self.fields["username"].widget = EmailInput(attrs={"autocomplete": "username", "autofocus": True})
        for field in self.fields.values():
            field.widget.attrs["aria-describedby"] = "refused"


@method_decorator(never_cache, name="dispatch")
class SignIn(LoginView):
    """Redirects to ``next`` only if that is one of our own pages: Django checks it."""

    form_class = SignInForm
    template_name = "portal/sign_in.html"
    redirect_authenticated_user = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | {
            "may_sign_up": settings.SIGN_UP == "open",
            "provider": settings.OIDC_NAME if settings.OIDC_ISSUER else "",
        }

    def form_valid(self, form: Any) -> HttpResponse:
        """Take the page's language for mails of a user who has chosen none."""
        user = form.get_user()
        if not user.language:
            store_language(user, get_language() or settings.LANGUAGE_CODE)
        return super().form_valid(form)

    def get_redirect_url(self) -> str:
        """Redirect home instead of to this form itself, where Django would stop with an error."""
        url = super().get_redirect_url()
        return "" if urlsplit(url).path == self.request.path else url
