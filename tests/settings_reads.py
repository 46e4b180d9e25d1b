"""Which settings a piece of code reads, told from its syntax tree: nothing is run, so verl need not be there.

Followed are parameters annotated with a section of the settings, the names `config` and `recipe`, and whatever is taken
from them: `settings = self.config.training` and then `settings.updates`.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

Section = type[BaseModel]
WHOLE_TREE = {"config", "recipe"}


def settings_read(source: str, root: Section) -> set[str]:
    """Dotted names of the settings of the tree `root` that `source` reads."""
    reader = _Reader(root)
    reader.visit(ast.parse(source))
    return reader.found


def settings_read_in(paths: Iterator[Path], root: Section) -> set[str]:
    found: set[str] = set()
    for path in paths:
        found |= settings_read(path.read_text(encoding="utf-8"), root)
    return found


class _Reader(ast.NodeVisitor):
    def __init__(self, root: Section) -> None:
        self.root = root
        self.prefixes = dict(_sections(root))
        self.by_name = {base.__name__: section for section in self.prefixes for base in reversed(section.__mro__)}
        self.known: dict[str, Section] = {}  # names, and "self.name"
        self.found: set[str] = set()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outside = self.known
        self.known = dict(outside)
        for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
            self._know(argument.arg, self._annotated(argument.annotation))
        self.generic_visit(node)
        self.known = outside | {name: kind for name, kind in self.known.items() if name.startswith("self.")}

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        outside = self.known
        self.known = dict(outside)
        self.generic_visit(node)
        self.known = outside

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """A field of a dataclass."""
        self.generic_visit(node)
        self._know(f"self.{ast.unparse(node.target)}", self._annotated(node.annotation))

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                for one, value in zip(target.elts, node.value.elts, strict=True):
                    self._know(ast.unparse(one), self._kind(value))
            else:
                self._know(ast.unparse(target), self._kind(node.value))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.generic_visit(node)
        section = self._kind(node.value)
        if section is None or not isinstance(node.ctx, ast.Load):
            return
        if node.attr in section.model_fields and self._kind(node) is None:
            self.found.add(f"{self.prefixes[section]}{node.attr}")
        elif isinstance(there := inspect.getattr_static(section, node.attr, None), property):
            self.found |= self._read_by_property(section, there)

    def _read_by_property(self, section: Section, there: property) -> set[str]:
        [method] = ast.parse(textwrap.dedent(inspect.getsource(there.fget))).body
        reader = _Reader(self.root)
        reader.known["self"] = section
        for statement in method.body:
            reader.visit(statement)
        return reader.found

    def _kind(self, node: ast.expr) -> Section | None:
        """The section that an expression is, if it is one."""
        if (known := self.known.get(ast.unparse(node))) is not None:
            return known
        if isinstance(node, ast.Attribute) and (section := self._kind(node.value)) is not None:
            field = section.model_fields.get(node.attr)
            return _as_section(field.annotation) if field else None
        name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)
        return self.root if name in WHOLE_TREE else None

    def _annotated(self, annotation: ast.expr | None) -> Section | None:
        return None if annotation is None else self.by_name.get(ast.unparse(annotation))

    def _know(self, name: str, kind: Section | None) -> None:
        self.known.pop(name, None)
        if kind is not None:
            self.known[name] = kind


def _sections(root: Section, prefix: str = "") -> Iterator[tuple[Section, str]]:
    yield root, prefix
    for name, field in root.model_fields.items():
        if (section := _as_section(field.annotation)) is not None:
            yield from _sections(section, f"{prefix}{name}.")


def _as_section(annotation: object) -> Section | None:
    return annotation if inspect.isclass(annotation) and issubclass(annotation, BaseModel) else None
