# SPDX-License-Identifier: Apache-2.0
"""Writes the keyword arguments of the client's methods as types: a stub, made from the declarations of the settings.

No type can be made of a class's fields, so each ``...Config`` has a ``TypedDict`` of the same fields beside it.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

SETTINGS: Final = "broker_core.client.settings.config"
LEFT_OUT: Final = {"service_url"}
"""The one setting of a client that is not given by its keyword."""

_HEAD: Final = """\
# SPDX-License-Identifier: Apache-2.0
# Settings of the client as keyword arguments, for type checkers. Made from config.py by `make docs`; do not edit.

"""


def options_stub(repository: Path) -> str:
    """The text of ``broker_core/client/settings/options.pyi``."""
    tree = ast.parse((repository / f"{SETTINGS.replace('.', '/')}.py").read_text(encoding="utf-8"))
    plain = _Plain(tree)
    made: list[str] = []
    used: set[str] = set()
    for config in tree.body:
        if isinstance(config, ast.ClassDef) and config.name.endswith("Config"):
            fields = [each for each in config.body if isinstance(each, ast.AnnAssign)]
            made.append(f"\nclass {config.name.removesuffix('Config')}Options(TypedDict, total=False):")
            for field in fields:
                name, kind = ast.unparse(field.target), plain.visit(field.annotation)
                if name not in LEFT_OUT:
                    made.append(f"    {name}: {ast.unparse(kind)}")
                    used |= {each.id for each in ast.walk(kind) if isinstance(each, ast.Name)}
    return (_HEAD + "\n".join([*_imports(tree, used), *made]) + "\n").replace("'", '"')


def _imports(tree: ast.Module, used: set[str]) -> list[str]:
    """Import statements for the names in ``used``, which ``tree`` imports or defines."""
    homes = {"TypedDict": "typing"}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            homes |= {alias.name: str(node.module) for alias in node.names}
        elif isinstance(node, ast.Assign):
            homes |= {ast.unparse(target): SETTINGS for target in node.targets}
    wanted = sorted({(homes[name], name) for name in used | {"TypedDict"} if name in homes})
    by_home = {home: [name for of, name in wanted if of == home] for home, _ in wanted}
    standard = {home: names for home, names in by_home.items() if not home.startswith("broker_core")}
    own = {home: names for home, names in by_home.items() if home not in standard}
    lines = [_import(home, names) for home, names in standard.items()]
    return [*lines, "", *(_import(home, names) for home, names in own.items())]


def _import(home: str, names: list[str]) -> str:
    line = f"from {home} import {', '.join(names)}"
    return line if len(line) <= 120 else "\n".join([f"from {home} import (", *(f"    {name}," for name in names), ")"])


class _Plain(ast.NodeTransformer):
    """Types without their bounds."""

    def __init__(self, tree: ast.Module) -> None:
        aliases = [each for each in tree.body if isinstance(each, ast.AnnAssign) and each.value is not None]
        self._aliases = {ast.unparse(each.target): each.value for each in aliases}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        bounded = self._aliases.get(node.id)
        if bounded is None:
            return node
        plain: ast.expr = self.visit(bounded)
        return plain

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if ast.unparse(node.value) == "Annotated" and isinstance(node.slice, ast.Tuple):
            first: ast.expr = self.visit(node.slice.elts[0])
            return first
        self.generic_visit(node)
        return node
