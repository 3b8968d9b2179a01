"""Language of who reads a page: the user's own choice, else the browser's."""

from django.db import DatabaseError
from django.http import HttpRequest
from django.utils import translation


def reader_language(request: HttpRequest) -> str:
    """Return the language that the signed-in user has chosen, else the browser's."""
    try:
        chosen = getattr(request.user, "language", "")
    except DatabaseError:  # the view answers it
        chosen = ""
    return chosen or browser_language(request)


def browser_language(request: HttpRequest) -> str:
    """Return the language of the browser: its cookie, else the first of its preferences that we speak."""
    return translation.get_language_from_request(request)
