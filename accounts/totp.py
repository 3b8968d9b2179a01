"""Two-step sign-in: TOTP codes of an authenticator app (RFC 6238), recovery codes, sessions that wait for a code."""

import base64
import hashlib
import json
import re
import secrets
import time
from hmac import compare_digest
from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP
from django.contrib.auth.models import AnonymousUser
from django.contrib.sessions.backends.base import SessionBase
from django.db import transaction
from django.db.models import F, Func, Q, Value

from accounts import encryption, rate_limit, sessions
from accounts.audit import log
from accounts.models import User

SECRET_BYTES = 20  # as RFC 4226 recommends
STEP_SECONDS, DIGITS = 30, 6
DRIFT_STEPS = 1  # a clock may be half a minute wrong
RECOVERY_CODES, RECOVERY_BYTES = 10, 10
VERIFIED = "totp_verified"  # the key in a session: the id of the user who gave a code
ISSUER = "Accessa"


def is_on(user: User) -> bool:
    return user.totp_secret is not None


def admitted(session: SessionBase, user: Any) -> Any:
    """Return the user of a session, or an anonymous one while a code is missing."""
    is_missing = user.is_authenticated and is_on(user) and session.get(VERIFIED) != str(user.pk)
    return AnonymousUser() if is_missing else user


def admit(session: SessionBase, user: User) -> None:
    """Let a session in whose user gave a code, under a new key."""
    session[VERIFIED] = str(user.pk)
    session.cycle_key()


def new_secret() -> str:
    """Return a secret as an authenticator app takes it."""
    return base64.b32encode(secrets.token_bytes(SECRET_BYTES)).decode()


def provisioning_uri(user: User, secret: str) -> str:
    return _totp(secret).get_provisioning_uri(user.email, ISSUER)


def is_code_of(secret: str, code: str) -> bool:
    return _matching_step(secret, _normalize(code)) is not None


def turn_on(user: User, secret: str, code: str, session: SessionBase) -> list[str]:
    """Store a secret, use up the code of it that was shown, end all other sessions, and return the recovery codes.

    Where it is on already, turned on by another session a moment before, change nothing and return no codes.
    """
    codes = _new_recovery_codes()
    with transaction.atomic():
        changes = {
            "totp_secret": _encrypt(user.pk, secret),
            "totp_step": _matching_step(secret, _normalize(code)) or int(time.time()) // STEP_SECONDS,
            "recovery_digests": [_digest(code) for code in codes],
        }
        if not User.objects.filter(pk=user.pk, totp_secret=None).update(**changes):
            return []
        sessions.end_sessions(user.pk, keep=session.session_key)
        _record("users.totp_on", user, by=user, reason="By its owner.")
    session[VERIFIED] = str(user.pk)
    return [_grouped(code) for code in codes]


def replace_recovery_codes(user: User) -> list[str]:
    codes = _new_recovery_codes()
    User.objects.filter(pk=user.pk).update(recovery_digests=[_digest(code) for code in codes])
    return [_grouped(code) for code in codes]


def turn_off(user: User, *, by: User | None, reason: str) -> None:
    with transaction.atomic():
        User.objects.filter(pk=user.pk).update(totp_secret=None, totp_step=None, recovery_digests=[])
        _record("users.totp_off", user, by=by, reason=reason)


def verify(user: User, code: str) -> bool:
    """Check and use up a code, or a recovery code: each is taken once. Raises ``ApiError("TRIED_TOO_OFTEN")``."""
    rate_limit.check_rate(rate_limit.SIGN_IN_CODES, user.pk)
    code = _normalize(code)
    if not (_use_code(user, code) if code.isdigit() else _use_recovery_code(user, code)):
        return False
    rate_limit.remove_last_use(rate_limit.SIGN_IN_CODES, user.pk)
    return True


def _use_code(user: User, code: str) -> bool:
    row = User.objects.filter(pk=user.pk, totp_secret__isnull=False).first()
    if row is None:
        return False
    step = _matching_step(_decrypt(row), code)
    unused = Q(totp_step=None) | Q(totp_step__lt=step or 0)
    same_secret = User.objects.filter(pk=user.pk, totp_secret=row.totp_secret)
    return step is not None and bool(same_secret.filter(unused).update(totp_step=step))


def _use_recovery_code(user: User, code: str) -> bool:
    digest = _digest(code)
    left = Func(F("recovery_digests"), Value(digest), function="array_remove")
    return bool(User.objects.filter(pk=user.pk, recovery_digests__contains=[digest]).update(recovery_digests=left))


def _matching_step(secret: str, code: str) -> int | None:
    totp, now = _totp(secret), int(time.time()) // STEP_SECONDS
    steps = range(now - DRIFT_STEPS, now + DRIFT_STEPS + 1)
    return next((step for step in steps if compare_digest(totp.generate(step * STEP_SECONDS), code.encode())), None)


def _totp(secret: str) -> TOTP:
    # Apps know SHA-1 only, whatever the URI says; HMAC does not need it to be free of collisions.
    return TOTP(base64.b32decode(secret), DIGITS, SHA1(), STEP_SECONDS)  # noqa: S303


def _normalize(code: str) -> str:
    return re.sub(r"[\s-]", "", code).upper()


def _new_recovery_codes() -> list[str]:
    return [base64.b32encode(secrets.token_bytes(RECOVERY_BYTES)).decode() for _ in range(RECOVERY_CODES)]


def _grouped(code: str) -> str:
    return "-".join(code[at : at + 4] for at in range(0, len(code), 4))


def _digest(code: str) -> str:
    # A recovery code has 80 random bits: a slow hash would protect nothing.
    return hashlib.sha256(code.encode()).hexdigest()


def _record(action: str, user: User, *, by: User | None, reason: str) -> None:
    if user.is_staff or by is None or by.pk != user.pk:
        log.record_action(by=by, action=action, reason=reason, object_type="user", object_id=user.pk)


def _encrypt(user_id: UUID, secret: str) -> bytes:
    return encryption.vault().encrypt(json.dumps({"user": str(user_id), "s": secret}).encode())


def _decrypt(user: User) -> str:
    opened = json.loads(encryption.vault().decrypt(bytes(user.totp_secret or b"")))
    if opened["user"] != str(user.pk):
        raise ValueError("A secret of an authenticator is in another user's row.")
    return str(opened["s"])
