"""Paths and URIs to filesystems, and what of them may be shown."""

from __future__ import annotations

import pickle
import traceback
from urllib.parse import quote

import pyarrow.fs as pafs
import pytest

from resin_core.errors import StoreError
from resin_core.store.filesystem import IndexFolder
from resin_core.store.location import resolve, shown

SECRET = "s3cr/et+@:?#"
ENV = {"AWS_REGION": "eu-central-1"}


def _options(location: str, env: dict[str, str] | None = None) -> dict:
    filesystem, _ = resolve(location, ENV if env is None else env)
    return filesystem.__reduce__()[1][0]


@pytest.mark.parametrize(
    "location",
    [
        "s3://b/p%20q/r?region=x",
        "s3://b?region=x",
        "s3://b/?region=x",
        "s3://b/p/?region=x",
        "s3://b/a/b/c?region=x&scheme=http&endpoint_override=127.0.0.1%3A1",
        "s3://k:s%2F%2Be@b/p?region=x",
    ],
)
def test_the_same_folder_as_arrow_finds(location):
    theirs, root = pafs.FileSystem.from_uri(location)
    ours, found = resolve(location, {})
    assert found.rstrip("/") == root.rstrip("/")
    named = ("access_key", "secret_key", "region", "scheme", "endpoint_override")
    assert [ours.__reduce__()[1][0][name] for name in named] == [theirs.__reduce__()[1][0][name] for name in named]


def test_letters_that_arrow_refuses():
    assert resolve("s3://b/Übersicht 2?region=x", {})[1] == "b/Übersicht 2"


def test_options_of_the_uri_are_kept():
    options = _options(
        "s3://b/p?region=r&scheme=http&endpoint_override=h:1&allow_bucket_deletion=true&anonymous=1"
        "&force_virtual_addressing=false&connect_timeout=2.5"
    )
    wanted = {
        "region": "r",
        "scheme": "http",
        "endpoint_override": "h:1",
        "allow_bucket_deletion": True,
        "anonymous": True,
        "force_virtual_addressing": False,
        "connect_timeout": 2.5,
        "request_timeout": 5.0,
    }
    assert {name: options[name] for name in wanted} == wanted


def test_the_region_comes_from_the_environment_or_does_not_matter():
    assert _options("s3://b/p")["region"] == "eu-central-1"
    assert _options("s3://b/p", {"AWS_DEFAULT_REGION": "d"})["region"] == "d"
    assert _options("s3://b/p?endpoint_override=h:1", {})["region"] == "us-east-1"


def test_a_region_that_cannot_be_asked_for(monkeypatch):
    def nowhere(_bucket):
        raise OSError("Could not resolve host")

    monkeypatch.setattr(pafs, "resolve_s3_region", nowhere)
    with pytest.raises(StoreError, match=r"s3://b/p' cannot be opened: Could not resolve host; check region"):
        resolve("s3://b/p", {})


def test_credentials_of_the_uri_reach_the_filesystem_and_its_copies():
    folder = IndexFolder.at(f"s3://KEY:{quote(SECRET, safe='')}@b/p?region=x")
    for one in (folder, pickle.loads(pickle.dumps(folder))):
        options = one.filesystem.__reduce__()[1][0]
        assert (options["access_key"], options["secret_key"]) == ("KEY", SECRET)
        assert (options["connect_timeout"], options["request_timeout"]) == (5.0, 5.0)
        assert (one.root, str(one)) == ("b/p", "s3:b/p")


def test_credentials_of_the_environment_stay_there(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "KEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "topsecret")
    folder = IndexFolder.at("s3://b/p?region=x")
    assert b"topsecret" not in pickle.dumps(folder)


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("s3://KEY:{}@b/p?region=x&secret_key={}", "unknown option 'secret_key'"),
        ("s3://KEY:{}@/p", "names no bucket"),
        ("s3://KEY:{}@", "names no bucket"),
        ("s3://{}@b/p", "not KEY:SECRET"),
        ("s3://KEY:{}@b:9000/p", "percent-encode"),
        ("s3://KEY:{}@b/p#x", "percent-encode"),
        ("s3://[KEY:{}@b/p", "no URI"),
        ("zzz://KEY:{}@b/p", "refused"),
        ("gs://KEY:{}@b/p?nonsense={}", "refused"),
        ("hdfs//://KEY:{}@b/p", "refused"),
    ],
)
@pytest.mark.parametrize("secret", [quote(SECRET, safe=""), "plainsecret"])
def test_secrets_never_come_into_a_message(location, message, secret):
    with pytest.raises(StoreError) as caught:
        resolve(location.replace("{}", secret), {})
    assert message in str(caught.value)
    # All that --debug would print.
    text = "".join(traceback.format_exception(caught.value))
    assert secret not in text
    assert SECRET not in text


@pytest.mark.parametrize("secret", ["se/cret", "se/cr@et", "se@cret", "se?cret", "se#cret", "/secret", "s:e/cret"])
def test_a_secret_that_was_not_encoded_is_not_shown_either(secret):
    location = f"s3://KEY:{secret}@bucket/p"
    assert "cret" not in shown(location)
    try:
        filesystem, root = resolve(location, ENV)
    except StoreError as error:
        assert "cret" not in str(error)
        assert "et@" not in str(error)
    else:
        assert (root, filesystem.__reduce__()[1][0]["secret_key"]) == ("bucket/p", secret)


@pytest.mark.parametrize(
    ("location", "text"),
    [
        ("./index", "./index"),
        ("file:///data/index", "file:///data/index"),
        ("s3://b/p?region=x", "s3://b/p"),
        ("s3://k:s@b/p?region=x", "s3://***@b/p"),
        ("s3://k:a?b@c@b/p", "s3://***@b/p"),
    ],
)
def test_shown(location, text):
    assert shown(location) == text


def test_options_are_explained():
    with pytest.raises(StoreError, match=r"unknown option 'foo'; the options are region, .*request_timeout"):
        resolve("s3://b/p?foo=1", ENV)
    with pytest.raises(StoreError, match="option connect_timeout is 'soon'; write seconds"):
        resolve("s3://b/p?connect_timeout=soon", ENV)
    with pytest.raises(StoreError, match="option anonymous is 'maybe'; write true or false"):
        resolve("s3://b/p?anonymous=maybe", ENV)
