"""GPUs and links, with the source of every number. Bytes per second are those of one direction."""

from dataclasses import dataclass

GB, GIB, TFLOPS, GBIT = 10**9, 2**30, 10**12, 10**9 / 8
MICROSECOND = 1e-6


@dataclass(frozen=True)
class Gpu:
    """`memory` is what its name promises in bytes, `capacity` what torch reports as its capacity.

    `flops` are dense 16-bit operations per second, summed in fp32, and `flops_fp32` those of fp32
    tensors (as TF32 where there is one). `inside` is the usual link to other GPUs of a node, `host`
    the one to the host.
    """

    name: str
    memory: int
    capacity: int
    flops: float
    flops_fp32: float
    inside: str
    host: str
    source: str


@dataclass(frozen=True)
class Link:
    """A link of a GPU, or of a node if `per_node`; `latency` is the cost of one step of a ring."""

    name: str
    bytes_per_second: float
    latency: float
    source: str
    per_node: bool = False


def gpu(name: str, memory: int, gib: float, dense: float, fp32: float, *links_and_source: str):
    """A Gpu from GB, GiB and TFLOPS."""
    sizes = memory * GB, round(gib * GIB), dense * TFLOPS, fp32 * TFLOPS
    return Gpu(name, *sizes, *links_and_source)


# "capacity" is that in torch's own out-of-memory errors, from the threads that are named; for
# the last two no thread was found, so the data sheet's memory stands there.
GPUS = (
    gpu("V100", 32, 31.75, 125, 15.7, "NVLink 2", "PCIe 3",
        "NVIDIA, V100 datasheet, 2020: fp16, it has no bf16 and no TF32; LlamaFactory #182"),
    gpu("A100 40GB", 40, 39.50, 312, 156, "NVLink 3", "PCIe 4",
        "NVIDIA, A100 datasheet, 2021; CoSeR #10"),
    gpu("A100", 80, 79.15, 312, 156, "NVLink 3", "PCIe 4",
        "NVIDIA, A100 datasheet, 2021; accelerate #1864"),
    gpu("L40S", 48, 44.40, 362, 183, "PCIe 4", "PCIe 4",
        "NVIDIA, L40S datasheet, 2023: dense; Qwen3-VL #2097 (an L40, which has the same memory)"),
    gpu("H100", 80, 79.11, 989, 494, "NVLink 4", "PCIe 5",
        "NVIDIA, H100 datasheet, 2023: SXM, half of the 1,979 with sparsity; vllm #27508"),
    gpu("H200", 141, 139.83, 989, 494, "NVLink 4", "PCIe 5",
        "NVIDIA, H200 datasheet, 2024: SXM, half of the 1,979 with sparsity; pytorch #150096"),
    gpu("RTX 4090", 24, 23.52, 165, 83, "PCIe 4", "PCIe 4",
        "NVIDIA, Ada GPU Architecture, 2022, appendix: FP16 with FP32 accumulate, dense; "
        "SoulX-FlashTalk #5"),
    gpu("B200", 180, 180 * GB / GIB, 2250, 1125, "NVLink 5", "PCIe 5",
        "NVIDIA, DGX B200 datasheet, 2024: an eighth of it, half of what it says with sparsity"),
    gpu("MI300X", 192, 192 * GB / GIB, 1307, 654, "Infinity Fabric", "PCIe 5",
        "AMD, Instinct MI300X data sheet, 2023: without sparsity"),
)  # fmt: skip

# The latency of a step of NCCL's ring with the protocol for large messages (Simple), in NCCL's cost
# model: hwLat in src/graph/tuning.cc, version 2.19, 2023.
NVLINK_STEP_S, PCIE_STEP_S, NETWORK_STEP_S = 3.4 * MICROSECOND, 5.7 * MICROSECOND, 14 * MICROSECOND
CALL_S = 8.4 * MICROSECOND  # and the base cost of a call: baseLat, ring, Simple

INTRA_NODE_LINKS = (
    Link("NVLink 2", 150 * GB, NVLINK_STEP_S, "NVIDIA, V100 datasheet, 2020: 300 GB/s both ways"),
    Link("NVLink 3", 300 * GB, NVLINK_STEP_S, "NVIDIA, A100 datasheet, 2021: 600 GB/s both ways"),
    Link("NVLink 4", 450 * GB, NVLINK_STEP_S, "NVIDIA, H100 datasheet, 2023: 900 GB/s both ways"),
    Link(
        "NVLink 5", 900 * GB, NVLINK_STEP_S,
        "NVIDIA, DGX B200 datasheet, 2024: 1.8 TB/s both ways",
    ),
    Link(
        "Infinity Fabric", 448 * GB, NVLINK_STEP_S,
        "AMD, Instinct MI300X data sheet, 2023: 896 GB/s both ways to seven GPUs; NVLink's latency",
    ),
    Link("PCIe 3", 15.75 * GB, PCIE_STEP_S, "PCI-SIG, PCIe 3.0, 2010: 16 lanes, 8 GT/s, 128b/130b"),
    Link("PCIe 4", 31.5 * GB, PCIE_STEP_S, "PCI-SIG, PCIe 4.0, 2017: 16 lanes, 16 GT/s, 128b/130b"),
    Link("PCIe 5", 63 * GB, PCIE_STEP_S, "PCI-SIG, PCIe 5.0, 2019: 16 lanes, 32 GT/s, 128b/130b"),
)  # fmt: skip
INTER_NODE_LINKS = (
    Link(
        "InfiniBand HDR", 200 * GBIT, NETWORK_STEP_S,
        "NVIDIA, DGX A100 datasheet, 2020: eight ports of 200 Gb/s for eight GPUs",
    ),
    Link(
        "InfiniBand NDR", 400 * GBIT, NETWORK_STEP_S,
        "NVIDIA, DGX H100 datasheet, 2022: 400 Gb/s for each of eight GPUs",
    ),
    Link("Ethernet 100G", 100 * GBIT, NETWORK_STEP_S, "IEEE 802.3ba, 2010; one port a node", True),
    Link("Ethernet 25G", 25 * GBIT, NETWORK_STEP_S, "IEEE 802.3by, 2016; one port a node", True),
    Link("Ethernet 10G", 10 * GBIT, NETWORK_STEP_S, "IEEE 802.3ae, 2002; one port a node", True),
)  # fmt: skip
# The share of these peaks that is reached. NCCL's cost model caps a ring on A100 at 235 of 300 GB/s
# (tuning.cc, version 2.10, 2021). Arithmetic: PaLM reached 46 % of its chips' peak (Chowdhery et
# al., 2022), torchtitan with FSDP2 50 to 61 % on A100 and 33 to 39 % on H100 (docs/performance.md
# and benchmarks, 2024); a plan takes half.
LINK_SHARE = 235 / 300
COMPUTE_SHARE = 0.5


def find_by_name(known: tuple, name: str):
    """The GPU or link of this name."""
    return next(item for item in known if item.name == name)
