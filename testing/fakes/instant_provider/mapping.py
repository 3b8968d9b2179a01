"""Instant connector for benchmarks: generated HubSpot records without HTTP."""

from integrations.providers.hubspot.mapping import ROLLUP, STREAMS, build_client, client_text, map_record

__all__ = ["ROLLUP", "STREAMS", "build_client", "client_text", "map_record"]
