"""The configuration of a server: a TOML file, options of the command line, and what neither may combine.

    host = "127.0.0.1"
    port = 8400
    tokens = "tokens.json"
    audit = "audit.jsonl"
    pg = 5433

    [stores]
    shop = "shop.db"
    graph = { url = "s3://lake/graph", readonly = true }

    [tls]
    certificate = "server.pem"
    key = "server.key"

    [limits]
    body = 67108864

    [cors]
    origins = ["https://shop.example"]

Paths are relative to the file.
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

import msgspec

from ontolake import stores, urls
from ontolake.errors import Invalid, NotFound, SafetyRefusal
from ontolake.server.limits import Limits

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_SUFFIXES = (".sqlite", ".sqlite3", ".db")
DEFAULT_PORT = 8400


class StoreSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A store in the section `[stores]`."""

    url: str
    readonly: bool = False


class TlsSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The section `[tls]`: files in PEM."""

    certificate: str
    key: str


class CorsSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The section `[cors]`: the origins whose pages may use the server."""

    origins: tuple[str, ...] = ()


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of a configuration."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    pg: int | None = None
    """The port of PostgreSQL's protocol; None speaks HTTP alone."""
    tokens: str | None = None
    audit: str | None = None
    readonly: bool = False
    insecure: bool = False
    """Whether tokens and data may go over a network unencrypted."""
    log_level: str = "info"
    stores: dict[str, str | StoreSection] = {}
    tls: TlsSection | None = None
    limits: Limits = Limits()
    cors: CorsSection = CorsSection()

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    def served(self) -> dict[str, StoreSection]:
        """The stores by name."""
        return {name: StoreSection(one, self.readonly) if isinstance(one, str) else
                StoreSection(one.url, one.readonly or self.readonly) for name, one in self.stores.items()}  # fmt: skip

    def check(self, *, has_tokens: bool) -> None:
        """Raise `SafetyRefusal` for what is not safe on a network, `Invalid` for what cannot be."""
        if not self.stores:
            raise Invalid("there is nothing to serve", hint="give the URLs of stores, or name them in [stores]")
        for name in self.stores:
            if not _NAME.fullmatch(name):
                raise Invalid(f"a store cannot be served as {name!r}",
                              hint="use up to 128 letters, digits and . _ -")
        if self.is_local:
            return
        if not has_tokens:
            raise SafetyRefusal(f"{self.host} can be reached from elsewhere, and there are no tokens to tell who asks",
                                hint="onto token create makes one; or leave --host out to serve this machine alone")
        if self.tls is None and not self.insecure:
            raise SafetyRefusal(f"{self.host} can be reached from elsewhere, and without TLS others could read tokens "
                                "and data on the way", hint="name a certificate in the section [tls] of the "
                                "configuration, or say --insecure if something in front of it encrypts")  # fmt: skip

    def tls_context(self) -> ssl.SSLContext | None:
        """What encrypts connections; None without TLS. Raises `Invalid` for files that cannot be used."""
        if self.tls is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.tls.certificate, self.tls.key)
        except (OSError, ssl.SSLError) as error:
            raise Invalid(f"tls.certificate {self.tls.certificate} and tls.key {self.tls.key} cannot be used: {error}",
                          hint="both are files in PEM, and the key belongs to the certificate") from error
        return context


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_config(path: str | Path) -> ServerConfig:
    """The configuration in a file, with paths made absolute. Raises `NotFound`, and `Invalid` that names what is
    wrong."""
    path = Path(path)
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise NotFound(f"there is no configuration {path}", hint="check the path") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Invalid(f"the configuration {path} cannot be read: {error}", hint="it is a file in TOML") from error
    try:
        config = msgspec.convert(found, ServerConfig)
    except msgspec.ValidationError as error:
        raise Invalid(f"the configuration {path} is wrong: {_named(str(error))}",
                      hint="docs/server.md lists the keys") from error
    return _absolute(config, path.parent)


def _named(message: str) -> str:
    """What msgspec says, with keys as the file has them."""
    return re.sub(r" - at `(?:key in )?\$\.?([^`]*)`", lambda at: f" (in {at[1]})" if at[1] else "", message)


def _absolute(config: ServerConfig, folder: Path) -> ServerConfig:
    def path(one: str) -> str:
        return os.path.normpath(folder.absolute() / one)

    def url(one: str) -> str:
        return one if "://" in one else path(one) + ("/" if one.endswith("/") else "")

    named = {name: url(one) if isinstance(one, str) else msgspec.structs.replace(one, url=url(one.url))
             for name, one in config.stores.items()}  # fmt: skip
    tls = config.tls and TlsSection(path(config.tls.certificate), path(config.tls.key))
    return msgspec.structs.replace(
        config, stores=named, tls=tls, tokens=config.tokens and path(config.tokens),
        audit=config.audit and path(config.audit))


def named_urls(given: Sequence[str]) -> dict[str, str]:
    """The stores at URLs by the names that they are served as: their last part without a suffix. A directory of
    spaces gives all its spaces. Raises `Invalid` if two have one name or there is no store, `NotFound`."""
    named: dict[str, str] = {}
    for url in given:
        for name, one in _stores_at(url).items():
            if name in named:
                raise Invalid(f"{named[name]!r} and {one!r} would both be served as {name!r}",
                              hint="name them in the section [stores] of a configuration, and use --config")
            named[name] = one
    return named


def _stores_at(url: str) -> Mapping[str, str]:
    folder = Path(url)
    if "://" not in url and folder.is_dir() and not _has_stamp(url):
        found = sorted(one for one in folder.iterdir() if one.suffix in _SUFFIXES and one.is_file())
        if not found:
            raise NotFound(f"there is no store in the folder {url!r}", hint="give a store, or a folder of spaces")
        return {_name_of(str(one)): str(one) for one in found}
    stores.find(url).check_model()
    return {_name_of(url): url}


def _has_stamp(folder: str) -> bool:
    """Whether a folder is itself a store. Files of spaces in it are not objects of one."""
    try:
        return urls.detect(f"{folder.rstrip('/')}/") is not None
    except Invalid:
        return False


def _name_of(url: str) -> str:
    name = PurePosixPath(unquote(url.rstrip("/"))).name
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).lstrip(".-") or "store"


def default_folder(variable: str, below_home: str) -> Path:
    """The folder `ontolake` where this user keeps settings or state, as XDG has it."""
    base = os.environ.get(variable)
    return (Path(base) if base else Path.home() / below_home) / "ontolake"


def default_tokens() -> Path:
    """The file of tokens that commands and servers use unless they name another."""
    named = os.environ.get("ONTO_TOKENS")
    return Path(named) if named else default_folder("XDG_CONFIG_HOME", ".config") / "tokens.json"


def default_audit() -> Path:
    return default_folder("XDG_STATE_HOME", ".local/state") / "audit.jsonl"
