"""Every dialect: one module per family, one row per dialect. The order is the order in which they are tried."""

from strategies.dialects.json.command_r import COMMAND_R, COMMAND_R_ACTION
from strategies.dialects.json.fenced import JSON_BARE, JSON_FENCE, XLAM
from strategies.dialects.json.hermes import HERMES, UNOPENED
from strategies.dialects.json.kimi_k2 import KIMI_K2, KIMI_K2_STRIPPED
from strategies.dialects.json.llama import LLAMA_JSON
from strategies.dialects.json.mistral import MISTRAL, MISTRAL_OLD, MISTRAL_STRIPPED
from strategies.dialects.json.qwen_agent import QWEN_AGENT
from strategies.dialects.json.token_pairs import (
    APERTUS,
    DOUBAO,
    GIGACHAT,
    GRANITE,
    GRANITE_FC,
    HYPERCLOVAX,
    INKLING,
    INTERNLM,
    LFM2,
    NEMOTRON_NANO,
    OLMO3,
    PANGU,
    PHI,
    SMOLLM3,
    TABBY,
)
from strategies.dialects.lines.line_calls import CONTINUE, CWM, FUNCTIONARY, GPTME
from strategies.dialects.lines.patch import APPLY_PATCH
from strategies.dialects.lines.python import GORILLA, NEXUS_RAVEN, PYTHON_TAGGED, PYTHONIC, TOOL_CODE
from strategies.dialects.lines.react import REACT
from strategies.dialects.lines.shell import SHELL
from strategies.dialects.tags.dsml import DSML, GCML
from strategies.dialects.tags.glm import GLM, GLM_BARE, LAGUNA_USER
from strategies.dialects.tags.hunyuan import HUNYUAN, HY3
from strategies.dialects.tags.invoke import BARE_INVOKE, CLAUDE_INVOKE, DOTS, LOST_HEAD, XAI
from strategies.dialects.tags.llama_tag import LLAMA3_TAG
from strategies.dialects.tags.minimax import MINIMAX_M1, MINIMAX_M2, MINIMAX_M3
from strategies.dialects.tags.muse import MUSE
from strategies.dialects.tags.nova import NOVA
from strategies.dialects.tags.pair_tokens import IQUEST, K2_HORIZON, LONGCAT, SOLAR_OPEN2, SPARK
from strategies.dialects.tags.qwen3_coder import BARE_FUNCTION, QWEN3_CODER, SEED_OSS
from strategies.dialects.tags.step3 import STEP3
from strategies.dialects.tokens.bracketed import ARROWS, CALLING_TOOL, FUNCTIONARY_V2, TOOL_REQUEST
from strategies.dialects.tokens.deepseek import DEEPSEEK, DEEPSEEK_V31, STRIPPED
from strategies.dialects.tokens.gemma import FUNCTION_GEMMA, GEMMA, GEMMA_STRIPPED
from strategies.dialects.tokens.grok import GROK
from strategies.dialects.tokens.harmony import HARMONY, HARMONY_STRIPPED
from strategies.dialects.tokens.kimi_k3 import KIMI_K3
from strategies.dialects.tokens.named_json import PLAMO3, SOLAR_OPEN
from strategies.dialects.tool_tags.server_call import SERVER_CALL
from strategies.dialects.tool_tags.tag import GENERIC, PREFIXED, WRAPPED
from strategies.grammar.dialect import Dialect

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
    LAGUNA_USER,
    GLM_BARE,
    HUNYUAN,
    HY3,
    MINIMAX_M1,
    MINIMAX_M2,
    MINIMAX_M3,
    CLAUDE_INVOKE,
    BARE_INVOKE,
    DOTS,
    XAI,
    DSML,
    STEP3,
    NOVA,
    SERVER_CALL,
    GENERIC,
    WRAPPED,
    PREFIXED,
    DEEPSEEK,
    DEEPSEEK_V31,
    STRIPPED,
    KIMI_K2,
    KIMI_K2_STRIPPED,
    MISTRAL,
    MISTRAL_OLD,
    MISTRAL_STRIPPED,
    SOLAR_OPEN,
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
    GROK,
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
    TOOL_REQUEST,
    ARROWS,
    CALLING_TOOL,
    FUNCTIONARY_V2,
    GCML,
    K2_HORIZON,
    IQUEST,
    SOLAR_OPEN2,
    PLAMO3,
    PANGU,
    HYPERCLOVAX,
    DOUBAO,
    TABBY,
    SPARK,
    GORILLA,
    NEXUS_RAVEN,
    CWM,
    LOST_HEAD,
)
BY_ID = {dialect.id: dialect for dialect in TABLE}
