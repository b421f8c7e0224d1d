"""Metrics and logs."""

from functools import partial
from typing import Literal

from attrs import frozen

from gateway.config.declared.setting import setting
from gateway.config.declared.values import choice, host_name, names, text, whole, with_package

__all__ = ["Watching"]

_watch = partial(setting, group="Metrics and logs")


@frozen(kw_only=True, slots=False)
class Watching:
    """Metrics and logs."""

    metrics_host: str = _watch("METRICS_HOST", host_name, "127.0.0.1", "Address of the metrics port.", reach="restart")
    metrics_port: int = _watch(
        "METRICS_PORT", whole(0, 65535), 9464, "Port that serves /metrics alone.", reach="restart"
    )
    metrics_models: tuple[str, ...] = _watch(
        "METRICS_MODELS",
        names,
        (),
        "Model names that always have a series of their own, comma-separated.",
        reach="restart",
    )
    metrics_tools: tuple[str, ...] = _watch(
        "METRICS_TOOLS",
        names,
        (),
        "Tool names that always have a series of their own, comma-separated.",
        reach="restart",
    )
    metrics_label_cap: int = _watch(
        "METRICS_LABEL_CAP",
        whole(0, 1000),
        40,
        "How many further values a label may take before the rest is other; one key brings half of them at most.",
        reach="restart",
    )
    metrics_sd_file: str | None = _watch(
        "METRICS_SD_FILE",
        text,
        None,
        "File in which the metrics addresses of all workers are kept, as Prometheus reads them (file_sd, http_sd).",
        reach="start",
    )
    traces: Literal["off", "otel"] = _watch(
        "GATEWAY_TRACES",
        with_package(choice("off", "otel"), "opentelemetry.exporter.otlp.proto.http", "toolgate[otel]"),
        "off",
        "otel: send spans of requests, and of tries at model servers, to OpenTelemetry. Needs toolgate[otel]; where "
        "to, and how many, say OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER).",
        reach="restart",
    )
    log_level: Literal["debug", "info", "warning", "error"] = _watch(
        "LOG_LEVEL", choice("debug", "info", "warning", "error"), "info", "Least severe event that is logged."
    )
    log_format: Literal["json", "console"] = _watch(
        "LOG_FORMAT",
        choice("json", "console"),
        "json",
        "json: one line per event; console: for a terminal, its default.",
        reach="restart",
    )
