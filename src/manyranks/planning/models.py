"""Which model is meant: by its name, its size, or a `config.json`."""

from collections.abc import Mapping
from typing import Any

from manyranks.planning.config import is_config, of_config
from manyranks.planning.decoder import (
    BY_SIZE,
    LARGEST,
    PUBLISHED_MODELS,
    SMALLEST,
    DecoderShape,
    of_size,
)
from manyranks.planning.sizes import PlanRefused, normalize, parameter_count


def decoder_shape(parameters: Any, fields: Mapping[str, Any] | None = None) -> DecoderShape:
    """The shape for a name, a size or a config; `fields` are added to a config.

    "70B", 70e9 and "Llama 3 70B" mean the published model; other sizes go to `of_size`. A config is
    a DecoderShape, a mapping or object with the names of a Hugging Face `config.json`, or the path
    of such a file. Raises PlanRefused for anything else, and for sizes below 0.1 or above 2,000
    billion.
    """
    if is_config(parameters):
        return of_config(parameters, fields or {})
    if fields:
        raise PlanRefused(
            f"fields are added to a config.json, and parameters={parameters!r} is not one."
        )
    if isinstance(parameters, DecoderShape):
        return parameters
    if isinstance(parameters, str):
        names = {normalize(shape.name): shape for shape in PUBLISHED_MODELS}
        if normalize(parameters) in names:
            return names[normalize(parameters)]
        if any(
            letters in normalize(parameters) for letters in ("llama", "gpt", "mixtral", "deepseek")
        ):
            known = ", ".join(shape.name for shape in PUBLISHED_MODELS)
            raise PlanRefused(f"parameters={parameters!r}: known by name are {known}.")
    count = parameter_count(parameters)
    for size, name in BY_SIZE.items():
        if parameter_count(size) == count:
            return next(shape for shape in PUBLISHED_MODELS if shape.name == name)
    if not SMALLEST <= count <= LARGEST:
        hint = f' Did you mean "{count}B"?' if count <= 1000 else ""
        raise PlanRefused(
            f"parameters={parameters!r}: a plan is made for 0.1 B to 2,000 B parameters.{hint}"
        )
    return of_size(count)
