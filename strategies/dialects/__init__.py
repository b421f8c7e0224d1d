"""Every dialect: one module per family, one row per dialect. The order is the order in which they are tried."""

from strategies.dialect import Dialect
from strategies.dialects.command_r import COMMAND_R, COMMAND_R_ACTION
from strategies.dialects.deepseek import DEEPSEEK, DEEPSEEK_V31, STRIPPED
from strategies.dialects.dsml import DSML
from strategies.dialects.gemma import FUNCTION_GEMMA, GEMMA, GEMMA_STRIPPED
from strategies.dialects.glm import GLM, GLM_BARE
from strategies.dialects.granite import GRANITE, GRANITE_FC
from strategies.dialects.harmony import HARMONY, HARMONY_STRIPPED
from strategies.dialects.hermes import HERMES, UNOPENED
from strategies.dialects.hunyuan import HUNYUAN, HY3
from strategies.dialects.internlm import INTERNLM
from strategies.dialects.invoke import BARE_INVOKE, CLAUDE_INVOKE, DOTS
from strategies.dialects.json_blocks import JSON_BARE, JSON_FENCE, XLAM
from strategies.dialects.kimi import KIMI_K2
from strategies.dialects.kimi_k3 import KIMI_K3
from strategies.dialects.line_calls import CONTINUE, FUNCTIONARY, GPTME
from strategies.dialects.llama_json import LLAMA_JSON
from strategies.dialects.llama_tag import LLAMA3_TAG
from strategies.dialects.minimax import MINIMAX_M1, MINIMAX_M2, MINIMAX_M3
from strategies.dialects.mistral import MISTRAL, MISTRAL_OLD, MISTRAL_STRIPPED
from strategies.dialects.muse import MUSE
from strategies.dialects.patches import APPLY_PATCH
from strategies.dialects.phi import PHI
from strategies.dialects.python_calls import PYTHON_TAGGED, PYTHONIC, TOOL_CODE
from strategies.dialects.qwen3_coder import BARE_FUNCTION, QWEN3_CODER, SEED_OSS
from strategies.dialects.qwen_agent import QWEN_AGENT
from strategies.dialects.react import REACT
from strategies.dialects.shell import SHELL
from strategies.dialects.small import APERTUS, GIGACHAT, INKLING, LFM2, LONGCAT, NEMOTRON_NANO, OLMO3, SMOLLM3
from strategies.dialects.step3 import STEP3
from strategies.dialects.tag_xml import GENERIC, PREFIXED, WRAPPED

__all__ = ["BY_ID", "TABLE"]

TABLE: tuple[Dialect, ...] = (
    NEMOTRON_NANO,
    HERMES,
    UNOPENED,
    QWEN3_CODER,
    SEED_OSS,
    BARE_FUNCTION,
    LLAMA3_TAG,
    GLM,
    GLM_BARE,
    HUNYUAN,
    HY3,
    MINIMAX_M1,
    MINIMAX_M2,
    MINIMAX_M3,
    CLAUDE_INVOKE,
    BARE_INVOKE,
    DOTS,
    DSML,
    STEP3,
    GENERIC,
    WRAPPED,
    PREFIXED,
    DEEPSEEK,
    DEEPSEEK_V31,
    STRIPPED,
    KIMI_K2,
    MISTRAL,
    MISTRAL_OLD,
    MISTRAL_STRIPPED,
    GRANITE,
    GRANITE_FC,
    PHI,
    INTERNLM,
    COMMAND_R,
    COMMAND_R_ACTION,
    PYTHON_TAGGED,
    REACT,
    QWEN_AGENT,
    JSON_FENCE,
    JSON_BARE,
    XLAM,
    PYTHONIC,
    TOOL_CODE,
    APPLY_PATCH,
    SHELL,
    FUNCTION_GEMMA,
    GEMMA,
    GEMMA_STRIPPED,
    HARMONY,
    HARMONY_STRIPPED,
    LLAMA_JSON,
    KIMI_K3,
    APERTUS,
    GIGACHAT,
    INKLING,
    LFM2,
    LONGCAT,
    OLMO3,
    SMOLLM3,
    CONTINUE,
    FUNCTIONARY,
    GPTME,
    MUSE,
)
BY_ID = {dialect.id: dialect for dialect in TABLE}
