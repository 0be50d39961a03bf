"""Bearer keys: who is let in, who is not, and that nothing is said of a key or a hash."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deployments.access import Access, AccessError, Caller
from resin_core.config.serving import KeySection, Scope, ServingSection
from resin_core.errors import ConfigError

ALICE, BOB, CAROL = (f"resin-key-of-{name}-0123456789-abcdefghijklmnop" for name in ("alice", "bob", "carol"))


def sha256(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def section(name: str, key: str, *scopes: Scope, per_minute: int | None = None) -> KeySection:
    return KeySection(name=name, sha256=sha256(key), scopes=scopes or (Scope.ASK,), per_minute=per_minute)


KEYS = (
    section("alice", ALICE),
    section("bob", BOB, Scope.ASK, Scope.TRACES),
    section("carol", CAROL, Scope.ADMIN),
)
Write = Callable[[str | bytes], ServingSection]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """The section of a configuration that names a file of keys with this content, and has no other key."""

    def made(content: str | bytes) -> ServingSection:
        file = tmp_path / "keys"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return ServingSection(keys_file=str(file))

    return made


async def refused(access: Access, authorization: str | None, scope: Scope = Scope.ASK) -> AccessError:
    with pytest.raises(AccessError) as caught:
        await access.check(authorization, scope)
    return caught.value


async def test_a_known_key_is_let_in_under_its_name() -> None:
    access = Access.of(ServingSection(keys=KEYS))
    assert await access.check(f"Bearer {ALICE}", Scope.ASK) == Caller("alice", frozenset({Scope.ASK}))
    for scheme in ("bearer ", "BEARER ", "Bearer   "):
        assert (await access.check(f"{scheme}{BOB}  ", Scope.TRACES)).name == "bob"


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        " ",
        "Bearer",
        "Bearer ",
        ALICE,
        f"Basic {ALICE}",
        f"Bearer{ALICE}",
        f"Bearer\t{ALICE}",
        f"Bearer {ALICE}\n",
        f"Bearer {ALICE} {ALICE}",
        f"Bearer {ALICE}, Bearer {BOB}",
        f"Bearer {ALICE}é",
        f"Bearer {ALICE}\x00",
        f"Bearer {ALICE[:-1]}",
        f"Bearer {ALICE}x",
        f"Bearer {ALICE.upper()}",
        f"Bearer {sha256(ALICE)}",
        f"Bearer {ALICE}" + " " * 512,
        "Bearer " + "x" * 1_000_000,
    ],
)
async def test_anything_else_is_401(authorization: str | None) -> None:
    error = await refused(Access.of(ServingSection(keys=KEYS)), authorization)
    assert (error.status, error.retry_after_s) == (401, None)
    assert len(str(error)) < 200


async def test_a_header_of_512_characters_is_still_read() -> None:
    key = "k" * (512 - len("Bearer "))
    access = Access((section("long", key),))
    assert (await access.check(f"Bearer {key}", Scope.ASK)).name == "long"
    assert "longer than 512" in str(await refused(access, f"Bearer {key}k"))


@pytest.mark.parametrize(
    ("key", "scope"),
    [(ALICE, Scope.TRACES), (ALICE, Scope.ADMIN), (BOB, Scope.ADMIN), (CAROL, Scope.ASK), (CAROL, Scope.TRACES)],
)
async def test_a_key_is_for_its_own_scopes_only(key: str, scope: Scope) -> None:
    error = await refused(Access.of(ServingSection(keys=KEYS)), f"Bearer {key}", scope)
    assert (error.status, error.retry_after_s) == (403, None)
    assert scope in str(error)


@pytest.mark.parametrize("presented", [ALICE, BOB, CAROL, "resin-nobody"])
async def test_every_key_is_compared_whichever_is_presented(monkeypatch: pytest.MonkeyPatch, presented: str) -> None:
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def counting(known: bytes, given: bytes) -> bool:
        compared.append((known, given))
        return real(known, given)

    access = Access.of(ServingSection(keys=KEYS))
    monkeypatch.setattr(hmac, "compare_digest", counting)
    if presented == "resin-nobody":
        await refused(access, f"Bearer {presented}")
    else:
        await access.check(f"Bearer {presented}", Scope.ADMIN if presented == CAROL else Scope.ASK)
    digest = hashlib.sha256(presented.encode()).digest()
    assert compared == [(bytes.fromhex(key.sha256), digest) for key in KEYS]


class TestCounts:
    async def test_a_key_is_counted_by_its_own_limit_and_told_whole_seconds(self) -> None:
        asked: list[tuple[str, int]] = []

        async def allow(name: str, per_minute: int) -> float:
            asked.append((name, per_minute))
            return 0.0 if len(asked) < 3 else 6.01

        access = Access.of(ServingSection(keys=(section("a", ALICE, per_minute=9), section("b", BOB))), allow)
        for _ in range(2):
            assert (await access.check(f"Bearer {ALICE}", Scope.ASK)).name == "a"
        error = await refused(access, f"Bearer {ALICE}")
        assert (error.status, error.retry_after_s) == (429, 7)
        assert "9 requests a minute" in str(error) and "7 s" in str(error)
        await access.check(f"Bearer {BOB}", Scope.ASK)
        assert asked == [("a", 9)] * 3

    async def test_what_is_refused_anyway_is_not_counted(self) -> None:
        async def allow(name: str, per_minute: int) -> float:
            raise AssertionError("counted")

        access = Access((section("a", ALICE, per_minute=1),), allow)
        assert (await refused(access, f"Bearer {ALICE}", Scope.ADMIN)).status == 403
        assert (await refused(access, f"Bearer {BOB}")).status == 401

    async def test_without_a_shared_count_this_process_counts(self) -> None:
        access = Access.of(ServingSection(keys=(section("a", ALICE, per_minute=2),)))
        for _ in range(2):
            await access.check(f"Bearer {ALICE}", Scope.ASK)
        error = await refused(access, f"Bearer {ALICE}")
        assert error.status == 429 and error.retry_after_s in (29, 30)

    async def test_a_lost_count_refuses_no_answer(self) -> None:
        async def allow(name: str, per_minute: int) -> float:
            raise ConnectionError("gone")

        access = Access((section("a", ALICE, per_minute=2),), allow)
        for _ in range(2):
            assert (await access.check(f"Bearer {ALICE}", Scope.ASK)).name == "a"
        assert (await refused(access, f"Bearer {ALICE}")).status == 429


class TestAnonymous:
    async def test_where_no_key_is_required_none_is_looked_at(self) -> None:
        access = Access.of(ServingSection(allow_anonymous=True))
        for authorization in (None, "Bearer not-needed", "Basic x", "x" * 10_000):
            for scope in Scope:
                assert await access.check(authorization, scope) == Caller("anonymous", frozenset(Scope))

    async def test_keys_are_required_as_soon_as_there_are_some(self, write: Write) -> None:
        in_file = write(json.dumps([KEYS[0].model_dump(mode="json")]))
        for serving in (ServingSection(keys=KEYS), in_file):
            access = Access.of(serving.model_copy(update={"allow_anonymous": True}))
            assert (await refused(access, None)).status == 401
            assert (await access.check(f"Bearer {ALICE}", Scope.ASK)).name == "alice"

    def test_no_key_and_no_leave_is_refused_at_the_start(self) -> None:
        with pytest.raises(ConfigError, match=r"resin key NAME.*serving\.allow_anonymous=true"):
            Access.of(ServingSection())

    @pytest.mark.parametrize("content", ["", "# none yet\n", "[]", "null"])
    @pytest.mark.parametrize("allow_anonymous", [False, True])
    def test_an_empty_file_of_keys_opens_nothing(self, write: Write, content: str, allow_anonymous: bool) -> None:
        with pytest.raises(ConfigError, match="holds no key"):
            Access.of(write(content).model_copy(update={"allow_anonymous": allow_anonymous}))


class TestFile:
    @pytest.mark.parametrize(
        "content",
        [
            f"- name: alice\n  sha256: {sha256(ALICE)}\n- {{name: bob, sha256: {sha256(BOB)}, scopes: [ask, traces]}}",
            json.dumps([{"name": "alice", "sha256": sha256(ALICE)}, KEYS[1].model_dump(mode="json")]),
            json.dumps([{"name": "alice", "sha256": sha256(ALICE)}, KEYS[1].model_dump(mode="json")], indent="\t"),
        ],
    )
    @pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
    async def test_yaml_and_json_beside_the_configuration(self, write: Write, content: str, mark: bytes) -> None:
        access = Access.of(write(mark + content.encode()).model_copy(update={"keys": KEYS[2:]}))
        assert (await access.check(f"Bearer {ALICE}", Scope.ASK)).name == "alice"
        assert (await access.check(f"Bearer {BOB}", Scope.TRACES)).name == "bob"
        assert (await access.check(f"Bearer {CAROL}", Scope.ADMIN)).name == "carol"

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (f"alice: {sha256(ALICE)}", "expected a list of keys, got a dict"),
            (ALICE, "expected a list of keys, got a str"),
            (f"- {sha256(ALICE)}", "key 1: expected the fields name, sha256, scopes, per_minute; got a str"),
            (f"- {{name: a, sha256: {sha256(ALICE)}, scope: [ask]}}", "key 1: unknown field scope; there are: name, "),
            (f"- {{name: a, sha256: {sha256(ALICE)}, {ALICE}: 1}}", "unknown field (too long to be shown)"),
            (f"- {{name: a, sha256: {sha256(ALICE)}, {sha256(BOB)}: 1}}", "unknown field (too long to be shown)"),
            (f"- {{name: a, sha256: {ALICE}}}", "key 1: sha256: String should match"),
            (f"- {{name: a, sha256: {sha256(ALICE).upper()}}}", "sha256: String should match"),
            (f"- {{name: a, sha256: [{ALICE}]}}", "sha256: Input should be a valid string"),
            (f"- {{sha256: {sha256(ALICE)}}}", "key 1: name: Field required"),
            (f"- {{name: '', sha256: {sha256(ALICE)}}}", "name: String should have at least 1"),
            (f"- {{name: {ALICE * 3}, sha256: {sha256(ALICE)}}}", "name: String should have at most 100"),
            (f"- {{name: a, sha256: {sha256(ALICE)}, scopes: []}}", "scopes: Tuple should have at least 1"),
            (f"- {{name: a, sha256: {sha256(ALICE)}, scopes: [all]}}", "scopes.0: Input should be 'ask', 'traces' or"),
            (f"- {{name: a, sha256: {sha256(ALICE)}, scopes: [all]}}", "(got 'all')"),
            (f"- {{name: a, sha256: {sha256(ALICE)}, scopes: [{ALICE}]}}", "(got (too long to be shown))"),
            (f"- {{name: a, sha256: {sha256(ALICE)}, per_minute: 0}}", "per_minute: Input should be greater than"),
            (f"- {{name: a, sha256: {sha256(ALICE)}, scopes: &s [*s]}}", "scopes.0"),
            (f"- {{name: a, sha256: {sha256(ALICE)}, sha256: {sha256(BOB)}}}", "the field sha256 is given twice"),
            (f"- name: a\n  sha256: {sha256(ALICE)}\n  name: b\n", "the field name is given twice"),
            (f'[{{"name": "a", "sha256": "{sha256(ALICE)}", "name": "b"}}]', "the field name is given twice"),
            (f"- {{{ALICE}: 1, {ALICE}: 2}}", "the field (too long to be shown) is given twice"),
            (f"- name: a\n  sha256: {ALICE}: {sha256(ALICE)}\n", "not valid YAML or JSON (line 2, column"),
            (f"- !!python/object:os.system {ALICE}", "not valid YAML or JSON (line 1, column 3)"),
            (f"- !{ALICE} x", "not valid YAML or JSON"),
            (f"- *{ALICE.replace('-', '')}", "not valid YAML or JSON (line 1, column 3)"),
            (f"- !!timestamp {ALICE}", "not valid YAML or JSON"),
            (f"- !!bool {ALICE}", "not valid YAML or JSON"),
            (f"- !!int {ALICE}", "not valid YAML or JSON"),
            (f"- {ALICE}\x00", "not valid YAML or JSON"),
            (ALICE.encode() + b"\xff", "not valid YAML or JSON"),
            ("[" * 100_000, "not valid YAML or JSON"),
            ("- {name: a}\n" * 1000, "and 995 more"),
            ("#" * 1_000_001, "longer than 1,000,000 bytes"),
        ],
    )
    def test_what_is_wrong_is_said_without_a_key_or_a_hash(
        self, write: Write, content: str | bytes, said: str, logged: pytest.LogCaptureFixture
    ) -> None:
        with pytest.raises(ConfigError) as caught:
            Access.of(write(content))
        assert str(caught.value).startswith(f"serving.keys_file {write(content).keys_file}: ")
        assert said in str(caught.value)
        assert len(str(caught.value)) < 800
        assert nothing_secret(caught.value, logged)

    def test_a_short_key_in_the_place_of_its_hash_is_not_shown_either(self, write: Write) -> None:
        with pytest.raises(ConfigError, match="sha256") as caught:
            Access.of(write("- {name: a, sha256: hunter2}"))
        assert "hunter2" not in str(caught.value)

    @pytest.mark.parametrize(
        ("name", "said"), [("none", "No such file"), (".", "Is a directory"), ("a\0b", "no such path")]
    )
    def test_a_file_that_cannot_be_read(self, tmp_path: Path, name: str, said: str) -> None:
        with pytest.raises(ConfigError, match=f"serving.keys_file .*{said}.*name a file"):
            Access.of(ServingSection(keys_file=f"{tmp_path}/{name}", keys=KEYS))

    @pytest.mark.parametrize(
        ("twin", "said"),
        [
            (section("alice", BOB), "two keys are called 'alice'; rename"),
            (section("twin", ALICE), "'alice' and 'twin' have the same sha256"),
        ],
    )
    def test_twins_are_refused_wherever_they_stand(
        self, write: Write, twin: KeySection, said: str, logged: pytest.LogCaptureFixture
    ) -> None:
        first = KEYS[0]
        both = json.dumps([key.model_dump(mode="json") for key in (first, twin)])
        apart = write(json.dumps([twin.model_dump(mode="json")])).model_copy(update={"keys": (first,)})
        for serving in (ServingSection(keys=(first, twin)), apart):
            with pytest.raises(ConfigError, match=said) as caught:
                Access.of(serving)
            assert nothing_secret(caught.value, logged)
        with pytest.raises(ConfigError, match=said):
            Access.of(write(both))


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(logging.getLogger("resin"), "propagate", True)
    caplog.set_level(logging.DEBUG)
    return caplog


def nothing_secret(error: Exception, logged: pytest.LogCaptureFixture) -> bool:
    """Neither a key nor a hash, whole or without its last characters, in what may be shown of an error, or in a log."""
    shown = "".join([*traceback.format_exception(error), repr(error), repr(vars(error)), logged.text]).lower()
    secrets = [text for key in (ALICE, BOB, CAROL) for text in (key, key.replace("-", ""), sha256(key))]
    return not any(text[:24] in shown for text in secrets)


def test_the_check_for_secrets_finds_them(logged: pytest.LogCaptureFixture) -> None:
    assert nothing_secret(ValueError("harmless"), logged)
    assert not nothing_secret(ValueError(f"unknown key {ALICE}"), logged)
    assert not nothing_secret(ValueError(f"unknown hash {sha256(BOB)[:30]}"), logged)
    logging.getLogger("resin.keys").debug("given: %s", CAROL)
    assert not nothing_secret(ValueError("harmless"), logged)


async def test_no_refusal_and_no_log_shows_a_key_or_a_hash(logged: pytest.LogCaptureFixture) -> None:
    async def allow(name: str, per_minute: int) -> float:
        raise ConnectionError(f"no count for {ALICE}")

    access = Access.of(ServingSection(keys=(section("alice", ALICE, per_minute=1), *KEYS[1:])), allow)
    await access.check(f"Bearer {ALICE}", Scope.ASK)
    cases: list[tuple[str, Scope, int]] = [
        (f"Bearer {ALICE}", Scope.ASK, 429),
        (f"Bearer {ALICE}", Scope.ADMIN, 403),
        (f"Bearer {ALICE}x", Scope.ASK, 401),
        (f"Bearer {sha256(ALICE)}", Scope.ASK, 401),
        (f"Bearer {BOB} {CAROL}", Scope.ASK, 401),
        (f"Basic {BOB}", Scope.ASK, 401),
        (f"Bearer {BOB}" * 20, Scope.ASK, 401),
    ]
    for authorization, scope, status in cases:
        error = await refused(access, authorization, scope)
        assert error.status == status
        assert nothing_secret(error, logged)
    assert [record.levelname for record in logged.records] == ["WARNING"]


@pytest.mark.parametrize("given", [(401, "no key"), (403, "not for admin"), (429, "try again", 7)])
def test_a_refusal_survives_pickling(given: tuple[Any, ...]) -> None:
    error = AccessError(*given)
    error.add_note("from elsewhere")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is AccessError
    assert (copy.status, str(copy), copy.retry_after_s) == (error.status, str(error), error.retry_after_s)
    assert copy.status == given[0] and copy.__notes__ == ["from elsewhere"]
