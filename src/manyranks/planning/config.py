"""Reads the shape of a decoder from a `config.json` as Hugging Face writes it."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from manyranks.planning.decoder import GPT, DecoderShape, Experts, Latent
from manyranks.planning.sizes import PlanRefused, format_count

# How configs spell a number. A refusal asks for the first name.
NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "width": ("hidden_size", "n_embd", "d_model", "n_embed"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "vocabulary": ("vocab_size",),
    "hidden": (
        "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size",
    ),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    "positions": ("n_positions", "max_position_embeddings", "n_ctx"),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "active": ("num_experts_per_tok", "experts_per_token"),
    "expert_hidden": ("moe_intermediate_size", "intermediate_size"),
}  # fmt: skip

# How the blocks of a model type differ from Llama's, in fields of DecoderShape. From the models of
# transformers 5.24, whose numbers of parameters are the same within 0.1 %.
LIKE_LLAMA = (
    "llama", "mistral", "ministral", "ministral3", "mixtral", "granite", "granitemoe", "phi3",
    "smollm3", "internlm2", "internlm3", "baichuan", "seed_oss", "helium", "cwm", "ernie4_5",
    "llama4_text", "glm", "glm4_moe", "deepseek_v2", "deepseek_v3", "kimi_k2",
)  # fmt: skip
QKV = frozenset({"qkv"})
OLMO, QWEN2, QWEN3 = {"qk_norm": "width"}, {"biases": QKV}, {"qk_norm": "head"}
COHERE, UNTIED = {"tied": True, "norms": 1}, GPT | {"tied": False}
TYPES: dict[str, dict[str, Any]] = {
    **{kind: {} for kind in LIKE_LLAMA},
    "olmo": {"norms": 0}, "olmo2": OLMO, "olmo3": OLMO, "olmoe": OLMO,
    "qwen2": QWEN2, "qwen2_moe": QWEN2, "qwen3": QWEN3, "qwen3_moe": QWEN3,
    "gemma": {"tied": True}, "gemma2": {"tied": True, "norms": 4},
    "gemma3_text": {"tied": True, "norms": 4, "qk_norm": "head"},
    "glm4": {"norms": 4},
    "gpt_oss": {"biases": frozenset({"qkv", "projection", "experts"})},
    "cohere": COHERE, "cohere2": COHERE,
    "arcee": {"gated": False}, "apertus": {"gated": False, "qk_norm": "head"},
    "nemotron": {"gated": False, "layer_norm": True}, "stablelm": {"layer_norm": True},
    "gpt2": GPT, "gpt_bigcode": GPT, "opt": GPT, "bloom": GPT, "starcoder2": GPT,
    "gpt_neo": GPT | {"biases": GPT["biases"] - QKV}, "gpt_neox": UNTIED,
    "gptj": UNTIED | {"norms": 1, "biases": frozenset({"hidden", "output"})},
    "phi": UNTIED | {"norms": 1, "biases": GPT["biases"] | {"output"}},
    "falcon": GPT | {"biases": frozenset()}, "mpt": {"gated": False, "tied": True},
}  # fmt: skip
EXTRA_POSITIONS = {
    "gpt2": 0,
    "gpt_bigcode": 0,
    "gpt_neo": 0,
    "opt": 2,
}  # positions, and how many more


def is_config(parameters: Any) -> bool:
    """Whether this is a config, an object with its names, or the path of one."""
    if isinstance(parameters, str | Path):
        return str(parameters).strip().endswith(".json")
    return isinstance(parameters, Mapping) or hasattr(parameters, "to_dict")


def of_config(config: Any, fields: Mapping[str, Any]) -> DecoderShape:
    """The shape that a config describes; `fields` replace what it says, or add what it lacks.

    Raises PlanRefused for a config that lacks a number, or whose blocks are of no known type, and
    says which field to add.
    """
    values = read(config) | dict(fields)
    if isinstance(values.get("text_config"), Mapping):  # of an image and text model
        values = dict(values["text_config"]) | dict(fields)
    kind = str(values.get("model_type") or "llama")
    if values.get("is_encoder_decoder") or kind not in TYPES:
        problem = "has an encoder" if values.get("is_encoder_decoder") else "is not known"
        known, add = ", ".join(sorted(TYPES)), how_to_add("model_type", '"llama"')
        raise PlanRefused(
            f"The config's model_type {kind!r} {problem}; known are {known}. "
            f"If its blocks are like those of one of them, say so: {add}."
        )
    type_fields = dict(TYPES[kind])
    numbers: dict[str, Any] = {
        name: number(values, name) for name in ("layers", "width", "heads", "vocabulary")
    }
    heads, width = numbers["heads"], numbers["width"]
    expansion = optional(values, "expansion_ratio") or 4
    default_hidden = 0 if type_fields.get("gated", True) else expansion * width
    hidden = optional(values, "intermediate_size_mlp") or number(
        values, "hidden", default=default_hidden
    )
    experts = experts_of(values, numbers["layers"], hidden)
    if not hidden and not experts:
        number(values, "hidden")  # which says that it is missing
    kv_heads = 1 if shares_one_head(values, kind) else number(values, "kv_heads", default=heads)
    if heads % kv_heads:
        raise PlanRefused(f"num_key_value_heads={kv_heads} does not divide {heads} heads.")
    latent = latent_of(values)
    head_dim = values.get("qk_nope_head_dim") if latent else values.get("head_dim")
    if not head_dim and width % heads:
        raise PlanRefused(
            f"{heads} heads do not divide the width {width}, and the config has no head_dim. "
            f"Add it: {how_to_add('head_dim', '128')}."
        )
    shape = DecoderShape(
        values.get("_name_or_path") or "",
        **numbers,
        kv_heads=kv_heads,
        hidden=hidden,
        head_dim=check_number(head_dim, "head_dim") if head_dim else 0,
        experts=experts,
        latent=latent,
        positions=number(values, "positions") + EXTRA_POSITIONS[kind]
        if kind in EXTRA_POSITIONS
        else 0,
        **type_fields | switches(values, kind, type_fields),
    )
    if shape.name:
        return shape
    name = f"{format_count(shape.parameters)} {kind}".replace(" B", "B").replace(" M", "M")
    return replace(shape, name=name)


def switches(
    values: Mapping[str, Any], kind: str, type_fields: Mapping[str, Any]
) -> dict[str, Any]:
    """What a config switches on or off: biases, norms, whether the embedding is tied."""
    changes: dict[str, Any] = {}
    tied = values.get("tie_word_embeddings")
    if isinstance(tied, bool):
        changes["tied"] = tied
    biases = set(type_fields.get("biases", ()))
    if values.get("attention_bias") or values.get("qkv_bias") or values.get("use_qkv_bias"):
        only_qkv = kind in ("glm", "glm4", "glm4_moe", "seed_oss", "stablelm")
        biases |= {"qkv"} | (set() if only_qkv else {"projection"})
    if values.get("mlp_bias"):
        biases |= {"hidden"}
    if (
        values.get("bias") is True
        or values.get("use_bias") is True
        or values.get("no_bias") is False
    ):
        biases |= GPT["biases"]
    if values.get("use_bias") is False:
        biases -= GPT["biases"]
    if values.get("use_parallel_residual") and kind == "stablelm":
        changes["norms"] = 1
    if values.get("use_qk_norm") and kind == "glm4_moe":
        changes["qk_norm"] = "head"
    if kind == "falcon" and values.get("parallel_attn", True):
        norms = 2 if values.get("new_decoder_architecture") else 1
        changes["norms"] = values.get("num_ln_in_parallel_attn") or norms
    if kind == "opt" and values.get("word_embed_proj_dim", values.get("hidden_size")) != values.get(
        "hidden_size"
    ):
        raise PlanRefused("word_embed_proj_dim is not hidden_size: plan has no such projection.")
    return changes | {"biases": frozenset(biases)}


def experts_of(values: Mapping[str, Any], layers: int, hidden: int) -> Experts | None:
    """The mixture of experts, and which blocks have none of it."""
    count = number(values, "experts", default=0)
    if not count:
        return None
    active, each = number(values, "active"), number(values, "expert_hidden")
    if active > count:
        raise PlanRefused(f"num_experts_per_tok={active} is more than the {count} experts.")
    shared = optional(values, "shared_expert_intermediate_size")
    shared += optional(values, "n_shared_experts") * each
    if values.get("model_type") == "llama4_text":
        each = shared = number(values, "expert_hidden")
    steps = optional(values, "decoder_sparse_step"), optional(values, "interleave_moe_layer_step")
    every, first = max(1, *steps), optional(values, "first_k_dense_replace")
    dense_layers = values.get("mlp_only_layers") or []
    if not isinstance(dense_layers, list):
        raise PlanRefused(f"mlp_only_layers={dense_layers!r} is not a list of blocks.")
    dense = {n for n in range(layers) if n < first or n in dense_layers or (n + 1) % every}
    if dense and not hidden:
        number(values, "hidden")
    return Experts(count, active, each, shared, frozenset(dense))


def latent_of(values: Mapping[str, Any]) -> Latent | None:
    """DeepSeek's compressed attention."""
    if not values.get("kv_lora_rank"):
        return None
    names = ("kv_lora_rank", "qk_rope_head_dim", "v_head_dim", "qk_nope_head_dim")
    key_value, rotary, value, _ = (check_number(values.get(name), name) for name in names)
    return Latent(optional(values, "q_lora_rank"), key_value, rotary, value)


def shares_one_head(values: Mapping[str, Any], kind: str) -> bool:
    """Multi-query attention: all heads share one head of keys and values."""
    if kind == "falcon" and values.get("new_decoder_architecture"):
        return False
    return bool(values.get("multi_query"))


def read(config: Any) -> dict[str, Any]:
    """The fields of a config. Raises PlanRefused if its file is missing or not a JSON object."""
    if isinstance(config, Mapping):
        return dict(config)
    if hasattr(config, "to_dict"):
        return dict(config.to_dict())
    path = Path(str(config).strip())
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PlanRefused(f"parameters={str(path)!r} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise PlanRefused(f"parameters={str(path)!r} is not a config: a JSON object is expected.")
    return content


def number(values: Mapping[str, Any], what: str, default: int | None = None) -> int:
    """The number under one of its names. Raises PlanRefused if it has none of them."""
    key = next((name for name in NAMES[what] if values.get(name) is not None), None)
    if key:
        return check_number(values[key], key)
    if default is not None:
        return default
    first, *others = NAMES[what]
    also = f", also spelled {', '.join(others)}" if others else ""
    raise PlanRefused(
        f"The config has no {first}{also}. Add it: {how_to_add(first, EXAMPLES[what])}."
    )


EXAMPLES = {
    "layers": "32", "width": "4096", "heads": "32", "vocabulary": "128256", "hidden": "14336",
    "positions": "1024", "active": "2", "expert_hidden": "1408",
}  # fmt: skip


def optional(values: Mapping[str, Any], name: str) -> int:
    """A number that a config may lack, or hold as 0 or null: then 0."""
    return check_number(values[name], name) if values.get(name) else 0


def check_number(value: Any, name: str) -> int:
    """A whole number above 0, and no larger than any model has; or PlanRefused."""
    most = 10_000 if name in NAMES["layers"] else 100_000_000
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise PlanRefused(
            f"The config has {name}={value!r}, which must be a whole number from 1 to {most:,}. "
            f"Replace it: {how_to_add(name, '...')}."
        )
    return value


def how_to_add(name: str, example: str) -> str:
    """The option that adds a field, in Python and as a command."""
    plain = example.strip('"')
    return f"plan(..., fields={{{name!r}: {example}}}), or --field {name}={plain}"


def field_value(text: str) -> tuple[str, Any]:
    """The name and the value in "vocab_size=32000". Raises PlanRefused without a "="."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise PlanRefused(f"--field {text!r} is not NAME=VALUE, such as vocab_size=32000.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
