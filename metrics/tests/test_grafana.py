"""Grafana dashboard and Prometheus alerts in docs/operations: they use exported metrics only, and all of them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from metrics.prometheus_collector import Collector

OPERATIONS = Path(__file__).resolve().parents[2] / "docs" / "operations"
NAME = re.compile(r"\baccessa_\w+")


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((OPERATIONS / "alerts.yml").read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = json.loads((OPERATIONS / "grafana.json").read_text())["panels"]
    return panels


@pytest.mark.django_db
def test_every_used_metric_is_exported() -> None:
    registry = CollectorRegistry()
    registry.register(Collector())
    exported = set()
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        suffixes = {"histogram": ("_bucket", "_count", "_sum"), "counter": ("_total",)}.get(family.type, ("",))
        exported |= {family.name + suffix for suffix in suffixes}
    alerted = {name for rule in rules() for name in NAME.findall(rule["expr"])}
    shown = {name for panel in panels() for target in panel["targets"] for name in NAME.findall(target["expr"])}

    assert (alerted | shown) - exported == set()
    assert len({name for name in exported if not re.search("_(bucket|sum|count)$", name)} - shown) == 0


def test_each_alert_has_a_description_and_a_remedy() -> None:
    names = [rule["alert"] for rule in rules()]

    assert len(names) == len(set(names))
    for rule in rules():
        assert {"summary", "runbook"} <= set(rule["annotations"]), rule["alert"]
        assert rule["labels"]["severity"] in ("page", "warn", "info")


def test_no_alert_waits_for_the_second_sample_of_a_code() -> None:
    """increase() and rate() see nothing of a series' first sample, and a code's first death is one."""
    for rule in rules():
        assert not re.search(r"(increase|rate)\(accessa_(failures|retries)_total", rule["expr"]), rule["alert"]


def test_no_panels_overlap() -> None:
    occupied: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & occupied, panel["title"]
        occupied |= cells
