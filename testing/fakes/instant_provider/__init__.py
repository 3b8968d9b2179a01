"""A provider that answers at once, for benchmarks: HubSpot's records without HubSpot."""

from __future__ import annotations

from integrations.providers.hubspot import ROLLUP, STREAMS, build_client, client_text, map_record

__all__ = ["ROLLUP", "STREAMS", "build_client", "client_text", "map_record"]
