# SPDX-License-Identifier: Apache-2.0
"""Ports with TLS of a broker process: who is let in, how certificates are renewed, why a broker does not start."""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import httpx
import pulsar
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from broker_core.base.errors import TlsError
from broker_core.base.limits import PROTOCOL_VERSION
from broker_core.base.runtime import RUNTIME_FILE, RuntimeInfo
from broker_core.client import Client
from broker_core.server.process import EXIT_USAGE
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import BrokerExitedError, RunningBroker
from broker_core.wire import commands
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, MessageMetadata
from tests.client.helpers import eventually
from tests.server.certificates import Authority, Pair, der_of

MIB: Final = 2**20
HOST: Final = "127.0.0.1"
PAST: Final = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
METADATA: Final = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def with_tls(pair: Pair, **more: object) -> dict[str, object]:
    """Settings of both ports with TLS."""
    files = {"tlsCertificateFilePath": pair.certificate, "tlsKeyFilePath": pair.key}
    return {"brokerServicePortTls": 0, "webServicePortTls": 0, **files, **more}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[RunningBroker]:
    """All four ports, and clients may show a certificate."""
    settings = with_tls(authority.issue("broker", HOST, "localhost"), tlsTrustCertsFilePath=authority.path)
    with RunningBroker(tmp_path_factory.mktemp("broker") / "data", settings) as running:
        yield running
        assert "Traceback" not in running.stderr
        assert "refuse its certificate" not in running.stderr


@pytest.fixture
def own(tmp_path: Path) -> Authority:
    """A CA of the test's own."""
    return Authority(tmp_path)


@pytest.fixture
def renewed(data_dir: Path, own: Authority) -> Iterator[RunningBroker]:
    """A broker whose certificate a test may replace."""
    with RunningBroker(data_dir, with_tls(own.issue("broker", HOST))) as running:
        yield running
        assert "Traceback" not in running.stderr


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def shown(url: str, context: ssl.SSLContext) -> bytes:
    """DER of the certificate that a new connection is shown."""
    with (
        socket.create_connection((HOST, port_of(url)), 60) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as tls,
    ):
        found = tls.getpeercert(binary_form=True)
    assert found is not None
    return found


def refusal(url: str, context: ssl.SSLContext) -> str:
    """Why a handshake fails, in OpenSSL's words; "" if it does not. In TLS 1.3 a client is told with its first read."""
    try:
        with (
            socket.create_connection((HOST, port_of(url)), 60) as plain,
            context.wrap_socket(plain, server_hostname=HOST) as tls,
        ):
            tls.sendall(b"GET / HTTP/1.1\r\n\r\n")
            tls.recv(100)
    except ssl.SSLError as error:
        return error.reason or str(error)
    except ConnectionResetError:
        return "RESET"
    return ""


# -- clients


def test_the_official_client_sends_and_receives(broker: RunningBroker, authority: Authority, topic: str) -> None:
    """Lookup leads it back to the port with TLS, whose certificate it verifies by name."""
    options = {"tls_trust_certs_file_path": authority.path, "tls_validate_hostname": True}
    with closing(pulsar.Client(broker.service_url_tls, **options)) as client:
        consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        producer = client.create_producer(topic)
        for number in range(100):
            producer.send_async(b"%d" % number + bytes(100_000), None)
        producer.flush()
        received = [consumer.receive(60_000).data().rstrip(b"\0") for _ in range(100)]
    assert received == [b"%d" % number for number in range(100)]


def test_our_client_sends_and_receives(broker: RunningBroker, authority: Authority, topic: str) -> None:
    """It verifies the name by default."""
    with Client(broker.service_url_tls, tls_trust_certs_file_path=authority.path) as client:
        consumer = client.subscribe(topic, "s", initial_position="earliest")
        producer = client.create_producer(topic)
        producer.send(b"x" * 3 * MIB)
        assert consumer.receive(60).value == b"x" * 3 * MIB


def test_a_client_that_trusts_another_ca_sends_nothing(broker: RunningBroker, own: Authority, topic: str) -> None:
    """It says why."""
    with (
        Client(broker.service_url_tls, tls_trust_certs_file_path=own.path) as client,
        pytest.raises(TlsError, match="is not trusted"),
    ):
        client.create_producer(topic)


def test_the_admin_rest_is_there_with_tls(broker: RunningBroker, authority: Authority, topic: str) -> None:
    """The lookup of HTTP tells all four addresses on all ports."""
    path = f"/lookup/v2/topic/{topic.replace('://', '/')}"
    with httpx.Client(verify=authority.client()) as client:
        answer = client.get(broker.http_url_tls + path)
        assert client.get(f"{broker.http_url_tls}/admin/v2/brokers/health").text == "ok"
    assert answer.http_version == "HTTP/1.1"
    assert answer.json() == httpx.get(broker.http_url + path).json()
    assert answer.json() == {
        "brokerUrl": broker.service_url,
        "brokerUrlTls": broker.service_url_tls,
        "httpUrl": broker.http_url,
        "httpUrlTls": broker.http_url_tls,
    }


def test_lookup_tells_both_addresses(broker: RunningBroker, authority: Authority, topic: str) -> None:
    """A client takes the one that fits."""
    question = BaseCommand(type=BaseCommand.LOOKUP)
    question.lookupTopic.request_id = 1
    question.lookupTopic.topic = topic
    for url, tls in ((broker.service_url, None), (broker.service_url_tls, authority.client())):
        with RawClient(url, tls=tls) as client:
            answer = client.ask(question).lookupTopicResponse
        assert answer.brokerServiceUrl == broker.service_url
        assert answer.brokerServiceUrlTls == broker.service_url_tls


def test_a_broker_without_plain_ports(data_dir: Path, authority: Authority, topic: str) -> None:
    """LOOKUP names the address with TLS alone; programs find it by the runtime file."""
    pair = authority.issue("alone", HOST)
    with RunningBroker(data_dir, with_tls(pair), port=-1, http_port=-1) as broker:
        assert broker.service_url == broker.service_url_tls != ""
        assert broker.http_url == broker.http_url_tls != ""
        with (data_dir / RUNTIME_FILE).open("rb") as file:
            info = RuntimeInfo.read(file)
        assert info is not None
        assert info.urls == (broker.service_url_tls, broker.http_url_tls)
        with httpx.Client(verify=authority.client()) as http:
            told = http.get(f"{broker.http_url}/lookup/v2/topic/{topic.replace('://', '/')}").json()
            cluster = http.get(f"{broker.http_url}/admin/v2/clusters/standalone").json()
            brokers = http.get(f"{broker.http_url}/admin/v2/brokers").json()
        assert told == {
            "brokerUrl": "", "brokerUrlTls": broker.service_url_tls, "httpUrl": "", "httpUrlTls": broker.http_url_tls,
        }  # fmt: skip
        assert cluster == {"serviceUrlTls": broker.http_url_tls, "brokerServiceUrlTls": broker.service_url_tls}
        assert brokers == [broker.http_url_tls.removeprefix("https://")]
        with closing(pulsar.Client(broker.service_url, tls_trust_certs_file_path=authority.path)) as client:
            consumer = client.subscribe(topic, "s")
            client.create_producer(topic).send(b"x")
            assert consumer.receive(60_000).data() == b"x"
        with Client(broker.service_url, tls_trust_certs_file_path=authority.path) as ours:
            ours.create_producer(topic).send(b"x")
        broker.restart()
        with RawClient(broker.service_url, tls=authority.client()) as raw:
            assert raw.ask(commands.ping()).type == BaseCommand.PONG


# -- who is let in


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_versions_are_refused(broker: RunningBroker, authority: Authority, version: ssl.TLSVersion) -> None:
    """Both were withdrawn (RFC 8996)."""
    context = authority.client()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.minimum_version = context.maximum_version = version
    for url in (broker.service_url_tls, broker.http_url_tls):
        assert refusal(url, context) == "TLSV1_ALERT_PROTOCOL_VERSION"


def test_versions_may_be_chosen(data_dir: Path, authority: Authority) -> None:
    """Of those that are safe."""
    pair = authority.issue("one", HOST)
    with (
        RunningBroker(data_dir, with_tls(pair, tlsProtocols=["TLSv1.2"])) as broker,
        RawClient(broker.service_url_tls, tls=authority.client()) as client,
    ):
        assert isinstance(client.socket, ssl.SSLSocket)
        assert client.socket.version() == "TLSv1.2"


def test_a_client_may_show_a_certificate_that_counts(
    broker: RunningBroker, authority: Authority, own: Authority
) -> None:
    """None is as good, where none is required; one of another CA, or one that has expired, is not."""
    good = authority.issue("good", "client.example", common_name="me")
    expired = authority.issue("expired", "client.example", not_after=PAST)
    foreign = own.issue("foreign", "client.example")
    for url in (broker.service_url_tls, broker.http_url_tls):
        assert refusal(url, authority.client()) == ""
        assert refusal(url, authority.client(good)) == ""
        assert refusal(url, authority.client(expired)) == "SSLV3_ALERT_CERTIFICATE_EXPIRED"
        assert refusal(url, authority.client(foreign)) == "TLSV1_ALERT_UNKNOWN_CA"
    assert "reason=the client's certificate is refused: certificate has expired" in broker.stderr


def test_a_certificate_may_be_required(data_dir: Path, authority: Authority, topic: str) -> None:
    """A client without one does not come in, whatever its client library is."""
    pair, mine = authority.issue("strict", HOST), authority.issue("mine", "client.example", common_name="me")
    settings = with_tls(
        pair, tlsTrustCertsFilePath=authority.path, tlsRequireTrustedClientCertOnConnect=True
    )  # fmt: skip
    with RunningBroker(data_dir, settings) as broker:
        assert "refuse its certificate" not in broker.stderr
        for url in (broker.service_url_tls, broker.http_url_tls):
            assert refusal(url, authority.client()) == "TLSV13_ALERT_CERTIFICATE_REQUIRED"
            assert refusal(url, authority.client(mine)) == ""
        options = {"tls_certificate_file_path": mine.certificate, "tls_private_key_file_path": mine.key}
        trust = {"tls_trust_certs_file_path": authority.path}
        with closing(pulsar.Client(broker.service_url_tls, **trust, **options)) as client:
            client.create_producer(topic).send(b"x")
        with (
            pytest.raises(TlsError, match="certificate required"),
            Client(broker.service_url_tls, tls_trust_certs_file_path=authority.path) as ours,
        ):
            ours.create_producer(topic)


def test_handshakes_count_as_connections(data_dir: Path, authority: Authority) -> None:
    """A client too many is told so when its handshake is done; those that never end theirs keep others out, too."""
    settings = with_tls(authority.issue("few", HOST), maxConnections=2)
    context = authority.client()
    with RunningBroker(data_dir, settings) as broker:
        with (
            RawClient(broker.service_url, timeout_s=60),
            RawClient(broker.service_url_tls, tls=context),
            RawClient(broker.service_url_tls, tls=context, connect=False) as third,
        ):
            assert "serves 2 connections already" in third.next_command().error.message
        eventually(lambda: can_connect(broker.service_url), "both have gone")
        with ExitStack() as stack:
            for _ in range(2):
                stack.enter_context(socket.create_connection((HOST, port_of(broker.service_url_tls)), 60))
            eventually(lambda: not can_connect(broker.service_url), "two handshakes are under way")
        eventually(lambda: can_connect(broker.service_url), "they have gone")


def can_connect(url: str) -> bool:
    """Whether a further client is served."""
    with RawClient(url, connect=False) as client:
        client.tell(commands.connect("further", PROTOCOL_VERSION))
        return client.next_command().type == BaseCommand.CONNECTED


# -- what is no TLS, or none where it should be


@pytest.mark.parametrize(
    "sent",
    [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x08\0\0\0\x04\x08\x02\x12\0", bytes(100_000), b""],
    ids=["HTTP", "CONNECT", "zeroes", "nothing"],
)
def test_a_plain_client_at_a_port_with_tls_is_let_go(broker: RunningBroker, sent: bytes) -> None:
    """No trace in the log, and others are served."""
    for url in (broker.service_url_tls, broker.http_url_tls):
        with (
            socket.create_connection((HOST, port_of(url)), 60) as client,
            contextlib.suppress(OSError),  # cut off while it speaks
        ):
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            while client.recv(1000):
                pass
    assert "Traceback" not in broker.stderr
    assert "a callback failed" not in broker.stderr


def test_a_client_with_tls_at_a_plain_port_is_let_go(broker: RunningBroker, authority: Authority) -> None:
    """It is told by an end of the handshake."""
    for url in (broker.service_url, broker.http_url):
        assert refusal(url, authority.client()) in ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "RESET")
    assert "Traceback" not in broker.stderr


# -- renewal


def test_a_certificate_is_renewed_under_connections(renewed: RunningBroker, own: Authority) -> None:
    """T-TLS-4: none of a hundred connections breaks, and new ones see the new serial."""
    before, context = shown(renewed.service_url_tls, own.client()), own.client()
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(renewed.service_url_tls, tls=context)) for _ in range(100)]
        pair = own.issue("broker", HOST)
        assert der_of(pair) != before
        renewed.signal(signal.SIGHUP)
        eventually(lambda: shown(renewed.service_url_tls, context) == der_of(pair), "SIGHUP was heard")
        assert shown(renewed.http_url_tls, context) == der_of(pair)
        assert all(client.ask(commands.ping()).type == BaseCommand.PONG for client in clients)
    assert "certificate renewed path=" in renewed.stderr


def test_files_are_looked_at_now_and_then(data_dir: Path, own: Authority) -> None:
    """Without a signal."""
    settings = with_tls(own.issue("broker", HOST), tlsCertRefreshCheckDurationSec=1)
    with RunningBroker(data_dir, settings) as broker:
        pair = own.issue("broker", HOST)
        eventually(lambda: shown(broker.service_url_tls, own.client()) == der_of(pair), "the files were looked at")


def test_a_pair_that_does_not_match_changes_nothing(renewed: RunningBroker, own: Authority) -> None:
    """As between the renewal of one file and of the other."""
    context = own.client()
    before = shown(renewed.service_url_tls, context)
    old, new = own.issue("old", HOST), own.issue("new", HOST)
    served = Path(str(renewed.settings["tlsCertificateFilePath"])), Path(str(renewed.settings["tlsKeyFilePath"]))
    served[0].write_bytes(Path(new.certificate).read_bytes())
    renewed.signal(signal.SIGHUP)
    eventually(lambda: "the key belongs to another certificate" in renewed.stderr, "the reload has failed")
    assert shown(renewed.service_url_tls, context) == before
    served[1].write_bytes(Path(old.key).read_bytes())
    renewed.signal(signal.SIGHUP)
    eventually(lambda: renewed.stderr.count("certificate not renewed") == 2, "the second has failed")
    assert shown(renewed.service_url_tls, context) == before
    served[1].write_bytes(Path(new.key).read_bytes())
    renewed.signal(signal.SIGHUP)
    eventually(lambda: shown(renewed.service_url_tls, context) == der_of(new), "the pair is whole")


def test_a_broker_that_is_not_in_its_certificate_says_so(data_dir: Path, own: Authority) -> None:
    """At its start, as clients would be led from a good name to a bad one."""
    with RunningBroker(data_dir, with_tls(own.issue("broker", "broker.example"))) as broker:
        assert "clients that verify the broker refuse its certificate" in broker.stderr
        assert "IP address mismatch, certificate is not valid for '127.0.0.1'" in broker.stderr


def test_a_certificate_that_has_expired_is_told(data_dir: Path, own: Authority) -> None:
    """The broker starts: others would be without it for that."""
    with RunningBroker(data_dir, with_tls(own.issue("broker", HOST, not_after=PAST))) as broker:
        assert "reason=certificate has expired" in broker.stderr


# -- what keeps a broker from starting


def refused(data_dir: Path, settings: dict[str, object], *, port: int = 0) -> str:
    """What a broker says that does not start."""
    with pytest.raises(BrokerExitedError) as ended:
        RunningBroker(data_dir, settings, port=port).start()
    said = str(ended.value)
    assert f"code {EXIT_USAGE}" in said
    assert "Traceback" not in said
    assert not data_dir.exists()
    return said


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_that_others_may_read_is_refused(data_dir: Path, own: Authority, mode: int) -> None:
    """With the command that helps."""
    pair = own.issue("broker", HOST)
    os.chmod(pair.key, mode)
    said = refused(data_dir, with_tls(pair))
    assert f"is open to others than its owner (mode 0{mode:o}); chmod go= {pair.key}" in said


def test_a_small_key_is_refused(data_dir: Path, tmp_path: Path) -> None:
    """RSA below 2048 bits."""
    key = rsa.generate_private_key(65537, 1024)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "small")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).serial_number(1)
    builder = builder.not_valid_before(PAST).not_valid_after(PAST + datetime.timedelta(days=9999))
    made = builder.public_key(key.public_key()).sign(key, hashes.SHA256())
    pair = Pair(str(tmp_path / "small.pem"), str(tmp_path / "small.key"))
    Path(pair.certificate).write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    Path(pair.key).write_bytes(
        key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    )  # fmt: skip
    os.chmod(pair.key, 0o600)
    assert "the key is too small: RSA takes 2048 bits or more" in refused(data_dir, with_tls(pair))


def test_files_that_do_not_fit_are_refused(data_dir: Path, own: Authority, tmp_path: Path) -> None:
    """Each with its name and the reason."""
    pair, other = own.issue("broker", HOST), own.issue("other", HOST)
    missing = str(tmp_path / "missing")
    said = refused(data_dir, with_tls(Pair(pair.certificate, other.key)))
    assert "the key belongs to another certificate" in said
    said = refused(data_dir, with_tls(Pair(missing, pair.key)))
    assert f"file {missing} of the broker's certificate cannot be read: it is not there" in said
    assert "they are not PEM files of these" in refused(data_dir, with_tls(Pair(pair.key, pair.key)))
    said = refused(data_dir, with_tls(pair, tlsTrustCertsFilePath=missing))
    assert f"file {missing}, which should hold trusted CAs, cannot be read" in said


def test_settings_that_do_not_fit_are_refused(data_dir: Path, own: Authority) -> None:
    """With the name of the one that is missing."""
    pair = own.issue("broker", HOST)
    assert "name PEM files with tlsCertificateFilePath and tlsKeyFilePath" in refused(data_dir, with_tls(Pair("", "")))
    said = refused(data_dir, with_tls(pair, tlsRequireTrustedClientCertOnConnect=True))
    assert "name the PEM file of the CA with tlsTrustCertsFilePath" in said
    assert "TLSv1.1" in refused(data_dir, with_tls(pair, tlsProtocols=["TLSv1.1"]))
    assert "neither a plain port nor one with TLS" in refused(data_dir, {}, port=-1)
    assert "tlsEnabledWithKeyStore" in refused(data_dir, with_tls(pair, tlsEnabledWithKeyStore=True))


# -- flow control


def test_a_slow_consumer_costs_bounded_memory_with_tls(data_dir: Path, authority: Authority) -> None:
    """Row 20, as without TLS: dispatch pauses while its socket is full and goes on when it reads."""
    import psutil

    settings = with_tls(authority.issue("slow", HOST), writeBufferHighBytes=MIB, managedLedgerCacheSizeMbytes=1)
    context = authority.client()
    with RunningBroker(data_dir, settings) as broker:
        body = seal_entry(METADATA, bytes(100_000))
        with RawClient(broker.service_url_tls, tls=context) as producer:
            must_succeed(producer.open_producer("slow"))
            for number in range(600):
                producer.send_entry(0, number, body)
                producer.next_command()
        process = psutil.Process(broker.pid)
        before = process.memory_info().rss
        with RawClient(broker.service_url_tls, broker_entry_metadata=False, tls=context) as slow:
            must_succeed(slow.subscribe("slow", "s", permits=10_000))
            with RawClient(broker.service_url_tls, tls=context) as other:
                for _ in range(200):
                    assert other.ask(commands.ping()).type == BaseCommand.PONG
            assert process.memory_info().rss - before < 24 * MIB
            assert [slow.next_frame().body == body for _ in range(600)] == [True] * 600
