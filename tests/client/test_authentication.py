# SPDX-License-Identifier: Apache-2.0
"""Credentials without a broker: where they come from, the names of plug-ins, what is refused and in which words."""

from pathlib import Path

import pytest

from broker_core.base.errors import ConfigError, PulsarishError
from broker_core.base.secret import Secret
from broker_core.client import AuthenticationBasic, AuthenticationTls, AuthenticationToken, Client
from broker_core.client.credentials.security import (
    SECURITY_SETTINGS,
    Security,
    authentication_of,
    security_texts,
    token_of,
)

JAVA = "org.apache.pulsar.client.impl.auth."


def _sent(plugin: str, params: str) -> tuple[str, str]:
    """Method and data of a plug-in."""
    made = authentication_of(plugin, Secret(params))
    assert made is not None
    return made.method, made.credential().reveal()


@pytest.mark.parametrize("params", ["token:a.b.c", "a.b.c", '{"token": "a.b.c"}'])
@pytest.mark.parametrize("plugin", [f"{JAVA}AuthenticationToken", "AuthenticationToken", "token"])
def test_a_token_is_given_in_every_form_of_the_java_client(plugin: str, params: str) -> None:
    """The name of the class, or a short one; the parameter with its beginning, bare, or in JSON."""
    assert _sent(plugin, params) == ("token", "a.b.c")


def test_a_token_file_is_read_each_time(tmp_path: Path) -> None:
    """A token that was renewed in its file is used from then on; the last line's end is not a part of it."""
    file = tmp_path / "token"
    file.write_text("first\n")
    for made in (token_of(f"file://{file}"), AuthenticationToken.from_file(file), token_of(f"file:{file}")):
        file.write_text("first\n")
        assert made.credential().reveal() == "first"
        file.write_text("second\r\n")
        assert made.credential().reveal() == "second"


def test_a_token_variable_and_a_function_are_asked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is remembered."""
    tokens = iter(["one", "two"])
    made = AuthenticationToken(lambda: next(tokens))
    assert [made.credential().reveal(), made.credential().reveal()] == ["one", "two"]
    monkeypatch.setenv("SOME_TOKEN", "three")
    assert token_of("env:SOME_TOKEN").credential().reveal() == "three"


@pytest.mark.parametrize("params", [
    '{"userId": "u", "password": "p:w"}', '{"username": "u", "password": "p:w"}', "u:p:w",
])  # fmt: skip
def test_basic_takes_the_forms_of_all_clients(params: str) -> None:
    """Java says userId, Python and Go username; the Java client also knows user:password."""
    assert _sent(f"{JAVA}AuthenticationBasic", params) == ("basic", "u:p:w")


def test_a_password_may_be_in_a_file(tmp_path: Path) -> None:
    """So that no option and no plan holds it."""
    (tmp_path / "password").write_text("p w\n")
    assert _sent("basic", f'{{"userId": "u", "passwordFile": "{tmp_path}/password"}}') == ("basic", "u:p w")


@pytest.mark.parametrize("params", ['{"tlsCertFile": "/c", "tlsKeyFile": "file:///k"}', "tlsCertFile:/c,tlsKeyFile:/k"])
def test_a_client_certificate_is_named_by_its_files(params: str) -> None:
    """Both forms of the Java client; a path may be a URL."""
    made = authentication_of(f"{JAVA}AuthenticationTls", Secret(params))
    assert isinstance(made, AuthenticationTls)
    assert (made.method, made.credential(), made.certificate) == ("tls", Secret(""), ("/c", "/k"))


def test_the_plug_in_that_does_nothing_is_none() -> None:
    """What the Java client calls AuthenticationDisabled."""
    assert authentication_of(f"{JAVA}AuthenticationDisabled", Secret("")) is None


REFUSED = [
    ("AuthenticationSasl", "", "use token, tls, basic or oauth2"),
    ("AuthenticationKeyStoreTls", "", "give PEM files"),
    ("AuthenticationTokn", "", 'did you mean "token"?'),
    ("token", '{"tokn": "hush"}', 'did you mean "token"?'),
    ("token", '{"token": ', "cannot be read"),
    ("token", "{}", "have no token"),
    ("basic", "hush", "cannot be read"),
    ("basic", '{"userId": "u"}', "have no password"),
    ("basic", '{"userId": "u", "password": 7}', "cannot be read"),
    ("basic", '{"userId": "u:v", "password": "hush"}', 'user name "u:v" is not possible'),
    ("tls", "/hush/cert:/hush/key", "cannot be read"),
    ("oauth2", '{"issuerUrl": "https://i", "clientId": "c"}', "have no clientSecret"),
    ("oauth2", '{"type": "password"}', "client credentials only"),
    ("disabled", "hush", "none is to be used"),
]


@pytest.mark.parametrize(("plugin", "params", "words"), REFUSED)
def test_what_cannot_work_is_refused_without_repeating_a_secret(plugin: str, params: str, words: str) -> None:
    """What is wrong and what to write; a parameter's value is in no error."""
    with pytest.raises(ConfigError) as refused:
        authentication_of(plugin, Secret(params))
    assert words in str(refused.value)
    assert "hush" not in str(refused.value)


def _fails() -> str:
    raise RuntimeError("hush")


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (AuthenticationToken.from_file("/nowhere/token"), "from file /nowhere/token: No such file"),
        (AuthenticationToken.from_environment("NO_SUCH_TOKEN"), "NO_SUCH_TOKEN, which should hold the token, is not"),
        (AuthenticationToken("  "), "that was given as text is empty"),
        (AuthenticationToken("hush hush"), "has spaces"),
        (AuthenticationToken("hush\nhush"), "has spaces"),
        (AuthenticationToken("hüsh"), "has spaces or other characters"),
        (AuthenticationToken(_fails), "it raised RuntimeError"),
        (AuthenticationBasic("u", Path("/nowhere/hush")), "the password cannot be read from file"),
    ],
)
def test_a_credential_that_cannot_be_had_says_why(made: AuthenticationToken, words: str) -> None:
    """When it is needed: one line with the place, without the credential."""
    with pytest.raises(ConfigError) as refused:
        made.asked()
    assert words in str(refused.value)
    assert "hush hush" not in str(refused.value)


def test_a_function_that_has_no_network_now_may_be_asked_again() -> None:
    """Its OSError is a reason to try again, as a broker that does not answer is."""

    def unreachable() -> str:
        raise ConnectionRefusedError

    with pytest.raises(PulsarishError) as failed:
        AuthenticationToken(unreachable).asked()
    assert failed.value.retriable


def test_no_text_of_a_client_shows_its_credentials() -> None:
    """Neither the configuration, which errors and debuggers print, nor the value that Spark's plans may."""
    with Client("pulsar://localhost", authentication=AuthenticationToken("hush-hush")) as client:
        assert "hush" not in repr(client.config)
        assert "the token that was given as text" in repr(client.config)
    security = Security.of({"authPluginClassName": "basic", "authParams": '{"userId":"u","password":"hush"}'})
    assert "hush" not in repr(security) + repr(security.client_options())
    assert "hush" not in repr(Security.of({"token": "hush"}))


def test_half_a_client_certificate_is_refused() -> None:
    """The certificate without its key, or the other way round."""
    with pytest.raises(ConfigError, match="of tls_certificate_file_path and tls_key_file_path one was given"):
        Client("pulsar+ssl://localhost", tls_key_file_path="/k")
    with pytest.raises(ConfigError, match="only one was given"):
        Security.of({"tlsCertificateFilePath": "/c"})


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"token": "hush", "tokenFile": "/t"}, "tokenFile and token are both ways to say who the client is"),
        ({"authParams": "token:hush"}, "authParams were given without authPluginClassName"),
        ({"tokenFile": " "}, "tokenFile is empty"),
        ({"tlsAllowInsecureConnection": "yes"}, "it takes true or false"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(texts: dict[str, str], words: str) -> None:
    """As texts of the command line, the environment or Spark."""
    with pytest.raises(ConfigError) as refused:
        Security.of(texts)
    assert words in str(refused.value)
    assert "hush" not in str(refused.value)


def test_each_setting_reaches_the_client() -> None:
    """By its name, as text; what is not given is the client's default."""
    texts = {"tlsTrustCertsFilePath": "/ca", "tlsCertificateFilePath": "/c", "tlsKeyFilePath": "/k",
             "tlsHostnameVerificationEnable": "false", "tlsAllowInsecureConnection": "TRUE"}  # fmt: skip
    with Client("pulsar+ssl://localhost", **Security.of(texts).client_options()) as client:
        tls = client.config.tls
        assert (tls.trust_path, tls.certificate, tls.verify_hostname, tls.allow_insecure) == (
            "/ca", ("/c", "/k"), False, True,
        )  # fmt: skip
        assert isinstance(client.config.identity, AuthenticationTls)
    with Client("pulsar+ssl://localhost", **Security().client_options()) as client:
        assert (client.config.tls.verify_hostname, client.config.tls.allow_insecure) == (True, False)
        assert client.config.identity is None


def test_the_environment_adds_what_was_not_given() -> None:
    """It may hold the token and the CA; who gives another way to authenticate means that one alone."""
    environment = {"PULSARISH_CLIENT_TOKEN": "t", "PULSARISH_CLIENT_TLS_TRUST_CERTS_FILE_PATH": "/ca", "PATH": "/bin"}
    assert security_texts(environment, {}) == {"token": "t", "tlsTrustCertsFilePath": "/ca"}
    assert security_texts(environment, {"tokenFile": "/t"}) == {"tokenFile": "/t", "tlsTrustCertsFilePath": "/ca"}


def test_a_misspelt_variable_is_refused_with_the_one_that_is_meant() -> None:
    """Else the client would connect without a credential, or without trust in the right CA."""
    with pytest.raises(ConfigError, match=r"did you mean .PULSARISH_CLIENT_TOKEN_FILE") as refused:
        security_texts({"PULSARISH_CLIENT_TOKENFILE_": "hush"}, {})
    assert "hush" not in str(refused.value)


def test_names_in_the_environment_follow_from_names() -> None:
    """One declaration for both."""
    names = {setting.name: setting.env for setting in SECURITY_SETTINGS}
    assert names["tlsKeyFilePath"] == "PULSARISH_CLIENT_TLS_KEY_FILE_PATH"
    assert names["tokenFile"] == "PULSARISH_CLIENT_TOKEN_FILE"
