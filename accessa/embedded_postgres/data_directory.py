"""Data directory of the embedded PostgreSQL: atomic initdb, configuration before every start, socket folder."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from accessa.embedded_postgres.installation import EmbeddedError, binaries
from accessa.embedded_postgres.os_user import Account

LONGEST_SOCKET_FOLDER = 90  # a socket's path may have 107 bytes, and "/.s.PGSQL.5432" takes 15

SETTINGS = """\
# Written by accessa before every start.
listen_addresses = ''
port = 5432
unix_socket_directories = '{socket_folder}'
unix_socket_permissions = 0700
cluster_name = '{cluster_name}'
max_connections = 200
shared_buffers = 256MB
maintenance_work_mem = 256MB
dynamic_shared_memory_type = {shared_memory}
jit = off
fsync = on
synchronous_commit = on
idle_in_transaction_session_timeout = 60s
timezone = 'UTC'
log_timezone = 'UTC'
# Statements and the messages of their errors carry tenants' text: the application logs errors, stripped.
log_min_messages = log
log_min_error_statement = panic
log_error_verbosity = terse
log_statement = none
log_min_duration_statement = -1
log_parameter_max_length = 0
log_parameter_max_length_on_error = 0
log_checkpoints = off
log_autovacuum_min_duration = -1
"""
STATISTICS = """\
shared_preload_libraries = 'pg_stat_statements'
pg_stat_statements.track_utility = off
"""


def cluster_name(data: Path) -> str:
    """Return a short name, unique to the data: every server process has it in its title."""
    return "accessa-" + hashlib.sha256(os.fsencode(data)).hexdigest()[:12]


def socket_folder(data: Path) -> Path:
    """Return the data directory itself, or a private folder in /tmp where its path is too long."""
    if len(os.fsencode(data)) <= LONGEST_SOCKET_FOLDER:
        return data
    return Path("/tmp") / cluster_name(data)  # noqa: S108


def open_socket_folder(data: Path, account: Account) -> None:
    folder = socket_folder(data)
    if folder == data:
        return
    folder.mkdir(mode=0o700, exist_ok=True)
    owner = folder.lstat().st_uid
    if owner == os.geteuid():
        account.give(folder)
    elif owner != account.uid:
        raise EmbeddedError(f"{folder} belongs to somebody else. Remove it, or clone to a shorter path.")
    if folder.is_symlink() or folder.stat().st_mode & 0o077:
        raise EmbeddedError(f"{folder} must be a folder that only its owner can enter. Remove it and start again.")


def create(data: Path, account: Account, log: Path) -> None:
    """Run initdb in a staging folder and rename it, so that an interrupted initdb leaves no half-made data."""
    if data.exists() and any(data.iterdir()):
        raise EmbeddedError(f"{data} is neither empty nor a PostgreSQL data directory. Move it away.")
    staging = data.with_name(data.name + ".init")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(mode=0o700)
    account.give(staging)
    try:
        with log.open("ab") as output:
            account.run(
                "initdb", "-D", str(staging), "-U", "postgres", "--encoding=UTF8", "--locale=C",
                "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--text-search-config=english",
                "--auth=reject", output=output,
            )  # fmt: skip
    except subprocess.CalledProcessError as error:
        raise EmbeddedError(f"initdb failed. {log} has the reason.") from error
    if data.exists():
        data.rmdir()
    staging.rename(data)


def configure(data: Path, account: Account) -> None:
    """Write the settings, and the access rules: the server's own account and root may connect."""
    settings = SETTINGS.format(
        socket_folder=str(socket_folder(data)).replace("'", "''"),
        cluster_name=cluster_name(data),
        shared_memory=_shared_memory(),
    )
    if (binaries().parent / "lib" / "pg_stat_statements.so").exists():
        settings += STATISTICS
    account.write(data / "accessa.conf", settings)
    account.write(data / "pg_hba.conf", "local all all peer map=accessa\n")
    users = "".join(f'accessa "{user}" all\n' for user in sorted({account.name, "root"}))
    account.write(data / "pg_ident.conf", users)
    include = "include = 'accessa.conf'\n"
    main = data / "postgresql.conf"
    if include not in (written := main.read_text()):
        account.write(main, written + include)


def _shared_memory() -> str:
    """Return sysv for a small /dev/shm: a container's 64 MB are too few for a parallel index build."""
    try:
        roomy = shutil.disk_usage("/dev/shm").total >= 2**30  # noqa: S108
    except OSError:
        return "posix"
    return "posix" if roomy else "sysv"
