"""A provider that answers at once, for benchmarks: HubSpot's records without HubSpot."""

from __future__ import annotations

from integrations.providers.hubspot import ROLLUP, STREAMS, client, client_text, record

__all__ = ["ROLLUP", "STREAMS", "client", "client_text", "record"]
