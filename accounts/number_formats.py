"""Durations and money as text."""


def format_duration(seconds: float) -> str:
    """Return 0.4 ms, 12 ms, 3.4 s, 5 min, 2.5 h, 3 d."""
    if seconds < 1:
        return f"{seconds * 1000:.{1 if seconds < 0.001 else 0}f} ms" if seconds else "0 s"
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 86_400:,.0f} d"


def format_money(cents: float) -> str:
    """Return cents as dollars; sums below one cent with more digits: $3.00, $0.0075."""
    return f"${cents / 100:,.2f}" if cents >= 1 or not cents else f"${cents / 100:.5f}".rstrip("0")
