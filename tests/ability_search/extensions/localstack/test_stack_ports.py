"""The ports of the parts' metrics."""

from __future__ import annotations

from ability_search.extensions.localstack.stack_plan import metrics_port

PARTS = ("broker", "database", "models", "gateway", "worker-1", "worker-2", "worker-12")


def test_metrics_ports_count_up_from_that_of_the_broker() -> None:
    assert [metrics_port(name, 9401) for name in PARTS] == [
        *(9401, 9402, 9403, 9404),
        *(9405, 9406, 9416),
    ]
    further = ("backplane", "broker-2", "broker-3")
    assert [metrics_port(name, 9401) for name in further] == [9501, 9502, 9503]
    assert {metrics_port(name, 0) for name in PARTS} == {0}
