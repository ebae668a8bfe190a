"""What a loss is made of, read from its graph: what it was divided by, and whether it is a mean."""

from typing import Any

import torch

MAX_NODES = 60  # nodes of a graph, at most
PASS_ON = ("Clone", "ToCopy", "Add", "Sub", "Neg", "View", "Squeeze", "DDPSink", "Unsqueeze")
MEANS = ("MeanBackward", "MseLoss", "NllLoss", "BinaryCrossEntropy", "SmoothL1", "Huber", "L1Loss")


def loss_divisor(loss: Any) -> tuple[float, bool]:
    """By how much a loss was divided after it was reduced, and whether that was to a mean."""
    if not isinstance(loss, torch.Tensor) or loss.grad_fn is None or loss.numel() != 1:
        return 1.0, False
    reductions: list[tuple[float, bool]] = []
    count, queue = 0, [(loss.grad_fn, 1.0)]
    while queue and count < MAX_NODES:
        node, divisor = queue.pop(0)
        count += 1
        name = type(node).__name__
        if name.startswith(("Div", "Mul")):
            factor = scalar(node, "_saved_other")
            if factor:
                divisor *= factor if name.startswith("Div") else 1 / factor
            elif factor is None:  # by a tensor that needs a gradient
                continue
        elif not name.startswith(PASS_ON):
            reductions.append((divisor, is_mean(name, node)))
            continue
        queue += [(before, divisor) for before, _ in node.next_functions if before is not None]
    of_means = [divisor for divisor, mean in reductions if mean]
    return (
        (max(of_means), True) if of_means else (max((d for d, _ in reductions), default=1.0), False)
    )


def scalar(node: Any, name: str) -> float | None:
    """The number by which a node multiplies or divides, if it is one."""
    try:
        saved = getattr(node, name)
    except (AttributeError, RuntimeError):
        return None
    if isinstance(saved, torch.Tensor):
        return float(saved) if saved.numel() == 1 and not saved.requires_grad else None
    return float(saved) if isinstance(saved, int | float) else None


def is_mean(name: str, node: Any) -> bool:
    """True for a reduction to a mean, of all elements or of those that count."""
    if not name.startswith(MEANS):
        return False
    return getattr(node, "_saved_reduction", 1) == 1
