"""Invitations: an address becomes an account by a signed link, once and within a week."""

from datetime import timedelta
from uuid import UUID

from django.core import signing
from django.db import IntegrityError, transaction
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from accounts.errors import ApiError, staff_error
from accounts.models import Invitation, User

VALID = timedelta(days=7)
SALT = "accounts.invitations"
ACCOUNT_EXISTS = staff_error(
    "ACCOUNT_EXISTS",
    _("An address was invited that has an account already."),
    _("Nothing: its owner signs in, or asks for a new password."),
    status=409,
    detail=_("This address has an account already."),
)


def create_invitation(email: str) -> Invitation:
    """Create an invitation; an earlier one of the address stays valid. Raises ``ApiError("ACCOUNT_EXISTS")``."""
    email = email.strip().lower()
    if User.objects.filter(email=email).exists():
        raise ApiError(ACCOUNT_EXISTS)
    return Invitation.objects.create(email=email, expires_at=Now() + VALID)


def sign(invitation: Invitation) -> str:
    """Return the part of the link that proves that its holder reads the address's mail."""
    return signing.dumps(str(invitation.pk), salt=SALT)


def find_invitation(signed: str) -> Invitation | None:
    """Return the invitation of a link, unless it is forged, used or expired."""
    try:
        pk = UUID(signing.loads(signed, salt=SALT))
    except signing.BadSignature:
        return None
    return Invitation.objects.filter(pk=pk, expires_at__gt=Now()).first()


def accept(invitation: Invitation, password: str) -> User | None:
    """Create the account, once; return None if the invitation was used or the address has an account meanwhile."""
    try:
        with transaction.atomic():
            if not Invitation.objects.filter(pk=invitation.pk, expires_at__gt=Now()).delete()[0]:
                return None
            Invitation.objects.filter(email=invitation.email).delete()
            return User.objects.create_user(invitation.email, invitation.email, password, id=invitation.pk)
    except IntegrityError:
        return None
