"""Staff users: the grant of a role, with password, audit entry and revoked tokens."""

from django.contrib.auth.models import Group
from django.db import transaction

from accounts import api_tokens
from accounts.audit import log
from accounts.audit.roles import GROUPS, sync_group
from accounts.models import ApiToken, User


def grant_role(
    email: str, *, group: str, by: User | None, reason: str, password: str | None = None
) -> tuple[User, bool, int]:
    """Make a user a member of staff with this role only; return them, whether they are new, and the tokens revoked.

    Without ``password`` an existing user keeps theirs, and a new one has none. API tokens from before the role are
    revoked: their holders were not given these permissions.
    """
    email = email.strip().lower()
    with transaction.atomic():
        user, is_new = User.objects.get_or_create(email=email, defaults={"username": email})
        user = User.objects.select_for_update().get(pk=user.pk)
        had_role = user.is_staff and user.groups.filter(name=group).exists()
        if password is not None:
            user.set_password(password)
        elif is_new:
            user.set_unusable_password()
        user.is_staff = True
        user.save()
        user.groups.remove(*Group.objects.filter(name__in=GROUPS))
        user.groups.add(sync_group(group))
        revoked = 0 if had_role else api_tokens.revoke_tokens(ApiToken.objects.filter(user=user), by=by, reason=reason)
        log.record_action(
            by=by, action="users.create_staff", reason=reason, object_type="user", object_id=user.pk,
            group=group, new=is_new, tokens_revoked=revoked,
        )  # fmt: skip
    return user, is_new, revoked
