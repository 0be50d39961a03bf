"""Files, variables and --set: what wins, what is refused, and that no message shows a key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from resin_core.config import ResinConfig, effective, load_config
from resin_core.errors import ConfigError

# serve.yaml is Ray Serve's own kind of file.
CONFIGS = [file for file in sorted((Path(__file__).parents[2] / "configs").glob("*.yaml")) if file.stem != "serve"]
SECRET = "sk-do-not-show-7731"

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Put this text into a configuration file."""

    def to_file(text: str) -> Path:
        file = tmp_path / "resin.yaml"
        file.write_text(text, encoding="utf-8")
        return file

    return to_file


def refused(
    *parts: str, file: Path | None = None, sets: tuple[str, ...] = (), env: dict[str, str] | None = None
) -> str:
    """The message of the ConfigError, which holds each of the parts and no secret."""
    with pytest.raises(ConfigError) as caught:
        load_config(file, sets, env or {})
    message = str(caught.value)
    for part in parts:
        assert part in message
    assert SECRET not in message
    assert "\n" not in message
    return message


class TestFiles:
    def test_there_is_a_file_for_one_machine(self) -> None:
        assert "local.yaml" in [file.name for file in CONFIGS]

    @pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.name)
    def test_every_shipped_file_is_valid(self, file: Path) -> None:
        variables = {"OPENAI_API_KEY", "RESIN_LLM_KEY", "RESIN_LLM_URL", "RESIN_INDEX_URI"}
        assert isinstance(load_config(file, env=dict.fromkeys(variables, "x")), ResinConfig)

    def test_the_local_file_uses_the_embedded_server_with_a_slot_for_each_request(self) -> None:
        config = load_config(next(file for file in CONFIGS if file.name == "local.yaml"), env={})
        assert config.llm.base_url is None and config.llm.api_key is None
        assert config.llm.max_concurrency == config.llm.embedded.slots
        assert config.encoder.device == "cpu"

    @pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.name)
    def test_what_is_to_run_on_a_gpu_asks_for_one_and_no_port_is_taken_twice(self, file: Path) -> None:
        variables = {"OPENAI_API_KEY", "RESIN_LLM_KEY", "RESIN_LLM_URL", "RESIN_INDEX_URI"}
        config = load_config(file, env=dict.fromkeys(variables, "x"))
        assert (config.serving.encoder.gpus > 0) == config.encoder.device.startswith("cuda")
        assert (config.serving.retriever.gpus > 0) == (config.retrieval.device == "cuda")
        assert f":{config.serving.port}/" not in (config.llm.base_url or "")

    def test_no_file_means_the_defaults(self) -> None:
        assert load_config(env={}) == ResinConfig()

    @pytest.mark.parametrize("text", ["", "# nothing\n", "llm:\n", "llm:\n  embedded:\n", "llm: {}\n"])
    def test_a_section_without_keys_means_its_defaults(self, write: Write, text: str) -> None:
        assert load_config(write(text), env={}) == ResinConfig()

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        refused("absent.yaml", "No such file", file=tmp_path / "absent.yaml")

    def test_a_missing_file_of_the_variable_is_named(self, tmp_path: Path) -> None:
        refused("absent.yaml", "RESIN_CONFIG", env={"RESIN_CONFIG": str(tmp_path / "absent.yaml")})

    def test_a_folder_is_refused(self, tmp_path: Path) -> None:
        refused(str(tmp_path), "directory", file=tmp_path)

    @pytest.mark.parametrize(
        "text",
        [
            f"llm:\n  api_key: {SECRET}: x\n",
            f"llm:\n  model: a\n  api_key: [{SECRET}\n",
            f"llm:\n\tapi_key: {SECRET}\n",
            f"llm:\n  api_key: {SECRET}\n  model: 2026-13-45\n",
            f"llm:\n  api_key: !{SECRET} x\n",
            f"llm:\n  api_key: *{SECRET}\n",
        ],
    )
    def test_malformed_yaml_is_refused_without_its_text(self, write: Write, text: str) -> None:
        refused("resin.yaml is not valid YAML", file=write(text))

    def test_malformed_yaml_says_where(self, write: Write) -> None:
        refused("line 3, column", file=write("llm:\n  model: a\n  seed: 1: 2\n"))

    def test_a_file_that_is_not_utf8_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "latin.yaml").write_bytes(b"llm:\n  model: caf\xe9\n")
        refused("latin.yaml is not valid YAML", file=tmp_path / "latin.yaml")

    @pytest.mark.parametrize(("text", "kind"), [("- a\n", "list"), ("hello\n", "str"), ("3\n", "int")])
    def test_a_file_without_sections_is_refused(self, write: Write, text: str, kind: str) -> None:
        refused("expected sections", f"got a {kind}", file=write(text))

    def test_a_key_given_twice_is_refused(self, write: Write) -> None:
        refused("llm is given twice", "line 3", file=write("llm:\n  seed: 1\nllm:\n  model: a\n"))

    def test_a_merged_default_may_be_overridden(self, write: Write) -> None:
        text = "llm: &base\n  seed: 3\n  embedded: {slots: 2}\n"
        assert load_config(write(text), env={}).llm.seed == 3


class TestFields:
    def test_an_unknown_key_is_refused_with_the_nearest_one(self, write: Write) -> None:
        refused("resin.yaml", "unknown setting llm.modle", "did you mean llm.model?", file=write("llm: {modle: a}\n"))

    def test_an_unknown_section_is_refused_with_the_nearest_one(self, write: Write) -> None:
        refused("unknown setting indexng", "did you mean indexing?", file=write("indexng: {}\n"))

    def test_an_unknown_key_like_no_other_gets_no_guess(self, write: Write) -> None:
        message = refused("unknown setting llm.embedded.zzz", file=write("llm: {embedded: {zzz: 1}}\n"))
        assert "did you mean" not in message

    def test_a_key_that_is_no_text_is_refused(self, write: Write) -> None:
        refused("unknown setting llm.7", file=write("llm: {7: 1}\n"))

    @pytest.mark.parametrize(
        ("text", "name", "value"),
        [
            ("retrieval: {top_k: many}\n", "retrieval.top_k", "'many'"),
            ("retrieval: {top_k: 0}\n", "retrieval.top_k", "0"),
            ("retrieval: {kinds: [rule, saying]}\n", "retrieval.kinds.1", "'saying'"),
            ("llm: {embedded: {slots: 1.5}}\n", "llm.embedded.slots", "1.5"),
            ("llm: {model: 7}\n", "llm.model", "7"),
            ("llm: {request_timeout_s: .nan}\n", "llm.request_timeout_s", "nan"),
            ("strategies: {resin: {select: perhaps}}\n", "strategies.resin.select", "'perhaps'"),
        ],
    )
    def test_a_wrong_value_names_its_field_and_itself(self, write: Write, text: str, name: str, value: str) -> None:
        refused(f"setting {name}: ", f"(got {value}", "resin config show", file=write(text))

    def test_all_wrong_fields_are_named_at_once(self, write: Write) -> None:
        refused("llm.seed", "planner.max_hops", file=write("llm: {seed: x}\nplanner: {max_hops: x}\n"))

    @pytest.mark.parametrize("value", [f"[{SECRET}]", SECRET])
    def test_a_value_where_a_section_belongs_is_not_shown(self, write: Write, value: str) -> None:
        refused("setting llm: expected a section", file=write(f"llm: {value}\n"))

    def test_a_wrong_key_is_not_shown(self, write: Write) -> None:
        message = refused("setting llm.api_key: ", file=write(f"llm: {{api_key: [{SECRET}]}}\n"))
        assert "got" not in message


class TestSet:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("llm.model=other", "other"),
            ("llm.model= other ", "other"),
            ("llm.model='quoted'", "quoted"),
            ("llm.model=1.5", "1.5"),
            ("llm.model=2026-01-02", "2026-01-02"),
            ("llm.model=@base", "@base"),
            ("llm.model=a=b: c", "a=b: c"),
        ],
    )
    def test_text_fields_take_the_text_as_it_is(self, text: str, value: str) -> None:
        assert load_config(overrides=[text], env={}).llm.model == value

    def test_other_fields_take_yaml(self) -> None:
        sets = ["retrieval.kinds=[rule, relation]", "indexing.single_call=false", "indexing.cpus=2", "llm.seed = 5"]
        config = load_config(overrides=sets, env={})
        assert [kind.value for kind in config.retrieval.kinds] == ["rule", "relation"]
        assert (config.indexing.single_call, config.indexing.cpus, config.llm.seed) == (False, 2, 5)

    def test_null_unsets(self, write: Write) -> None:
        file = write("llm: {base_url: 'http://h/v1'}\nindexing: {cpus: 3}\n")
        config = load_config(file, ["llm.base_url=null", "indexing.cpus=null"], {})
        assert (config.llm.base_url, config.indexing.cpus) == (None, None)

    def test_the_last_one_wins(self) -> None:
        assert load_config(overrides=["llm.seed=1", "llm.seed=2"], env={}).llm.seed == 2

    def test_a_whole_section_can_be_set(self) -> None:
        assert load_config(overrides=["llm.embedded={slots: 2}"], env={}).llm.embedded.slots == 2

    def test_it_reaches_into_a_section_left_empty(self, write: Write) -> None:
        assert load_config(write("llm:\n"), ["llm.embedded.slots=2"], {}).llm.embedded.slots == 2

    @pytest.mark.parametrize("text", ["llm.seed", "", "=3", "llm..seed=3", ".=3"])
    def test_a_malformed_one_is_refused(self, text: str) -> None:
        refused("--set", "expected section.key=value", sets=(text,))

    def test_a_value_that_is_not_yaml_is_refused(self) -> None:
        refused("--set retrieval.kinds", "quote it", sets=("retrieval.kinds=[rule",))
        refused("--set retrieval.top_k", "quote it", sets=("retrieval.top_k=2026-13-45",))

    def test_a_missing_value_is_refused(self) -> None:
        refused("--set retrieval.top_k", "missing", sets=("retrieval.top_k=",))

    def test_a_key_is_not_shown(self) -> None:
        refused("--set llm", sets=(f"llm=[{SECRET}",))
        refused("--set", sets=(f"llm..api_key={SECRET}",))

    def test_an_unknown_setting_is_refused(self) -> None:
        refused("unknown setting retrieval.topk", "did you mean retrieval.top_k?", sets=("retrieval.topk=3",))

    def test_a_setting_below_a_value_is_refused(self, write: Write) -> None:
        refused("setting llm.seed.x", "seed is not a section", file=write("llm: {seed: 3}\n"), sets=("llm.seed.x=1",))


class TestEnvironment:
    def test_variables_override_their_fields(self, write: Write) -> None:
        file = write("llm: {base_url: 'http://file/v1', model: file, api_key: file, seed: 3}\n")
        env = {
            "RESIN_LLM_BASE_URL": "http://env/v1",
            "RESIN_LLM_MODEL": "env",
            "RESIN_LLM_API_KEY": "env-key",
        }
        llm = load_config(file, env=env).llm
        assert llm.api_key is not None
        assert (llm.base_url, llm.model, llm.api_key.get_secret_value(), llm.seed) == (
            "http://env/v1",
            "env",
            "env-key",
            3,
        )

    def test_set_overrides_variables(self) -> None:
        env = {"RESIN_LLM_MODEL": "env"}
        assert load_config(overrides=["llm.model=set"], env=env).llm.model == "set"

    def test_an_empty_variable_counts_as_unset(self, write: Write) -> None:
        file = write("llm: {model: file}\n")
        assert load_config(file, env={"RESIN_LLM_MODEL": "", "RESIN_CONFIG": ""}).llm.model == "file"

    def test_the_variable_names_a_file_unless_one_is_given(self, write: Write, tmp_path: Path) -> None:
        other = tmp_path / "other.yaml"
        other.write_text("llm: {model: other}\n", encoding="utf-8")
        env = {"RESIN_CONFIG": str(other)}
        assert load_config(env=env).llm.model == "other"
        assert load_config(write("llm: {model: given}\n"), env=env).llm.model == "given"

    def test_the_process_environment_is_the_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("RESIN_CONFIG", raising=False)
        monkeypatch.setenv("RESIN_LLM_MODEL", "from-process")
        assert load_config().llm.model == "from-process"

    def test_endpoints_and_secrets_are_substituted(self, write: Write) -> None:
        file = write("index: {uri: '${ROOT}/idx'}\nllm: {api_key: '${KEY}', base_url: 'http://${HOST}:${PORT}/v1'}\n")
        config = load_config(file, env={"ROOT": "s3://b", "KEY": SECRET, "HOST": "h", "PORT": "80"})
        assert config.llm.api_key is not None
        assert config.llm.api_key.get_secret_value() == SECRET
        assert (config.index.uri, config.llm.base_url) == ("s3://b/idx", "http://h:80/v1")

    def test_a_key_can_be_set_by_the_name_of_its_variable(self) -> None:
        key = load_config(overrides=["llm.api_key=${KEY}"], env={"KEY": SECRET}).llm.api_key
        assert key is not None and key.get_secret_value() == SECRET

    @pytest.mark.parametrize("env", [{}, {"KEY": ""}])
    def test_a_variable_that_is_not_set_is_refused(self, write: Write, env: dict[str, str]) -> None:
        refused("setting llm.api_key", "${KEY}", "not set", file=write("llm: {api_key: '${KEY}'}\n"), env=env)

    def test_a_malformed_name_is_refused(self, write: Write) -> None:
        refused("llm.api_key", "${my key}", file=write("llm: {api_key: '${my key}'}\n"))

    def test_a_variable_in_a_replaced_value_need_not_be_set(self, write: Write) -> None:
        file = write("llm: {api_key: '${KEY}', model: '${MODEL}'}\n")
        config = load_config(file, ["llm.model=m"], {"RESIN_LLM_API_KEY": "k"})
        assert config.llm.model == "m"

    def test_a_variable_is_taken_as_it_is(self) -> None:
        key = load_config(env={"RESIN_LLM_API_KEY": "a${B}c"}).llm.api_key
        assert key is not None and key.get_secret_value() == "a${B}c"

    @pytest.mark.parametrize(
        ("text", "name"),
        [
            ("llm: {embedded: {cache_dir: '${HOME}/x'}}\n", "llm.embedded.cache_dir"),
            ("retrieval: {kinds: ['${KIND}']}\n", "retrieval.kinds.0"),
        ],
    )
    def test_no_other_field_is_substituted(self, write: Write, text: str, name: str) -> None:
        refused(f"setting {name}: ", "replaced only in", file=write(text), env={"HOME": "/h", "KIND": "rule"})


class TestEffective:
    def test_secrets_are_masked(self) -> None:
        shown = effective(load_config(overrides=[f"llm.api_key={SECRET}"], env={}))
        assert SECRET not in shown
        assert "api_key: '**********'" in shown

    @pytest.mark.parametrize("field", ["llm.base_url", "index.uri"])
    def test_the_user_part_of_an_address_is_masked(self, field: str) -> None:
        shown = effective(load_config(overrides=[f"{field}=s3://user:{SECRET}@bucket/path@2"], env={}))
        assert "s3://**********@bucket/path@2" in shown

    def test_it_shows_every_setting_and_can_be_read_again(self, write: Write) -> None:
        config = load_config(overrides=["retrieval.kinds=[rule]", "index.uri=é/idx"], env={})
        shown = effective(config)
        assert set(yaml.safe_load(shown)) == set(ResinConfig.model_fields)
        assert load_config(write(shown), env={}) == config

    def test_a_configuration_does_not_print_its_key(self) -> None:
        config = load_config(overrides=[f"llm.api_key={SECRET}"], env={})
        assert SECRET not in repr(config) + str(config) + config.model_dump_json()
