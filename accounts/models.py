"""Models of accounts: users, sessions, API tokens, rate windows, idempotency keys."""

import uuid
from typing import Any, ClassVar

from django.conf import settings
from django.contrib.auth.models import AbstractUser, UserManager
from django.contrib.postgres.fields import ArrayField
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models, transaction
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from accounts.audit import log
from accounts.system_tenant import SYSTEM_TENANT_ID


class EmailUserManager(UserManager["User"]):
    """Stores addresses in lower case, as sign-in looks them up."""

    use_in_migrations = False

    @classmethod
    def normalize_email(cls, email: str | None) -> str:
        return super().normalize_email(email).lower()

    def create_superuser(self, *args: Any, audit_reason: str = "createsuperuser", **fields: Any) -> "User":
        """Create a superuser, with an audit entry: `manage.py createsuperuser` calls this."""
        with transaction.atomic(using=self.db):
            user = super().create_superuser(*args, **fields)
            log.record_action(
                by=None, action="users.create_superuser", reason=audit_reason, object_type="user",
                object_id=user.pk,
            )  # fmt: skip
        return user


class Notify(models.TextChoices):
    """Mails about documents that are done or have failed. ``jobs.webhook_events`` reads the column in SQL."""

    OFF = "off", _("No e-mails")
    EACH = "each", _("An e-mail for each document")
    DAILY = "daily", _("One e-mail a day")


class Language(models.TextChoices):
    """Languages of pages and mails; each is named in its own."""

    ENGLISH = "en", "English"
    SPANISH = "es", "Español"


class User(AbstractUser):
    """A tenant or a member of staff. The id is the ``sub`` of a Supabase token, so that both name the same tenant."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    email = models.EmailField(unique=True)
    notify = models.TextField(choices=Notify.choices, db_default=Notify.OFF, default=Notify.OFF)
    # Empty until the first sign-in, or the first choice on a page: then the browser's.
    language = models.TextField(choices=Language.choices, db_default="", default="", blank=True)

    # Of an authenticator app, as ``accounts.totp`` encrypts it; null without two-step sign-in.
    totp_secret = models.BinaryField(null=True)
    totp_step = models.BigIntegerField(null=True)  # of the last code taken: none is taken twice
    recovery_digests = ArrayField(models.TextField(), db_default=[], default=list)

    objects: ClassVar[EmailUserManager] = EmailUserManager()

    class Meta:
        db_table = "users"
        # A user who signed in as the system tenant could read and delete its documents.
        constraints = [
            models.CheckConstraint(condition=~Q(id=SYSTEM_TENANT_ID), name="user_is_not_the_system_tenant"),
            models.CheckConstraint(condition=Q(notify__in=["off", "each", "daily"]), name="user_notify_known"),
            models.CheckConstraint(condition=Q(language__in=["", *Language.values]), name="user_language_known"),
        ]


class UserIdentity(models.Model):
    """Who a user is at an OpenID Connect provider, which may sign them in."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="identities")
    issuer = models.TextField()
    subject = models.TextField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "user_identities"
        default_permissions = ()
        constraints = [models.UniqueConstraint("issuer", "subject", name="uq_identity")]

    def __str__(self) -> str:
        return str(self.pk)


class Invitation(models.Model):
    """An address that may become an account, by a link that is sent to it; deleted with its use or its end."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)  # the account's id, too
    email = models.EmailField()
    expires_at = models.DateTimeField(db_index=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "invitations"
        default_permissions = ()
        indexes = [models.Index("email", name="ix_invitations_email")]

    def __str__(self) -> str:
        return str(self.pk)


class AccountDeletion(models.Model):
    """A deletion of an account, afterwards its certificate: without personal data once that is mailed."""

    deletion_id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    user_id = models.UUIDField(unique=True)
    # Until the certificate is mailed.
    email = models.EmailField(null=True)
    language = models.TextField(blank=True)
    deleted = models.JSONField(db_default={}, default=dict)  # rows of each table
    requested_at = models.DateTimeField(db_default=Now())
    completed_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "account_deletions"
        verbose_name = "deleted account"
        default_permissions = ("view",)

    def __str__(self) -> str:
        return str(self.pk)


class UserSession(AbstractBaseSession):
    """A session of a browser, as ``accounts.sessions`` writes it."""

    session_id = models.UUIDField(unique=True)  # the key is a credential: pages use this
    user_id = models.UUIDField(null=True)  # None before the sign-in
    browser = models.TextField(blank=True)
    signed_in_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField()  # to the hour

    class Meta:
        db_table = "user_sessions"
        default_permissions = ()
        indexes = [models.Index("user_id", name="ix_sessions_user")]


class ApiToken(models.Model):
    class Scope(models.TextChoices):
        READ = "read", _("read documents, jobs and costs")
        WRITE = "write", _("upload, retry and delete")
        SEARCH = "search", _("search and ask questions")
        WEBHOOKS = "webhooks", _("create, change and delete webhooks")
        TOKENS = "tokens", _("create and revoke tokens")
        EXPORT = "export", _("download all that is stored")
        SERVICE = "service", _("advance jobs, and read for every tenant")  # only staff issue it

    token_id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.TextField()
    scopes = ArrayField(models.TextField(choices=Scope.choices))
    digest = models.TextField(unique=True)
    created_at = models.DateTimeField(db_default=Now())
    last_used_at = models.DateTimeField(null=True)  # to the hour
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    # The token that created it, and is revoked with it.
    made_by = models.ForeignKey("self", on_delete=models.CASCADE, null=True, related_name="made_tokens")

    class Meta:
        db_table = "api_tokens"
        default_permissions = ("view", "add")
        permissions = [("revoke_apitoken", "Can revoke API tokens")]
        indexes = [models.Index(F("created_at").desc(), "token_id", name="ix_tokens_created")]
        constraints = [
            models.CheckConstraint(
                condition=Q(scopes__contained_by=["read", "write", "search", "webhooks", "tokens", "export", "service"])
                & ~Q(scopes=[]),
                name="token_scopes_known",
            )
        ]

    def __str__(self) -> str:
        return self.name


class RateWindow(models.Model):
    """The uses of a key within one span of its sliding window, for ``accounts.rate_limit``."""

    pk = models.CompositePrimaryKey("key", "expires_at")
    key = models.TextField()
    expires_at = models.DateTimeField(db_index=True)  # of the span's last possible use: an update changes no index
    used_at = models.DateTimeField()  # the last use
    uses = models.IntegerField()

    class Meta:
        db_table = "rate_windows"
        default_permissions = ()

    def __str__(self) -> str:
        return self.key


class IdempotencyKey(models.Model):
    """A client's ``Idempotency-Key`` and its request, for ``accounts.idempotency_keys``."""

    user_id = models.UUIDField()
    route = models.TextField()
    key = models.TextField()
    body_sha256 = models.TextField()
    expires_at = models.DateTimeField(db_index=True)

    class Meta:
        db_table = "idempotency_keys"
        default_permissions = ()
        constraints = [models.UniqueConstraint("user_id", "route", "key", name="uq_idempotency_key")]

    def __str__(self) -> str:
        return str(self.pk)
