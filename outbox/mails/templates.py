"""Mails as plain text: a template's first line is the subject, the rest the body."""

from typing import Any, NamedTuple

from django.conf import settings
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import translation


class Mail(NamedTuple):
    to: str
    subject: str
    body: str


def render(to: str, template: str, language: str, **context: Any) -> Mail:
    """Render ``templates/mails/<template>.txt`` in a language, of "" in ``LANGUAGE_CODE``.

    What the context holds never starts a line of the subject.
    """
    with translation.override(language or settings.LANGUAGE_CODE):
        text = render_to_string(f"mails/{template}.txt", context | {"home": settings.PUBLIC_URL})
    subject, _, body = text.partition("\n")
    return Mail(to, " ".join(subject.split()), body.strip() + "\n")


def link(view: str, *args: object) -> str:
    """Return the public URL of a page of the portal."""
    return f"{settings.PUBLIC_URL}{reverse(view, args=args)}"
