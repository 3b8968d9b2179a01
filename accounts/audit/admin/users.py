"""Admin of users and groups. Only superusers grant permissions; every change has a reason in the audit log."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group
from django.db import transaction
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from accounts.audit import forms, log, token_actions
from accounts.audit.admin_base import BoundedAdmin
from accounts.audit.admin_filters import choice_filter
from accounts.models import ApiToken, User

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


class ReasonedUserForm(UserChangeForm):  # type: ignore[misc]
    reason = forms.reason_field()


class ReasonedPasswordForm(AdminPasswordChangeForm):  # type: ignore[misc]
    reason = forms.reason_field()


class NewUserForm(UserCreationForm):  # type: ignore[misc]
    reason = forms.reason_field()


class ReasonedGroupForm(ModelForm):  # type: ignore[type-arg]
    reason = forms.reason_field()


@admin.register(User)
class UserAdmin(AuditedAdmin, DjangoUserAdmin):  # type: ignore[type-arg]
    noun = "user"
    form = ReasonedUserForm
    add_form = NewUserForm
    change_password_form = ReasonedPasswordForm
    change_user_password_template = "admin/audit/set_password.html"  # noqa: S105
    list_display = ("id", "email", "is_active", "is_staff", "is_superuser", "date_joined", "last_login")
    list_filter = (choice_filter("is_staff", "kind", (("True", "staff"), ("False", "tenants"))),)
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
            token_actions.revoke_tokens(tokens, by=request.user, reason=form.cleaned_data["reason"])  # type: ignore[arg-type]

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
    form = ReasonedGroupForm
    fields = ("name", "permissions", "reason")
    id_fields = ("name",)
    ordering = ("name",)
    filter_horizontal = ()
