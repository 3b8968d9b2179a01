"""How staff sign in to the admin: by e-mail address, as tenants do."""

from __future__ import annotations

from typing import Any

from unfold.forms import AuthenticationForm


class SignInForm(AuthenticationForm):  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"].label = "E-mail"
        self.fields["username"].widget.input_type = "email"
