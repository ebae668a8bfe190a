"""GPUs and links, with the source of every number. Bytes per second are those of one direction."""

from dataclasses import dataclass

GB, TFLOPS, GBIT = 10**9, 10**12, 10**9 / 8
MICROSECOND = 1e-6


@dataclass(frozen=True)
class Gpu:
    """`flops`: dense bf16 operations per second, summed in fp32; TF32 is half of it on all GPUs."""

    name: str
    memory: int
    flops: float
    inside: str  # the usual link to other GPUs of a node
    source: str


@dataclass(frozen=True)
class Link:
    """A link of a GPU, or of a node if `per_node`; `latency` is the cost of one step of a ring."""

    name: str
    bytes_per_second: float
    latency: float
    source: str
    per_node: bool = False


# The latency of a step of NCCL's ring with the protocol for large messages (Simple), in NCCL's cost
# model: hwLat in src/graph/tuning.cc, version 2.19, 2023.
NVLINK_STEP, PCIE_STEP, NETWORK_STEP = 3.4 * MICROSECOND, 5.7 * MICROSECOND, 14 * MICROSECOND
CALL = 8.4 * MICROSECOND  # and the base cost of a call: baseLat, ring, Simple

GPUS = (
    Gpu("A100 40GB", 40 * GB, 312 * TFLOPS, "NVLink 3", "NVIDIA, A100 datasheet, 2021"),
    Gpu("A100", 80 * GB, 312 * TFLOPS, "NVLink 3", "NVIDIA, A100 datasheet, 2021"),
    Gpu(
        "H100", 80 * GB, 989 * TFLOPS, "NVLink 4",
        "NVIDIA, H100 datasheet, 2023: SXM, half of the 1,979 with sparsity",
    ),
    Gpu(
        "H200", 141 * GB, 989 * TFLOPS, "NVLink 4",
        "NVIDIA, H200 datasheet, 2024: SXM, half of the 1,979 with sparsity",
    ),
    Gpu(
        "RTX 4090", 24 * GB, 165 * TFLOPS, "PCIe 4",
        "NVIDIA, Ada GPU Architecture, 2022, appendix: FP16 with FP32 accumulate, dense",
    ),
)  # fmt: skip

INSIDE = (
    Link("NVLink 3", 300 * GB, NVLINK_STEP, "NVIDIA, A100 datasheet, 2021: 600 GB/s both ways"),
    Link("NVLink 4", 450 * GB, NVLINK_STEP, "NVIDIA, H100 datasheet, 2023: 900 GB/s both ways"),
    Link("PCIe 4", 31.5 * GB, PCIE_STEP, "PCI-SIG, PCIe 4.0, 2017: 16 lanes, 16 GT/s, 128b/130b"),
    Link("PCIe 5", 63 * GB, PCIE_STEP, "PCI-SIG, PCIe 5.0, 2019: 16 lanes, 32 GT/s, 128b/130b"),
)
BETWEEN = (
    Link(
        "InfiniBand HDR", 200 * GBIT, NETWORK_STEP,
        "NVIDIA, DGX A100 datasheet, 2020: eight ports of 200 Gb/s for eight GPUs",
    ),
    Link(
        "InfiniBand NDR", 400 * GBIT, NETWORK_STEP,
        "NVIDIA, DGX H100 datasheet, 2022: 400 Gb/s for each of eight GPUs",
    ),
    Link("Ethernet 100G", 100 * GBIT, NETWORK_STEP, "IEEE 802.3ba, 2010; one port a node", True),
    Link("Ethernet 25G", 25 * GBIT, NETWORK_STEP, "IEEE 802.3by, 2016; one port a node", True),
    Link("Ethernet 10G", 10 * GBIT, NETWORK_STEP, "IEEE 802.3ae, 2002; one port a node", True),
)  # fmt: skip
# The share of these peaks that is reached. NCCL's cost model caps a ring on A100 at 235 of 300 GB/s
# (tuning.cc, version 2.10, 2021). Arithmetic: PaLM reached 46 % of its chips' peak (Chowdhery et
# al., 2022), torchtitan with FSDP2 50 to 61 % on A100 and 33 to 39 % on H100 (docs/performance.md
# and benchmarks, 2024); a plan takes half.
LINK_SHARE = 235 / 300
COMPUTE_SHARE = 0.5


def named(known: tuple, name: str):
    """The GPU or link of this name."""
    return next(one for one in known if one.name == name)
