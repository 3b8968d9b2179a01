"""A provider that answers at once, for benchmarks: HubSpot's records without HubSpot."""

from __future__ import annotations

from integrations.providers.hubspot import STREAMS, client, client_text, record

__all__ = ["STREAMS", "client", "client_text", "record"]
