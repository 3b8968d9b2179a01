"""The dashboard: facts, charts and tables of known job histories, and of none."""

import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.number_formats import format_duration, format_money
from console.charts import Chart, Series
from jobs.cluster import live_clusters
from metrics.models import MeasurementRun, MetricRollup
from metrics.tests.event_histories import History, collect_again, database_time
from statutes.models import Consumer
from testing.personas import Person, plan_pdf

pytestmark = pytest.mark.django_db(transaction=True)
Staff = Callable[..., Client]


@pytest.fixture
def client(staff: Staff) -> Client:
    return staff("view_metricrollup", "view_uploadjob")


def page(client: Client, period: str = "24h") -> str:
    answer = client.get("/admin/", {"period": period})
    assert answer.status_code == 200
    return str(answer.content.decode())


def section(html: str, slug: str) -> str:
    """Return the text of one chart or table."""
    match = re.search(rf'<(figure|section)[^>]* id="{slug}".*?</\1>', html, re.DOTALL)
    assert match, slug
    return " ".join(re.sub(r"<[^>]+>", " ", match[0]).split())


def failing(stage: str, code: str) -> None:
    job = History(database_time() - timedelta(minutes=20)).add(1, "CLAIMED", stage)
    job.add(3, "RETRY_SCHEDULED", stage, code=code).add(6, "CLAIMED", stage).add(8, "DLQ_MOVED", stage, code=code)


def test_the_dashboard_shows_measured_jobs(client: Client) -> None:
    History(database_time() - timedelta(minutes=30)).add(2, "CLAIMED", "parsing").add(6, "PARSE_STORED", "parsing").add(
        10, "FINALIZED", "embedded"
    )
    failing("embedding", "TEXT_REFUSED")
    live_clusters.record_heartbeat()
    collect_again()

    html = page(client)

    assert "TEXT_REFUSED embedding 1 1" in section(html, "errors")
    assert "error_code=TEXT_REFUSED&amp;stage=embedding" in html
    assert "parse 1" in section(html, "milestones")
    assert "Jobs ended 2" in section(html, "work")
    assert "Of them with retries 1 (50.0%)" in section(html, "work")
    assert "parsing" in section(html, "stages")
    assert "done at most 1" in html
    assert "Workers alive" in html


@pytest.mark.parametrize("period", ["1h", "24h", "7d", "30d", "nonsense", "'><script>"])
def test_every_period_is_answered(client: Client, period: str) -> None:
    failing("embedding", "TEXT_REFUSED")
    collect_again()

    html = page(client, period)

    assert "TEXT_REFUSED" in section(html, "errors")
    assert html.count('aria-current="page"') >= 1
    assert "<script>'" not in html


def test_before_the_first_measurement_it_says_so(client: Client) -> None:
    html = page(client)

    assert "Nothing has been measured yet" in html
    assert "Workers alive" in html
    assert "<figure" not in html


def test_consumers_are_counted_if_a_statute_queue_is_configured(client: Client, settings: Any) -> None:
    Consumer.objects.create(name="host:1", state="idle")
    without = page(client)
    settings.SQS_QUEUE_URL = "https://sqs.us-east-1.amazonaws.com/1/laws"

    assert "Consumers alive" not in without
    assert "Consumers alive" in page(client)


def test_old_measurements_are_called_old(client: Client) -> None:
    collect_again()
    MeasurementRun.objects.update(
        measured_at=database_time() - timedelta(hours=2), counted_until=database_time() - timedelta(hours=2)
    )

    assert "The measurements are old" in page(client)


def test_a_quiet_day_shows_no_made_up_lines(client: Client) -> None:
    collect_again()

    html = page(client)

    assert "Nothing in this period." in section(html, "throughput")
    assert "No job has failed for good." in section(html, "dead")
    assert "No cluster of workers is alive" in section(html, "clusters")


def test_staff_without_metrics_permission_get_the_plain_index(staff: Staff) -> None:
    collect_again()

    html = page(staff("view_uploadjob", name="tom"))

    assert "dash-" not in html
    assert "Upload jobs" in html or "upload" in html.lower()


def test_tenants_and_strangers_do_not_get_there(ana: Person) -> None:
    client = Client()
    assert client.get("/admin/").status_code == 302
    client.force_login(ana.user)
    assert client.get("/admin/").status_code == 302


def test_each_chart_has_a_table_and_a_description(client: Client) -> None:
    failing("embedding", "TEXT_REFUSED")
    collect_again()

    html = page(client)

    figures = re.findall(r'<figure class="console-section dash-chart".*?</figure>', html, re.DOTALL)
    assert len(figures) == 7
    for figure in figures:
        assert "Nothing in this period." in figure or ("<table" in figure and 'role="img" aria-label="' in figure)
        assert not re.search(r"<script|style=|\son[a-z]+=", figure)


def test_a_tenants_file_name_is_nowhere(client: Client, ana: Person) -> None:
    ana.ingest(plan_pdf("dental"), filename="<b>Miller</b>.pdf")
    collect_again()

    html = page(client)

    assert "Miller" not in html
    assert f'data-copy="{ana.id}"' in html
    assert str(ana.id)[:8] in section(html, "storage")


def test_it_reads_no_table_of_jobs_or_events_whole(client: Client) -> None:
    failing("embedding", "TEXT_REFUSED")
    collect_again()

    with CaptureQueriesContext(connection) as queries:
        page(client)

    statements = [query["sql"] for query in queries.captured_queries]
    assert not [sql for sql in statements if re.search(r'FROM "?(events|document_chunks)\b', sql)]
    assert not [
        sql
        for sql in statements
        if re.search(r'FROM "?upload_jobs\b', sql) and "state = 'working'" not in sql and "LIMIT 1" not in sql
    ]
    assert len(statements) < 60


def test_no_figure_names_a_tenants_text(client: Client) -> None:
    labels: list[Any] = [label for figure in MetricRollup.objects.all() for label in figure.labels]

    assert all(re.fullmatch(r"[\w@.+:-]*", label) for label in labels)


def test_stacked_bars_stack_on_both_axes() -> None:
    chart = Chart("x", "X", ["a", "b"], [Series("one", [1, 2]), Series("two", [3, 0])], kind="stacked")

    data, scales = json.loads(chart.data), json.loads(chart.options)["scales"]
    assert data["labels"] == ["a", "b"]
    assert [(dataset["label"], dataset["data"]) for dataset in data["datasets"]] == [("one", [1, 2]), ("two", [3, 0])]
    assert len({dataset["backgroundColor"] for dataset in data["datasets"]}) == 2
    assert (scales["x"]["stacked"], scales["y"]["stacked"]) == (True, True)
    assert chart.template.endswith("bar.html")
    assert chart.rows == [("a", ["1", "3"]), ("b", ["2", "0"])]


def test_a_line_has_a_gap_where_nothing_was_measured() -> None:
    chart = Chart("x", "X", ["a", "b", "c", "d"], [Series("one", [1, 1, None, 1])])

    assert json.loads(chart.data)["datasets"][0]["data"] == [1, 1, None, 1]
    assert chart.template.endswith("line.html")
    assert chart.rows[1] == ("c", [""])
    assert chart.summary == "X, a to d: one at most 1, last 1."


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (format_duration(0.0123), "12 ms"),
        (format_duration(3.42), "3.42 s"),
        (format_duration(600), "10 min"),
        (format_duration(9000), "2.5 h"),
        (format_duration(400_000), "5 d"),
        (format_money(250), "$2.50"),
        (format_money(0.25), "$0.0025"),
        (format_money(0), "$0.00"),
        (format_duration(0.0004), "0.4 ms"),
    ],
)
def test_durations_money_and_sizes_are_formatted(shown: str, expected: str) -> None:
    assert shown == expected
