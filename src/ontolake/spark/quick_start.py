"""What makes Spark start sooner: kept in the user's cache folder, for one Java and one installed Spark each."""

from __future__ import annotations

import hashlib
import os
import shutil
import site
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HOME = "SPARK_HOME"
_LEFT_OUT = ("python", "__pycache__")


def class_archive(java: str) -> str:
    """The option by which Java reads the archive of classes, or makes it at its end if there is none yet.

    Java goes without if it does not fit.
    """
    path = _kept("spark", java, str(os.environ.get(_HOME) or home()), suffix=".jsa")
    if path is None:
        return ""
    if path.is_file():
        return f"-XX:SharedArchiveFile={path} -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"
    return f"-XX:ArchiveClassesAtExit={path} -Xlog:cds=off -Xlog:cds+dynamic=off"


@contextmanager
def light_home() -> Iterator[None]:
    """Let Spark start from `home`, unless the user has said where it is."""
    place = None if _HOME in os.environ else home()
    if place is None:
        yield
        return
    os.environ[_HOME] = str(place)
    try:
        yield
    finally:
        os.environ.pop(_HOME, None)


def home() -> Path | None:
    """A folder of links to what is in that of the installed Spark, all but the archive of its Python code.

    Every Python process of Spark would take that archive before the package that is installed, and compile what it
    imports, which takes a second each time. None if links cannot be made, or if those processes would not find the
    package.
    """
    import pyspark

    package = Path(pyspark.__file__).parent
    found = str(package.parent) in (*site.getsitepackages(), site.getusersitepackages())
    if not found or os.environ.get("PYSPARK_PYTHON", sys.executable) != sys.executable:
        return None
    place = _kept("spark-home")
    if place is None or place.is_dir():
        return place
    made = Path(tempfile.mkdtemp(dir=place.parent))
    try:
        for entry in package.iterdir():
            if entry.name not in _LEFT_OUT:
                (made / entry.name).symlink_to(entry)
        made.rename(place)
    except OSError:  # no links here, or another process was first
        shutil.rmtree(made, ignore_errors=True)
    return place if place.is_dir() else None


def _kept(what: str, *told: str, suffix: str = "") -> Path | None:
    """The place in the cache folder of something that is made of the installed Spark; None if it cannot be used."""
    import pyspark

    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ontolake"
        cache.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # users of containers may have no home
        return None
    where = "".join((*told, pyspark.__version__, str(Path(pyspark.__file__).parent), sysconfig.get_python_version()))
    path = cache / f"{what}-{hashlib.sha256(where.encode()).hexdigest()[:16]}{suffix}"
    return None if " " in str(path) or not os.access(cache, os.W_OK) else path
