"""The token vault: encryption, rotation of keys, rows bound to their source."""

import threading
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from cryptography.fernet import Fernet
from django.conf import settings as configured
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import ProgrammingError, connection
from django.utils import timezone

from accounts.encryption import rotate_column
from accounts.rls import as_tenant
from integrations.models import ConnectedSource, VaultToken
from integrations.oauth import token_vault
from integrations.tests.grants import database_dump
from jobs.outcomes import Permanent
from testing.concurrency import run_concurrently
from testing.personas import Person

OLD, NEW = Fernet.generate_key().decode(), Fernet.generate_key().decode()
PASSPHRASE = "of a laptop, made once and known to nobody else"


@pytest.fixture
def source(ana: Person, settings: Any) -> ConnectedSource:
    settings.INTEGRATIONS_VAULT_KEYS = [OLD]
    return ConnectedSource.objects.create(user_id=ana.id, provider="quickbooks", account="1")


def filled(source: ConnectedSource, count: int) -> dict[Any, str]:
    return {token_vault.store_token(source, "access", token): token for token in (f"token-{n}" for n in range(count))}


@pytest.mark.parametrize("token", ["t", "€" * 100, "x" * 4096], ids=["short", "not-ascii", "Intuit's-longest"])
def test_a_token_round_trips_and_is_never_in_plain_text(source: ConnectedSource, token: str) -> None:
    id = token_vault.store_token(source, "refresh", token)

    assert token_vault.read_token(id, source) == token
    if len(token) > 1:
        assert token not in database_dump()
        assert token.encode().hex() not in database_dump()


@pytest.mark.parametrize("keys", [[NEW], [PASSPHRASE]])
def test_a_wrong_key_is_an_error_with_a_code_and_never_ciphertext(
    source: ConnectedSource, settings: Any, keys: list[str]
) -> None:
    id = token_vault.store_token(source, "access", "secret")
    settings.INTEGRATIONS_VAULT_KEYS = keys

    with pytest.raises(token_vault.UnknownVaultKey) as wait:
        token_vault.read_token(id, source)

    assert wait.value.reason == "VAULT_KEY_UNKNOWN"


def test_any_long_secret_is_a_key_and_a_short_one_is_none(source: ConnectedSource, settings: Any) -> None:
    settings.INTEGRATIONS_VAULT_KEYS = [PASSPHRASE]
    assert token_vault.read_token(token_vault.store_token(source, "access", "secret"), source) == "secret"

    for keys in (["too short"], []):
        settings.INTEGRATIONS_VAULT_KEYS = keys
        with pytest.raises(ImproperlyConfigured):
            token_vault.store_token(source, "access", "secret")


def test_rows_cannot_be_swapped_nor_read_for_another_source(ana: Person, ben: Person, source: ConnectedSource) -> None:
    foreign = ConnectedSource.objects.create(user_id=ben.id, provider="quickbooks", account="1")
    own, other, bens = (
        token_vault.store_token(*args)
        for args in ((source, "access", "a"), (source, "refresh", "r"), (foreign, "access", "b"))
    )
    secrets = {row.pk: row.secret for row in VaultToken.objects.all()}
    for count in (other, bens):
        VaultToken.objects.filter(pk=own).update(secret=secrets[count])
        with pytest.raises(Permanent, match="VAULT_TOKEN_MISPLACED"):
            token_vault.read_token(own, source)
    for id in (bens, uuid4()):
        with pytest.raises(Permanent, match="VAULT_TOKEN_MISPLACED"):
            token_vault.read_token(id, source)
    # Moved as a whole, to a source of the thief's.
    VaultToken.objects.filter(pk=other).update(source_id=foreign.pk, user_id=ben.id)
    with pytest.raises(Permanent, match="VAULT_TOKEN_MISPLACED"):
        token_vault.read_token(other, foreign)


def test_tenants_cannot_read_the_vault_not_even_their_own_rows(ana: Person, source: ConnectedSource) -> None:
    token_vault.store_token(source, "access", "secret")

    with pytest.raises(ProgrammingError, match="permission denied"), as_tenant(ana.id):
        VaultToken.objects.count()


def test_the_vault_is_encrypted_under_the_newest_key(
    source: ConnectedSource, settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = filled(source, 7)
    settings.INTEGRATIONS_VAULT_KEYS = [NEW, OLD]
    tokens |= filled(source, 2)

    with pytest.raises(CommandError, match="still needed"):
        call_command("rotate_vault", "--check")
    call_command("rotate_vault")
    call_command("rotate_vault")
    call_command("rotate_vault", "--check")
    settings.INTEGRATIONS_VAULT_KEYS = [NEW]

    assert [line.split(" ")[0] for line in capsys.readouterr().out.splitlines()] == ["7", "7", "0", "0"]
    assert {id: token_vault.read_token(id, source) for id in tokens} == tokens


def test_a_rotation_that_was_stopped_goes_on(source: ConnectedSource, settings: Any) -> None:
    tokens = filled(source, 5)
    settings.INTEGRATIONS_VAULT_KEYS = [NEW, OLD]

    first = rotate_column(VaultToken.objects.filter(pk__in=[*tokens][:2]), "secret", write=True)
    again = rotate_column(VaultToken.objects.all(), "secret", write=True)

    assert (first.older, again.newest, again.older) == (2, 2, 3)


def test_a_token_that_no_key_opens_is_reported_and_kept(source: ConnectedSource, settings: Any) -> None:
    id = token_vault.store_token(source, "access", "secret")
    settings.INTEGRATIONS_VAULT_KEYS = [NEW]

    with pytest.raises(CommandError, match="1 secrets are opened by no key"):
        call_command("rotate_vault")

    settings.INTEGRATIONS_VAULT_KEYS = [OLD]
    assert token_vault.read_token(id, source) == "secret"


@pytest.mark.django_db(transaction=True)
def test_keys_rotate_under_traffic_without_losing_tokens(source: ConnectedSource, settings: Any) -> None:
    tokens, stop = filled(source, 40), threading.Event()

    def use() -> int:
        used = 0
        while not stop.is_set():
            id = token_vault.store_token(source, "access", f"mine-{used}")
            assert token_vault.read_token(id, source) == f"mine-{used}"
            assert {id: token_vault.read_token(id, source) for id in list(tokens)[:5]}
            used += 1
        return used

    def change() -> int:
        # As docs/operations tells it: known to all first, then the newest, then alone.
        try:
            for keys in ([OLD, NEW], [NEW, OLD]):
                settings.INTEGRATIONS_VAULT_KEYS = keys
                call_command("rotate_vault", stdout=Silent())
        finally:
            stop.set()
        return 0

    _, used, _ = run_concurrently(change, use, use)
    call_command("rotate_vault", stdout=Silent())  # what was encrypted just before the newest key was another
    call_command("rotate_vault", "--check", stdout=Silent())
    settings.INTEGRATIONS_VAULT_KEYS = [NEW]

    assert used
    assert {id: token_vault.read_token(id, source) for id in tokens} == tokens


class Silent:
    def write(self, text: str) -> None:
        """Nothing."""


def test_replaced_tokens_are_deleted_after_seven_days_and_used_ones_never(source: ConnectedSource) -> None:
    old, used, unused = filled(source, 3)
    ConnectedSource.objects.update(access_token_vault_id=used)
    token_vault.orphan_replaced_tokens(source.pk)
    assert set(VaultToken.objects.filter(orphaned_at__isnull=False).values_list("pk", flat=True)) == {old}

    for days, left in ((6, 3), (8, 2)):
        VaultToken.objects.exclude(pk=unused).update(orphaned_at=timezone.now() - timedelta(days=days))
        token_vault.delete_orphaned_tokens()

        assert VaultToken.objects.count() == left
    assert token_vault.read_token(used, source)
    assert "integrations.oauth.token_vault.delete_orphaned_tokens" in configured.JOBS_PERIODIC_TASKS


def test_orphaned_tokens_are_found_by_index(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")  # few rows are read at once, whatever indexes there are
        cursor.execute(f"EXPLAIN {token_vault.DELETE_ORPHANED}")
        plan = "\n".join(row for (row,) in cursor.fetchall())

    assert "ix_vault_tokens_orphaned" in plan
