# SPDX-License-Identifier: Apache-2.0
"""The official pulsar-admin and pulsar-client with each kind of access, on our broker and on a real Apache Pulsar.

The role that comes in administers a tenant, and may do nothing beyond it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.behaviour.access import SECURED, Access, Kind
from tests.behaviour.servers import SecuredServer, on_apache, on_ours
from tests.client.conftest import Service
from tests.compat.tools import failures, shell, tools_command

BEYOND: Final = "admin tenants list"
"""A command for superusers."""

REFUSALS: Final = {
    "suite": r"Unauthorized|super-user",
    "forged": r"(?i)authenticat|HTTP 401|unknown_ca",
    "nobody": r"(?i)authenticat|HTTP 401",
}
"""What these tools say to who comes in; a certificate of another CA ends the handshake."""

pytestmark = [pytest.mark.pulsar, pytest.mark.slow]


@pytest.fixture(scope="module", params=["pulsarish", "apache-secured"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    """A server that asks who comes in."""
    if request.param == "pulsarish":
        with on_ours(tmp_path_factory.mktemp("secured")) as ours:
            yield ours
    else:
        yield on_apache(request.getfixturevalue("secured"))


def configure(file: Path, service: Service, access: Access) -> None:
    """Write the configuration of a client that comes in with ``access``."""
    lines = {"webServiceUrl": service.http_url, "brokerServiceUrl": service.service_url}
    if access.plugin is not None:
        lines |= dict(zip(("authPlugin", "authParams"), access.plugin, strict=True))
    if access.trust_certs is not None:
        lines |= {"tlsTrustCertsFilePath": access.trust_certs, "tlsEnableHostnameVerification": "true"}
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))


def everyday(tenant: str) -> list[str]:
    """What an administrator of a tenant does."""
    n, t, q = f"{tenant}/one", f"persistent://{tenant}/one/t", f"persistent://{tenant}/one/q"
    return [
        f"admin namespaces create {n}",
        f"admin namespaces list {tenant}",
        f"admin namespaces set-retention {n} --size 10M --time 10m",
        f"admin namespaces get-retention {n}",
        f"admin namespaces policies {n}",
        f"admin namespaces grant-permission {n} --role app --actions produce,consume",
        f"admin namespaces permissions {n}",
        f"admin topics create {t}",
        f"admin topics create-partitioned-topic {q} -p 2",
        f"admin topics list {n}",
        f"admin topics list-partitioned-topics {n}",
        f"admin topics grant-permission {t} --role job --actions consume",
        f"admin topics permissions {t}",
        f"admin topics revoke-permission {t} --role job",
        f"admin topics create-subscription {t} -s s -m earliest",
        f"client produce {t} -m hello,world -s ,",
        f"admin topics stats {t}",
        f"admin topics partitioned-stats {q}",
        f"admin topics lookup {t}",
        f"admin topics skip {t} -s s -n 1",
        f"client consume {t} -s s -n 1",
        f"admin topics reset-cursor {t} -s s -t 1h",
        f"admin topics clear-backlog {t} -s s",
        f"admin topics subscriptions {t}",
        f"admin topics unsubscribe {t} -s s",
        f"admin topics unload {t}",
        f"admin topics delete {t} -f",
        f"admin topics delete-partitioned-topic {q} -f",
        f"admin namespaces revoke-permission {n} --role app",
        f"admin namespaces delete {n}",
    ]


def tenant_of(kind: Kind) -> str:
    return f"firm-{kind.replace('+', '-')}"


@pytest.fixture(scope="module")
def all_said(server: SecuredServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Who comes in, by which kind of access -> command -> what the tools say to it.

    One shell has all configurations, as the start of Java takes longest.
    """
    folder = tmp_path_factory.mktemp("tools")
    (folder / "client.conf").touch()
    commands: dict[str, list[str]] = {}
    for kind in SECURED:
        service, tenant = server.service(kind), tenant_of(kind)
        made = {"adminRoles": [service.access.role], "allowedClusters": ["standalone"]}
        service.admin("PUT", f"tenants/{tenant}", json.dumps(made))
        accesses = {"suite": service.access, "forged": server.forged(kind), "nobody": server.nobody(kind)}
        for who, access in accesses.items():
            name = f"{who}-{kind}"
            configure(folder / name, service, access)
            commands[name] = [f"config create {name} --file {folder / name}", f"config use {name}", BEYOND]
        commands[f"suite-{kind}"] += everyday(tenant)
    texts = iter(shell(tools_command(folder), folder, [each for mine in commands.values() for each in mine]))
    return {name: {each: next(texts) for each in mine} for name, mine in commands.items()}


@pytest.mark.parametrize("kind", SECURED)
def test_an_administrator_of_a_tenant_works(all_said: dict[str, dict[str, str]], kind: Kind) -> None:
    """Every command ends well, and says what the broker knows."""
    tenant, said = tenant_of(kind), all_said[f"suite-{kind}"]
    assert {command: said[command] for command in everyday(tenant) if failures(said[command])} == {}
    n, t, q = f"{tenant}/one", f"persistent://{tenant}/one/t", f"persistent://{tenant}/one/q"
    assert said[f"admin namespaces list {tenant}"].split() == [n]
    assert json.loads(said[f"admin namespaces policies {n}"])["retention_policies"]["retentionTimeInMinutes"] == 10
    assert "app" in said[f"admin namespaces permissions {n}"].split()
    assert set(said[f"admin topics list {n}"].split()) == {t, f"{q}-partition-0", f"{q}-partition-1"}
    assert said[f"admin topics list-partitioned-topics {n}"].split() == [q]
    assert "job" in said[f"admin topics permissions {t}"].split()
    assert json.loads(said[f"admin topics stats {t}"])["subscriptions"]["s"]["msgBacklog"] == 2
    assert "world" in said[f"client consume {t} -s s -n 1"]
    assert said[f"admin topics subscriptions {t}"].split() == ["s"]


@pytest.mark.parametrize("kind", SECURED)
@pytest.mark.parametrize("who", REFUSALS)
def test_who_has_no_right_or_no_identity_is_told_so(all_said: dict[str, dict[str, str]], kind: Kind, who: str) -> None:
    """A role that does not administer the cluster, a forged identity, none."""
    answer = all_said[f"{who}-{kind}"][BEYOND]
    assert any(re.search(REFUSALS[who], line) for line in failures(answer)), answer
