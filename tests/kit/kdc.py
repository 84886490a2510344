"""A Kerberos realm of its own: MIT's krb5kdc in a temporary directory, on a free port of loopback, as the user who runs the tests.

`KDC_REASON` says why there can be none. A realm sets KRB5_CONFIG and the like for this process while it is open; `environment` has them for
others.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.kit.free_ports import free_port

REALM = "KAFKACORE.TEST"
TIMEOUT_S = 60
SBIN = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin", "/usr/lib/mit/sbin"))


def _program(name: str) -> str | None:
    return shutil.which(name, path=SBIN)


def why_no_kdc() -> str | None:
    """The reason why no realm can be opened here, or None."""
    if missing := [name for name in ("krb5kdc", "kdb5_util", "kadmin.local") if _program(name) is None]:
        return f"no `{missing[0]}`: tests of Kerberos need MIT's KDC (Debian: krb5-kdc, krb5-admin-server)"
    if importlib.util.find_spec("gssapi") is None:
        return "no package gssapi: tests of Kerberos need the extra gssapi"
    return None


KDC_REASON = why_no_kdc()


class Realm:
    """A realm and its KDC."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="kafkacore-kdc-"))
        self.port = 0
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._before: dict[str, str | None] = {}
        self.environment = {
            "KRB5_CONFIG": str(self.directory / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(self.directory / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{self.directory / 'nobody.ccache'}",
            "KRB5RCACHEDIR": str(self.directory),
        }

    def _take_port(self) -> None:
        self.port = free_port()
        self.configure()
        (self.directory / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{self.port}\n kdc_tcp_listen = 127.0.0.1:{self.port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {self.directory}/principals\n  key_stash_file = {self.directory}/stash\n"
            f"  acl_file = {self.directory}/acl\n  max_life = 10h\n  supported_enctypes = aes256-cts:normal\n }}\n"
            "[logging]\n kdc = STDERR\n"
        )

    def configure(self, more: str = "", name: str = "krb5.conf", port: int | None = None) -> Path:
        """Writes a krb5.conf.

        Args:
            more: further lines of its libdefaults.
            name: of the file.
            port: of the KDC; its own by default.
        """
        path = self.directory / name
        path.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_canonicalize_hostname = false\n dns_lookup_kdc = false\n"
            f" dns_lookup_realm = false\n rdns = false\n{more}"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{self.port if port is None else port}\n }}\n"
        )
        return path

    def __enter__(self) -> Realm:
        self._before = {name: os.environ.get(name) for name in self.environment}
        os.environ.update(self.environment)
        self._take_port()
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        for _ in range(5):
            try:
                self.start()
                return self
            except RuntimeError:  # another process has taken the port meanwhile
                self._take_port()
        self.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self) -> None:
        """Starts the KDC, and waits until it listens."""
        command = [_program("krb5kdc") or "krb5kdc", "-n", "-r", REALM, "-P", str(self.directory / "pid")]
        self._process = subprocess.Popen(
            command, env=os.environ | self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        assert self._process.stderr is not None
        said = []
        for line in self._process.stderr:
            said.append(line)
            if "commencing operation" in line:
                # It says a line per request, and would stop when they are not read.
                self._reader = threading.Thread(target=deque, args=(self._process.stderr, 0), daemon=True)
                self._reader.start()
                return
        self._end()
        raise RuntimeError("krb5kdc does not start:\n" + "".join(said))

    def stop(self) -> None:
        """Ends the KDC."""
        if self._process is not None:
            self._process.terminate()
            self._end()

    def _end(self) -> None:
        assert self._process is not None and self._process.stderr is not None
        self._process.wait(TIMEOUT_S)
        if self._reader is not None:
            self._reader.join(TIMEOUT_S)
        self._process.stderr.close()
        self._process = self._reader = None

    def _run(self, name: str, *args: str, stdin: str = "", env: Mapping[str, str] | None = None) -> str:
        done = subprocess.run(
            [_program(name) or name, *args], env=os.environ | self.environment | dict(env or {}), input=stdin, text=True,
            capture_output=True, timeout=TIMEOUT_S,
        )  # fmt: skip
        assert done.returncode == 0, (name, args, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def principal(self, *names: str, options: str = "") -> str:
        """Makes principals with random keys, and gives the path of a keytab that has them all.

        Args:
            names: without the realm, as "alice" or "kafka/localhost".
            options: of kadmin's add_principal.
        """
        self._kadmin(*(f"add_principal {options} -randkey {name}" for name in names))
        return self.keytab_of(*names)

    def keytab_of(self, *names: str) -> str:
        """A keytab with the newest keys of principals."""
        keytab = self.directory / f"{len(list(self.directory.glob('*.keytab')))}.keytab"
        said = self._kadmin(*(f"ktadd -k {keytab} -norandkey {name}" for name in names))
        assert keytab.exists(), said
        return str(keytab)

    def _kadmin(self, *lines: str) -> str:
        return self._run("kadmin.local", "-r", REALM, stdin="\n".join([*lines, "quit", ""]))

    def new_keys(self, name: str) -> None:
        """Gives a principal other keys, which no keytab has."""
        self._kadmin(f"change_password -randkey {name}")

    def kinit(self, name: str, keytab: str, cache: str | os.PathLike[str], *options: str) -> None:
        """Puts a ticket into a cache, as a user does."""
        self._run("kinit", *options, "-k", "-t", keytab, "-c", f"FILE:{cache}", name)
