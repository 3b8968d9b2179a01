"""Two-step sign-in: its page in the settings, and the page that asks for the code after the password."""

from typing import Any

import segno
from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import get_user
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.safestring import mark_safe
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache

from accounts import encryption, rate_limit, totp
from accounts.models import User
from accounts.sign_in import record_refused_sign_in
from outbox.mails import account_mails
from portal.page_access import redirect_after_sign_in, signed_in_user, tenant_page
from portal.views.account import MAX_CODE_CHARS, CodeField, OwnPasswordField, check_own_password, use_code

PAGE = "portal/settings/two_step.html"
OFFERED = "totp_offered"  # the key in a session: the secret that the page shows, encrypted


class CodeForm(forms.Form):
    """A code, which is used up by the check, of the user of the form."""

    code = CodeField()

    def __init__(self, user: User, *args: Any) -> None:
        super().__init__(*args)
        self.user = user

    def clean_code(self) -> str:
        return use_code(self.user, self.cleaned_data["code"])


class SetupForm(forms.Form):
    """The account's password, if it has one, and a code of the secret that the page shows."""

    password = OwnPasswordField()
    code = forms.CharField(
        label=_("The six digits that your app shows"),
        max_length=MAX_CODE_CHARS,
        widget=forms.TextInput(attrs={"autocomplete": "one-time-code", "inputmode": "numeric"}),
    )

    def __init__(self, user: User, secret: str, *args: Any) -> None:
        super().__init__(*args)
        self.user, self.secret = user, secret
        if not user.has_usable_password():
            del self.fields["password"]

    def clean_password(self) -> str:
        return check_own_password(self.user, self.cleaned_data["password"])

    def clean_code(self) -> str:
        code: str = self.cleaned_data["code"]
        if not totp.is_code_of(self.secret, code):
            raise forms.ValidationError(gettext("This is not the code that the app shows now. Is its clock right?"))
        return code


@never_cache
def code(request: HttpRequest) -> HttpResponse:
    """Ask who has given the password for a code; ``next`` is followed to our own pages only."""
    user = get_user(request)
    if request.user.is_authenticated or not isinstance(user, User):
        return redirect(settings.LOGIN_REDIRECT_URL if request.user.is_authenticated else settings.LOGIN_URL)
    next_page = request.POST.get("next", request.GET.get("next", ""))
    form = CodeForm(user, *([request.POST] if request.method == "POST" else []))
    if form.is_valid():
        totp.admit(request.session, user)
        return redirect_after_sign_in(request, next_page)
    if form.is_bound:
        record_refused_sign_in("users.sign_in_failed", rate_limit.FAILED_SIGN_IN_ENTRIES, user.email, request)
    return render(request, "portal/sign_in_code.html", {"form": form, "next": next_page})


@tenant_page("GET", "HEAD", "POST")
def two_step(request: HttpRequest) -> HttpResponse:
    """Show whether two-step sign-in is on; a POST turns it on and shows the recovery codes, this once."""
    user = signed_in_user(request)
    if totp.is_on(user):
        return _page_of_on(request, CodeForm(user))
    secret = _offered_secret(request)
    form = SetupForm(user, secret, *([request.POST] if request.method == "POST" else []))
    if form.is_valid():
        with transaction.atomic():
            codes = totp.turn_on(user, secret, form.cleaned_data["code"], request.session)
            if not codes:
                return redirect("portal:two-step")  # to the sign-in: the session that was faster has ended this one
            account_mails.enqueue_mail(user.pk, account_mails.TOTP_CHANGED)
        del request.session[OFFERED]
        return _page_of_on(request, CodeForm(user), codes)
    image = segno.make(totp.provisioning_uri(user, secret), micro=False).svg_inline(scale=4, light="#fff")
    context = {"form": form, "secret": secret, "image": mark_safe(image)}  # noqa: S308 - an address is modules of it
    return render(request, PAGE, context)


def _offered_secret(request: HttpRequest) -> str:
    """Return the secret that the page shows, the same until it is turned on: a form may be wrong the first time."""
    if stored := request.session.get(OFFERED):
        return encryption.vault().decrypt(stored.encode()).decode()
    secret = totp.new_secret()
    request.session[OFFERED] = encryption.vault().encrypt(secret.encode()).decode()
    return secret


def _page_of_on(request: HttpRequest, form: CodeForm, codes: list[str] | None = None) -> HttpResponse:
    return render(request, PAGE, {"is_on": True, "form": form, "codes": codes})


@tenant_page("POST")
def replace_codes(request: HttpRequest) -> HttpResponse:
    user = signed_in_user(request)
    if not totp.is_on(user):  # a page from before it was turned off
        return redirect("portal:two-step")
    form = CodeForm(user, request.POST)
    return _page_of_on(request, form, totp.replace_recovery_codes(user) if form.is_valid() else None)


@tenant_page("POST")
def turn_off(request: HttpRequest) -> HttpResponse:
    user = signed_in_user(request)
    if not totp.is_on(user):
        return redirect("portal:two-step")
    form = CodeForm(user, request.POST)
    if not form.is_valid():
        return _page_of_on(request, form)
    with transaction.atomic():
        totp.turn_off(user, by=user, reason="By its owner.")
        account_mails.enqueue_mail(user.pk, account_mails.TOTP_CHANGED)
    messages.success(request, gettext("Two-step sign-in is off."))
    return redirect("portal:account")
