"""Page of the signed-in user's account: password, browsers, notifications, export of the data."""

from typing import Any, cast

from django import forms
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import SetPasswordForm
from django.db import transaction
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from accounts import passwords, sessions
from accounts.errors import ApiError
from accounts.models import Notify, User
from outbox.mails import account_mails
from portal.account_export import start_export
from portal.tenant_page import tenant_id, tenant_page


class PasswordForm(SetPasswordForm):  # type: ignore[type-arg]
    """The new password twice and, unless a link proves who asks, the old one."""

    old_password = forms.CharField(
        label=_("Your password"), widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}), strip=False
    )
    field_order = ("old_password", "new_password1", "new_password2")

    def clean_old_password(self) -> str:
        return check_own_password(self.user, self.cleaned_data["old_password"])


class NotifyForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = User
        fields = ("notify",)
        labels = {"notify": _("When a document is done or has failed")}


def check_own_password(user: User, password: str) -> str:
    """Return the password, or raise ``ValidationError``: it is wrong, or was tried too often."""
    try:
        if passwords.is_own_password(user, password):
            return password
    except ApiError as error:
        raise forms.ValidationError(error.detail) from error
    raise forms.ValidationError(gettext("This is not your password."))


def signed_in_user(request: HttpRequest) -> User:
    return cast(User, request.user)


@tenant_page("GET", "HEAD")
def account(request: HttpRequest) -> HttpResponse:
    return account_page(request)


def account_page(request: HttpRequest, **forms_with_errors: forms.BaseForm) -> HttpResponse:
    user = signed_in_user(request)
    context: dict[str, Any] = {
        "password_form": PasswordForm(user),
        "notify_form": NotifyForm(instance=user),
        "sessions": sessions.list_sessions(tenant_id(request)),
        "this_session": sessions.session_id(request.session.session_key or ""),
    }
    return render(request, "portal/settings/account.html", context | forms_with_errors)


@tenant_page("POST")
def change_password(request: HttpRequest) -> HttpResponse:
    user = signed_in_user(request)
    form = PasswordForm(user, request.POST)
    if not form.is_valid():
        return account_page(request, password_form=form)
    with transaction.atomic():
        passwords.change_password(
            user, form.cleaned_data["new_password1"], request, keep_session=request.session.session_key
        )
        account_mails.enqueue_mail(user.pk, account_mails.CHANGED)
    update_session_auth_hash(request, user)
    messages.success(request, gettext("Your password is changed, and every other browser is signed out."))
    return redirect("portal:account")


@tenant_page("POST")
def sign_out_others(request: HttpRequest) -> HttpResponse:
    count = sessions.end_sessions(tenant_id(request), keep=request.session.session_key)
    done = ngettext("Signed out in %s other browser.", "Signed out in %s other browsers.", count) % count
    messages.success(request, done if count else gettext("You were signed in nowhere else."))
    return redirect("portal:account")


@tenant_page("POST")
def notify(request: HttpRequest) -> HttpResponse:
    form = NotifyForm(request.POST, instance=signed_in_user(request))
    if not form.is_valid():
        return account_page(request, notify_form=form)
    User.objects.filter(pk=tenant_id(request)).update(notify=form.cleaned_data["notify"])
    messages.success(request, gettext("From now on: %s.") % Notify(form.cleaned_data["notify"]).label)
    return redirect("portal:account")


@tenant_page("POST")
def export(request: HttpRequest) -> HttpResponseBase:
    """Stream a ZIP of all that the user has stored."""
    headers = {"Content-Disposition": 'attachment; filename="accessa-data.zip"'}
    return StreamingHttpResponse(start_export(signed_in_user(request)), content_type="application/zip", headers=headers)
