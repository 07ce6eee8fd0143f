"""Families of metrics from plain numbers, all with one prefix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)

from coordinator.serving.buckets import Filled

PREFIX: Final = "rankproof_"
# One value of one label, or those of several.
Labels = TypeVar("Labels", bound=str | tuple[str, ...])


def counter(
    name: str, text: str, labels: Sequence[str], values: Mapping[Labels, float] | float
) -> CounterMetricFamily:
    """Shown with the suffix _total. values: by the labels' values, in their order."""
    family = CounterMetricFamily(PREFIX + name, text, labels=labels)
    for given, value in _by_labels(values):
        family.add_metric(given, value)
    return family


def gauge(
    name: str, text: str, labels: Sequence[str], values: Mapping[Labels, float] | float
) -> GaugeMetricFamily:
    """As `counter`; goes up and down."""
    family = GaugeMetricFamily(PREFIX + name, text, labels=labels)
    for given, value in _by_labels(values):
        family.add_metric(given, value)
    return family


def histogram(
    name: str, text: str, labels: Sequence[str], values: Mapping[Labels, Filled]
) -> HistogramMetricFamily:
    """values: by the labels' values."""
    family = HistogramMetricFamily(PREFIX + name, text, labels=labels)
    for given, filled in values.items():
        family.add_metric(_tuple(given), filled.bounds, filled.total)
    return family


def info(name: str, text: str, values: Mapping[str, str]) -> InfoMetricFamily:
    """Always 1; shown with the suffix _info."""
    return InfoMetricFamily(PREFIX + name, text, value=dict(values))


def _by_labels(values: Mapping[Labels, float] | float) -> list[tuple[tuple[str, ...], float]]:
    if isinstance(values, Mapping):
        return [(_tuple(given), value) for given, value in values.items()]
    return [((), values)]


def _tuple(labels: str | tuple[str, ...]) -> tuple[str, ...]:
    return (labels,) if isinstance(labels, str) else labels
