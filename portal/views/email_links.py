"""Pages that nobody is signed in to: request a link by e-mail, choose a password by a link, sign up."""

from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.forms import SetPasswordForm
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache

from accounts import invitations, passwords
from accounts.errors import ApiError
from accounts.models import User
from outbox.mails import account_mails
from portal.error_pages import error_page
from portal.views.account import NewPasswordForm


class AddressForm(forms.Form):
    email = forms.EmailField(
        label=_("E-mail address"), max_length=254, widget=forms.EmailInput(attrs={"autocomplete": "username"})
    )


@never_cache
def request_reset(request: HttpRequest) -> HttpResponse:
    """Send a link. The answer is the same whether or not the address has an account."""
    form = AddressForm(request.POST or None)
    is_sent = form.is_valid()
    if is_sent:
        try:
            account_mails.request_password_reset(form.cleaned_data["email"], request)
        except ApiError as error:
            return error_page(error, request)
    return render(request, "portal/password_reset.html", {"form": form, "is_sent": is_sent})


@never_cache
def reset_link(request: HttpRequest, user_id: UUID, token: str) -> HttpResponse:
    user = passwords.find_by_reset_link(user_id, token)
    if user is None:
        return _expired(request, "portal:password-reset")
    form = NewPasswordForm(user, request.POST or None)
    if not form.is_valid():
        return _choose_password(request, form)
    with transaction.atomic():
        user = passwords.reset_password(
            user_id, token, form.cleaned_data["new_password1"], request,
            revoke_tokens=form.cleaned_data["revoke_tokens"],
        )  # fmt: skip
        if user is not None:
            account_mails.enqueue_mail(user.pk, account_mails.CHANGED)
    if user is None:
        return _expired(request, "portal:password-reset")
    messages.success(request, gettext("Your password is changed. Sign in with it."))
    return redirect("portal:sign-in")


@never_cache
def sign_up(request: HttpRequest) -> HttpResponse:
    """Send an invitation where sign-up is open. The answer is the same for an address that has an account."""
    if settings.SIGN_UP != "open":
        raise Http404
    form = AddressForm(request.POST or None)
    is_sent = form.is_valid()
    if is_sent:
        try:
            account_mails.request_sign_up(form.cleaned_data["email"], request)
        except ApiError as error:
            return error_page(error, request)
    return render(request, "portal/sign_up.html", {"form": form, "is_sent": is_sent})


@never_cache
def invitation(request: HttpRequest, signed: str) -> HttpResponse:
    """Choose the password of a new account. ``SIGN_UP=closed`` closes the links that were sent, too."""
    invited = invitations.find_invitation(signed) if settings.SIGN_UP != "closed" else None
    if invited is None:
        return _expired(request, "portal:sign-in")
    form = SetPasswordForm(User(email=invited.email, username=invited.email), request.POST or None)
    if not form.is_valid():
        return _choose_password(request, form)
    if invitations.accept(invited, form.cleaned_data["new_password1"]) is None:
        return _expired(request, "portal:sign-in")
    messages.success(request, gettext("Your account is ready. Sign in with your password."))
    return redirect("portal:sign-in")


def _choose_password(request: HttpRequest, form: SetPasswordForm) -> HttpResponse:  # type: ignore[type-arg]
    return render(request, "portal/choose_password.html", {"form": form, "email": form.user.email})


def _expired(request: HttpRequest, again: str) -> HttpResponse:
    return render(request, "portal/expired_link.html", {"again": again}, status=410)
