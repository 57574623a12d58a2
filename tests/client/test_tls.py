# SPDX-License-Identifier: Apache-2.0
"""TLS and renewal of credentials against a scripted broker: what no real one can be made to do at will."""

import asyncio
import socketserver
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trustme

from broker_core.base.errors import (
    AuthenticationError,
    ConfigError,
    OperationTimeoutError,
    PulsarishError,
    TlsError,
)
from broker_core.base.secret import Secret
from broker_core.client import AsyncClient, AuthenticationToken
from broker_core.client.connecting.identity import Identity
from broker_core.client.connecting.service_url import BrokerAddress
from broker_core.client.settings.config import ClientConfig
from broker_core.wire.commands import error
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.client.helpers import WAIT_S
from tests.client.scripted_broker import Peer, ScriptedBroker, answer, lookup_answer, scripted_broker

Play = Callable[[ScriptedBroker, AsyncClient], Awaitable[None]]


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def _served(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


def _trust(authority: trustme.CA, folder: Path) -> str:
    path = folder / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


def _with_tls(authority: trustme.CA, folder: Path, play: Play) -> None:
    """Run ``play`` with a broker that speaks TLS as localhost, and a client that trusts it and has a token."""

    async def whole() -> None:
        async with scripted_broker(_served(authority, "localhost")) as broker:
            config = ClientConfig(
                service_url=broker.service_url,
                tls_trust_certs_file_path=_trust(authority, folder),
                authentication=AuthenticationToken("hush-hush"),
                operation_timeout_s=60,
            )
            async with AsyncClient(config) as client:
                await play(broker, client)

    asyncio.run(whole())


def _challenge(peer: Peer) -> None:
    data = pb.AuthData(auth_method_name="token", auth_data=b"PulsarAuthRefresh")
    challenge = pb.CommandAuthChallenge(server_version="scripted", challenge=data, protocol_version=21)
    peer.send(BaseCommand(type=BaseCommand.AUTH_CHALLENGE, authChallenge=challenge))


def test_messages_go_through_tls(authority: trustme.CA, tmp_path: Path) -> None:
    """Lookup and producer both; a message larger than any record of TLS too. The token is in CONNECT."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        producer = await client.create_producer("t", batching_enabled=False)
        assert await producer.send(b"x" * 1_000_000)
        connect = broker.peers[0].received[0].connect
        assert (connect.auth_method_name, connect.auth_data) == ("token", b"hush-hush")
        assert connect.feature_flags.supports_auth_refresh

    _with_tls(authority, tmp_path, play)


def test_nothing_is_sent_to_a_broker_of_another_name(authority: trustme.CA, tmp_path: Path) -> None:
    """A lookup leads to a name that the certificate there does not have: no byte, so no token (CVE-2022-33681)."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        async with scripted_broker(_served(authority, "other.example")) as other:
            broker.handlers[BaseCommand.LOOKUP] = lambda peer, command: peer.send(
                lookup_answer(command, other.service_url)
            )
            with pytest.raises(TlsError, match=r"to which a lookup at .* led is for another name") as refused:
                await client.create_producer("t")
            assert "hush" not in str(refused.value)
            assert [peer.received for peer in other.peers] == [[]] * len(other.peers)

    _with_tls(authority, tmp_path, play)


def test_a_lookup_never_leads_from_an_encrypted_to_a_plain_connection(authority: trustme.CA, tmp_path: Path) -> None:
    """A broker that names no address with TLS is told so, instead of being sent the token unencrypted."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.handlers[BaseCommand.LOOKUP] = lambda peer, command: peer.send(
            lookup_answer(command, "pulsar://localhost:6650")
        )
        with pytest.raises(ConfigError, match="names no address with TLS for the broker of"):
            await client.create_producer("t")

    _with_tls(authority, tmp_path, play)


def test_a_broker_that_moves_a_topic_names_its_address_with_tls(authority: trustme.CA, tmp_path: Path) -> None:
    """Of the two addresses in CLOSE_PRODUCER the encrypted one is taken."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        async with scripted_broker(_served(authority, "localhost")) as other:
            producer = await client.create_producer("t")
            moved = pb.CommandCloseProducer(
                producer_id=0, request_id=2**64 - 1, assignedBrokerServiceUrl="pulsar://localhost:1",
                assignedBrokerServiceUrlTls=other.service_url,
            )  # fmt: skip
            broker.peers[-1].send(BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer=moved))
            await other.until(lambda: bool(other.peers) and other.peers[0].count(BaseCommand.PRODUCER) == 1)
            assert await producer.send("x")

    _with_tls(authority, tmp_path, play)


def test_an_address_that_a_lookup_names_for_tls_is_never_called_without_it(
    authority: trustme.CA, tmp_path: Path
) -> None:
    """Whatever scheme a broker writes into the field for TLS, the token is not sent unencrypted."""

    def tell(peer: Peer, command: BaseCommand) -> None:
        named = lookup_answer(command, "")
        named.lookupTopicResponse.brokerServiceUrlTls = peer.broker.service_url.replace("+ssl", "")
        peer.send(named)

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        broker.handlers[BaseCommand.LOOKUP] = tell
        producer = await client.create_producer("t")
        assert await producer.send("x")
        assert len(broker.peers) == 1  # the same address, so the same connection

    _with_tls(authority, tmp_path, play)


def test_an_address_that_a_broker_moves_to_for_tls_is_never_called_without_it(
    authority: trustme.CA, tmp_path: Path
) -> None:
    """As from a lookup."""
    first: list[bytes] = []

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        called = asyncio.Event()

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            first.append(await reader.read(1))
            writer.close()
            called.set()

        async with await asyncio.start_server(listen, "127.0.0.1", 0) as other:
            plain = f"pulsar://localhost:{other.sockets[0].getsockname()[1]}"
            await client.create_producer("t")
            moved = pb.CommandCloseProducer(producer_id=0, request_id=2**64 - 1, assignedBrokerServiceUrlTls=plain)
            broker.peers[0].send(BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer=moved))
            async with asyncio.timeout(WAIT_S):
                await called.wait()

    _with_tls(authority, tmp_path, play)
    assert first[0] == b"\x16"  # a handshake of TLS


def test_a_changed_ca_file_counts_for_the_next_connection(authority: trustme.CA, tmp_path: Path) -> None:
    """A CA that was renewed in its file needs no new client."""
    newer = trustme.CA()

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        assert await client.partitions("t") == 0
        async with scripted_broker(_served(newer, "localhost")) as other:
            broker.handlers[BaseCommand.LOOKUP] = lambda peer, command: peer.send(
                lookup_answer(command, other.service_url)
            )
            with pytest.raises(TlsError, match="is not trusted"):
                await client.create_producer("t")
            newer.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
            await (await client.create_producer("t")).close()

    _with_tls(authority, tmp_path, play)


def test_a_challenge_is_answered_with_what_is_the_token_now() -> None:
    """The function is called again; what goes on meanwhile goes on."""
    tokens = iter(["first", "second"])

    async def whole() -> None:
        async with scripted_broker() as broker:
            made = AuthenticationToken(lambda: next(tokens))
            async with AsyncClient(ClientConfig(service_url=broker.service_url, authentication=made)) as client:
                producer = await client.create_producer("t")
                peer = broker.peers[0]
                _challenge(peer)
                await broker.until(lambda: peer.count(BaseCommand.AUTH_RESPONSE) == 1)
                said = next(each.authResponse for each in peer.received if each.type == BaseCommand.AUTH_RESPONSE)
                assert (said.response.auth_method_name, said.response.auth_data) == ("token", b"second")
                assert await producer.send("x")
                assert len(broker.peers) == 1

    asyncio.run(whole())


def test_a_token_that_cannot_be_renewed_ends_what_uses_it(tmp_path: Path) -> None:
    """Where its file is gone when the broker asks: the producer fails with that reason, not with a lost connection."""
    file = tmp_path / "token"
    file.write_text("first")

    async def whole() -> None:
        async with scripted_broker() as broker:
            made = AuthenticationToken.from_file(file)
            async with AsyncClient(ClientConfig(service_url=broker.service_url, authentication=made)) as client:
                producer = await client.create_producer("t")
                file.unlink()
                _challenge(broker.peers[0])
                await broker.until(lambda: broker.peers[0].has_ended)
                with pytest.raises(PulsarishError, match="the token cannot be read from file"):
                    await producer.send("x")

    asyncio.run(whole())


class _Failing(AuthenticationToken):
    """An application's own way to authenticate: it works once."""

    def __init__(self, failure: Exception) -> None:
        super().__init__("first")
        self._failures: list[Exception | None] = [failure, None]

    def credential(self, instead_of: Secret | None = None) -> Secret:
        if failure := self._failures.pop():
            raise failure
        return super().credential(instead_of)


@pytest.mark.parametrize("challenged", [False, True])
def test_an_authentication_that_breaks_ends_what_uses_it(challenged: bool) -> None:
    """Whatever it raises, when the connection is lost or the broker asks: a consumer would wait for ever."""

    async def whole() -> None:
        async with scripted_broker() as broker:
            made = _Failing(KeyError("hush-hush"))
            async with AsyncClient(ClientConfig(service_url=broker.service_url, authentication=made)) as client:
                consumer = await client.subscribe("t", "s")
                if challenged:
                    broker.handlers[BaseCommand.CONNECT] = lambda peer, _: peer.send(
                        error(2**64 - 1, AuthenticationError("no"))
                    )
                    made._failures.insert(0, KeyError("hush-hush"))
                    _challenge(broker.peers[0])
                else:
                    broker.peers[0].transport.abort()
                async with asyncio.timeout(WAIT_S):
                    with pytest.raises(ConfigError, match="cannot be had: it raised KeyError") as broken:
                        await consumer.receive()
                assert "hush" not in str(broken.value)

    asyncio.run(whole())


def test_an_authentication_that_has_no_network_now_is_asked_again() -> None:
    """What the system refuses may pass."""

    async def whole() -> None:
        async with scripted_broker() as broker:
            made = _Failing(OSError("no network"))
            made._failures = [None, OSError("no network")]
            config = ClientConfig(service_url=broker.service_url, authentication=made, backoff_first_s=0.01)
            async with AsyncClient(config) as client:
                assert await client.partitions("t") == 0

    asyncio.run(whole())


def test_who_waits_in_vain_for_a_credential_leaves_one_thread_behind_at_most() -> None:
    """There are few of them, and all clients of the process need them."""
    go_on = threading.Event()
    asked: list[int] = []

    def token() -> str:
        asked.append(1)
        go_on.wait(WAIT_S)
        return "late"

    async def whole() -> None:
        identity = Identity(
            ClientConfig(service_url="pulsar://h", operation_timeout_s=0.05, authentication=AuthenticationToken(token))
        )
        for _ in range(3):
            with pytest.raises(OperationTimeoutError, match=r"was not to be had in 0\.05 s"):
                await identity.credential(BrokerAddress("h", 6650))
        assert asked == [1]
        go_on.set()

    asyncio.run(whole())


def test_a_token_that_changed_since_it_was_refused_is_tried_at_once() -> None:
    """It may have been renewed between being read and being sent; the same one is not tried twice."""
    tokens = iter(["old", "new", "bad", "bad"])
    refused = {b"old", b"bad"}

    def choose(peer: Peer, command: BaseCommand) -> None:
        if command.connect.auth_data in refused:
            peer.send(error(2**64 - 1, AuthenticationError("Failed to authenticate")))
        else:
            answer(peer, command)

    async def whole() -> None:
        async with scripted_broker() as broker:
            broker.handlers[BaseCommand.CONNECT] = choose
            made = AuthenticationToken(lambda: next(tokens))
            async with AsyncClient(ClientConfig(service_url=broker.service_url, authentication=made)) as client:
                assert await client.partitions("t") == 0
                assert len(broker.peers) == 2
                broker.peers[-1].transport.abort()
                await broker.until(lambda: broker.peers[-1].has_ended)
                with pytest.raises(AuthenticationError, match=r'does not accept .*: the broker said "Failed to auth'):
                    await client.partitions("t")
                assert len(broker.peers) == 3

    asyncio.run(whole())


def test_what_a_broker_has_against_the_client_ends_the_connection_with_that_reason() -> None:
    """An ERROR without a request, as after a challenge that was answered with an expired token."""

    async def whole() -> None:
        async with (
            scripted_broker() as broker,
            AsyncClient(ClientConfig(service_url=broker.service_url, operation_timeout_s=60)) as client,
        ):
            producer = await client.create_producer("t")
            broker.handlers[BaseCommand.CONNECT] = lambda peer, _: peer.send(
                error(2**64 - 1, AuthenticationError("Failed to authenticate"))
            )
            broker.peers[0].send(error(2**64 - 1, AuthenticationError("Failed to authenticate")))
            await broker.until(lambda: len(broker.peers) == 2 and broker.peers[1].has_ended)
            with pytest.raises(AuthenticationError, match="wants to know who you are"):
                await producer.send("x")

    asyncio.run(whole())


def test_connections_that_open_together_ask_for_one_credential_after_the_other() -> None:
    """A function of the application is never called by two threads at a time."""
    inside: list[int] = []

    def token() -> str:
        assert inside == []
        inside.append(1)
        for _ in range(1000):
            pass
        inside.clear()
        return "t"

    async def whole() -> None:
        async with scripted_broker() as broker:
            url = broker.service_url
            async with AsyncClient(ClientConfig(service_url=url, authentication=AuthenticationToken(token))) as client:
                pool = client._network.pool
                address = (await client._network.lookup.service_connection()).address
                opened = await asyncio.gather(*(pool.dedicated(address) for _ in range(8)))
                assert len({id(each) for each in opened}) == 8

    asyncio.run(whole())


@pytest.mark.parametrize("insecure", [False, True])
def test_checks_that_are_off_are_said_aloud(
    authority: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture, insecure: bool
) -> None:
    """Once for the client: without them, somebody on the way can pose as the broker."""

    async def whole() -> None:
        async with scripted_broker(_served(authority, "other.example")) as broker:
            config = ClientConfig(
                service_url=broker.service_url,
                tls_trust_certs_file_path="" if insecure else _trust(authority, tmp_path),
                tls_allow_insecure_connection=insecure,
                tls_hostname_verification_enable=False,
            )
            async with AsyncClient(config) as client:
                await (await client.create_producer("t")).close()

    asyncio.run(whole())
    said = [record.getMessage() for record in caplog.records if "not verified" in record.message]
    assert len(said) == 1
    assert ("tlsAllowInsecureConnection" if insecure else "tlsHostnameVerificationEnable") in said[0]


def test_a_credential_on_a_plain_connection_to_another_machine_is_said_aloud(caplog: pytest.LogCaptureFixture) -> None:
    """The warning names the peer, not the token; on the machine itself there is nothing to warn of."""

    async def whole() -> None:
        async with scripted_broker() as broker:
            token = AuthenticationToken("hush-hush")
            async with AsyncClient(ClientConfig(service_url=broker.service_url, authentication=token)) as client:
                await client.partitions("t")
                assert "unencrypted" not in caplog.text
            away = ClientConfig(service_url="pulsar://192.0.2.1", authentication=token, operation_timeout_s=0.2)
            async with AsyncClient(away) as client:
                with pytest.raises(PulsarishError):
                    await client.partitions("t")

    asyncio.run(whole())
    assert "credentials travel unencrypted peer=pulsar://192.0.2.1:6650" in caplog.text
    assert "hush" not in caplog.text


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read: No such file"), ("no certificate", "has no certificate that can be read")],
)
def test_a_ca_file_that_cannot_be_used_is_named(tmp_path: Path, content: str | None, words: str) -> None:
    """Before anything is connected, and only once."""
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)

    async def whole() -> None:
        config = ClientConfig(service_url="pulsar+ssl://192.0.2.1", tls_trust_certs_file_path=str(file))
        async with AsyncClient(config) as client:
            with pytest.raises(ConfigError, match=words):
                await client.partitions("t")

    asyncio.run(whole())


@pytest.fixture
def strict_port(authority: trustme.CA) -> Iterator[int]:
    """A port that wants a client certificate; as brokers do, and asyncio's servers do not, it says why it refuses."""
    context = _served(authority, "localhost")
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError), context.wrap_socket(self.request, server_side=True) as wrapped:
                wrapped.recv(1)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_a_client_certificate_that_is_missing_is_told_at_once(
    authority: trustme.CA, strict_port: int, tmp_path: Path
) -> None:
    """TLS 1.3 tells it behind the handshake; it does not look like a lost connection, which would be tried again."""

    async def whole() -> None:
        trust, url = _trust(authority, tmp_path), f"pulsar+ssl://localhost:{strict_port}"
        config = ClientConfig(service_url=url, tls_trust_certs_file_path=trust, operation_timeout_s=60)
        async with AsyncClient(config) as client:
            with pytest.raises(TlsError, match="it may want a client certificate"):
                await client.partitions("t")

    asyncio.run(whole())


def test_a_client_that_reconnects_while_its_certificate_is_renewed_goes_on(
    authority: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Certificate and key are two files; between them its producers would end for good."""
    first, second = authority.issue_cert("me.example"), authority.issue_cert("me.example")
    certificate, key = tmp_path / "client.pem", tmp_path / "client.key"

    def serials(broker: ScriptedBroker) -> list[object]:
        found = [peer.transport.get_extra_info("peercert") for peer in broker.peers]
        return [each["serialNumber"] for each in found]

    async def whole() -> None:
        served = _served(authority, "localhost")
        served.verify_mode = ssl.CERT_REQUIRED
        authority.configure_trust(served)
        async with scripted_broker(served) as broker:
            first.cert_chain_pems[0].write_to_path(str(certificate))
            first.private_key_pem.write_to_path(str(key))
            config = ClientConfig(
                service_url=broker.service_url,
                tls_trust_certs_file_path=_trust(authority, tmp_path),
                tls_certificate_file_path=str(certificate),
                tls_key_file_path=str(key),
                backoff_first_s=0.01,
            )
            async with AsyncClient(config) as client:
                producer = await client.create_producer("t")
                second.cert_chain_pems[0].write_to_path(str(certificate))
                broker.peers[-1].transport.abort()
                assert await producer.send("x")
                second.private_key_pem.write_to_path(str(key))
                broker.peers[-1].transport.abort()
                assert await producer.send("y")
                of_first, again, of_second = serials(broker)
                assert of_first == again != of_second

    asyncio.run(whole())
    assert "changed certificate files cannot be used" in caplog.text


def test_a_key_that_is_not_that_of_the_certificate_is_refused(authority: trustme.CA, tmp_path: Path) -> None:
    """Both files are named."""
    first, second = authority.issue_cert("a.example"), authority.issue_cert("b.example")
    first.cert_chain_pems[0].write_to_path(str(tmp_path / "a.pem"))
    second.private_key_pem.write_to_path(str(tmp_path / "b.key"))

    async def whole() -> None:
        config = ClientConfig(
            service_url="pulsar+ssl://192.0.2.1",
            tls_certificate_file_path=str(tmp_path / "a.pem"),
            tls_key_file_path=str(tmp_path / "b.key"),
        )
        async with AsyncClient(config) as client:
            with pytest.raises(ConfigError, match=r"a\.pem .*b\.key cannot be used: the key belongs to another"):
                await client.partitions("t")

    asyncio.run(whole())
