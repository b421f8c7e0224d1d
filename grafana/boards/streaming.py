"""Streams as clients see them, and nginx."""

from panels import ALL, ARMED, per_second, quantile, share

from boards.parts import ENDS, FIRST, REQUESTS, Board, Row, gauge, panel, quantiles

__all__ = ["STREAMING"]

_NGINX = 'job=~"$nginx_job"'

STREAMING = Board(
    uid="toolgate-streaming",
    title="Toolgate / Streaming and nginx",
    description="What the client sees of a stream, what the gateway adds to it, and what nginx says of it.",
    range="now-3h",
    has_nginx=True,
    rows=[
        Row(
            title="First token",
            panels=[
                panel(
                    "series",
                    "First token: at the client's edge and from the model server",
                    "Time from the request to the first content byte, as the model server and as the gateway sent it.",
                    "s",
                    (quantile(0.5, FIRST), "p50 sent"),
                    (quantile(0.95, FIRST), "p95 sent"),
                    (quantile(0.5, "toolgate_upstream_first_token_seconds", of=ALL), "p50 received"),
                    (quantile(0.95, "toolgate_upstream_first_token_seconds", of=ALL), "p95 received"),
                ),
                panel(
                    "series",
                    "The gateway's part of the first token",
                    "The difference of the two p95. Answers that begin with a call are held until it is whole.",
                    "s",
                    (
                        f"{quantile(0.95, FIRST)} - {quantile(0.95, 'toolgate_upstream_first_token_seconds', of=ALL)}",
                        "difference of p95",
                    ),
                ),
                panel(
                    "heatmap",
                    "First token",
                    "How many streams took how long to their first content byte.",
                    "s",
                    (f"sum by (le) (increase({FIRST}_bucket{{{ARMED}}}[$__rate_interval]))", "{{le}}"),
                ),
            ],
        ),
        Row(
            title="Flow",
            panels=[
                panel(
                    "series",
                    "Longest silence",
                    "Longest pause between two pieces of a stream. nginx gives up at its read timeout.",
                    "s",
                    *quantiles("toolgate_stream_gap_seconds", "arm", 0.5, 0.95),
                ),
                panel(
                    "series",
                    "Text held back: time",
                    "Longest time that text of an answer was held while it might still have become a call.",
                    "s",
                    *quantiles("toolgate_hold_seconds", "", 0.5, 0.95, 0.99, of=ALL),
                ),
                panel(
                    "series",
                    "Text held back: bytes",
                    "Most bytes of a stream that were withheld at once (p95), by family.",
                    "bytes",
                    (quantile(0.95, "toolgate_stream_held_bytes", by="family", of=ALL), "{{family}}"),
                ),
            ],
        ),
        Row(
            title="Ends",
            panels=[
                panel(
                    "series",
                    "Stream ends by reason",
                    "Streams that ended per second, by reason.",
                    "ops",
                    (per_second(ENDS, by="reason"), "{{reason}}"),
                    stacked=True,
                ),
                panel(
                    "series",
                    "Streams cut",
                    "Share of streams that a fault of a model server or of the gateway ended.",
                    "percentunit",
                    (share(ENDS, 'reason=~"upstream_error|upstream_timeout|gateway_error"', by="arm"), "{{arm}}"),
                    limits=((None, "green"), (0.02, "red")),
                ),
                panel(
                    "series",
                    "In flight",
                    "Streams and requests being answered.",
                    "short",
                    (gauge("sum", "toolgate_active_streams"), "streams"),
                    (gauge("sum by (route)", "toolgate_requests_in_flight"), "requests {{route}}"),
                ),
            ],
        ),
        Row(
            title="nginx",
            panels=[
                panel(
                    "series",
                    "Given up or failed at nginx",
                    "Answers per second that nginx logged as 499 (the client left), 502 and 504. Needs an exporter "
                    "that reads nginx's access log.",
                    "reqps",
                    (
                        f'sum by (status) (rate(nginx_http_response_count_total{{{_NGINX},status=~"499|502|504"}}'
                        "[$__rate_interval]))",
                        "{{status}}",
                    ),
                    width=12,
                    no_value="No exporter for nginx",
                ),
                panel(
                    "series",
                    "Answers of nginx and of the gateway",
                    "Requests per second as nginx logged them and as the gateway counted them. A gap between them is "
                    "what never reached the gateway.",
                    "reqps",
                    (f"sum (rate(nginx_http_response_count_total{{{_NGINX}}}[$__rate_interval]))", "nginx"),
                    (per_second(REQUESTS, of=ALL), "gateway"),
                    width=12,
                    no_value="No exporter for nginx",
                ),
            ],
        ),
    ],
)
