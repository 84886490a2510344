"""Builds the extensions with ASAN and UBSAN into build/sanitize; runs the tests of what handles memory and the fuzz loop on them.

    tools/sanitize.py [OPTION...]           options go to pytest
    tools/sanitize.py hostile [OPTION...]   clients and commands against a broker that lies, instead; options as --seconds 60 --seed 7 go to
                                            tests/security/hostile_brokers.py

The normal build in the checkout stays as it is.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "sanitize"
# What reads, writes or hands out memory: bytes, records, protocol, metadata, the way of a record and of a request, logs, timers, JSON.
TESTS = (
    *(f"test_{name}*.py" for name in ("append", "buffers", "codec", "compress", "fileslice", "filewrite", "fuzz", "records", "sock")),
    *(f"test_{name}*.py" for name in ("changing_arguments", "wheel", "timer", "purgatory")),
    "aio/test_aio_timer.py",
    *(f"net/test_{name}.py" for name in ("channel", "epoll", "framing", "measure", "metadata", "network_client", "selector")),
    "net/test_transport_contract.py",
    *(f"producer/test_{name}*.py" for name in ("accumulator", "many_partitions", "produce_bytes", "queue_model", "send_many", "sender")),
    *(f"consumer/test_{name}.py" for name in ("fetcher", "fetch_upkeep", "sessions")),
    "broker/test_log_disk.py",
    "broker/test_log_model.py",
    "protocol/test_*.py",
    "decode/test_json_columns.py",
    "data/test_arrow_out.py",
    "data/test_frame_json.py",
    "data/test_read_layouts.py",
)
FUZZ = ROOT / "tests" / "fuzz_loop.py"
HOSTILE = ROOT / "tests" / "security" / "hostile_brokers.py"
HOSTILE_S = 600


def runtime(compiler: str, name: str) -> str | None:
    """The path of a sanitizer's shared library, None if the compiler has none."""
    found = subprocess.run([*shlex.split(compiler), f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
    return str(Path(found).resolve()) if os.path.isabs(found) else None


def main() -> int:
    compiler = os.environ.get("CC") or next((name for name in ("gcc", "cc") if shutil.which(name)), None)
    if compiler is None:
        print("sanitize: needs gcc, or CC naming a compiler with ASAN", file=sys.stderr)
        return 1
    preload = [path for path in (runtime(compiler, "libasan.so"), runtime(compiler, "libubsan.so")) if path]
    if not preload:
        print(f"sanitize: {compiler} brings no libasan", file=sys.stderr)
        return 1
    environment = os.environ | {"KAFKACORE_SANITIZE": "1", "CC": compiler}
    subprocess.run([sys.executable, "setup.py", "-q", "build", "--build-base", str(BUILD)], cwd=ROOT, env=environment, check=True)
    (library,) = BUILD.glob("lib*")
    # pymalloc would hide small over-reads from ASAN; leaks of the interpreter itself are not ours to report.
    environment |= {
        "LD_PRELOAD": " ".join(preload),
        # An impossible size must end as MemoryError, as it does without ASAN.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:strict_string_checks=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": f"{library}{os.pathsep}{ROOT}",  # the second for tests.quarantine
    }
    where = "import kafkacore._codec as m, kafkacore._wheel; print(m.__file__)"
    loaded = subprocess.run([sys.executable, "-P", "-c", where], cwd=ROOT, env=environment, capture_output=True, text=True)
    if loaded.returncode or not loaded.stdout.startswith(str(library)):
        print(f"sanitize: the instrumented extension is not the one that loads:\n{loaded.stdout}{loaded.stderr}", file=sys.stderr)
        return 1
    if sys.argv[1:2] == ["hostile"]:
        # What is freed stays unusable for a while, which must not look as if the clients kept it.
        environment["ASAN_OPTIONS"] += ":quarantine_size_mb=64"
        command = [sys.executable, "-P", "-X", "faulthandler", str(HOSTILE), "--seconds", str(HOSTILE_S), *sys.argv[2:]]
        return subprocess.run(command, cwd=ROOT, env=environment).returncode
    files = [str(path) for pattern in TESTS for path in sorted((ROOT / "tests").glob(pattern)) or [ROOT / "tests" / pattern]]
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", f"pythonpath={library}", "--benchmark-disable"]
    command += ["--capture=sys"]  # captured file descriptors would hide the sanitizer's report, for it ends the process
    status = subprocess.run([*command, *files, *sys.argv[1:]], cwd=ROOT, env=environment).returncode
    if status == 0 and FUZZ.exists():
        status = subprocess.run([sys.executable, "-P", str(FUZZ)], cwd=ROOT, env=environment).returncode
    return status


if __name__ == "__main__":
    sys.exit(main())
