"""Batches as plain values, and those of several ranks joined to one."""

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

import torch

TAG = "type of this batch"  # the key under which a plain dict names what it was made of


class CannotJoin(Exception):
    """Batches that make no larger batch together; the text says why."""


def as_plain(value: Any) -> Any:
    """Tensors, numbers, words and None, in dicts and lists: what `weights_only` lets pass."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return _tagged(value, fields)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _tagged(value, value._asdict())
    if isinstance(value, Mapping):
        fields = {key: as_plain(part) for key, part in value.items()}
        return fields if type(value) is dict else _tagged(value, fields)
    if isinstance(value, list | tuple):
        return [*map(as_plain, value)] if isinstance(value, list) else (*map(as_plain, value),)
    if hasattr(value, "item") and getattr(value, "shape", None) == ():  # numpy's numbers
        return value.item()
    return {TAG: f"value of type {type(value).__name__}, which cannot be kept"}


def _tagged(value: Any, fields: Mapping) -> dict:
    kind = f"{type(value).__module__}:{type(value).__qualname__}"
    return {TAG: kind, "fields": {key: as_plain(part) for key, part in fields.items()}}


def from_plain(value: Any) -> Any:
    """The batch again, of the types that it had; raises CannotJoin where one is not there."""
    if isinstance(value, list | tuple):
        return type(value)(map(from_plain, value))
    if not isinstance(value, dict):
        return value
    if TAG not in value:
        return {key: from_plain(part) for key, part in value.items()}
    if "fields" not in value:
        raise CannotJoin(f"a batch holds a {value[TAG]}")
    module, _, name = value[TAG].partition(":")
    kind: Any = sys.modules.get(module)
    for part in name.split("."):
        kind = getattr(kind, part, None)
    fields = {key: from_plain(part) for key, part in value["fields"].items()}
    if not isinstance(kind, type):
        raise CannotJoin(f"the type of its batches, {name}, is not there in another process")
    make: Any = kind
    return make(fields) if issubclass(kind, Mapping) else make(**fields)


def join(parts: list[Any], samples: int | None = None) -> Any:
    """One batch of the batches of all ranks; raises CannotJoin.

    Tensors are joined along their first dimension. A list holds either the fields of a batch,
    joined one by one, or a part for each of its `samples`, put one after the other.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    if len({type(part) for part in parts}) > 1:
        raise CannotJoin("the batches of the ranks are of different types")
    if isinstance(first, torch.Tensor):
        return _joined_tensors(parts)
    if isinstance(first, dict):
        if any(part.keys() != first.keys() for part in parts):
            raise CannotJoin("the batches of the ranks have different keys")
        return {
            key: first[key] if key == TAG else join([part[key] for part in parts], samples)
            for key in first
        }
    if isinstance(first, list | tuple):
        if all(_has_fields(part, samples) for part in parts) and len(set(map(len, parts))) == 1:
            return type(first)(
                join(list(of_ranks), samples) for of_ranks in zip(*parts, strict=True)
            )
        return type(first)(sample for part in parts for sample in part)
    if all(part == first for part in parts):
        return first
    raise CannotJoin(f"the ranks' batches hold {first!r} and {parts[1]!r}")


def _joined_tensors(parts: list[torch.Tensor]) -> torch.Tensor:
    if any(part.layout not in (torch.strided, torch.sparse_coo) for part in parts):
        raise CannotJoin("its batches hold sparse tensors of a kind that cannot be joined")
    if not parts[0].dim():
        if all(torch.equal(part, parts[0]) for part in parts):
            return parts[0]
        raise CannotJoin(f"the ranks' batches hold {parts[0].item()} and {parts[1].item()}")
    if len({(part.shape[1:], part.dtype) for part in parts}) > 1:
        shapes = " and ".join(str(list(part.shape)) for part in parts[:2])
        raise CannotJoin(f"the ranks' batches have shapes that do not fit together: {shapes}")
    return torch.cat(parts)


def _has_fields(values: list | tuple, samples: int | None) -> bool:
    """True for [images, labels], false for a list with an image for each sample."""
    tensors = [part for part in values if isinstance(part, torch.Tensor) and part.dim()]
    if not tensors:
        nested = any(isinstance(part, dict | list | tuple) for part in values)
        return nested and len(values) != samples
    sizes = {len(tensor) for tensor in tensors}
    return len(sizes) == 1 and (len(values) != samples or samples in sizes)
