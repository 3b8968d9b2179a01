"""API tokens in the admin: made and shown once, revoked with a reason, never readable again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from unfold.decorators import action
from unfold.enums import ActionVariant
from unfold.widgets import UnfoldAdminIntegerFieldWidget, UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from accounts.audit import token_actions
from accounts.audit.admin_base import ReadOnlyAdmin
from accounts.audit.admin_filters import exact_filter
from accounts.audit.forms import ReasonForm, reason_field, reason_page
from accounts.errors import ApiError
from accounts.models import ApiToken

LISTED = "admin:accounts_apitoken_changelist"


class TokenForm(forms.Form):
    user = forms.CharField(label="For", help_text="The user's id or e-mail address.", widget=UnfoldAdminTextInputWidget)
    name = forms.CharField(
        max_length=100, help_text="What it is for, such as the system that holds it.", widget=UnfoldAdminTextInputWidget
    )
    scope = forms.ChoiceField(
        choices=[("tenant", "tenant: the user's own documents"), ("service", "service: may advance jobs")],
        widget=UnfoldAdminSelectWidget,
    )
    days = forms.IntegerField(
        label="Valid for days", required=False, min_value=1, max_value=3650, help_text="Empty: until it is revoked.",
        widget=UnfoldAdminIntegerFieldWidget,
    )  # fmt: skip
    reason = reason_field()

    def make(self, by: Any) -> str:
        """Return the plain token; raise ``ApiError`` where there is no such user."""
        said = self.cleaned_data
        expires_at = timezone.now() + timedelta(days=said["days"]) if said["days"] else None
        user = token_actions.find_user(said["user"])
        return token_actions.issue_token(
            user, name=said["name"], scope=said["scope"], expires_at=expires_at, by=by, reason=said["reason"]
        )


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyAdmin):
    list_display = ("token_id", "user_id", "name", "scope", "created_at", "expires_at", "revoked_at")
    list_filter = (exact_filter("user_id", "user's id"),)
    id_fields = ("token_id", "user_id")
    ordering = ("-created_at", "token_id")
    # Not the digest: whoever has it can tell which of two tokens is the one.
    fields = (("token_id", "user_id"), ("name", "scope"), ("created_at", "expires_at", "revoked_at"))
    readonly_fields = ("user_id",)
    actions_detail = ("revoke",)

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).defer("digest")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("accounts.add_apitoken"))

    def has_revoke_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return bool(request.user.has_perm("accounts.revoke_apitoken"))

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = TokenForm(request.POST or None)
        shown: dict[str, Any] = {"title": "New API token", "button": "Make it", "back": reverse(LISTED)}
        if form.is_valid():
            try:
                made = form.make(request.user)
            except ApiError as refused:
                form.add_error("user", refused.detail)
            else:
                shown |= {"title": "The new token", "token": made, "template": "admin/audit/token.html"}
        return reason_page(request, self.admin_site, form, **shown)

    @action(description="Revoke", icon="block", url_path="revoke", permissions=["revoke"], variant=ActionVariant.DANGER)  # type: ignore[untyped-decorator]
    def revoke(self, request: HttpRequest, object_id: str) -> HttpResponse:
        token = self.get_object(request, object_id)
        if token is None:
            return HttpResponseRedirect(reverse(LISTED))
        back = reverse("admin:accounts_apitoken_change", args=[token.pk])
        form = ReasonForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            found = ApiToken.objects.filter(pk=token.pk)
            revoked = token_actions.revoke_tokens(found, by=request.user, reason=form.cleaned_data["reason"])  # type: ignore[arg-type]
            messages.success(request, "It is revoked." if revoked else "It was revoked already.")
            return HttpResponseRedirect(back)
        lines = ("From now on every request with this token is refused. This cannot be undone.",)
        return reason_page(
            request, self.admin_site, form, title=f"Revoke {token.pk}", button="Revoke", back=back, lines=lines
        )
