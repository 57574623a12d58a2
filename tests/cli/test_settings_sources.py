# SPDX-License-Identifier: Apache-2.0
"""Where the broker's settings come from: order of sources, names, errors."""

from pathlib import Path

import pytest

from broker_core.base.errors import ConfigError
from broker_core.base.settings import Settings
from broker_core.cli.settings_sources import declared, resolve


def test_later_sources_win_and_each_value_knows_where_it_came_from(tmp_path: Path) -> None:
    """Default < file < environment < --set < an option of its own."""
    file = tmp_path / "broker.toml"
    file.write_text('clusterName = "f"\nmaxConnections = 1\nidleStopSeconds = 1\ndurability = "async"\n')
    env = {"PULSARISH_MAX_CONNECTIONS": "2", "PULSARISH_IDLE_STOP_SECONDS": "2", "PULSARISH_DURABILITY": "sync"}
    found = resolve(
        file=file, env=env, assignments=["idleStopSeconds=3", "durability=sync"], options={"durability": "async"}
    )
    assert found.settings == Settings(cluster_name="f", max_connections=2, idle_stop_seconds=3, durability="async")
    assert [found.origins[name] for name in ("maxMessageSize", "clusterName", "maxConnections")] == [
        "default",
        f"file {file}",
        "environment PULSARISH_MAX_CONNECTIONS",
    ]
    assert (found.origins["idleStopSeconds"], found.origins["durability"]) == ("--set", "command line")


def test_the_environment_makes_text_into_the_type_of_the_setting() -> None:
    """Booleans, numbers and words."""
    env = {"PULSARISH_ALLOW_AUTO_TOPIC_CREATION": "false", "PULSARISH_KEEP_ALIVE_INTERVAL_SECONDS": "2.5"}
    settings = resolve(file=None, env=env, assignments=["clusterName=1"]).settings
    assert settings.allow_auto_topic_creation is False
    assert settings.keep_alive_interval_seconds == 2.5
    assert settings.cluster_name == "1"


def test_a_list_is_written_with_commas_or_in_a_file_as_one(tmp_path: Path) -> None:
    """As in Pulsar's broker.conf, or as TOML has it."""
    file = tmp_path / "broker.toml"
    file.write_text('subscriptionTypesEnabled = ["Shared", "Failover"]\n')
    text = ["subscriptionTypesEnabled=Shared, Failover"]
    for found in (resolve(file=file, env={}, assignments=[]), resolve(file=None, env={}, assignments=text)):
        assert found.settings.subscription_types_enabled == ("Shared", "Failover")


def test_a_name_may_be_pulsars_or_in_snake_case() -> None:
    """Both styles name the same setting."""
    for name in ("maxMessageSize", "max_message_size"):
        assert resolve(file=None, env={}, assignments=[f"{name}=4096"]).settings.max_message_size == 4096


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("maxMesageSize=4096", ['setting "maxMesageSize" is unknown (from --set)', 'did you mean "maxMessageSize"?']),
        ("wholly-unlike=1", ['setting "wholly-unlike" is unknown', "see: pulsarish config show"]),
        ("maxMessageSize=12", ['maxMessageSize = "12" (from --set)', "an integer from 1024 to 268435456", "5242880"]),
        ("durability=full", ["durability", '"async" or "sync"']),
        ("maxMessageSize=big", ["an integer from 1024"]),
        ("subscriptionTypesEnabled=Sharde", ["a list, with commas between, of", '"Key_Shared"']),
        ("subscriptionTypesEnabled=", ["a list"]),
        ("clusterName=", ["a text that is not empty"]),
        ("keepAliveIntervalSeconds=0", ["a number above 0"]),
        ("allowAutoTopicCreation=maybe", ["true or false"]),
        ("maxMessageSize", ["has no value", "--set maxMessageSize=VALUE"]),
    ],
)
def test_a_wrong_assignment_is_explained(assignment: str, words: list[str]) -> None:
    """What was written, where, what is allowed."""
    with pytest.raises(ConfigError) as caught:
        resolve(file=None, env={}, assignments=[assignment])
    for each in words:
        assert each in str(caught.value)


def test_a_value_of_the_wrong_type_in_a_file_is_not_bent_into_shape(tmp_path: Path) -> None:
    """TOML has types: a text is not a number there."""
    file = tmp_path / "broker.toml"
    file.write_text('maxMessageSize = "4096"\n')
    with pytest.raises(ConfigError, match=r"maxMessageSize = \"4096\" \(from file .*broker.toml\)"):
        resolve(file=file, env={}, assignments=[])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("maxMessageSize = = 1", "is not TOML"),
        ("durability = sync", "a text in quotes"),
        ("maxMesageSize = 4096", 'did you mean "maxMessageSize"'),
        ("maxMessageSize = 4096\nmax_message_size = 5000", "sets maxMessageSize twice"),
        ("[broker]\nmaxMessageSize = 4096", 'setting "broker" is unknown'),
    ],
)
def test_a_wrong_file_is_explained(tmp_path: Path, content: str, words: str) -> None:
    """The error names the file and what is wrong in it."""
    file = tmp_path / "broker.toml"
    file.write_text(content)
    with pytest.raises(ConfigError, match=words) as caught:
        resolve(file=file, env={}, assignments=[])
    assert str(file) in str(caught.value)


def test_a_missing_file_is_an_error() -> None:
    """A file that was named must be there; there is no silent default."""
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        resolve(file=Path("/nowhere/broker.toml"), env={}, assignments=[])


def test_strangers_in_the_environment_do_no_harm_but_near_misses_are_told() -> None:
    """Container platforms make up PULSARISH_PORT and the like for a service of our name."""
    strangers = {"PULSARISH_PORT": "tcp://10.0.0.1:6650", "PULSARISH_SERVICE_HOST": "10.0.0.1", "OTHER": "1"}
    assert resolve(file=None, env=strangers, assignments=[]).settings == Settings()
    with pytest.raises(ConfigError, match="did you mean PULSARISH_MAX_MESSAGE_SIZE"):
        resolve(file=None, env={"PULSARISH_MAX_MESAGE_SIZE": "1"}, assignments=[])


def test_every_setting_has_words_for_its_documentation() -> None:
    """A new setting cannot forget its description, and its type has words."""
    for setting in declared().values():
        assert setting.description.endswith("."), setting.name
        assert setting.accepts


@pytest.mark.parametrize(
    "content", [b"maxMessageSize = " + b"9" * 5000, b"maxMessageSize = " + b"[" * 5000, b"\xff", b"maxMessageSize = 0x"]
)
def test_a_file_that_is_no_toml_is_told_as_that(tmp_path: Path, content: bytes) -> None:
    """Thousands of digits or brackets were errors of Python's own."""
    file = tmp_path / "broker.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="is not TOML"):
        resolve(file=file, env={}, assignments=[])


@pytest.mark.parametrize("name", ["durability", "maxMessageSize", "clusterName", "subscriptionTypesEnabled"])
def test_a_value_that_is_no_text_is_told_with_its_source(name: str) -> None:
    """A shell hands over any bytes."""
    no_text = b"\xff".decode("utf-8", "surrogateescape")
    variable = declared()[name].env
    for source in ({"assignments": [f"{name}={no_text}"]}, {"env": {variable: no_text}}):
        with pytest.raises(ConfigError, match=rf"{name} \(from (--set|environment {variable})\) is not UTF-8"):
            resolve(**{"file": None, "env": {}, "assignments": [], **source})  # type: ignore[arg-type]
