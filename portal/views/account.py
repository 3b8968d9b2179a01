"""Page of the signed-in user's account: password, browsers, notifications, export and deletion of the data."""

from typing import Any
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout, update_session_auth_hash
from django.contrib.auth.forms import SetPasswordForm
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache

from accounts import passwords, sessions, totp
from accounts.errors import ApiError
from accounts.models import AccountDeletion, Notify, User
from outbox.mails import account_mails
from portal import account_deletion
from portal.account_export import export_response
from portal.page_access import signed_in_user, tenant_id, tenant_page

MAX_CODE_CHARS = 40
# Tables of a certificate that its page names; its file has all.
DELETED_KINDS = (
    ("documents", _("Documents")),
    ("document_chunks", _("Passages")),
    ("connected_sources", _("Connected systems")),
    ("source_documents", _("Records of connected systems")),
    ("saved_questions", _("Saved questions")),
    ("tags", _("Tags")),
    ("api_tokens", _("API tokens")),
    ("webhook_endpoints", _("Webhooks")),
)


class OwnPasswordField(forms.CharField):
    """The password of the signed-in user, for ``check_own_password``."""

    def __init__(self) -> None:
        widget = forms.PasswordInput(attrs={"autocomplete": "current-password"})
        super().__init__(label=_("Your password"), widget=widget, strip=False)


class CodeField(forms.CharField):
    """A code of two-step sign-in, for ``use_code``."""

    def __init__(self) -> None:
        widget = forms.TextInput(attrs={"autocomplete": "one-time-code", "autocapitalize": "characters"})
        super().__init__(label=_("Code of your app, or a recovery code"), max_length=MAX_CODE_CHARS, widget=widget)


class NewPasswordForm(SetPasswordForm):  # type: ignore[type-arg]
    """The new password twice, and whether API tokens end with the old one."""

    revoke_tokens = forms.BooleanField(
        label=_("Revoke my API tokens, too"),
        help_text=_(
            "Choose it if somebody else may have known the password. Programs that hold a token need a new one, and a "
            "service that you sign in with has to be connected again."
        ),
        required=False,
    )


class PasswordForm(NewPasswordForm):
    """A new password of somebody who knows the old one."""

    old_password = OwnPasswordField()
    field_order = ("old_password", "new_password1", "new_password2", "revoke_tokens")

    def clean_old_password(self) -> str:
        return check_own_password(self.user, self.cleaned_data["old_password"])


class NotifyForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = User
        fields = ("notify",)
        labels = {"notify": _("When a document is done or has failed")}


class DeleteForm(forms.Form):
    """The account's address, typed, its password if it has one, and a code where two-step sign-in is on."""

    email = forms.CharField(label=_("Type your e-mail address"), widget=forms.TextInput(attrs={"autocomplete": "off"}))
    password = OwnPasswordField()
    code = CodeField()

    def __init__(self, user: User, *args: Any) -> None:
        super().__init__(*args)
        self.user = user
        if not user.has_usable_password():
            del self.fields["password"]
        if not totp.is_on(user):
            del self.fields["code"]

    def clean_email(self) -> str:
        email: str = self.cleaned_data["email"]
        if email.strip().lower() != self.user.email:
            raise forms.ValidationError(gettext("This is not the address of your account."))
        return email

    def clean_password(self) -> str:
        return check_own_password(self.user, self.cleaned_data["password"])

    def clean_code(self) -> str:
        code: str = self.cleaned_data["code"]
        return code if self.errors else use_code(self.user, code)


def use_code(user: User, code: str) -> str:
    """Use up the code and return it, or raise ``ValidationError``: it is wrong, used, or was tried too often."""
    try:
        if totp.verify(user, code):
            return code
    except ApiError as error:
        raise forms.ValidationError(error.detail) from error
    raise forms.ValidationError(gettext("This code is wrong, or was used already."))


def check_own_password(user: User, password: str) -> str:
    """Return the password, or raise ``ValidationError``: it is wrong, or was tried too often."""
    try:
        if passwords.is_own_password(user, password):
            return password
    except ApiError as error:
        raise forms.ValidationError(error.detail) from error
    raise forms.ValidationError(gettext("This is not your password."))


@tenant_page("GET", "HEAD")
def account(request: HttpRequest) -> HttpResponse:
    return account_page(request)


def account_page(request: HttpRequest, **forms_with_errors: forms.BaseForm) -> HttpResponse:
    user = signed_in_user(request)
    context: dict[str, Any] = {
        "password_form": PasswordForm(user),
        "provider": settings.OIDC_NAME if settings.OIDC_ISSUER else "",
        "is_connected": user.identities.exists(),
        "is_two_step": totp.is_on(user),
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
            user, form.cleaned_data["new_password1"], request, keep_session=request.session.session_key,
            revoke_tokens=form.cleaned_data["revoke_tokens"],
        )  # fmt: skip
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
    return export_response(signed_in_user(request))


@tenant_page("GET", "HEAD", "POST")
def delete(request: HttpRequest) -> HttpResponse:
    user = signed_in_user(request)
    form = DeleteForm(user, *([request.POST] if request.method == "POST" else []))
    if not form.is_valid():
        return render(request, "portal/settings/delete_account.html", {"form": form})
    deletion = account_deletion.request_deletion(user, by=user, reason="By its tenant.")
    logout(request)
    return redirect("portal:deletion", deletion.pk)


@never_cache
def deletion(request: HttpRequest, deletion_id: UUID) -> HttpResponse:
    """Show the progress of a deletion, then its certificate, to whoever has its address."""
    row = get_object_or_404(AccountDeletion, pk=deletion_id)
    counts = [(name, row.deleted[table]) for table, name in DELETED_KINDS if row.deleted.get(table)]
    return render(request, "portal/deletion.html", {"deletion": row, "counts": counts})


@never_cache
def certificate(request: HttpRequest, deletion_id: UUID) -> HttpResponse:
    row = get_object_or_404(AccountDeletion, pk=deletion_id, completed_at__isnull=False)
    headers = {"Content-Disposition": f'attachment; filename="deletion-{row.pk}.json"'}
    return JsonResponse(account_deletion.certificate(row), headers=headers, json_dumps_params={"indent": 1})
