"""Whose budget and breaker a provider's calls share: each connection has its own."""

from __future__ import annotations

from integrations.models import ConnectedSource
from vendors.vendor import Vendor


def source_vendor(source: ConnectedSource, requests_per_minute: int = 0) -> Vendor:
    return Vendor(source.provider, str(source.pk), requests_per_minute=requests_per_minute)
