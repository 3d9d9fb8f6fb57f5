"""The flags that an engine's source defines, read without running any of it.

Meant for engines that cannot be imported here: another interpreter, no GPU, missing packages.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from panel.domain.flags import Flag, FlagKind

_KINDS: dict[str, FlagKind] = {"int": "int", "float": "float", "bool": "switch", "str": "str"}
_NUMBERED: dict[str, FlagKind] = {"human_readable_int": "int", "json_list_type": "str"}
_SWITCHES = ("store_true", "BooleanOptionalAction", "DeprecatedStoreTrueAction")
_FRONTEND = ("FrontendArgs", "BaseFrontendArgs")
"""Classes of vLLM each field of which is a flag."""


class Field(NamedTuple):
    """A field of a configuration class."""

    annotation: ast.expr
    default: ast.expr | None
    group: str


class Names(NamedTuple):
    """What the names in the source stand for."""

    constants: dict[str, ast.expr]
    fields: dict[tuple[str, str], Field]
    """By class and name."""


def read_flags(engine: str, package: Path) -> tuple[Flag, ...]:
    """Return the flags of the engine whose package folder is `package`.

    Help texts stay behind: they are the engine's. Raises `OSError` where no source is found.
    """
    files = {
        "sglang": ("srt/server_args.py", "srt/arg_groups/choices.py", "srt/arg_groups/fields/*.py"),
        "vllm": ("engine/arg_utils.py", "config/*.py", "entrypoints/**/cli_args.py"),
    }[engine]
    paths = [path for pattern in files for path in sorted(package.glob(pattern))]
    trees = {path: ast.parse(path.read_text()) for path in paths}
    if not trees:
        raise OSError(f"{package}: no source of {engine}'s flags")
    names = Names({}, {})
    for path, tree in trees.items():
        _collect(tree, path.stem.rstrip("_"), names)
    found = [flag for tree in trees.values() for flag in _annotated(tree, names)]
    found += [flag for tree in trees.values() for flag in _called(tree, names)]
    return tuple({flag.name: flag for flag in reversed(found)}.values())[::-1]


def _collect(tree: ast.Module, module: str, names: Names) -> None:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                names.constants.setdefault(name, value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                names.constants.setdefault(name, value)
            case ast.ClassDef(name=owner, body=body):
                for each in body:
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                        field = Field(each.annotation, each.value, module)
                        names.fields[owner, each.target.id] = field


def _annotated(tree: ast.Module, names: Names) -> Iterator[Flag]:
    """Yield the flags of fields annotated as `A[type, help or Arg(...)]`, or of the front end."""
    for (owner, field_name), field in names.fields.items():
        if owner in _FRONTEND and field in _fields_of(tree, names):
            typed = {"annotation": field.annotation, "default": _given(field.default)}
            yield _flag([f"--{field_name.replace('_', '-')}"], typed, "serving", names)
        match field.annotation:
            case ast.Subscript(value=ast.Name(id="A"), slice=ast.Tuple(elts=[kind, meta, *_])):
                words = _words(meta) if isinstance(meta, ast.Call) else {}
                is_flag = isinstance(meta, ast.Constant) or (
                    isinstance(meta, ast.Call) and _name(meta.func) == "Arg"
                )
                if not is_flag or "no_cli" in words or field not in _fields_of(tree, names):
                    continue
                name = _text(words.get("cli_name")) or f"--{field_name.replace('_', '-')}"
                spellings = [name, *_list(words.get("aliases"), names)]
                typed = {"annotation": kind, "default": field.default} | words
                yield _flag(spellings, typed, field.group, names)


def _fields_of(tree: ast.Module, names: Names) -> set[Field]:
    owners = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    inside = {id(node) for node in ast.walk(tree)}
    return {
        field
        for (owner, _), field in names.fields.items()
        if owner in owners and id(field.annotation) in inside
    }


def _called(tree: ast.Module, names: Names) -> Iterator[Flag]:
    """Yield the flags of `add_argument` calls; `**config_kwargs["field"]` is looked up."""
    configs: dict[str, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Name(id="get_kwargs"), args=[ast.Name(id=owner)]),
            ):
                configs[name] = owner
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or _name(node.func) != "add_argument":
            continue
        spellings = [text for arg in node.args if (text := _text(arg)).startswith("-")]
        if not any(text.startswith("--") for text in spellings):
            continue
        words, group = _words(node), ""
        for word in node.keywords:
            field = None if word.arg else _configured(word.value, configs, names)
            if field is not None:
                changed = isinstance(word.value, ast.Dict)
                default = ast.Constant(None) if changed else _given(field.default)
                words |= {"annotation": field.annotation, "default": default}
                group = field.group
        yield _flag(spellings, words, group, names)


def _configured(node: ast.expr, configs: Mapping[str, str], names: Names) -> Field | None:
    """Return the field that `**config_kwargs["field"]` stands for, also within a dict display."""
    for each in ast.walk(node):
        match each:
            case ast.Subscript(value=ast.Name(id=table), slice=ast.Constant(value=str(key))):
                return names.fields.get((configs.get(table, ""), key))
    return None


def _flag(
    spellings: list[str], words: Mapping[str, ast.expr | None], group: str, names: Names
) -> Flag:
    long = [text for text in spellings if text.startswith("--")]
    others = [text for text in spellings if text != long[0]]
    kind, choices = _kind(words, names)
    return Flag(
        name=long[0][2:],
        kind=kind,
        default=_default(words.get("default"), kind, names),
        help="",
        group=group,
        choices=choices,
        aliases=tuple(text.lstrip("-") for text in others),
    )


def _kind(words: Mapping[str, ast.expr | None], names: Names) -> tuple[FlagKind, tuple[str, ...]]:
    action = _text(words.get("action")) or _name(words.get("action"))
    if action in _SWITCHES:
        return "switch", ()
    choices = tuple(_list(words.get("choices"), names))
    annotation = words.get("annotation")
    if annotation is not None and not choices:
        choices = tuple(_literals(annotation, names))
    if choices:
        return "choice", choices
    declared = words.get("type") or words.get("type_parser")
    if declared is None and annotation is not None:
        return _of_annotation(annotation), ()
    name = _name(declared)
    kind = _NUMBERED.get(name) or _KINDS.get(name, "str")
    if words.get("nargs") is not None:
        return ("ints" if kind == "int" else "strs"), ()
    return kind, ()


def _of_annotation(annotation: ast.expr) -> FlagKind:
    """Return the kind of `Optional[List[int]]`, `int | None`, `bool` and the like."""
    match annotation:
        case ast.Subscript(value=value, slice=inner) if _name(value) == "Optional":
            return _of_annotation(inner)
        case ast.Subscript(value=value, slice=inner) if _name(value) in ("List", "list"):
            return "ints" if _of_annotation(inner) == "int" else "strs"
        case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
            return _of_annotation(left)
        case ast.Name(id=name):
            return _KINDS.get(name, "str")
    return "str"


def _literals(annotation: ast.expr, names: Names) -> Iterator[str]:
    """Yield the choices of `Literal[...]`, also where it goes by a name or may be None."""
    match annotation:
        case ast.Subscript(value=value, slice=inner) if _name(value) == "Literal":
            members = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            for each in members:
                if isinstance(each, ast.Constant) and each.value is not None:
                    yield str(each.value)
        case ast.Subscript(value=value, slice=inner) if _name(value) == "Optional":
            yield from _literals(inner, names)
        case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
            yield from _literals(left, names)
        case ast.Name(id=name) if name in names.constants:
            yield from _literals(names.constants[name], names)


def _list(node: ast.expr | None, names: Names) -> Iterator[str]:
    match node:
        case ast.List(elts=members) | ast.Tuple(elts=members):
            for each in members:
                inner = each.value if isinstance(each, ast.Starred) else each
                if isinstance(inner, ast.Constant):
                    if inner.value is not None:
                        yield str(inner.value)
                else:
                    yield from _list(inner, names)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from _list(left, names)
            yield from _list(right, names)
        case ast.Name(id=name) if name in names.constants:
            yield from _list(names.constants[name], names)


def _default(node: ast.expr | None, kind: FlagKind, names: Names) -> str | None:
    """Return a default as text; None where the engine decides at run time."""
    match node:
        case ast.Constant(value=None) | None:
            return "false" if kind == "switch" and node is None else None
        case ast.Constant(value=value):
            return str(value).lower() if isinstance(value, bool) else str(value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return str(-value)
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            field = names.fields.get((owner, name))
            return _default(_given(field.default), kind, names) if field else None
        case ast.Name(id=name) if name in names.constants:
            return _default(names.constants[name], kind, names)
    return None


def _given(node: ast.expr | None) -> ast.expr | None:
    """Return the default in `Field(default=...)`, or the node itself."""
    if isinstance(node, ast.Call):
        first = node.args[0] if node.args else None
        return _words(node).get("default", first if _name(node.func) == "Field" else None)
    return node


def _words(call: ast.expr) -> dict[str, Any]:
    keywords = call.keywords if isinstance(call, ast.Call) else []
    return {word.arg: word.value for word in keywords if word.arg is not None}


def _name(node: ast.expr | None) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
