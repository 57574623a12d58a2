# SPDX-License-Identifier: Apache-2.0
"""``pulsarish namespace``: list, create and delete namespaces, over the admin REST. Policies are in ``policies``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from broker_core.base.errors import TopicNotFoundError
from broker_core.base.names import DEFAULT_TENANT, NamespaceName, check_tenant_name
from broker_core.base.suggest import did_you_mean
from broker_core.cli.output import Format, counted, format_option, print_rows, say
from broker_core.cli.target import Target, target_options
from broker_core.cli.topic import confirm, told_if_it_exists, yes_option

if TYPE_CHECKING:
    from broker_core.client.admin import AdminApi


@click.group()
def namespace() -> None:
    """List, create and delete namespaces, and set their policies."""


@namespace.command("list")
@click.argument("tenant", default=DEFAULT_TENANT)
@format_option
@target_options
def list_namespaces(target: Target, tenant: str, output: Format | None) -> None:
    """List the namespaces of TENANT (default public)."""
    check_tenant_name(tenant)
    with target.admin() as admin:
        try:
            rows = [{"namespace": str(name)} for name in admin.namespaces(tenant)]
        except TopicNotFoundError as error:
            first = f"pulsarish namespace create {tenant}/NAME --with-tenant"
            raise TopicNotFoundError(
                f'tenant "{tenant}" does not exist', hint=f"create it with its first namespace: {first}"
            ) from error
    print_rows(
        rows, output, empty=f"no namespaces in {tenant}; make one with: pulsarish namespace create {tenant}/NAME"
    )


@namespace.command()
@click.argument("name")
@click.option("--with-tenant", is_flag=True, help="Create its tenant too, if there is none.")
@format_option
@target_options
def create(target: Target, name: str, with_tenant: bool, output: Format | None) -> None:
    """Create the namespace NAME (tenant/namespace)."""
    made = NamespaceName.parse(name)
    with target.admin() as admin:
        if not admin.has_tenant(made.tenant):
            if not with_tenant:
                raise TopicNotFoundError(f'tenant "{made.tenant}" does not exist', hint="add --with-tenant")
            admin.create_tenant(made.tenant)
        with told_if_it_exists(f"namespace {made}"):
            admin.create_namespace(made)
    print_rows([{"namespace": str(made)}], output)


@namespace.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--force", is_flag=True, help="With all its topics, if the broker has forceDeleteNamespaceAllowed.")
@yes_option
@target_options
def delete(target: Target, names: tuple[str, ...], force: bool, yes: bool) -> None:
    """Delete namespaces and what is set for them."""
    doomed = [NamespaceName.parse(name) for name in names]
    with target.admin(doomed[0]) as admin:
        for name in doomed:
            check_namespace(admin, name)
            topics = counted(len(admin.topics(name)), "topic", "topics")
            confirm(f"Delete {name} with {topics}?", yes)
            admin.delete_namespace(name, force=force)
            say(f"deleted {name}")


def check_namespace(admin: AdminApi, name: NamespaceName) -> None:
    """TopicNotFoundError unless it exists; the error names the one that was probably meant."""
    known = [str(each) for each in admin.namespaces(name.tenant)] if admin.has_tenant(name.tenant) else []
    if str(name) not in known:
        others = counted(len(known), "namespace", "namespaces")
        raise TopicNotFoundError(
            f'namespace "{name}" does not exist: tenant {name.tenant} has {others}, not this one',
            hint=did_you_mean(str(name), known, otherwise=f"create it with: pulsarish namespace create {name}"),
        )
