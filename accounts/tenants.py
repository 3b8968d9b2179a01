"""The tenant that a command is run for."""

from uuid import UUID

from django.core.management.base import CommandError

from accounts.models import User


def find_tenant_id(email_or_id: str | None) -> UUID:
    """Return the id of the user with this e-mail or id, or of the only tenant; of the only user if that is staff."""
    if email_or_id is None:
        users = list(User.objects.filter(is_active=True).order_by("is_staff")[:2])
        if len({user.is_staff for user in users}) != len(users) or not users:
            raise CommandError("Say whose documents with --user EMAIL; `manage.py create_user EMAIL` makes an account.")
        return users[0].pk
    by_email = User.objects.filter(email=email_or_id.lower()).first()
    try:
        return by_email.pk if by_email else UUID(email_or_id)
    except ValueError:
        raise CommandError(f"There is no user {email_or_id!r}.") from None
