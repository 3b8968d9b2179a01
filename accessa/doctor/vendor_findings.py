"""Findings about a vendor that refuses a call or does not answer."""

from accessa.doctor.findings import Finding, error
from accessa.doctor.http_probe import NoResponse

KEY_REMEDY = "Make a new key with the vendor, and set {} for API and workers."


TOP_UP = "Top it up; the jobs that wait go on by themselves."


def explain_status(vendor: str, status: int, key: str, url: str) -> Finding:
    if status in (401, 403):
        return error(f"{vendor} refuses its key ({status}).", KEY_REMEDY.format(key))
    if status == 402:
        return error(f"{vendor}'s account has no credit left (402).", TOP_UP)
    if status == 429:
        return error(f"{vendor} has had too many calls (429).", "Lower our rate, or raise the account's limits.")
    if status >= 500:
        remedy = "Wait: jobs wait too. Look at the vendor's status page."
        return error(f"{vendor} has a fault of its own ({status}).", remedy)
    return error(f"{vendor} answers {status}.", f"Correct {url}.")


def explain_no_response(vendor: str, failure: NoResponse, url: str) -> Finding:
    return error(f"{vendor} does not answer: {failure}.", f"Allow this machine to reach it, or correct {url}.")
