# SPDX-License-Identifier: Apache-2.0
"""TOML documents that people write: read whole, validated whole, every fault told with its mend."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from forktail.errors import BadInput

Model = TypeVar("Model", bound=BaseModel)


def read_toml(path: Path, noun: str, instead: str) -> dict[str, Any]:
    """The document of a TOML file; BadInput names the file, what it is to be (`noun`), and what to give `instead`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadInput(f"The {noun} {path} does not exist: give {instead}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"The {noun} {path} cannot be read ({error}): give a TOML file.") from error
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"The {noun} {path} is not TOML: {error}.") from error


def document_of(model: type[Model], document: Mapping[str, Any], source: str) -> Model:
    """The document as its model; BadInput lists every fault at once, one a line, each with its mend."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        faults = _explain(model, error)
        if len(faults) == 1:
            raise BadInput(f"{source}: {faults[0]}") from error
        lines = "\n".join(f"  - {fault}" for fault in faults)
        raise BadInput(f"{source} has {len(faults)} faults:\n{lines}") from error


def nearest(key: str, known: Iterable[str]) -> str:
    """What a key that is not known was meant to be, as the end of a sentence."""
    match = difflib.get_close_matches(key, list(known), n=1, cutoff=0.5)
    return f"did you mean {match[0]!r}?" if match else f"known are {', '.join(sorted(known))}."


def _known_keys(model: type[BaseModel], location: tuple[str | int, ...]) -> list[str]:
    within: Any = model
    for part in location:
        if get_origin(within) is dict:
            within = get_args(within)[1]
        else:
            field = within.model_fields.get(str(part))
            within = field.annotation if field else None
        if not (get_origin(within) is dict or (isinstance(within, type) and issubclass(within, BaseModel))):
            return list(model.model_fields)
    return list(within.model_fields)


def _explain(model: type[BaseModel], error: ValidationError) -> list[str]:
    lines = []
    for fault in error.errors(include_url=False):
        location = fault["loc"]
        name = ".".join(str(part) for part in location)
        if fault["type"] == "extra_forbidden":
            lines.append(f"{name} is not a known key: {nearest(str(location[-1]), _known_keys(model, location[:-1]))}")
        else:
            message = fault["msg"].removeprefix("Value error, ")
            if fault["type"] != "value_error":
                message += f" (given: {fault['input']!r})"
            if fault["type"] == "literal_error":
                choices = re.findall("'([^']*)'", str(fault["ctx"]["expected"]))
                message += f": {nearest(str(fault['input']), choices)}"
            lines.append(f"{name}: {message}" if name else message)
    return lines
