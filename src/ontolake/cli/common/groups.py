"""Command groups that do the usual thing when they are asked for nothing else."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class ListByDefault(TyperGroup):
    """`branch URL` lists, and `branch URL create NAME` is taken for `branch create URL NAME`, options anywhere."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = [word for word in args if not word.startswith("-")]
        asked = next((word for word in words[:2] if word in self.commands), None)
        if asked is not None:
            args.remove(asked)
            args.insert(0, asked)
        elif words or not (self.no_args_is_help or {"--help", "-h"} & set(args)):
            args.insert(0, "list")
        return list(super().parse_args(ctx, args))
