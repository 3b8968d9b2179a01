"""Somebody who receives callbacks."""

from __future__ import annotations

from testing.fakes.http_messages import Answer, Request
from testing.fakes.server import Server


class Mailbox(Server):
    """Keeps the callbacks it is sent; answers with ``statuses`` in turn, then with 200."""

    name = "mailbox"

    def __init__(self, *statuses: int) -> None:
        super().__init__()
        self.statuses, self.letters = list(statuses), list[Request]()

    def answer(self, request: Request) -> Answer:
        self.letters.append(request)
        return Answer(self.statuses.pop(0) if self.statuses else 200)

    def error(self, status: int, code: str | None = None) -> Answer:
        return Answer(status)
