"""Forms of the admin: staff login by e-mail, and the reason that staff give for an action."""

from typing import Any

from django import forms
from django.contrib.admin import AdminSite
from django.http import HttpRequest
from django.template.response import TemplateResponse
from unfold.forms import AuthenticationForm
from unfold.widgets import UnfoldAdminTextInputWidget

from accounts.audit.log import MAX_REASON_CHARS


class StaffLoginForm(AuthenticationForm):  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"].label = "E-mail"
        self.fields["username"].widget.input_type = "email"


def reason_field(**options: Any) -> forms.CharField:
    return forms.CharField(
        max_length=MAX_REASON_CHARS,
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}),
        help_text="Kept in the audit log with your name. No names or texts of tenants, please: ids and ticket numbers.",
        **options,
    )


class ReasonForm(forms.Form):
    reason = reason_field()


def reason_page(
    request: HttpRequest,
    site: AdminSite,
    form: forms.Form,
    *,
    title: str,
    button: str,
    back: str,
    lines: tuple[str, ...] = (),
    template: str = "admin/audit/reason.html",
    **context: Any,
) -> TemplateResponse:
    """Return the page of a form with one button; it is not cached."""
    page = {"title": title, "form": form, "button": button, "back": back, "lines": lines}
    response = TemplateResponse(request, template, {**site.each_context(request), **page, **context})
    response.headers["Cache-Control"] = "no-store"
    return response
