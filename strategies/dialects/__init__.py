"""Every dialect: one module per family, one row per dialect. The order is the order in which they are tried."""

from strategies.dialect import Dialect
from strategies.dialects.hermes import HERMES
from strategies.dialects.tag_xml import GENERIC, WRAPPED

__all__ = ["BY_ID", "TABLE"]

TABLE: tuple[Dialect, ...] = (HERMES, GENERIC, WRAPPED)
BY_ID = {dialect.id: dialect for dialect in TABLE}
