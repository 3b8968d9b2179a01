"""Error codes of the upload script in the browser, before or after it has asked the API."""

from django.utils.translation import gettext_lazy as _

from accounts.errors import ErrorCode

UNREADABLE = ErrorCode("UNREADABLE", _("The file cannot be read. Was it moved or deleted?"))
INSECURE = ErrorCode(
    "INSECURE", _("This page was not loaded over HTTPS, so the browser cannot check your files. Use the https address.")
)
UNREACHABLE = ErrorCode("UNREACHABLE", _("The connection broke off. Check it and try again."))
REFUSED_BY_STORE = ErrorCode(
    "REFUSED_BY_STORE", _("The file store refused the upload. Try again; if it fails once more, tell our staff.")
)
