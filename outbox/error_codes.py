"""Error codes of the outbox: failed attempts of webhooks and mails, disabled endpoints, and the API of endpoints."""

from functools import partial

from django.utils.translation import gettext_lazy as _

from accounts.errors import Context, ErrorCode
from jobs.error_codes import BUG

ITS_OWNER = _("Nothing; the tenant mends the receiver.")

attempt_failure = partial(ErrorCode, context=Context.OUTBOX_FAILURE)

WEBHOOK_STATUS = attempt_failure(
    "WEBHOOK_STATUS",
    _("The receiver answered with another status than 2xx."),
    _("The receiver answered with another status than 2xx; redirects are not followed."),
    ITS_OWNER,
)
WEBHOOK_TIMEOUT = attempt_failure(
    "WEBHOOK_TIMEOUT", _("The receiver did not answer within 15 seconds."), _("No answer within 15 s."), ITS_OWNER
)
WEBHOOK_UNREACHABLE = attempt_failure(
    "WEBHOOK_UNREACHABLE",
    _("No connection to the receiver: its name is not known, it refuses, or its certificate is not valid."),
    _("No connection: DNS, TCP or TLS."),
    _("If it happens to every endpoint, look at the workers' way to the internet. Else the tenant mends the receiver."),
)
WEBHOOK_ADDRESS_REFUSED = attempt_failure(
    "WEBHOOK_ADDRESS_REFUSED",
    _("The address leads to a network that is not public."),
    _("The name resolves to an address that is not public: private, loopback, link-local, multicast or mapped."),
    _("Look who owns the endpoint: it may be an attempt to reach our own network."),
)
WEBHOOK_SECRET_UNREADABLE = attempt_failure(
    "WEBHOOK_SECRET_UNREADABLE",
    _("We cannot sign for this endpoint at present."),
    _("No key of INTEGRATIONS_VAULT_KEYS opens the endpoint's secret."),
    _("Put the key that encrypted it into INTEGRATIONS_VAULT_KEYS again, behind the newest."),
)
WEBHOOK_GONE = attempt_failure(
    "WEBHOOK_GONE",
    _("The receiver answered 410 Gone, so the endpoint was disabled."),
    _("The receiver answered 410 Gone; the endpoint was disabled."),
    ITS_OWNER,
    retryable=False,
)
WEBHOOK_FAILING = attempt_failure(
    "WEBHOOK_FAILING",
    _("Every attempt of three days failed, so the endpoint was disabled."),
    _("Every attempt of three days failed; the endpoint was disabled."),
    ITS_OWNER,
    retryable=False,
)
WEBHOOK_DISABLED = attempt_failure(
    "WEBHOOK_DISABLED",
    _("The endpoint was disabled before this was sent."),
    _("The endpoint was disabled before this was sent."),
    _("Once the tenant has enabled it again: resend."),
    retryable=False,
)
MAIL_REFUSED = attempt_failure(
    "MAIL_REFUSED",
    _("The mail server of the address refused the e-mail."),
    _("The mail server refused the recipient or the mail."),
    _("The SMTP status says why: 550 is an unknown address. 4xx is tried again."),
)
MAIL_UNREACHABLE = attempt_failure(
    "MAIL_UNREACHABLE",
    _("Our mail server cannot be reached at present."),
    _("No connection to EMAIL_HOST, or it refuses our name, password or sender."),
    _("Check `EMAIL_HOST`, `EMAIL_HOST_USER`, `EMAIL_HOST_PASSWORD` and `DEFAULT_FROM_EMAIL`; it is tried again."),
)
MAIL_OBSOLETE = attempt_failure(
    "MAIL_OBSOLETE",
    _("There was nothing left to tell."),
    _("The account, invitation or document is gone, or its owner wants no such mails any more."),
    _("Nothing."),
    retryable=False,
)
SEARCH_ENGINE_UNAVAILABLE = attempt_failure(
    "SEARCH_ENGINE_UNAVAILABLE",
    staff_message=_("The server of `MILVUS_URI` does not answer, or with an error."),
    remedy=_("Searches miss nothing; it is tried again. Look at the server, and `manage.py search_engine status`."),
)
BUG.explain(Context.OUTBOX_FAILURE, staff_message=_("A bug of ours."), remedy=_("Tell a developer; it is tried again."))

WEBHOOK_URL_INVALID = ErrorCode(
    "WEBHOOK_URL_INVALID",
    _("Give an https address that can be reached from the internet."),
    detail=_("Give an https URL of a public host, without a user name, at port 443 or one from 1024 on."),
)
WEBHOOK_LIMIT_REACHED = ErrorCode(
    "WEBHOOK_LIMIT_REACHED", status=409, detail=_("You have as many webhook endpoints as you may; delete one first.")
)
WEBHOOK_NOT_ENABLED = ErrorCode(
    "WEBHOOK_NOT_ENABLED", status=409, detail=_("This endpoint is disabled; enable it first.")
)
MESSAGE_IN_FLIGHT = ErrorCode(
    "MESSAGE_IN_FLIGHT", status=409, detail=_("This is being sent at this moment; try again in a minute.")
)
