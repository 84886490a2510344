"""Builds the compiled extensions; everything else about the package is in pyproject.toml."""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

NATIVE = Path("kafkacore/native")
SANITIZE = os.environ.get("KAFKACORE_SANITIZE") == "1"

compile_args = ["-O3", "-fno-strict-aliasing", "-Wno-unused-function"]
link_args: list[str] = []
if SANITIZE:
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-g"]
    compile_args = ["-O1", "-fno-strict-aliasing", "-Wno-unused-function", *flags]
    link_args = flags


def extension(name: str) -> Extension:
    """One extension module; the .pxi and .h files it includes are its dependencies."""
    source = Path("kafkacore") / f"{name}.pyx"
    return Extension(
        f"kafkacore.{name}",
        [str(source)],
        depends=[str(p) for p in sorted(NATIVE.glob("*.*"))],
        include_dirs=[str(NATIVE)],
        extra_compile_args=compile_args,
        extra_link_args=link_args,
    )


setup(
    ext_modules=cythonize(
        [extension("_codec")],
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "embedsignature": True,
            "binding": True,
        },
        force="--force" in sys.argv,
    ),
)
