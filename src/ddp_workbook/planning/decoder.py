"""Decoder transformers of 0.1 to 1,000 billion parameters, by name, by size, or from a config.

On the `meta` device a model has shapes but no memory.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ddp_workbook.planning.shards import Units, numel
from ddp_workbook.planning.sizes import PlanRefused, in_count, parameter_count, squeezed

SMALLEST, LARGEST = 10**8, 10**12  # parameters


@dataclass(frozen=True)
class DecoderShape:
    """The sizes of a decoder-only transformer.

    `hidden` is the width of the feed-forward layer. `gpt`: LayerNorm, biases, GELU and `positions`
    learned positions, as in GPT-2 and 3; otherwise RMSNorm, no bias and SwiGLU, as in Llama.
    `tied`: the embedding is also the output layer.
    """

    name: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int
    tied: bool = False
    gpt: bool = False
    positions: int = 0

    @property
    def kv_width(self) -> int:
        """Width of keys and of values; with GQA they have fewer heads than the queries."""
        return self.width // self.heads * self.kv_heads

    @property
    def units(self) -> Units:
        """Shapes of the parameters as `fully_shard` on each block and on the root groups them."""
        root, block = unit_shapes(self)
        return [root, *[block] * self.layers]

    @property
    def root_first(self) -> int:
        """How many of the root's parameters are used only before the first block."""
        return bool(self.positions) + (not self.tied)

    @property
    def root_last(self) -> int:
        """How many of them get their gradient last; a tied one gets the first half of it early."""
        return bool(self.positions) + 1

    @property
    def parameters(self) -> int:
        """The number of parameters; a tied one counts once."""
        root, block = unit_shapes(self)
        return numel([root]) + self.layers * numel([block])

    def build(self, layers: int | None = None, device: str = "meta") -> "Decoder":
        """The model, or one of the same kind with fewer `layers`."""
        with torch.device(device):
            return Decoder(self, self.layers if layers is None else layers)


@cache
def unit_shapes(shape: DecoderShape) -> tuple[list[torch.Size], list[torch.Size]]:
    """Shapes of the root's own parameters, and of those of one block."""
    model = shape.build(layers=1)
    block = [parameter.shape for parameter in model.blocks.parameters()]
    return [parameter.shape for parameter in model.own_parameters()], block


# Touvron et al., "Llama 2: Open Foundation and Fine-Tuned Chat Models", 2023, and its params.json;
# "The Llama 3 Herd of Models", 2024, Table 3; the config.json of Llama 3.2, 2024;
# Brown et al., "Language Models are Few-Shot Learners", 2020, Table 2.1 (its 1.3 B has 24 heads of
# 128, which is not 2,048; 32 heads of 64 are taken, and width 5,120 for 13 B instead of 5,140).
def llama(name: str, layers: int, width: int, heads: int, kv_heads: int, hidden: int, words: int):
    return DecoderShape(name, layers, width, heads, kv_heads, hidden, words)


def gpt(name: str, layers: int, width: int, heads: int, positions: int = 2048) -> DecoderShape:
    sizes = layers, width, heads, heads, 4 * width, 50257
    return DecoderShape(name, *sizes, tied=True, gpt=True, positions=positions)


PUBLISHED = (
    llama("Llama 3 8B", 32, 4096, 32, 8, 14336, 128256),
    llama("Llama 3 70B", 80, 8192, 64, 8, 28672, 128256),
    llama("Llama 3 405B", 126, 16384, 128, 8, 53248, 128256),
    replace(llama("Llama 3.2 1B", 16, 2048, 32, 8, 8192, 128256), tied=True),
    replace(llama("Llama 3.2 3B", 28, 3072, 24, 8, 8192, 128256), tied=True),
    llama("Llama 2 7B", 32, 4096, 32, 32, 11008, 32000),
    llama("Llama 2 13B", 40, 5120, 40, 40, 13824, 32000),
    llama("Llama 2 70B", 80, 8192, 64, 8, 28672, 32000),
    gpt("GPT-2 124M", 12, 768, 12, positions=1024),
    gpt("GPT-3 350M", 24, 1024, 16),
    gpt("GPT-3 1.3B", 24, 2048, 32),
    gpt("GPT-3 2.7B", 32, 2560, 32),
    gpt("GPT-3 6.7B", 32, 4096, 32),
    gpt("GPT-3 175B", 96, 12288, 96),
)
# The model that a size alone means.
BY_SIZE = {
    "124M": "GPT-2 124M", "350M": "GPT-3 350M", "1B": "Llama 3.2 1B", "1.3B": "GPT-3 1.3B",
    "2.7B": "GPT-3 2.7B", "3B": "Llama 3.2 3B", "6.7B": "GPT-3 6.7B", "7B": "Llama 2 7B",
    "8B": "Llama 3 8B", "13B": "Llama 2 13B", "70B": "Llama 3 70B", "175B": "GPT-3 175B",
    "405B": "Llama 3 405B",
}  # fmt: skip


def decoder_shape(parameters: Any) -> DecoderShape:
    """The shape for a name, a size or a config.

    "70B", 70e9 and "Llama 3 70B" mean the published model; other sizes go to `of_size`. A config is
    a DecoderShape, a mapping or object with the names of a Hugging Face `config.json`, or the path
    of such a file. Raises PlanRefused for anything else, and for sizes below 0.1 or above 1,000
    billion.
    """
    if isinstance(parameters, DecoderShape):
        return parameters
    if isinstance(parameters, Mapping) or hasattr(parameters, "hidden_size"):
        return of_config(parameters)
    if isinstance(parameters, str) and parameters.strip().endswith(".json"):
        return of_config(read_config(Path(parameters.strip())))
    if isinstance(parameters, str):
        names = {squeezed(shape.name): shape for shape in PUBLISHED}
        if squeezed(parameters) in names:
            return names[squeezed(parameters)]
        if any(letters in squeezed(parameters) for letters in ("llama", "gpt")):
            known = ", ".join(shape.name for shape in PUBLISHED)
            raise PlanRefused(f"parameters={parameters!r}: known by name are {known}.")
    count = parameter_count(parameters)
    for size, name in BY_SIZE.items():
        if parameter_count(size) == count:
            return next(shape for shape in PUBLISHED if shape.name == name)
    if not SMALLEST <= count <= LARGEST:
        hint = f' Did you mean "{count}B"?' if count <= 1000 else ""
        raise PlanRefused(
            f"parameters={parameters!r}: a plan is made for 0.1 B to 1,000 B parameters.{hint}"
        )
    return of_size(count)


def of_size(parameters: int) -> DecoderShape:
    """A Llama-like shape with about this many parameters, within 2 %.

    The rule, from the published models: width about 128 times the layers (Llama 3: 128, 102, 130;
    GPT-3 175B: 128), heads of 128 (64 below width 2,048), at most 8 key and value heads, hidden
    layer 3.5 times the width, Llama 3's vocabulary. Below 4 B the embedding is tied, as in
    Llama 3.2; below 1 B the vocabulary is GPT-2's, or the embedding would be most of the model.
    """
    small = parameters < 10**9
    candidates = []
    for width in [*range(256, 2048, 128), *range(2048, 4096, 512), *range(4096, 40960, 1024)]:
        heads = width // (128 if width >= 2048 else 64)
        kv_heads = max(part for part in range(1, 9) if heads % part == 0)
        vocabulary = 50257 if small else 128256
        tied = parameters < 4 * 10**9
        size = in_count(parameters).replace(" ", "")
        one = DecoderShape(
            f"{size} like Llama 3", 1, width, heads, kv_heads, 7 * width // 2, vocabulary, tied
        )
        rest, each = (numel([unit]) for unit in unit_shapes(one))
        layers = round((parameters - rest) / each)
        if layers >= 1:
            off = abs(rest + layers * each - parameters) / parameters
            candidates.append((off > 0.02, abs(math.log(width / (128 * layers))), off, layers, one))
    *_, layers, one = min(candidates, key=lambda candidate: candidate[:3])
    return replace(one, layers=layers)


def read_config(path: Path) -> dict:
    """Read a `config.json`. Raises PlanRefused if it is missing or not a JSON object."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PlanRefused(f"parameters={str(path)!r} cannot be read: {error}") from None
    if not isinstance(config, dict):
        raise PlanRefused(f"parameters={str(path)!r} is not a config: a JSON object is expected.")
    return config


def of_config(config: Any) -> DecoderShape:
    """The shape from the names of a Hugging Face `config.json`: hidden_size and so on.

    Raises PlanRefused for a config that lacks some of them, and for models that are not dense
    decoders with heads as wide as width / heads.
    """
    given = config if isinstance(config, Mapping) else vars(config)
    needed = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
    missing = [name for name in needed if not isinstance(given.get(name), int)]
    if missing:
        raise PlanRefused(f"The config has no {', '.join(missing)}. It needs {', '.join(needed)}.")
    layers, width, heads, words = (given[name] for name in needed)
    if min(layers, width, heads, words) < 1 or width % heads:
        raise PlanRefused(
            f"The config has num_hidden_layers={layers}, hidden_size={width}, "
            f"num_attention_heads={heads}, vocab_size={words}: all must be above 0, and the heads "
            "must divide the width."
        )
    kv_heads = given.get("num_key_value_heads") or heads
    if heads % kv_heads:
        raise PlanRefused(f"num_key_value_heads={kv_heads} does not divide {heads} heads.")
    if experts := [name for name in given if "experts" in name and given[name]]:
        raise PlanRefused(
            f"The config has {experts[0]}: a plan is for dense models, without experts."
        )
    if (given.get("head_dim") or width // heads) * heads != width:
        raise PlanRefused(f"head_dim={given['head_dim']} times {heads} heads is not width {width}.")
    shape = llama(
        "", layers, width, heads, kv_heads, given.get("intermediate_size", 4 * width), words
    )
    shape = replace(shape, tied=bool(given.get("tie_word_embeddings", False)))
    name = given.get("_name_or_path") or f"{in_count(shape.parameters)} from a config"
    return replace(shape, name=name)


class Decoder(nn.Module):
    """Embedding, blocks, norm, output: token ids [batch, sequence] to logits [.., vocabulary]."""

    def __init__(self, shape: DecoderShape, layers: int) -> None:
        super().__init__()
        self.shape = shape
        if shape.positions:
            self.positions = nn.Embedding(shape.positions, shape.width)
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(layers))
        self.norm = norm(shape)
        self.output = nn.Linear(shape.width, shape.vocabulary, bias=False)
        if shape.tied:
            self.output.weight = self.embedding.weight

    def own_parameters(self) -> list[nn.Parameter]:
        """The parameters outside the blocks, in order; a tied one counts once."""
        inside = set(self.blocks.parameters())
        return [parameter for parameter in self.parameters() if parameter not in inside]

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        if self.shape.positions:
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.output(self.norm(x))


class Block(nn.Module):
    """Attention and a feed-forward layer, each with its norm and its residual: [b, s, width].

    Rotary positions are left out: they have no parameters and change no shape.
    """

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.heads, self.kv_heads, bias = shape.heads, shape.kv_heads, shape.gpt
        self.attention_norm = norm(shape)
        self.query = nn.Linear(shape.width, shape.width, bias=bias)
        self.key = nn.Linear(shape.width, shape.kv_width, bias=bias)
        self.value = nn.Linear(shape.width, shape.kv_width, bias=bias)
        self.projection = nn.Linear(shape.width, shape.width, bias=bias)
        self.forward_norm = norm(shape)
        self.gate = None if shape.gpt else nn.Linear(shape.width, shape.hidden, bias=False)
        self.up = nn.Linear(shape.width, shape.hidden, bias=bias)
        self.down = nn.Linear(shape.hidden, shape.width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.projection(self.attend(self.attention_norm(x)))
        y = self.forward_norm(x)
        hidden = F.gelu(self.up(y)) if self.gate is None else F.silu(self.gate(y)) * self.up(y)
        return x + self.down(hidden)

    def attend(self, x: Tensor) -> Tensor:
        heads = ((self.query, self.heads), (self.key, self.kv_heads), (self.value, self.kv_heads))
        query, key, value = (of(x).unflatten(-1, (n, -1)).transpose(1, 2) for of, n in heads)
        grouped = self.heads != self.kv_heads
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)
        return y.transpose(1, 2).flatten(2)


def norm(shape: DecoderShape) -> nn.Module:
    return nn.LayerNorm(shape.width) if shape.gpt else nn.RMSNorm(shape.width)
