"""API tokens of the signed-in user: list, create, revoke."""

from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from accounts import api_tokens
from accounts.errors import ApiError
from accounts.rls import as_tenant
from accounts.serializers import TENANT_SCOPE_CHOICES
from portal.page_access import tenant_id, tenant_page

PAGE = "portal/settings/tokens.html"


class TokenForm(forms.Form):
    name = forms.CharField(
        label=_("Name"), max_length=api_tokens.NAME_CHARS, help_text=_("The program or assistant that will hold it.")
    )
    scopes = forms.MultipleChoiceField(
        label=_("It may"),
        choices=[(scope.value, scope.label) for scope in TENANT_SCOPE_CHOICES],
        initial=["search"],
        widget=forms.CheckboxSelectMultiple,
    )
    days = forms.IntegerField(
        label=_("Valid for days"),
        required=False,
        initial=90,
        min_value=1,
        max_value=api_tokens.MAX_TOKEN_DAYS,
        help_text=_("Empty: until you revoke it."),
    )


@tenant_page("GET", "HEAD", "POST")
def tokens(request: HttpRequest) -> HttpResponse:
    """List the tokens; a POST creates one, which this response alone shows."""
    form, plain = TokenForm(request.POST or None), None
    if form.is_valid():
        try:
            plain, _ = api_tokens.issue_own_token(tenant_id(request), **form.cleaned_data)
        except ApiError as error:
            form.add_error(None, error.detail)
        else:
            form = TokenForm()
    with as_tenant(tenant_id(request)):
        rows = list(api_tokens.tenant_tokens(tenant_id(request)).order_by("-created_at", "token_id"))
    context = {"form": form, "plain": plain, "tokens": rows}
    return render(request, PAGE, context)


@tenant_page("POST")
def revoke(request: HttpRequest, token_id: UUID) -> HttpResponse:
    api_tokens.revoke_own_token(tenant_id(request), token_id)
    messages.success(request, gettext("The token is revoked: the next request with it is refused."))
    return redirect("portal:tokens")
