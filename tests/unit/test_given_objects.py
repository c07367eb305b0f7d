"""Types, collectors and providers that a program hands over are checked before anything begins."""

from typing import Any

import pytest

from bullmq_protocol.codec import check_type
from bullmq_protocol.errors import UsageError
from bullmq_protocol.metrics import NO_METRICS, NoMetrics, check_collector
from bullmq_protocol.telemetry import check_provider


class Provider:
    def start_span(self) -> None: ...


@pytest.mark.parametrize("wrong", [5, "x", object(), NoMetrics, None])
def test_what_is_no_collector_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="methods of MetricsCollector") as caught:
        check_collector(wrong)
    assert caught.value.field == "metrics_collector"


@pytest.mark.parametrize("wrong", [5, "x", object(), Provider])
def test_what_is_no_provider_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="method start_span") as caught:
        check_provider(wrong)
    assert caught.value.field == "telemetry"


@pytest.mark.parametrize("wrong", [5, "x", (int, str), dict[int, set[Any]] | list[int] | tuple[int, ...]])
def test_what_is_no_type_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="a type that msgspec can decode") as caught:
        check_type("data_type", wrong)
    assert caught.value.field == "data_type"


def test_what_fits_is_taken() -> None:
    for kind in (None, Any, int, list[int], int | str | None):
        check_type("data_type", kind)
    check_collector(NO_METRICS)
    check_provider(None)
    check_provider(Provider())
    assert callable(NO_METRICS.job_failed)
