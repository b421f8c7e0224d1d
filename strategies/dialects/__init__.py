"""Every dialect: one module per family, one row per dialect. The order is the order in which they are tried."""

from strategies.dialect import Dialect
from strategies.dialects.deepseek import DEEPSEEK, DEEPSEEK_V31, STRIPPED
from strategies.dialects.hermes import HERMES
from strategies.dialects.kimi import KIMI_K2
from strategies.dialects.qwen3_coder import BARE_FUNCTION, QWEN3_CODER, SEED_OSS
from strategies.dialects.tag_xml import GENERIC, PREFIXED, WRAPPED

__all__ = ["BY_ID", "TABLE"]

TABLE: tuple[Dialect, ...] = (
    HERMES,
    QWEN3_CODER,
    SEED_OSS,
    BARE_FUNCTION,
    GENERIC,
    WRAPPED,
    PREFIXED,
    DEEPSEEK,
    DEEPSEEK_V31,
    STRIPPED,
    KIMI_K2,
)
BY_ID = {dialect.id: dialect for dialect in TABLE}
