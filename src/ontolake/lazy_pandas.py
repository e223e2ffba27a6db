"""Keeps pyarrow from importing pandas before anybody else does.

pyarrow imports pandas, where it is installed, at the first array that is made of Python values, to find out whether it
was handed a pandas object. That costs more than a commit, and there are no such objects while nobody has imported
pandas. So pyarrow is told once that pandas is not there, and told that it is as soon as anybody imports it: from then
on it works as it always does.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

_LOOKS = "pyarrow._dataset"
"""A module of pyarrow that has its C++ code import pandas, once and for all."""


class _Watch:
    """A finder of modules. Calls a function when pandas or pyarrow was imported, and hides pandas from a thread that
    asks it to."""

    def __init__(self) -> None:
        self._thread = threading.local()
        self._told = False
        self.forgoes = False
        """Whether nobody hands pandas objects to pyarrow in this process."""
        self._after: dict[str, Callable[[], None]] = {"pandas": self.pandas_came, "pyarrow": self.pyarrow_came}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:  # fmt: skip
        after = self._after.get(fullname)
        if after is None and (fullname != _LOOKS or not self.forgoes):
            return None
        if fullname == "pandas" and getattr(self._thread, "hides", False):
            raise ModuleNotFoundError("pandas was not imported yet", name=fullname)
        spec = None
        for finder in sys.meta_path:
            if finder is not self and (find := getattr(finder, "find_spec", None)) is not None:
                spec = find(fullname, path, target)
                if spec is not None:
                    break
        if spec is not None and spec.loader is not None:
            if after is not None:
                _follow(spec.loader, after)
            else:
                _follow(spec.loader, lambda: None, self._hiding)
        return spec

    @contextlib.contextmanager
    def _hiding(self) -> Iterator[None]:
        self._thread.hides = True
        try:
            yield
        finally:
            self._thread.hides = False

    def pyarrow_came(self) -> None:
        """Let pyarrow look for pandas where it finds none, unless pandas is there already."""
        if "pandas" in sys.modules:
            return
        with self._hiding(), contextlib.suppress(AttributeError):  # a pyarrow that looks for pandas in some other way
            # pyarrow has no public way to be asked, or told, whether pandas is there.
            _ = sys.modules["pyarrow"].lib._pandas_api.have_pandas
            self._told = True

    def pandas_came(self) -> None:
        """Let pyarrow find pandas, if it was told that there is none."""
        pyarrow: Any = sys.modules.get("pyarrow")
        if self._told and pyarrow is not None:
            with contextlib.suppress(ImportError, AttributeError):  # a pandas that is too old for it
                _ = pyarrow.lib._pandas_api.compat


def _follow(
    loader: Any, after: Callable[[], None], around: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext
) -> None:  # fmt: skip
    """Have a function called when a loader has run its module, which it runs within `around`."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        del loader.exec_module
        with around():
            execute(module)
        after()

    with contextlib.suppress(AttributeError):  # a loader that cannot be followed
        loader.exec_module = exec_module


def install() -> None:
    """Begin to watch, once for each process."""
    if _installed() is not None:
        return
    watch = _Watch()
    sys.meta_path.insert(0, watch)
    if "pyarrow" in sys.modules:
        watch.pyarrow_came()


def forgo() -> None:
    """For a process in which nobody hands pandas objects to pyarrow, such as a server: also datasets of pyarrow, and
    so graphs, do not import pandas. If somebody does later, pyarrow may not know all of its values."""
    watch = _installed()
    if watch is not None and "pandas" not in sys.modules:
        watch.forgoes = True


def _installed() -> _Watch | None:
    return next((finder for finder in sys.meta_path if isinstance(finder, _Watch)), None)
