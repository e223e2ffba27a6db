"""The unit for systemd and the Dockerfile, as far as they can be checked without running either."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from ontolake.server.limits import Limits

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def _unit() -> configparser.ConfigParser:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "ontolake.service")
    return unit


def test_the_unit_ends_the_server_gently_and_gives_it_the_time_it_takes() -> None:
    service = _unit()["Service"]
    assert service["KillSignal"] == "SIGTERM"
    assert int(service["TimeoutStopSec"]) > Limits().grace_seconds
    assert int(service["LimitNOFILE"]) > Limits().connections
    assert shlex.split(service["ExecStart"])[1:3] == ["serve", "--config"]
    for rule in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "DynamicUser"):
        assert service[rule] == "yes"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "ontolake.service").read_text().replace("/opt/ontolake/bin/onto", shutil.which("true") or "")
    unit = tmp_path / "ontolake.service"
    unit.write_text(text)
    checked = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert "ontolake.service" not in checked.stderr, checked.stderr


def test_the_image_has_the_extras_and_files_that_exist() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r"\"\.\[([a-z0-9,]+)\]\"", text)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE):
        assert all((ROOT / name).exists() for name in line.split()[:-1])
    assert "USER ontolake" in text
    assert "STOPSIGNAL SIGTERM" in text
    assert text.rindex("USER ontolake") < text.rindex("ENTRYPOINT"), "the server would run as root"
