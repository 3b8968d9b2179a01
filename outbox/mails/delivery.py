"""Sender of mails: written when they are sent, so that the outbox keeps no text, link or address."""

import smtplib
from collections.abc import Callable
from functools import partial
from typing import cast
from urllib.parse import urlsplit

from django.conf import settings
from django.core.mail import BadHeaderError, EmailMessage
from django.utils.module_loading import import_string

from outbox import error_codes
from outbox.attempts import Attempt
from outbox.mails.templates import Mail
from outbox.models import Message

Writer = Callable[[Message], Mail | None]


def writer(type: str) -> Writer:
    return cast(Writer, import_string(settings.OUTBOX_MAILS[type]))


def prepare(message: Message) -> Callable[[], Attempt]:
    """Write the mail by the entry of ``settings.OUTBOX_MAILS`` for its type; None: there is nothing left to say."""
    mail = writer(message.payload["type"])(message)
    if mail is None:
        return lambda: Attempt(error_codes.MAIL_OBSOLETE, is_final=True)
    return partial(send, str(message.pk), mail)


def send(id: str, mail: Mail) -> Attempt:
    """Hand a mail to the server of ``EMAIL_HOST``. A repeated attempt has the same Message-ID."""
    host = urlsplit(settings.PUBLIC_URL).hostname or "localhost"
    headers = {"Message-ID": f"<{id}@{host}>", "Auto-Submitted": "auto-generated"}
    try:
        EmailMessage(mail.subject, mail.body, None, [mail.to], headers=headers).send()
    except smtplib.SMTPRecipientsRefused as error:
        statuses = [status for status, _ in error.recipients.values()]
        return _refused(min(statuses, default=0))
    except (smtplib.SMTPSenderRefused, smtplib.SMTPAuthenticationError) as error:  # our own settings
        return Attempt(error_codes.MAIL_UNREACHABLE, error.smtp_code)
    except smtplib.SMTPResponseException as error:
        return _refused(error.smtp_code)
    except BadHeaderError:
        return Attempt(error_codes.MAIL_REFUSED, is_final=True)
    except (smtplib.SMTPException, OSError):
        return Attempt(error_codes.MAIL_UNREACHABLE)
    return Attempt()


def _refused(status: int) -> Attempt:
    return Attempt(error_codes.MAIL_REFUSED, status, is_final=status >= 500)


def record(message: Message, attempt: Attempt) -> None:
    """Write nothing: an attempt says nothing of the receiver that later mails would heed."""
