# SPDX-License-Identifier: Apache-2.0
"""``pulsarish completion``: the script that makes a shell complete our commands and options."""

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    For bash: eval "$(pulsarish completion bash)"
    """
    from click.shell_completion import get_completion_class

    root = context.find_root()
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"there is no completion for {shell}")
    name = root.info_name or "pulsarish"
    click.echo(kind(root.command, {}, name, f"_{name.upper()}_COMPLETE").source())
