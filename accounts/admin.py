"""Admin of users, groups and API tokens: each change with its reason in the audit log."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from unfold.decorators import action
from unfold.enums import ActionVariant
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget as CheckboxesWidget
from unfold.widgets import UnfoldAdminIntegerFieldWidget as IntegerWidget
from unfold.widgets import UnfoldAdminTextInputWidget as TextWidget

from accounts import admin_base, api_tokens
from accounts.admin_base import BoundedAdmin, ReadOnlyAdmin, ReasonForm, reason_field, reason_page
from accounts.audit import log
from accounts.errors import ApiError
from accounts.models import AccountDeletion, ApiToken, User

TOKENS_PAGE = "admin:accounts_apitoken_changelist"


class TokenForm(forms.Form):
    user = forms.CharField(label="For", help_text="The user's id or e-mail address.", widget=TextWidget)
    name = forms.CharField(
        max_length=api_tokens.NAME_CHARS,
        help_text="What it is for, such as the system that holds it.",
        widget=TextWidget,
    )
    scopes = forms.MultipleChoiceField(
        label="It may",
        choices=ApiToken.Scope.choices,
        initial=sorted(api_tokens.PROGRAM_SCOPES),
        widget=CheckboxesWidget,
    )
    days = forms.IntegerField(
        label="Valid for days",
        required=False,
        min_value=1,
        max_value=api_tokens.MAX_TOKEN_DAYS,
        help_text="Empty: until it is revoked.",
        widget=IntegerWidget,
    )
    reason = reason_field()


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyAdmin):
    list_display = ("name", "user_id", "scopes", "created_at", "last_used_at", "expires_at", "revoked_at")
    list_filter = (admin_base.exact_filter("user_id", "user's id"),)
    id_fields = ("token_id", "user_id")
    ordering = ("-created_at", "token_id")
    # Without the digest: it would identify the token.
    fields = (("token_id", "user_id"), ("name", "scopes"), ("created_at", "last_used_at", "expires_at", "revoked_at"))
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
        page: dict[str, Any] = {"title": "New API token", "button": "Make it", "back": reverse(TOKENS_PAGE)}
        if form.is_valid():
            try:
                fields, now = form.cleaned_data, timezone.now()
                expires_at = now + timedelta(days=fields["days"]) if fields["days"] else None
                options = {name: fields[name] for name in ("name", "scopes", "reason")}
                user = api_tokens.find_user(fields["user"])
                token = api_tokens.issue_token(user, expires_at=expires_at, by=request.user, **options)  # type: ignore[arg-type]
            except ApiError as refused:
                form.add_error("user", refused.detail)
            else:
                page |= {"title": "The new token", "token": token, "template": "admin/audit/token.html"}
        return reason_page(request, self.admin_site, form, **page)

    @action(description="Revoke", icon="block", url_path="revoke", permissions=["revoke"], variant=ActionVariant.DANGER)  # type: ignore[untyped-decorator]
    def revoke(self, request: HttpRequest, object_id: str) -> HttpResponse:
        token = self.get_object(request, object_id)
        if token is None:
            return HttpResponseRedirect(reverse(TOKENS_PAGE))
        back = reverse("admin:accounts_apitoken_change", args=[token.pk])
        form = ReasonForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            tokens = ApiToken.objects.filter(pk=token.pk)
            revoked = api_tokens.revoke_tokens(tokens, by=request.user, reason=form.cleaned_data["reason"])  # type: ignore[arg-type]
            messages.success(request, "The token is revoked." if revoked else "The token was revoked already.")
            return HttpResponseRedirect(back)
        lines = ("From now on every request with this token is refused. This cannot be undone.",)
        return reason_page(
            request, self.admin_site, form, title=f"Revoke {token.pk}", button="Revoke", back=back, lines=lines
        )


PRIVILEGE_FIELDS = ("is_staff", "is_superuser", "groups", "user_permissions")
WHY = ("Why", {"fields": ("reason",)})


class AuditedAdmin(BoundedAdmin):
    """Rows that nobody deletes; every change writes an audit entry with its fields and the reason."""

    noun: str

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def save_related(self, request: HttpRequest, form: ModelForm[Any], formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        self._write_entry(
            request, form.instance, "change" if change else "add", form.cleaned_data["reason"],
            fields=[name for name in form.changed_data if name not in ("reason", "password1", "password2")],
        )  # fmt: skip

    def _write_entry(self, request: HttpRequest, row: Any, verb: str, reason: str, **details: Any) -> None:
        log.record_action(
            by=request.user, action=f"{self.noun}s.{verb}", reason=reason,  # type: ignore[arg-type]
            object_type=self.noun, object_id=str(row.pk), **details,
        )  # fmt: skip


def with_reason(form: Any) -> Any:
    return type(f"Reasoned{form.__name__}", (form,), {"reason": reason_field()})


@admin.register(User)
class UserAdmin(AuditedAdmin, DjangoUserAdmin):  # type: ignore[type-arg]
    noun = "user"
    form = with_reason(UserChangeForm)
    add_form = with_reason(UserCreationForm)
    change_password_form = with_reason(AdminPasswordChangeForm)
    change_user_password_template = "admin/audit/set_password.html"  # noqa: S105
    list_display = ("email", "is_active", "is_staff", "is_superuser", "date_joined", "last_login")
    list_filter = (admin_base.choice_filter("is_staff", "kind", (("True", "staff"), ("False", "tenants"))),)
    id_fields = ("id", "email", "username")
    ordering = ("email",)
    filter_horizontal = ()
    readonly_fields = ("id", "last_login", "date_joined")
    fieldsets: ClassVar[Any] = (
        (None, {"fields": ("id", "username", "email", "password")}),
        ("May", {"fields": ("is_active", *PRIVILEGE_FIELDS)}),
        ("When", {"fields": ("date_joined", "last_login")}),
        WHY,
    )
    add_fieldsets = ((None, {"fields": ("username", "email", "usable_password", "password1", "password2", "reason")}),)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Let only superusers change staff: whoever sets a password can sign in as that user."""
        allowed = bool(super().has_change_permission(request, obj))
        return allowed and (request.user.is_superuser or not (obj and (obj.is_staff or obj.is_superuser)))

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        powers = () if request.user.is_superuser else PRIVILEGE_FIELDS
        return (*super().get_readonly_fields(request, obj), *powers)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        fieldsets = super().get_fieldsets(request, obj)
        if obj and not self.has_change_permission(request, obj):
            return [(title, options) for title, options in fieldsets if title != WHY[0]]
        return fieldsets

    def save_related(self, request: HttpRequest, form: ModelForm[Any], formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        if {*PRIVILEGE_FIELDS} & {*form.changed_data} and form.instance.is_staff:  # not for holders of old tokens
            tokens = ApiToken.objects.filter(user=form.instance)
            api_tokens.revoke_tokens(tokens, by=request.user, reason=form.cleaned_data["reason"])  # type: ignore[arg-type]

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:
        with transaction.atomic():
            before = getattr(self.get_object(request, id), "password", None)
            response: HttpResponse = super().user_change_password(request, id, form_url)
            now = self.get_object(request, id)
            if now is not None and now.password != before:
                self._write_entry(request, now, "set_password", request.POST["reason"])
        return response


admin.site.unregister(Group)


@admin.register(Group)
class GroupAdmin(AuditedAdmin, DjangoGroupAdmin):
    noun = "group"
    form = with_reason(ModelForm)
    fields = ("name", "permissions", "reason")
    id_fields = ("name",)
    ordering = ("name",)
    filter_horizontal = ()


@admin.register(AccountDeletion)
class AccountDeletionAdmin(ReadOnlyAdmin):
    list_display = ("deletion_id", "user_id", "requested_at", "completed_at")
    fields = ("deletion_id", "user_id", "deleted", "requested_at", "completed_at")
    id_fields = ("deletion_id", "user_id")
    ordering = ("-requested_at",)
