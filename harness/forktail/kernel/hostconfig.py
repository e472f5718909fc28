# SPDX-License-Identifier: Apache-2.0
"""The configuration that a host's kernel is made from: Debian's own, with every driver, or another that is given."""

from __future__ import annotations

import lzma
from pathlib import Path

from forktail.errors import BadInput, EnvironmentLacks
from forktail.kernel.progress import Progress
from forktail.kernel.series import Series
from forktail.kernel.source import install

DEBIAN = "debian"
LAB = "lab"


def _debian(series: Series, progress: Progress) -> Path:
    package = f"linux-config-{series.version}"
    path = Path("/usr/src") / package / "config.amd64_none_amd64.xz"
    if path.exists():
        return path
    progress.begin(f"install {package}")
    if not (install(package) and path.exists()):
        raise EnvironmentLacks(
            f"Debian's configuration is not at {path}: apt-get install {package}, or give a host's own "
            "with --host-config /boot/config-RELEASE."
        )
    return path


def host_config(name: str, series: Series, progress: Progress) -> bytes | None:
    """The configuration by its name, `debian` or a path, plain or .xz; None for `lab`: a guest's kernel as it is.

    Raises BadInput where a path holds no configuration, EnvironmentLacks where Debian's package cannot be had.
    """
    if name == LAB:
        return None
    path = _debian(series, progress) if name == DEBIAN else Path(name)
    try:
        content = path.read_bytes()
        if path.suffix == ".xz":
            content = lzma.decompress(content)
    except OSError as error:
        raise BadInput(
            f"--host-config {path} cannot be read ({error.strerror}): give {DEBIAN}, {LAB}, or the path of a "
            "configuration such as /boot/config-RELEASE."
        ) from error
    except lzma.LZMAError as error:
        raise BadInput(f"--host-config {path} is no xz file ({error}).") from error
    if b"\nCONFIG_" not in b"\n" + content:
        raise BadInput(f"--host-config {path} is no configuration of a kernel: give one as /boot/config-RELEASE is.")
    return content
