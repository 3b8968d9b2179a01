"""WordLlama embedder, the default: the mean of static token vectors (MIT). No network, no GPU, milliseconds."""

import re
from array import array
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain

import numpy
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from embeddings.embedders.packaged_models import find_model_file, load_tokenizer
from embeddings.embedders.registry import Vectors, replace_surrogates, unit

# No token crosses these borders (a test proves it against the vocabulary), so pieces can be looked up alone.
PIECE = re.compile(r"▁*[^▁\n0-9]+|[0-9]|▁+|\n")
REQUIREMENTS = "requirements/base.txt"
CACHED_PIECES = 50_000  # about 15 MB
MAX_CACHED_LENGTH = 40  # characters; longer pieces hardly ever repeat
BLOCK = 4_096  # tokens gathered at once, 4 MB: a chunk is one block, and a megabyte of text takes no gigabyte


class WordLlama:
    """The mean of the token rows, 256 wide. Text without any token gets the first axis (`unit`)."""

    model = "wordllama-l2-supercat-256-padded"
    version = "1"
    batch_size = 256

    def __init__(self) -> None:
        self._cache: dict[str, bytes] = {}

    @property
    def token_rows(self) -> NDArray[numpy.float32]:
        """The vector of each token of the vocabulary."""
        return self._model[1]

    def tokens(self, texts: Sequence[str]) -> list[NDArray[numpy.int32]]:
        """Return the tokens of each text, as numbers of ``token_rows``."""
        # The tokenizer's own normalization: a word begins with ▁.
        marked = ("▁" + replace_surrogates(text).replace(" ", "▁") if text else "" for text in texts)
        pieces = [PIECE.findall(text) for text in marked]
        token_ids = self._token_ids(pieces)
        return [numpy.frombuffer(b"".join(map(token_ids.__getitem__, words)), dtype=numpy.int32) for words in pieces]

    def embed(self, texts: Sequence[str]) -> Vectors:
        rows = self.token_rows
        sums = numpy.zeros((len(texts), rows.shape[1]), dtype=numpy.float32)
        for row, tokens in zip(sums, self.tokens(texts), strict=True):
            # One text at a time, rows in reading order: the bytes do not depend on the rest of the batch.
            for start in range(0, len(tokens), BLOCK):
                row += rows.take(tokens[start : start + BLOCK], axis=0).sum(axis=0)
        return unit(sums)

    def _token_ids(self, texts: Iterable[list[str]]) -> dict[str, bytes]:
        """Return the token ids of every piece as bytes: joining bytes is what makes this fast."""
        cache = self._cache
        new = sorted(set(chain.from_iterable(texts)).difference(cache))
        if not new:
            return cache
        encoded = self._model[0].encode_batch_fast(new, add_special_tokens=False)
        ids = {piece: array("i", encoding.ids).tobytes() for piece, encoding in zip(new, encoded, strict=True)}
        cacheable = {piece: tokens for piece, tokens in ids.items() if len(piece) <= MAX_CACHED_LENGTH}
        is_full = len(cache) + len(cacheable) > CACHED_PIECES
        # A new dictionary, never a change to the old one: another thread may be reading it.
        self._cache = cacheable if is_full else cache | cacheable
        return cache | ids

    @cached_property  # two threads at once would load the same twice, harmlessly
    def _model(self) -> tuple[Tokenizer, NDArray[numpy.float32]]:
        config = "tokenizers/l2_supercat_tokenizer_config.json"
        tokenizer = load_tokenizer(find_model_file("wordllama", config, requirements=REQUIREMENTS))
        tokenizer.normalizer = None  # `embed` has normalized already
        # float32 costs 16 MB more than the stored float16, and sums four times faster.
        file = find_model_file("wordllama", "weights/l2_supercat_256.safetensors", requirements=REQUIREMENTS)
        return tokenizer, load_file(file)["embedding.weight"].astype(numpy.float32)
