"""The Prometheus collector has exactly the metrics that were asked for; dashboard and alert rules load and use them."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, Histogram

from bullmq_prometheus import PrometheusMetrics
from bullmq_protocol.model.categories import Category
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.worker.metering import Meter
from bullmq_protocol.worker.notices import (
    Disconnected,
    JobCompleted,
    JobFailed,
    JobStalled,
    Reconnected,
    ReconnectFailed,
    RenewalFailed,
    Renewed,
    StalledCheckSkipped,
)
from tests.support import pages

FOLDER = Path(__file__).parents[2] / "observability"
JOB = JobRecord.from_fields("7", {"name": b"mail"})
# name: type, labels
WANTED = {
    "bullmq_jobs_processed_total": ("counter", {"queue", "status"}),
    "bullmq_jobs_failed_total": ("counter", {"queue", "reason"}),
    "bullmq_job_duration_seconds": ("histogram", {"queue"}),
    "bullmq_queue_length": ("gauge", {"queue", "state"}),
    "bullmq_stalled_jobs_total": ("counter", {"queue"}),
    "bullmq_heartbeat_success_total": ("counter", {"queue"}),
    "bullmq_heartbeat_failure_total": ("counter", {"queue"}),
    "bullmq_lock_extend_duration_seconds": ("histogram", {"queue"}),
    "bullmq_active_workers": ("gauge", {"queue", "worker_id"}),
    "bullmq_redis_connection_status": ("gauge", {"status"}),
    "bullmq_redis_reconnect_attempts_total": ("counter", set()),
    "bullmq_stalled_checker_skipped_total": ("counter", {"queue"}),
}


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> PrometheusMetrics:
    metrics = PrometheusMetrics(registry)
    meter = Meter(metrics, "q", "w")
    meter.started()
    for notice in (
        JobCompleted(JOB, "1", 250),
        JobFailed(JOB, "boom", 1, 10.0, exhausted=False, permanent=False, duration_ms=40),
        JobFailed(JOB, "boom", 2, None, True, False, 40, Category.TRANSIENT),
        JobFailed(JOB, "boom", 1, None, exhausted=False, permanent=True, duration_ms=40),
        JobStalled("7"),
        RenewalFailed(("7", "8"), "late"),
        Renewed(("7", "8", "9"), 3),
        StalledCheckSkipped(),
        Disconnected("gone"),
        ReconnectFailed(1, 100, "refused"),
    ):
        meter(notice)
    metrics.queue_length("q", "active", 5)
    return metrics


def test_exactly_the_metrics_asked_for(metrics: PrometheusMetrics, registry: CollectorRegistry) -> None:
    found = {
        family.name + ("_total" if family.type == "counter" else ""): (
            family.type,
            {label for sample in family.samples for label in sample.labels} - {"le"},
        )
        for family in registry.collect()
    }
    assert found == WANTED


@pytest.mark.parametrize("name", [name for name, (kind, _) in WANTED.items() if kind == "histogram"])
def test_histograms_have_the_default_buckets(
    metrics: PrometheusMetrics, registry: CollectorRegistry, name: str
) -> None:
    [family] = [each for each in registry.collect() if each.name == name]
    edges = {float(sample.labels["le"]) for sample in family.samples if sample.name.endswith("_bucket")}
    assert edges == set(Histogram.DEFAULT_BUCKETS)


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("bullmq_jobs_processed_total", {"queue": "q", "status": "completed"}, 1),
        ("bullmq_jobs_processed_total", {"queue": "q", "status": "retried"}, 1),
        ("bullmq_jobs_processed_total", {"queue": "q", "status": "failed"}, 2),
        ("bullmq_jobs_failed_total", {"queue": "q", "reason": "transient_exhausted"}, 1),
        ("bullmq_jobs_failed_total", {"queue": "q", "reason": "permanent"}, 1),
        ("bullmq_job_duration_seconds_count", {"queue": "q"}, 4),
        ("bullmq_job_duration_seconds_sum", {"queue": "q"}, 0.37),
        ("bullmq_queue_length", {"queue": "q", "state": "active"}, 5),
        ("bullmq_stalled_jobs_total", {"queue": "q"}, 1),
        ("bullmq_heartbeat_success_total", {"queue": "q"}, 3),
        ("bullmq_heartbeat_failure_total", {"queue": "q"}, 2),
        ("bullmq_lock_extend_duration_seconds_sum", {"queue": "q"}, 0.003),
        ("bullmq_active_workers", {"queue": "q", "worker_id": "w"}, 1),
        ("bullmq_redis_connection_status", {"status": "connected"}, 0),
        ("bullmq_redis_connection_status", {"status": "disconnected"}, 1),
        ("bullmq_redis_reconnect_attempts_total", {}, 1),
        ("bullmq_stalled_checker_skipped_total", {"queue": "q"}, 1),
    ],
)
def test_values(
    metrics: PrometheusMetrics, registry: CollectorRegistry, name: str, labels: dict[str, str], value: float
) -> None:
    assert registry.get_sample_value(name, labels) == pytest.approx(value)


def test_workers_share_a_collector_and_leave_nothing(metrics: PrometheusMetrics, registry: CollectorRegistry) -> None:
    first, second = Meter(metrics, "q", "w"), Meter(metrics, "q", "other")
    second.started()

    def connections() -> list[float | None]:
        return [
            registry.get_sample_value("bullmq_redis_connection_status", {"status": status})
            for status in ("connected", "disconnected")
        ]

    assert connections() == [1, 1]
    first(Reconnected(2, 300))
    assert connections() == [2, 0]
    first.ended()
    second.ended()
    assert connections() == [0, 0]
    assert registry.get_sample_value("bullmq_active_workers", {"queue": "q", "worker_id": "w"}) is None


def test_a_second_one_in_the_same_registry_is_refused(metrics: PrometheusMetrics, registry: CollectorRegistry) -> None:
    with pytest.raises(ValueError, match="Duplicated"):
        PrometheusMetrics(registry)


def test_nothing_is_imported_unless_asked_for() -> None:
    code = "import sys, bullmq_anyio, bullmq_sync; print([m for m in sys.modules if m.startswith('prometheus')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- dashboard and alert rules ----------------------------------------------------------------------------------------


def dashboard() -> dict[str, Any]:
    return dict(json.loads((FOLDER / "grafana-dashboard.json").read_text(encoding="utf-8")))


def rules() -> dict[str, str]:
    [group] = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
    return {rule["alert"]: rule["expr"] for rule in group["rules"]}


def expressions() -> Iterator[tuple[str, str]]:
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    yield from rules().items()


def test_the_dashboard_shows_what_was_asked_for() -> None:
    panels = dashboard()["panels"]
    assert [panel["title"] for panel in panels] == [
        "Throughput",
        "Error rate",
        "Job duration",
        "Queue length",
        "Active workers",
        "Heartbeat failure rate",
    ]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)
    [duration] = [panel for panel in panels if panel["title"] == "Job duration"]
    quantiles = [re.findall(r"histogram_quantile\(([0-9.]+),", target["expr"]) for target in duration["targets"]]
    assert quantiles == [["0.5"], ["0.95"], ["0.99"]]


def test_the_alerts_have_the_limits_asked_for() -> None:
    limits = {name: float(expr.rsplit(">", 1)[1]) for name, expr in rules().items()}
    assert limits == {
        "BullMQHeartbeatFailures": 0.05,
        "BullMQStalledJobs": 0.1,
        "BullMQStalledChecksSkipped": 0.1,
        "BullMQRetries": 0.1,
    }


@pytest.mark.parametrize(("title", "expr"), list(expressions()))
def test_expressions_use_metrics_and_labels_that_exist(title: str, expr: str) -> None:
    used = re.findall(r"(bullmq_\w+?)(_bucket)?\b(?:\{([^}]*)\})?", expr)
    assert used
    labels = {"le"} if "_bucket" in expr else set[str]()
    for name, bucket, selector in used:
        kind, known = WANTED[name]
        assert (kind == "histogram") == bool(bucket)
        assert set(re.findall(r"(\w+)=", selector)) <= known
        labels |= known
        # A counter is looked at as a rate, a gauge as it is.
        assert (f"rate({name}" in expr or f"increase({name}" in expr) == (kind != "gauge")
    for grouping in re.findall(r"by \(([^)]*)\)", expr):
        assert {label.strip() for label in grouping.split(",")} <= labels
    assert expr.count("(") == expr.count(")")
    assert expr.count("{") == expr.count("}")


def test_the_dashboards_choice_of_queues_asks_a_metric_with_queues() -> None:
    [variable] = [each for each in dashboard()["templating"]["list"] if each["name"] == "queue"]
    found = re.fullmatch(r"label_values\((\w+), queue\)", variable["query"]["query"])
    assert found is not None
    assert "queue" in WANTED[found[1]][1]


# --- the page ---------------------------------------------------------------------------------------------------------

PAGE = pages.page("observability.md")


def test_the_page_has_every_metric_with_its_labels_and_every_alert() -> None:
    rows = re.findall(r"^\| `(bullmq_\w+)` \| (.*?) ?\|", PAGE, re.MULTILINE)
    assert {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows} == {
        name: labels for name, (_, labels) in WANTED.items()
    }
    assert re.findall(r"^\| `(BullMQ\w+)`", PAGE, re.MULTILINE) == list(rules())


def test_the_structlog_example_shows_the_fields() -> None:
    [example] = [code for code in pages.snippets("observability.md") if "structlog" in code]
    line = """
logging.getLogger("bullmq_anyio").warning("%s", "job 7 stalled", extra={"worker_id": "w", "queue": "q", "job_id": "7"})
"""
    done = subprocess.run([sys.executable, "-c", example + line], capture_output=True, text=True, check=True)
    fields = json.loads(done.stderr)
    assert fields.pop("timestamp")
    assert fields == {"event": "job 7 stalled", "level": "warning", "worker_id": "w", "queue": "q", "job_id": "7"}
