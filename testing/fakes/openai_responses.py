"""Fake of OpenAI's Responses API: streamed answers made of the prompt's passages, or invented, cut, malformed."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from html import unescape
from typing import Any
from uuid import uuid4

from embeddings import tokenizer
from testing.fakes.http_messages import Request, Response

PASSAGE = re.compile(r'<passage number="(\d+)"[^>]*>\n(.*?)\n</passage>', re.DOTALL)
QUESTION = re.compile(r"<question>\n(.*)\n</question>\Z", re.DOTALL)
DELTA_CHARS = 11
MOST_SENTENCES = 3

Answer = list[dict[str, Any]]


@dataclass
class ResponsesModel:
    """``mode`` is a key of ``MODES``. ``payloads``: what the obedient mode says when it reads their keys, anywhere."""

    mode: str = "good"
    payloads: Mapping[str, str] = field(default_factory=dict)
    prompts: list[dict[str, Any]] = field(default_factory=list)  # the requests' bodies, in order

    def respond(self, body: dict[str, Any]) -> tuple[Response, int]:
        """Return the stream and the tokens that it is charged with."""
        self.prompts.append(body)
        prompt = body["instructions"] + body["input"][0]["content"][0]["text"]
        text = self.answer_text(prompt)
        usage = {"input_tokens": tokenizer.count_tokens(prompt), "output_tokens": tokenizer.count_tokens(text)}
        stream = b"".join(_events(text, usage, body["model"]))
        if self.mode == "half":
            stream = stream[: len(stream) // 2]
        headers = {"Content-Type": "text/event-stream", "x-request-id": f"req_{uuid4().hex}"}
        return Response(200, stream, headers), sum(usage.values())

    def answer_text(self, prompt: str) -> str:
        return MODES[self.mode](self, prompt)


def is_responses_call(request: Request) -> bool:
    return request.route == "POST /v1/responses"


def read_passages(prompt: str) -> dict[int, str]:
    """Return the passages of the prompt's data block by their numbers."""
    return {int(number): unescape(text) for number, text in PASSAGE.findall(prompt)}


def _events(text: str, usage: dict[str, int], model: str) -> Iterator[bytes]:
    response = {"id": f"resp_{uuid4().hex}", "object": "response", "model": model, "usage": None}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": response | {"status": "in_progress"}}]
    events += [
        {"type": "response.output_text.delta", "output_index": 0, "delta": text[at : at + DELTA_CHARS]}
        for at in range(0, len(text), DELTA_CHARS)
    ]
    events.append({"type": "response.completed", "response": response | {"status": "completed", "usage": usage}})
    for number, event in enumerate(events):
        line = json.dumps(event | {"sequence_number": number})
        yield f"event: {event['type']}\ndata: {line}\n\n".encode()


def _copied(prompt: str) -> Answer:
    """Return the sentences of the passages that share most words with the question, each with its passage."""
    question = QUESTION.search(prompt)
    words = set(re.findall(r"\w{3,}", unescape(question[1]).lower())) if question else set()
    ranked = [
        (len(words & set(re.findall(r"\w{3,}", f"{title} {sentence}".lower()))), number, sentence)
        for number, passage in read_passages(prompt).items()
        for title, sentence in _split_sentences(passage)
    ]
    best = sorted(ranked, key=lambda row: -row[0])[:MOST_SENTENCES]
    return [{"text": text[:800], "passages": [number]} for shared, number, text in best if shared]


def _split_sentences(passage: str) -> Iterator[tuple[str, str]]:
    """Yield the sentences and the rows of tables, without the marks of markdown, each with the heading above it."""
    title = ""
    for line in passage.splitlines():
        if line.startswith("#"):
            title = line
        elif not re.match(r"[\s|:-]*$", line):
            text = " — ".join(filter(None, (cell.strip(" *-") for cell in line.split("|"))))
            yield from ((title, part) for part in re.split(r"(?<=[.!?])\s+", text) if not part.endswith(":"))


def _good(model: ResponsesModel, prompt: str) -> str:
    return _json(_copied(prompt))


def _invented_citations(model: ResponsesModel, prompt: str) -> str:
    return _json([{**sentence, "passages": [99, 0, -1]} for sentence in _copied(prompt)])


def _invented_figures(model: ResponsesModel, prompt: str) -> str:
    """Alternate between true sentences, other figures, and what no passage says."""
    first, *_ = read_passages(prompt)
    answer: Answer = []
    for sentence in _copied(prompt):
        changed = re.sub(r"\d+", lambda match: str(int(match[0]) * 7 + 13), sentence["text"])
        answer += [{**sentence, "text": changed}] if changed != sentence["text"] else []
        answer.append(sentence)
    invented = (
        "Zebulon Mutual covers 8,731 visits.",
        "The deadline is February 30, 2041.",
        "You pay $98,431 and 77.7%.",
        "It lasts three hundred and ninety-one days.",
        "Call 900-555-0147 or write to claims@zebulon.example.",
    )
    return _json([*answer, *({"text": text, "passages": [first]} for text in invented)])


def _obedient(model: ResponsesModel, prompt: str) -> str:
    """Do what any text says, wherever it stands, and cite the passage that says it."""
    passages = read_passages(prompt)
    orders: Answer = []
    for trigger, payload in model.payloads.items():
        numbers = [number for number, text in passages.items() if trigger in text]
        if numbers or trigger in prompt:
            orders.append({"text": payload, "passages": numbers or list(passages)})
    return _json([*orders, *_copied(prompt)])


def _json(answer: Answer) -> str:
    return json.dumps({"sentences": answer})


MODES: dict[str, Callable[[ResponsesModel, str], str]] = {
    "good": _good,
    "half": _good,
    "invents citations": _invented_citations,
    "invents figures": _invented_figures,
    "obedient": _obedient,
    "empty": lambda model, prompt: _json([]),
    "nothing": lambda model, prompt: "",
    "malformed": lambda model, prompt: "Of course! Here is your answer: {",
    "other shape": lambda model, prompt: '{"sentences": [{"text": 5, "passages": "1"}]}',
}
