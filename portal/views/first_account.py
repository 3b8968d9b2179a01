"""Page at / while there is no account: it creates the first one, and adds a sample to ask about."""

import logging
from http import HTTPStatus
from pathlib import Path
from typing import Any
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import authenticate, login
from django.contrib.auth.forms import SetPasswordForm
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache

from accounts import first_account
from accounts.errors import ApiError
from accounts.models import User
from documents import services
from documents.storage.buckets import UploadRejected
from portal.user_messages import error_message
from portal.views import documents

log = logging.getLogger("accessa.portal")
QUESTION = "How many physical therapy visits are covered?"  # in the sample's language
SAMPLE = Path(settings.BASE_DIR) / "samples" / "summary_of_benefits.pdf"


class FirstAccountForm(SetPasswordForm):  # type: ignore[type-arg]
    code = forms.CharField(
        label=_("Code"),
        max_length=40,
        help_text=_("The command that started Accessa has printed it."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "autofocus": True}),
    )
    email = forms.EmailField(
        label=_("E-mail address"), max_length=150, widget=forms.EmailInput(attrs={"autocomplete": "username"})
    )
    field_order = ("code", "email", "new_password1", "new_password2")

    def clean_code(self) -> str:
        try:
            if first_account.is_code(self.cleaned_data["code"]):
                return str(self.cleaned_data["code"])
        except ApiError as error:
            raise forms.ValidationError(error.detail) from error
        raise forms.ValidationError(gettext("This is not the code."))

    def clean_email(self) -> str:
        email = str(self.cleaned_data["email"]).lower()
        self.user.email = self.user.username = email  # the password must not resemble it
        return email


def home(request: HttpRequest) -> HttpResponseBase:
    """Show the document list, or the form of the first account while there is none."""
    if not request.user.is_authenticated and first_account.is_wanted(request):
        return create_first(request)
    return documents.documents(request)


@never_cache
def create_first(request: HttpRequest) -> HttpResponseBase:
    form = FirstAccountForm(User(), request.POST or None)
    if not form.is_valid():
        status = HTTPStatus.OK if not form.is_bound or "code" not in form.errors else HTTPStatus.FORBIDDEN
        context = {"form": form, "has_sample": SAMPLE.exists()}
        return render(request, "portal/first_account.html", context, status=status)
    email, password = form.cleaned_data["email"], form.cleaned_data["new_password1"]
    if first_account.create(email, password) is None:
        messages.error(request, gettext("There is an account already. Sign in with it."))
        return redirect("portal:sign-in")
    user: Any = authenticate(request, username=email, password=password)
    login(request, user)
    messages.success(request, gettext("Your account is ready. It may use the console at /admin/, too."))
    if "sample" in request.POST:
        _add_sample(request, user.pk)
    return redirect("portal:home")


def _add_sample(request: HttpRequest, user_id: UUID) -> None:
    try:
        services.upload_file(user_id, SAMPLE)
    except ApiError as error:
        messages.error(request, error_message(error))
    except (UploadRejected, OSError) as error:
        log.warning("The sample was not added: %s", type(error).__name__)
        messages.error(request, gettext("The sample could not be added. Upload a file of yours."))
    else:
        messages.info(request, gettext("The sample is being read. When it can be searched, ask: “%s”") % QUESTION)
