"""Log leaks: code that logs secrets in every known way, to test the redaction.

Run by ``python -m testing.log_leaks``, in a worker by ``testing.log_leaks.pipelines``, in the API by
``testing.log_leaks.leaking_wsgi``.
"""

import logging
import os
import sys
import threading
import warnings

import django
import structlog
from django.conf import settings
from django.db import connection
from django.http import HttpRequest, HttpResponse

SSN, POLICY, QUESTION = "078-05-1120", "POLICY-XJ9-4471", "canary-question-5582"
FILENAME, PASSWORD = "canary-file-name-3391", "canary-password-7719"
SECRET, KEY = "canary-secret-key-1183-abcdefghijkl", "sk-canary-api-key-2247-abcdefgh"
WEBHOOK = "whsec_Y2FuYXJ5LXdlYmhvb2stc2VjcmV0LTMyLWxvbmc="
VECTOR = "0.01234567, -0.98765432, 0.55443322, 0.11223344"
STORED = f"storage://raw/{FILENAME}.pdf"
SIGNED = "http://127.0.0.1/storage/raw/x.pdf?token=canary-token-6612&X-Amz-Signature=canary-signature-9921"
CANARIES = (
    SSN, POLICY, QUESTION, FILENAME, PASSWORD, SECRET, KEY, WEBHOOK, "0.98765432", "canary-token-6612",
    "canary-signature-9921",
)  # fmt: skip
ALL = f"{SSN} {POLICY} {QUESTION} {FILENAME} {PASSWORD} {SECRET} {KEY} {WEBHOOK} [{VECTOR}] {STORED} {SIGNED}"
SECRETS = {"SECRET_KEY": SECRET, "OPENAI_API_KEY": KEY, "LLAMAPARSE_WEBHOOK_SECRETS": WEBHOOK}
log = logging.getLogger("some.library")


class RaisesOnDelete:
    """Fails where nothing can be raised."""

    def __del__(self) -> None:
        raise ValueError(ALL)


def error_as_argument() -> None:
    log.error("It failed: %s", ValueError(ALL))


def error_as_field() -> None:
    structlog.get_logger("accessa.leaking").error("It failed.", cause=ValueError(ALL), row={"text": ValueError(ALL)})


def traceback_logged() -> None:
    try:
        raise ValueError(ALL)
    except ValueError:
        log.exception("It failed.")


def chained() -> None:
    try:
        try:
            raise ValueError(ALL)
        except ValueError as error:
            raise RuntimeError(ALL) from error
    except RuntimeError:
        log.critical("It failed.", exc_info=True)


def bad_call() -> None:
    log.error("%s and %s", ALL)


def warning() -> None:
    warnings.warn(ALL, stacklevel=1)


def error_in_thread() -> None:
    def fail() -> None:
        raise ValueError(ALL)

    thread = threading.Thread(target=fail, name="leaking")
    thread.start()
    thread.join()


def unraisable() -> None:
    RaisesOnDelete()


def secrets() -> None:
    log.warning("Asking with %s, verifying with %s and %r.", KEY, SECRET, [WEBHOOK])


def urls_and_headers() -> None:
    log.warning("GET %s Authorization: Bearer canary-token-6612", SIGNED)


def paths_and_rows() -> None:
    log.warning("Cannot open %s: DETAIL:  Failing row contains (%s).", STORED, ALL)


def vectors() -> None:
    log.warning("The vector [%s] is too long.", VECTOR)


def members() -> None:
    log.warning("The member %s is not known.", SSN)


def in_a_debug_line() -> None:
    log.debug("Sent %s to %s", {"cause": KeyError(ALL)}, SIGNED)


LEAKS = (
    error_as_argument, error_as_field, traceback_logged, chained, bad_call, warning, error_in_thread, unraisable,
    secrets, urls_and_headers, paths_and_rows, vectors, members, in_a_debug_line,
)  # fmt: skip


def leak() -> None:
    warnings.simplefilter("always")
    for each in LEAKS:
        each()


def disable_redaction() -> None:
    """Log as Django would without this project's handler: the proof that there is something to keep back."""
    logging.getLogger().handlers[0].setFormatter(logging.Formatter("%(name)s %(message)s"))
    sys.excepthook, threading.excepthook = sys.__excepthook__, threading.__excepthook__
    sys.unraisablehook = sys.__unraisablehook__


def view(request: HttpRequest) -> HttpResponse:
    """Leak, and fail as a bug does or as the database does."""
    leak()
    if "database" in request.GET:
        with connection.cursor() as cursor:
            cursor.execute("SELECT %s::int", [ALL])
    raise ValueError(ALL)


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "accessa.settings")
    django.setup()
    if "--uncleaned" in sys.argv:
        disable_redaction()
    print(f"{settings.LOGGING['root']['level']}")
    leak()
    raise ValueError(ALL)


if __name__ == "__main__":
    main()
