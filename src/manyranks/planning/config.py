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
LEARNED = {"gpt2": 0, "gpt_bigcode": 0, "gpt_neo": 0, "opt": 2}  # positions, and how many more


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
    given = read(config) | dict(fields)
    if isinstance(given.get("text_config"), Mapping):  # of an image and text model
        given = dict(given["text_config"]) | dict(fields)
    kind = str(given.get("model_type") or "llama")
    if given.get("is_encoder_decoder") or kind not in TYPES:
        what = "has an encoder" if given.get("is_encoder_decoder") else "is not known"
        known, add = ", ".join(sorted(TYPES)), how_to_add("model_type", '"llama"')
        raise PlanRefused(
            f"The config's model_type {kind!r} {what}; known are {known}. If its blocks are like "
            f"those of one of them, say so: {add}."
        )
    fixed = dict(TYPES[kind])
    numbers: dict[str, Any] = {
        name: number(given, name) for name in ("layers", "width", "heads", "vocabulary")
    }
    heads, width = numbers["heads"], numbers["width"]
    wider = optional(given, "expansion_ratio") or 4
    usual = 0 if fixed.get("gated", True) else wider * width
    hidden = optional(given, "intermediate_size_mlp") or number(given, "hidden", default=usual)
    experts = experts_of(given, numbers["layers"], hidden)
    if not hidden and not experts:
        number(given, "hidden")  # which says that it is missing
    kv_heads = 1 if shares_one_head(given, kind) else number(given, "kv_heads", default=heads)
    if heads % kv_heads:
        raise PlanRefused(f"num_key_value_heads={kv_heads} does not divide {heads} heads.")
    latent = latent_of(given)
    head_dim = given.get("qk_nope_head_dim") if latent else given.get("head_dim")
    if not head_dim and width % heads:
        raise PlanRefused(
            f"{heads} heads do not divide the width {width}, and the config has no head_dim. "
            f"Add it: {how_to_add('head_dim', '128')}."
        )
    shape = DecoderShape(
        given.get("_name_or_path") or "",
        **numbers,
        kv_heads=kv_heads,
        hidden=hidden,
        head_dim=checked(head_dim, "head_dim") if head_dim else 0,
        experts=experts,
        latent=latent,
        positions=number(given, "positions") + LEARNED[kind] if kind in LEARNED else 0,
        **fixed | switched(given, kind, fixed),
    )
    if shape.name:
        return shape
    called = f"{format_count(shape.parameters)} {kind}".replace(" B", "B").replace(" M", "M")
    return replace(shape, name=called)


def switched(given: Mapping[str, Any], kind: str, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """What a config switches on or off: biases, norms, whether the embedding is tied."""
    found: dict[str, Any] = {}
    tied = given.get("tie_word_embeddings")
    if isinstance(tied, bool):
        found["tied"] = tied
    biases = set(fixed.get("biases", ()))
    if given.get("attention_bias") or given.get("qkv_bias") or given.get("use_qkv_bias"):
        only_qkv = kind in ("glm", "glm4", "glm4_moe", "seed_oss", "stablelm")
        biases |= {"qkv"} | (set() if only_qkv else {"projection"})
    if given.get("mlp_bias"):
        biases |= {"hidden"}
    if given.get("bias") is True or given.get("use_bias") is True or given.get("no_bias") is False:
        biases |= GPT["biases"]
    if given.get("use_bias") is False:
        biases -= GPT["biases"]
    if given.get("use_parallel_residual") and kind == "stablelm":
        found["norms"] = 1
    if given.get("use_qk_norm") and kind == "glm4_moe":
        found["qk_norm"] = "head"
    if kind == "falcon" and given.get("parallel_attn", True):
        norms = 2 if given.get("new_decoder_architecture") else 1
        found["norms"] = given.get("num_ln_in_parallel_attn") or norms
    if kind == "opt" and given.get("word_embed_proj_dim", given.get("hidden_size")) != given.get(
        "hidden_size"
    ):
        raise PlanRefused("word_embed_proj_dim is not hidden_size: plan has no such projection.")
    return found | {"biases": frozenset(biases)}


def experts_of(given: Mapping[str, Any], layers: int, hidden: int) -> Experts | None:
    """The mixture of experts, and which blocks have none of it."""
    count = number(given, "experts", default=0)
    if not count:
        return None
    active, each = number(given, "active"), number(given, "expert_hidden")
    if active > count:
        raise PlanRefused(f"num_experts_per_tok={active} is more than the {count} experts.")
    shared = optional(given, "shared_expert_intermediate_size")
    shared += optional(given, "n_shared_experts") * each
    if given.get("model_type") == "llama4_text":
        each = shared = number(given, "expert_hidden")
    steps = optional(given, "decoder_sparse_step"), optional(given, "interleave_moe_layer_step")
    every, first = max(1, *steps), optional(given, "first_k_dense_replace")
    named = given.get("mlp_only_layers") or []
    if not isinstance(named, list):
        raise PlanRefused(f"mlp_only_layers={named!r} is not a list of blocks.")
    dense = {n for n in range(layers) if n < first or n in named or (n + 1) % every}
    if dense and not hidden:
        number(given, "hidden")
    return Experts(count, active, each, shared, frozenset(dense))


def latent_of(given: Mapping[str, Any]) -> Latent | None:
    """DeepSeek's compressed attention."""
    if not given.get("kv_lora_rank"):
        return None
    names = ("kv_lora_rank", "qk_rope_head_dim", "v_head_dim", "qk_nope_head_dim")
    key_value, rotary, value, _ = (checked(given.get(name), name) for name in names)
    return Latent(optional(given, "q_lora_rank"), key_value, rotary, value)


def shares_one_head(given: Mapping[str, Any], kind: str) -> bool:
    """Multi-query attention: all heads share one head of keys and values."""
    if kind == "falcon" and given.get("new_decoder_architecture"):
        return False
    return bool(given.get("multi_query"))


def read(config: Any) -> dict[str, Any]:
    """The fields of a config. Raises PlanRefused if its file is missing or not a JSON object."""
    if isinstance(config, Mapping):
        return dict(config)
    if hasattr(config, "to_dict"):
        return dict(config.to_dict())
    path = Path(str(config).strip())
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PlanRefused(f"parameters={str(path)!r} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise PlanRefused(f"parameters={str(path)!r} is not a config: a JSON object is expected.")
    return found


def number(given: Mapping[str, Any], what: str, default: int | None = None) -> int:
    """The number under one of its names. Raises PlanRefused if it has none of them."""
    found = next((name for name in NAMES[what] if given.get(name) is not None), None)
    if found:
        return checked(given[found], found)
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


def optional(given: Mapping[str, Any], name: str) -> int:
    """A number that a config may lack, or hold as 0 or null: then 0."""
    return checked(given[name], name) if given.get(name) else 0


def checked(value: Any, name: str) -> int:
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
