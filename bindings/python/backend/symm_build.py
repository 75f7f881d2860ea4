"""scikit-build-core, with source distributions that hold what library/ links to.

It follows links to directories, and puts links to files in as they are: they would point out of the
    archive.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path
from typing import Any

import scikit_build_core.build as _build
from scikit_build_core.build import *  # noqa: F403  # the other hooks

if not Path("library/capi/symm.h").is_file():
    raise RuntimeError(
        f"The sources of symm are not in {Path('library').absolute()}: build from a checkout of "
        "symm's repository, with its symbolic links, or from a source distribution"
    )


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    name = _build.build_sdist(sdist_directory, config_settings)
    path = Path(sdist_directory) / name
    contents = io.BytesIO()
    with (
        tarfile.open(path) as archive,
        tarfile.open(fileobj=contents, mode="w", format=tarfile.PAX_FORMAT) as result,
    ):
        for member in archive.getmembers():
            data = archive.extractfile(member) if member.isreg() else None
            if member.issym():
                source = Path(*Path(member.name).parts[1:])
                if not source.resolve(strict=True).is_file():
                    raise RuntimeError(f"{source} links to {member.linkname}, which is no file")
                member.type, member.linkname = tarfile.REGTYPE, ""
                member.size = source.stat().st_size
                member.mode = 0o644
                data = io.BytesIO(source.read_bytes())
            result.addfile(member, data)
    with (
        open(path, "wb") as file,
        gzip.GzipFile(
            "", "wb", fileobj=file, mtime=int(os.environ.get("SOURCE_DATE_EPOCH", 0))
        ) as out,
    ):
        out.write(contents.getvalue())
    return name
