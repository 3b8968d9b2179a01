"""HTTP server that records the callbacks it receives."""

from testing.fakes.http_messages import Request, Response
from testing.fakes.server import Server


class CallbackReceiver(Server):
    """Keeps the callbacks it is sent; answers with ``statuses`` in turn, then with 200."""

    name = "mailbox"

    def __init__(self, *statuses: int) -> None:
        super().__init__()
        self.statuses, self.letters = list(statuses), list[Request]()

    def respond(self, request: Request) -> Response:
        self.letters.append(request)
        return Response(self.statuses.pop(0) if self.statuses else 200)

    def error_response(self, status: int, code: str | None = None) -> Response:
        return Response(status)
