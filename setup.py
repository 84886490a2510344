"""Builds the compiled extensions; everything else about the package is in pyproject.toml.

No -march flags: code for newer processors carries target attributes and is chosen at run time, so one wheel serves all.
KAFKACORE_SANITIZE=1 builds with ASAN and UBSAN (`make sanitize`).
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

NATIVE = Path("kafkacore/native")

compile_args = ["-O3", "-fno-strict-aliasing", "-Wno-unused-function"]
link_args: list[str] = []
if os.environ.get("KAFKACORE_SANITIZE") == "1":
    link_args = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-g"]
    # Cython's lists of free objects would hand the same memory out again, and hide who uses an object that is gone.
    compile_args = ["-O1", "-fno-strict-aliasing", "-Wno-unused-function", "-DCYTHON_USE_FREELISTS=0", *link_args]


def extension(name: str) -> Extension:
    """One extension module; the .pxi and .h files it includes are its dependencies."""
    files = [path for path in sorted(NATIVE.glob("*.*")) if path.name == "poison.h" or path.name.startswith("wheel") == (name == "_wheel")]
    return Extension(
        f"kafkacore.{name}",
        [f"kafkacore/{name}.pyx"],
        depends=[str(path) for path in files],
        include_dirs=[str(NATIVE)],
        extra_compile_args=compile_args,
        extra_link_args=link_args,
    )


setup(
    ext_modules=cythonize(
        [extension("_codec"), extension("_wheel")],
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "embedsignature": True,
            "binding": True,
        },
    ),
    options={"build_ext": {"parallel": True}},  # the two at once
)
