"""Slots of a process for answers that hold a thread: those of a model, and streams."""

from collections import Counter
from threading import Lock
from uuid import UUID

from django.conf import settings

from accounts.errors import ApiError
from search.error_codes import TOO_MANY_ANSWERS

RETRY_SECONDS = 2

_lock = Lock()
_taken: Counter[UUID] = Counter()


class AnswerSlot:
    """A slot that is taken until ``release``, or the end of a block. Raises ``ApiError``: TOO_MANY_ANSWERS."""

    def __init__(self, user_id: UUID) -> None:
        self._user_id = user_id
        self._is_taken = False
        with _lock:
            is_full = _taken.total() >= settings.ANSWERS_AT_ONCE
            if is_full or _taken[user_id] >= settings.ANSWERS_AT_ONCE_PER_TENANT:
                raise ApiError(TOO_MANY_ANSWERS, retry_after=RETRY_SECONDS)
            _taken[user_id] += 1
            self._is_taken = True

    def release(self) -> None:
        with _lock:
            if self._is_taken:
                self._is_taken = False
                _taken[self._user_id] -= 1
                if not _taken[self._user_id]:
                    del _taken[self._user_id]

    def __enter__(self) -> "AnswerSlot":
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()
