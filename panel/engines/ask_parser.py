"""`python ask_parser.py ENGINE`, in the engine's own interpreter: print the flags of its parser.

Prints one line of JSON behind a mark, for engines print what they like while they are imported.
Standard library and the engine only.
"""

import argparse
import json
import sys


def sglang() -> argparse.ArgumentParser:
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return parser


def vllm() -> argparse.ArgumentParser:
    from vllm.entrypoints.openai.cli_args import make_arg_parser

    try:
        from vllm.utils.argparse_utils import FlexibleArgumentParser
    except ImportError:
        from vllm.utils import FlexibleArgumentParser

    parser: argparse.ArgumentParser = make_arg_parser(FlexibleArgumentParser())
    return parser


def describe(action: argparse.Action, group: str) -> dict[str, object]:
    """Return one action as `panel.engines.installed.flag_of` reads it."""
    switch = action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction)
    default = action.default
    if isinstance(default, bool):
        default = str(default).lower()
    elif isinstance(default, (list, tuple)):
        default = ",".join(map(str, default))
    return {
        "options": list(action.option_strings),
        "default": None if default in (None, argparse.SUPPRESS) else str(default),
        "choices": [str(choice) for choice in action.choices or ()],
        "help": action.help or "",
        "type": getattr(action.type, "__name__", "str"),
        "switch": switch,
        "many": action.nargs in ("+", "*") or (isinstance(action.nargs, int) and action.nargs > 1),
        "group": group,
    }


def actions(parser: argparse.ArgumentParser) -> list[dict[str, object]]:
    """Return all options of a parser, with the titles of their groups."""
    return [
        describe(action, group.title or "")
        for group in parser._action_groups
        for action in group._group_actions
        if action.option_strings and action.help != argparse.SUPPRESS
    ]


if __name__ == "__main__":
    print("moepanel-flags:" + json.dumps(actions({"sglang": sglang, "vllm": vllm}[sys.argv[1]]())))
