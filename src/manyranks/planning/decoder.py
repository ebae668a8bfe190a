"""Decoder transformers as shapes of parameters, the published ones, and those of a size."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from manyranks.planning.shards import Result, Shape, Unit, Units, numel, of_each
from manyranks.planning.sizes import format_count

SMALLEST, LARGEST = 10**8, 2 * 10**12  # parameters


@dataclass(frozen=True)
class Experts:
    """A mixture of experts: each token goes to `active` of `number` experts, `hidden` wide.

    `shared` is the width of what all tokens go through as well. The blocks in `dense` have an
    ordinary feed-forward layer instead.
    """

    number: int
    active: int
    hidden: int
    shared: int = 0
    dense: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Latent:
    """Attention with compressed keys and values, as in DeepSeek-V2 (MLA); sizes of a head, ranks.

    `query` is the rank of the queries, 0 if they are not compressed.
    """

    query: int
    key_value: int
    rotary: int
    value: int


@dataclass(frozen=True)
class DecoderShape:
    """The sizes of a decoder-only transformer; the defaults are Llama's.

    hidden, gated
        Width of the feed-forward layer; three matrices (SwiGLU) or, if not gated, two (GELU).
    norms, layer_norm
        Norms in a block, and whether each has a bias beside its weight.
    biases
        Which matrices have a bias: "qkv", "projection", "hidden", "experts", "output".
    qk_norm
        A norm of queries and keys: none (""), over a "head", or over their whole "width".
    positions
        Learned positions; 0 for rotary ones, which have no parameters.
    tied
        Whether the embedding is the output layer as well.
    """

    name: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int
    head_dim: int = 0
    tied: bool = False
    gated: bool = True
    norms: int = 2
    layer_norm: bool = False
    biases: frozenset[str] = frozenset()
    qk_norm: str = ""
    positions: int = 0
    experts: Experts | None = None
    latent: Latent | None = None

    @property
    def query_width(self) -> int:
        """Width of all queries: heads times head_dim, which need not be the model's width."""
        rotary = self.latent.rotary if self.latent else 0
        return self.heads * ((self.head_dim or self.width // self.heads) + rotary)

    @property
    def kv_width(self) -> int:
        """Width of the keys; with grouped queries they have fewer heads."""
        return self.query_width // self.heads * self.kv_heads

    @property
    def value_width(self) -> int:
        """Width of what attention returns."""
        return self.heads * self.latent.value if self.latent else self.query_width

    @property
    def vectors_per_norm(self) -> int:
        """A weight, and with LayerNorm a bias."""
        return 2 if self.layer_norm else 1

    def attention(self) -> list[Shape]:
        """Shapes of queries, keys, values and projection."""
        width, query, kv = self.width, self.query_width, self.kv_width
        shapes: list[Shape] = [(query, width), (kv, width), (kv, width)]
        if ranks := self.latent:
            low, each = ranks.query, query // self.heads - ranks.rotary + ranks.value
            whole, cut = [(query, width)], [(low, width), (low,), (query, low)]
            down, up = (ranks.key_value + ranks.rotary, width), (self.heads * each, ranks.key_value)
            shapes = [*(cut if low else whole), down, (ranks.key_value,), up]
        if "qkv" in self.biases:
            shapes += [(query,), (kv,), (kv,)]
        shapes.append((width, self.value_width))
        if "projection" in self.biases:
            shapes.append((width,))
        head = query // self.heads
        norms: dict[str, list[Shape]] = {"head": [(head,), (head,)], "width": [(query,), (kv,)]}
        return shapes + norms.get(self.qk_norm, [])

    def feed_forward(self, hidden: int, biases: bool) -> list[Shape]:
        """Shapes of up (twice if gated) and down."""
        ups = 2 if self.gated else 1
        vectors = [*[(hidden,)] * ups, (self.width,)] if biases else []
        return [*[(hidden, self.width)] * ups, (self.width, hidden), *vectors]

    def block(self, number: int = 0, expert_ranks: int = 1) -> list[Shape]:
        """Shapes of the parameters of a block; each expert is a feed-forward layer of its own.

        With `expert_ranks` the experts of one of so many ranks; with 0, all but the experts.
        """
        shapes = [*self.attention(), *[(self.width,)] * (self.norms * self.vectors_per_norm)]
        if (experts := self.experts) is None or number in experts.dense:
            return [*shapes, *self.feed_forward(self.hidden, "hidden" in self.biases)]
        shapes += [(experts.number, self.width)]  # the router
        shapes += self.routed(number, expert_ranks) if expert_ranks else []
        return shapes + (self.feed_forward(experts.shared, False) if experts.shared else [])

    def routed(self, number: int = 0, expert_ranks: int = 1) -> list[Shape]:
        """Shapes of the experts among which a router chooses; none in a block without experts."""
        if (experts := self.experts) is None or number in experts.dense:
            return []
        each = self.feed_forward(experts.hidden, "experts" in self.biases)
        return each * (experts.number // expert_ranks)

    @property
    def embedding(self) -> list[Shape]:
        """What comes before the blocks."""
        positions: list[Shape] = [(self.positions, self.width)] if self.positions else []
        return [*positions, (self.vocabulary, self.width)]

    @property
    def output(self) -> list[Shape]:
        """What comes after them: the last norm, and the output layer unless it is tied."""
        norm: list[Shape] = [(self.width,)] * self.vectors_per_norm if self.norms else []
        layer: list[Shape] = [] if self.tied else [(self.vocabulary, self.width)]
        bias: list[Shape] = [(self.vocabulary,)] if "output" in self.biases else []
        return [*norm, *layer, *bias]

    @cached_property
    def blocks(self) -> list[Unit]:
        """All blocks; equal ones are one object."""
        return self.each_block(self.block)

    def each_block(self, function: Callable[[int], Result]) -> list[Result]:
        """What a function says of each block; of equal blocks it is one object."""
        dense = self.experts.dense if self.experts else frozenset()
        kinds = {number in dense: number for number in range(self.layers)}
        results = {kind: function(number) for kind, number in kinds.items()}
        return [results[number in dense] for number in range(self.layers)]

    def units(self, split_root: bool = False, expert_ranks: int = 1) -> Units:
        """The shapes as `fully_shard` on each block and on the root groups them.

        With `split_root`, embedding and output are units as well, unless they share a weight.
        `expert_ranks` as in `block`.
        """
        blocks = self.blocks
        if expert_ranks != 1:
            blocks = self.each_block(lambda number: self.block(number, expert_ranks))
        before, after = self.ends(split_root)
        return [*before, *blocks, *after]

    def ends(self, split_root: bool) -> tuple[Units, Units]:
        """The units before the blocks, of which the first is the root, and those after them."""
        if split_root and not self.tied:
            return [[], self.embedding], [self.output]
        return [[*self.embedding, *self.output]], []

    @property
    def first(self) -> int:
        """How many of the root's parameters are used only before the first block."""
        return len(self.embedding) - self.tied

    @cached_property
    def parameters(self) -> int:
        """All parameters; a tied one counts once."""
        return numel(self.units())

    @cached_property
    def active(self) -> int:
        """The parameters that one token meets: with experts, fewer than all."""
        return self.parameters - sum(self.each_block(self.idle))

    @cached_property
    def active_of_blocks(self) -> list[int]:
        """The parameters of each block that one token meets."""
        return self.each_block(lambda number: numel([self.blocks[number]]) - self.idle(number))

    def idle(self, number: int) -> int:
        """The parameters of a block that one token does not meet: those of the other experts."""
        if not self.experts:
            return 0
        one = numel([self.routed(number, expert_ranks=self.experts.number)])
        return (self.experts.number - self.experts.active) * one


def cut_by_tensor(units: Units, ranks: int) -> Units:
    """What is left of each unit with tensor parallelism: a part of every matrix, whole vectors."""
    if ranks == 1:
        return units

    def cut(unit: Unit) -> list[Shape]:
        return [s if len(s) < 2 else (-(-s[0] // ranks), *s[1:]) for s in unit]

    return of_each(units, cut)


# Touvron et al., "Llama 2: Open Foundation and Fine-Tuned Chat Models", 2023, and its params.json;
# "The Llama 3 Herd of Models", 2024, Table 3; the config.json of Llama 3.2, 2024; those of Mixtral
# 8x7B, 2023, and DeepSeek-V3, 2024 (data/models), of which the second predicts one token at a time;
# Brown et al., "Language Models are Few-Shot Learners", 2020, Table 2.1 (its 1.3 B has 24 heads of
# 128, which is not 2,048; 32 heads of 64 are taken).
GPT: dict[str, Any] = {
    "tied": True,
    "gated": False,
    "layer_norm": True,
    "biases": frozenset({"qkv", "projection", "hidden"}),
}


def gpt(name: str, layers: int, width: int, heads: int, positions: int = 2048) -> DecoderShape:
    """GPT-2 and 3: LayerNorm, biases, GELU, learned positions."""
    sizes = layers, width, heads, heads, 4 * width, 50257
    return DecoderShape(name, *sizes, positions=positions, **GPT)


PUBLISHED_MODELS = (
    DecoderShape("Llama 3 8B", 32, 4096, 32, 8, 14336, 128256),
    DecoderShape("Llama 3 70B", 80, 8192, 64, 8, 28672, 128256),
    DecoderShape("Llama 3 405B", 126, 16384, 128, 8, 53248, 128256),
    DecoderShape("Llama 3.2 1B", 16, 2048, 32, 8, 8192, 128256, tied=True),
    DecoderShape("Llama 3.2 3B", 28, 3072, 24, 8, 8192, 128256, tied=True),
    DecoderShape("Llama 2 7B", 32, 4096, 32, 32, 11008, 32000),
    DecoderShape("Llama 2 13B", 40, 5120, 40, 40, 13824, 32000),
    DecoderShape("Llama 2 70B", 80, 8192, 64, 8, 28672, 32000),
    DecoderShape(
        "Mixtral 8x7B", 32, 4096, 32, 8, 14336, 32000, experts=Experts(8, active=2, hidden=14336)
    ),
    DecoderShape(
        "DeepSeek-V3",
        61,
        7168,
        128,
        128,
        18432,
        129280,
        head_dim=128,
        experts=Experts(256, active=8, hidden=2048, shared=2048, dense=frozenset(range(3))),
        latent=Latent(query=1536, key_value=512, rotary=64, value=128),
    ),
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


def of_size(parameters: int) -> DecoderShape:
    """A Llama-like shape with about this many parameters, within 2 %.

    The rule, from the published models: width about 128 times the layers (Llama 3: 128, 102, 130;
    GPT-3 175B: 128), heads of 128 (64 below width 2,048), at most 8 key and value heads, hidden
    layer 3.5 times the width, Llama 3's vocabulary. Below 4 B the embedding is tied, as in
    Llama 3.2; below 1 B the vocabulary is GPT-2's, or the embedding would be most of the model.
    """
    small = parameters < 10**9
    candidates = []
    for width in [*range(256, 2048, 128), *range(2048, 4096, 512), *range(4096, 49152, 1024)]:
        heads = width // (128 if width >= 2048 else 64)
        kv_heads = max(part for part in range(1, 9) if heads % part == 0)
        vocabulary = 50257 if small else 128256
        name = f"{format_count(parameters).replace(' ', '')} like Llama 3"
        sizes = 1, width, heads, kv_heads, 7 * width // 2, vocabulary
        candidate = DecoderShape(name, *sizes, tied=parameters < 4 * 10**9)
        each = sum(map(prod, candidate.block()))
        rest = candidate.parameters - each
        layers = round((parameters - rest) / each)
        if layers >= 1:
            error = abs(rest + layers * each - parameters) / parameters
            candidates.append(
                (error > 0.02, abs(math.log(width / (128 * layers))), error, layers, candidate)
            )
    *_, layers, candidate = min(candidates, key=lambda candidate: candidate[:3])
    return replace(candidate, layers=layers)
