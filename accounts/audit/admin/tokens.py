"""Admin of API tokens: issue (shown once) and revoke, each with a reason."""

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
from accounts.error_codes import ApiError
from accounts.models import ApiToken

CHANGELIST = "admin:accounts_apitoken_changelist"


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

    def issue_token(self, by: Any) -> str:
        """Return the plain token; raise ``ApiError`` for an unknown user."""
        fields = self.cleaned_data
        expires_at = timezone.now() + timedelta(days=fields["days"]) if fields["days"] else None
        user = token_actions.find_user(fields["user"])
        return token_actions.issue_token(
            user, name=fields["name"], scope=fields["scope"], expires_at=expires_at, by=by, reason=fields["reason"]
        )


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyAdmin):
    list_display = ("token_id", "user_id", "name", "scope", "created_at", "expires_at", "revoked_at")
    list_filter = (exact_filter("user_id", "user's id"),)
    id_fields = ("token_id", "user_id")
    ordering = ("-created_at", "token_id")
    # Without the digest: it would identify the token.
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
        page: dict[str, Any] = {"title": "New API token", "button": "Make it", "back": reverse(CHANGELIST)}
        if form.is_valid():
            try:
                token = form.issue_token(request.user)
            except ApiError as refused:
                form.add_error("user", refused.detail)
            else:
                page |= {"title": "The new token", "token": token, "template": "admin/audit/token.html"}
        return reason_page(request, self.admin_site, form, **page)

    @action(description="Revoke", icon="block", url_path="revoke", permissions=["revoke"], variant=ActionVariant.DANGER)  # type: ignore[untyped-decorator]
    def revoke(self, request: HttpRequest, object_id: str) -> HttpResponse:
        token = self.get_object(request, object_id)
        if token is None:
            return HttpResponseRedirect(reverse(CHANGELIST))
        back = reverse("admin:accounts_apitoken_change", args=[token.pk])
        form = ReasonForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            tokens = ApiToken.objects.filter(pk=token.pk)
            revoked = token_actions.revoke_tokens(tokens, by=request.user, reason=form.cleaned_data["reason"])  # type: ignore[arg-type]
            messages.success(request, "The token is revoked." if revoked else "The token was revoked already.")
            return HttpResponseRedirect(back)
        lines = ("From now on every request with this token is refused. This cannot be undone.",)
        return reason_page(
            request, self.admin_site, form, title=f"Revoke {token.pk}", button="Revoke", back=back, lines=lines
        )
