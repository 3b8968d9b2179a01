"""Gunicorn configuration: `gunicorn accessa.wsgi:application -c python:accessa.server.gunicorn_conf`."""

import os
import socket
import struct
from pathlib import Path
from typing import Any

from django.utils.module_loading import import_string
from gunicorn.glogging import Logger  # type: ignore[import-untyped]

from accessa import settings_logs
from accessa.observability import logs
from accessa.observability.redaction import redact
from accessa.server import gunicorn_worker
from jobs import telemetry

bind = f"127.0.0.1:{os.environ.get('PORT', '8000')}"
worker_class = "gthread"
workers = int(os.environ.get("WEB_WORKERS", "2"))
threads = int(os.environ.get("WEB_THREADS", "16"))
timeout = 120  # without a heartbeat; a slow upload occupies a thread, not its worker
graceful_timeout = 25  # the supervisor kills after 30
control_socket_disable = True  # would be written to the home folder
worker_tmp_dir = "/dev/shm" if Path("/dev/shm").is_dir() and os.access("/dev/shm", os.W_OK) else None  # noqa: S108
forwarder_headers = ""  # else a client behind a proxy on this host chooses SCRIPT_NAME, and with it the path
accesslog = None  # accessa.middleware logs each request by its route: paths and queries are not for logs
STALLED_SECONDS = 60
SILENT_SECONDS = 10


# The main process never loads Django; the workers configure the same once more when they do.
debug = os.environ.get("DEBUG", "").lower() in ("1", "true", "yes", "on")
level, form = os.environ.get("LOG_LEVEL", "INFO"), os.environ.get("LOG_FORMAT", "")
logs.configure_logging(settings_logs.logging(level, form, debug=debug))


class RedactingLogger(Logger):  # type: ignore[misc]  # gunicorn has no types
    """Pass all lines to the project's handler, whatever files gunicorn is configured to write to."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for log in (self.error_log, self.access_log):
            for handler in list(log.handlers):
                log.removeHandler(handler)
            log.propagate = True

    def exception(self, msg: Any, *args: Any, **kwargs: Any) -> None:
        super().exception(msg, *(str(arg).partition("?")[0] for arg in args), **kwargs)

    def access(self, resp: Any, req: Any, environ: Any, request_time: Any) -> None:
        """Log requests for --access-logfile: those refused before Django are here only."""
        if self.cfg.accesslog:
            path = redact(str(environ.get("PATH_INFO", "")))
            self.access_log.info("%s %s %s", environ.get("REQUEST_METHOD"), path, str(resp.status).partition(" ")[0])


logger_class = RedactingLogger


def post_worker_init(worker: Any) -> None:
    """Set a receive timeout, so that an idle connection frees its thread. Accepted sockets inherit it.

    A client that sends a byte now and then still holds a thread: in production a buffering proxy stands in front.
    """
    gunicorn_worker.register_worker(worker)
    telemetry.start_tracers()
    # By its name: this file is imported before Django is loaded.
    import_string("documents.storage.file_cache.start_eviction")()
    for listener in worker.sockets:
        listener.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", SILENT_SECONDS, 0))


def pre_request(worker: Any, request: Any) -> None:
    """Set a timeout for bodies, so that a client that stops sending frees its thread."""
    request.unreader.sock.settimeout(STALLED_SECONDS)
