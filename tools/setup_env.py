"""Sets up `.venv` in this checkout: dependencies, C compiler, compiled extension, editable install.

Run by make, with any Python >= 3.11 and nothing else: `python tools/setup_env.py EXTRA...`. What is done once is stamped and not done
again: dependencies by a hash of their lists in pyproject.toml, the build by a hash of everything it reads. A second run therefore touches
neither the network nor the compiler. Fetched packages are kept as wheels in a cache directory, from which another checkout is set up when
there is no network.

Environment:
    KAFKACORE_CACHE: the cache directory, default $XDG_CACHE_HOME/kafkacore or ~/.cache/kafkacore.
    CC: the C compiler; without a working one the ziglang package serves as one.
"""

import fcntl
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, NoReturn

import compilers

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "kafkacore-setup.json"
CACHE = Path(os.environ.get("KAFKACORE_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafkacore")
WHEELS = CACHE / "wheels"
PIP = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--quiet"]
MAY_FAIL = {"gssapi"}
"""Extras that compile against libraries of the system: where that fails they are left out, and their tests skip themselves."""
SELF = re.compile(r"^kafkacore\[([\w, ]+)\]$")


def say(text: str) -> None:
    print(f"setup: {text}", file=sys.stderr, flush=True)


def fail(text: str) -> NoReturn:
    say(text)
    raise SystemExit(1)


def digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def requirements(project: dict[str, Any], extras: set[str]) -> list[str]:
    """Build and run-time requirements and those of the extras; "kafkacore[x]" inside an extra is followed."""
    found = {*project["build-system"]["requires"], *project["project"]["dependencies"]}
    known = project["project"]["optional-dependencies"]
    waiting, seen = list(extras), set[str]()
    while waiting:
        extra = waiting.pop()
        if extra in seen:
            continue
        seen.add(extra)
        if extra not in known:
            fail(f"there is no extra {extra!r}")
        for line in known[extra]:
            own = SELF.match(line)
            if own:
                waiting += [name.strip() for name in own.group(1).split(",")]
            else:
                found.add(line)
    return sorted(found)


def read_stamp() -> dict[str, Any]:
    try:
        stamp: dict[str, Any] = json.loads(STAMP.read_text())
        subprocess.run([PYTHON, "-c", ""], check=True, capture_output=True)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return {}
    return stamp if stamp.get("python") == sys.version and stamp.get("at") == str(VENV) else {}


def make_venv() -> None:
    say(f"creating .venv with Python {sys.version.split()[0]}")
    done = subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], capture_output=True, text=True)
    if done.returncode:
        fail(f"python -m venv failed; some systems ship it apart (python3-venv)\n{done.stdout}{done.stderr}")


def install(wanted: list[str]) -> None:
    """Fetches wheels into the cache, then installs from the cache alone; without a network, what is cached has to do."""
    WHEELS.mkdir(parents=True, exist_ok=True)
    links = ["--find-links", str(WHEELS)]
    say(f"fetching {len(wanted)} requirements")
    fetched = subprocess.run([*PIP, "wheel", "--wheel-dir", str(WHEELS), *links, *wanted], capture_output=True, text=True)
    if fetched.returncode:
        say("the package index cannot be used; trying the packages fetched before")
    installed = subprocess.run([*PIP, "install", "--no-index", *links, *wanted], capture_output=True, text=True)
    if installed.returncode:
        fail(f"dependencies are missing and cannot be fetched:\n{(fetched.stderr + installed.stderr).strip()}")


def buildable(project: dict[str, Any], extras: set[str]) -> set[str]:
    """The extras, without those of MAY_FAIL that cannot be built here. What is built stays in the cache."""
    WHEELS.mkdir(parents=True, exist_ok=True)
    found = set(extras)
    for extra in sorted(extras & MAY_FAIL):
        say(f"building what the extra {extra} needs")
        lines = project["project"]["optional-dependencies"][extra]
        quick = {"CFLAGS": "-O0 -g0"}  # a thin layer over a library: half a minute less of compiling
        command = [*PIP, "wheel", "--wheel-dir", str(WHEELS), "--find-links", str(WHEELS), *lines]
        done = subprocess.run(command, env=os.environ | quick | compiler_environment(), capture_output=True, text=True)
        if done.returncode:
            say(f"the extra {extra} is left out:\n{done.stderr.strip()[-2000:]}")
            found.remove(extra)
    return found


def compiler_environment() -> dict[str, str]:
    """The environment to build in: the system's compiler where one works, ziglang's otherwise."""
    try:
        found = compilers.environment_of_a_compiler()
    except compilers.NoCompilerError as error:
        fail(str(error))
    if found is not None:
        return found
    say("no C compiler found: using the ziglang package as one")
    if subprocess.run([PYTHON, "-c", "import ziglang"], capture_output=True).returncode:
        install([compilers.ZIGLANG])
    ziglang = compilers.environment_of_ziglang(str(PYTHON))
    if not compilers.compiles(shlex.split(ziglang["CC"])):
        fail("neither a C compiler nor the ziglang package works here")
    return ziglang


def sources_digest() -> str:
    files = [ROOT / "setup.py", *(path for kind in ("pyx", "pxi", "pxd", "h") for path in sorted((ROOT / "kafkacore").rglob(f"*.{kind}")))]
    return digest([(str(path.relative_to(ROOT)), path.read_bytes()) for path in files])


def build() -> None:
    if compilers.headers_are_missing():
        fail(compilers.NO_HEADERS)
    say("building the compiled extension")
    command = [*PIP, "install", "--no-index", "--no-build-isolation", "--no-deps", "--editable", str(ROOT)]
    done = subprocess.run(command, env=os.environ | compiler_environment(), capture_output=True, text=True)
    if done.returncode:
        fail(f"the build failed:\n{done.stdout}{done.stderr}")


def main() -> None:
    with (ROOT / "setup.py").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())
        stamp = read_stamp()
        if not stamp:
            make_venv()
            stamp = {"python": sys.version, "at": str(VENV), "extras": []}
        extras = set(stamp["extras"]) | set(sys.argv[1:])
        if new := (extras - set(stamp["extras"])) & MAY_FAIL:
            extras = (extras - new) | buildable(project, new)
        wanted = requirements(project, extras)
        if stamp.get("requirements") != digest(wanted):
            install(wanted)
            stamp |= {"extras": sorted(extras), "requirements": digest(wanted)}
            STAMP.write_text(json.dumps(stamp))
        metadata = {key: value for key, value in project["project"].items() if key in ("version", "scripts", "entry-points")}
        state = digest(sources_digest(), metadata)
        if stamp.get("build") != state or not all(any((ROOT / "kafkacore").glob(f"{name}.*.so")) for name in ("_codec", "_wheel")):
            build()
            stamp["build"] = state
            STAMP.write_text(json.dumps(stamp))


if __name__ == "__main__":
    main()
