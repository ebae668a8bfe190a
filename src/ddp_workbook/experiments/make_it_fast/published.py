"""What others have published: how much of their GPUs they use, and what one change made of it."""

import pandas as pd

PEAK = 989e12  # bf16 operations a second, an H100 SXM without sparsity (NVIDIA's data sheet)
# Model, parameters, layers, width, sequence length, GPUs, tokens/s of each, MFU in percent.
TRAININGS = [
    ("MPT 1B", 1.3e9, 24, 2048, 2048, 8, 45_455, 41.8),
    ("MPT 7B", 6.7e9, 32, 4096, 2048, 8, 10_643, 46.4),
    ("Llama 3.1 8B", 7.5e9, 32, 4096, 8192, 8, 5_762, 33.0),
]
FOUNDRY = "LLM Foundry"
TITAN = "torchtitan"
GAINS = [
    ("torch.compile", "GPT-2 124M", "250 ms", "135 ms", "nanoGPT"),
    ("torch.compile", "Llama 3.1 8B, 8 H100", "5,762 tokens/s", "6,667 tokens/s", TITAN),
    ("and float8", "Llama 3.1 8B, 8 H100", "6,667 tokens/s", "8,532 tokens/s", TITAN),
    ("TF32 for float32", "A100, peak", "19.5 TFLOPS", "156 TFLOPS", "NVIDIA A100"),
    ("bf16 for float32", "A100, peak", "19.5 TFLOPS", "312 TFLOPS", "NVIDIA A100"),
]


def flops_per_token(parameters: float, layers: int, width: int, length: int) -> float:
    """Operations of forward and backward for a token; attention looks at `length` tokens."""
    return 6 * parameters + 12 * layers * width * length


def trainings() -> pd.DataFrame:
    """Published throughputs, their MFU by `flops_per_token`, and as published."""
    rows = [
        {
            "model": name,
            "parameters, billion": size / 1e9,
            "layers": layers,
            "width": width,
            "sequence length": length,
            "tokens/s a GPU": speed,
            "MFU by 6 P, %": round(100 * 6 * size * speed / PEAK),
            "MFU with attention, %": round(
                100 * flops_per_token(size, layers, width, length) * speed / PEAK
            ),
            "published MFU, %": round(mfu),
        }
        for name, size, layers, width, length, _, speed, mfu in TRAININGS
    ]
    return pd.DataFrame(rows)


def gains() -> pd.DataFrame:
    """What one change made of it, by its source; none of it was measured here."""
    columns = ["change", "on", "before", "after", "published by"]
    return pd.DataFrame(GAINS, columns=columns)
