"""The software bill of materials: the packages of `requirements/core.txt` as CycloneDX 1.6 JSON."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import lock
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

NAME = "bitprint"


def render(pins: Mapping[str, lock.Pin], version: str, seconds: int) -> str:
    """Return the text of the bill of materials.

    Parameters
    ----------
    pins : mapping of str to Pin
        The packages by name. They must be installed, because licenses and requirements come from
        their metadata.
    version : str
        Version of Bitprint.
    seconds : int
        Time of the document in seconds since 1970.
    """
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": _component(NAME, version),
        },
        "components": [
            _component(name, pin.version) | {"externalReferences": [_files(name, pin)]}
            for name, pin in sorted(pins.items())
        ],
        "dependencies": [
            {"ref": _purl(NAME, version), "dependsOn": _refs(pins, lock.declared())},
            *(
                {
                    "ref": _purl(name, pin.version),
                    "dependsOn": _refs(pins, lock.requires_installed(Requirement(name))),
                }
                for name, pin in sorted(pins.items())
            ),
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def _component(name: str, version: str) -> dict[str, Any]:
    purl = _purl(name, version)
    component = {"type": "library", "bom-ref": purl, "name": name, "version": version}
    return component | {"purl": purl} | _licenses(name)


def _licenses(name: str) -> dict[str, Any]:
    """Return the license of an installed package, if its metadata has a short one."""
    metadata = importlib.metadata.metadata(name)
    for expression in metadata.get_all("License-Expression") or []:
        return {"licenses": [{"expression": expression}]}
    classifiers = metadata.get_all("Classifier") or []
    names = [line.rpartition(" :: ")[2] for line in classifiers if line.startswith("License :: ")]
    if not names:
        names = [text for text in metadata.get_all("License") or [] if "\n" not in text]
    known = [{"license": {"name": each}} for each in names if each not in ("", "UNKNOWN")]
    return {"licenses": known} if known else {}


def _files(name: str, pin: lock.Pin) -> dict[str, Any]:
    hashes = [{"alg": "SHA-256", "content": sha256} for sha256 in sorted(pin.hashes)]
    comment = "Each hash is that of one file of this version."
    url = _purl(name, pin.version)
    return {"type": "distribution", "url": url, "comment": comment, "hashes": hashes}


def _refs(pins: Mapping[str, lock.Pin], requirements: Iterable[Requirement]) -> list[str]:
    """Return the references of the required packages, except extras and what CUDA requires."""
    names = {
        canonicalize_name(each.name)
        for each in requirements
        if each.marker is None or each.marker.evaluate({"extra": ""})
    }
    return [_purl(name, pins[name].version) for name in sorted(names & pins.keys())]


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version}"
