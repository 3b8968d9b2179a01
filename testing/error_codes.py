"""Error codes for tests: any string, declared or not."""

from accounts.errors import ErrorCode, find_error_code


def error_code(code: str) -> ErrorCode:
    return find_error_code(code) or ErrorCode.__new__(ErrorCode, code)
