# SPDX-License-Identifier: Apache-2.0
"""The kernel that a guest boots: one of the flavours that were built, or any image given by its path."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from forktail.errors import BadInput, EnvironmentLacks
from forktail.flavour import flavour_of_release
from forktail.kernel import cache
from forktail.kernel.series import FLAVOURS, no_flavour, read_series

_SETUP_HEADER = 0x202
_VERSION_POINTER = 0x20E
_SETUP_START = 0x200


@dataclass(frozen=True)
class LabKernel:
    """A kernel image: `release` is what `uname -r` says under it, `flavour` what its guest is called by."""

    flavour: str
    release: str
    image: Path


def banner_of(image: Path) -> str:
    """What a bzImage says of itself in its setup header (Linux, Documentation/x86/boot.rst).

    It is the release, who built it, and what `uname -v` says, as in `6.1.192-forktail-odf (me@here) #7d7e2036 SMP`.
    """
    try:
        head = image.read_bytes()[: 64 * 1024]
    except OSError as error:
        raise BadInput(f"The kernel {image} cannot be read ({error.strerror}): give a bzImage.") from error
    if head[_SETUP_HEADER : _SETUP_HEADER + 4] != b"HdrS":
        raise BadInput(f"{image} is no Linux kernel for x86: give a bzImage.")
    (pointer,) = struct.unpack_from("<H", head, _VERSION_POINTER)
    return head[_SETUP_START + pointer :].split(b"\0", 1)[0].decode(errors="replace")


def release_of(image: Path) -> str:
    """What `uname -r` says under an image."""
    return banner_of(image).split()[0]


def build_of(image: Path) -> str:
    """What `uname -v` begins with under an image, as in `#7d7e20363ca5`: of our kernels, what they were built of."""
    return next((word for word in banner_of(image).split() if word.startswith("#")), "")


def _built(flavour: str) -> LabKernel | None:
    built = cache.find(flavour)
    return LabKernel(flavour, built.release, built.image) if built else None


def find_kernel(name: str) -> LabKernel:
    """The kernel of a flavour, or the image at a path; BadInput for neither, EnvironmentLacks if not built."""
    if name in FLAVOURS:
        found = _built(name)
        if found is None:
            raise EnvironmentLacks(f"The kernel {name} is not built: `forktail kernel build {name}`.")
        return found
    if "/" in name or Path(name).exists():
        image = Path(name).resolve()
        release = release_of(image)
        return LabKernel(flavour_of_release(release), release, image)
    raise no_flavour(name, besides=", and paths of images")


def built_kernels() -> list[LabKernel]:
    """Every flavour that is built; EnvironmentLacks where none is."""
    found = [kernel for flavour in read_series().flavours if (kernel := _built(flavour))]
    if not found:
        raise EnvironmentLacks("No kernel is built: `forktail kernel build`, or give --kernel PATH of a bzImage.")
    return found
