"""Ask the advisory service whether a pinned dependency has a known vulnerability: `make vulnerabilities`.

Exit status 1 if one has. Packages that cannot be audited, for example because no service can be reached, are counted.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PINS = ("constraints.txt", "constraints-verl.txt", "constraints-vllm.txt", "constraints-docs.txt")


def audited(pins: Path) -> list[dict[str, Any]]:
    """One entry per pinned package, with `vulns` or, where it could not be audited, `skip_reason`.

    Raises:
        RuntimeError: pip-audit failed otherwise than by finding something.
    """
    command = [sys.executable, "-m", "pip_audit", "-r", str(pins), "--no-deps", "--disable-pip", "-f", "json"]
    done = subprocess.run([*command, "--progress-spinner", "off"], capture_output=True, text=True, check=False)
    try:
        return list(json.loads(done.stdout)["dependencies"])
    except (ValueError, KeyError, TypeError) as error:
        raise RuntimeError(f"{pins.name} could not be audited: {done.stderr.strip()[-500:]}") from error


def report(name: str, packages: Sequence[dict[str, Any]]) -> int:
    """Print what was found and return the number of packages with a known vulnerability."""
    found = [package for package in packages if package.get("vulns")]
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    print(f"{name}: {len(packages)} packages, {len(found)} with known vulnerabilities, {len(skipped)} not audited")
    for package in found:
        for flaw in package["vulns"]:
            fixed = ", ".join(flaw.get("fix_versions", [])) or "no version"
            print(f"  {package['name']} {package['version']}: {flaw['id']}, fixed in {fixed}")
    if skipped and len(skipped) == len(packages):
        print("  no advisory service can be reached: nothing is known about these packages")
    return len(found)


def main() -> int:
    """Audit every file of pins."""
    found = 0
    for name in PINS:
        try:
            found += report(name, audited(ROOT / name))
        except RuntimeError as error:
            print(f"{error}\n  nothing is known about these packages")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
