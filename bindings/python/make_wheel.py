"""Packs a wheel: bindings/python/make_wheel.cmake calls this with what it has installed.

A wheel is a zip with the files as they lie in site-packages, and a folder that says what it is, with
the hash of every file. This needs no package of Python's; the same files make the same bytes.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import stat
import sys
import sysconfig
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]

METADATA = """\
Metadata-Version: 2.1
Name: headroom
Version: {version}
Summary: explains and lowers the GPU memory of deep learning
License: Apache-2.0
Requires-Python: >=3.9
Classifier: Operating System :: POSIX :: Linux
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

    import headroom.torch
    headroom.torch.enable()          # before the first tensor on a GPU

puts PyTorch on headroom's allocator. `python -m headroom.torch script.py` does it for programs that
cannot be changed, `HEADROOM_TORCH=1` for all that this Python starts. `python -m headroom` is the
command: it says why a job ran out of GPU memory, and what helps.
"""
WHEEL = """\
Wheel-Version: 1.0
Generator: headroom ({version})
Root-Is-Purelib: false
Tag: {tag}
"""
ENTRY_POINTS = """\
[console_scripts]
headroom = headroom.__main__:main
"""


def tag() -> str:
    """Any Python 3, on this kind of machine: what is compiled here knows nothing of Python."""
    return "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")


def package_files(staging: Path) -> dict[str, Path]:
    """Name in the wheel -> file."""
    files = {"headroom.pth": HERE / "headroom.pth"}
    package = HERE / "headroom"
    for path in [*package.rglob("*.py"), *package.rglob("py.typed")]:
        files[str(path.relative_to(HERE))] = path
    files["headroom/bin/headroom"] = staging / "bin" / "headroom"
    for library in [*staging.glob("lib*/headroom/libheadroom_torch.so"), *staging.glob("bundled/*")]:
        files[f"headroom/lib/{library.name}"] = library
    for sample in (staging / "share" / "headroom" / "samples").iterdir():
        files[f"headroom/share/headroom/samples/{sample.name}"] = sample
    for native in staging.glob("lib*/headroom/native"):
        for path in native.rglob("*"):
            if path.is_file():
                files[f"headroom/native/{path.relative_to(native)}"] = path
    return files


def licence_files(staging: Path) -> dict[str, Path]:
    files = {"LICENSE": REPOSITORY / "LICENSE"}
    for path in (staging / "third-party").iterdir():
        files[f"third-party/{path.name}"] = path
    return files


def record_line(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def add(wheel: zipfile.ZipFile, name: str, data: bytes, is_program: bool = False) -> str:
    entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    entry.external_attr = (stat.S_IFREG | (0o755 if is_program else 0o644)) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    wheel.writestr(entry, data)
    return record_line(name, data)


def main() -> int:
    parser = argparse.ArgumentParser(description="Packs a wheel from an installed build.")
    parser.add_argument("--staging", type=Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    information = f"headroom-{options.version}.dist-info"
    options.output.mkdir(parents=True, exist_ok=True)
    for old in options.output.glob("headroom-*.whl"):
        old.unlink()
    path = options.output / f"headroom-{options.version}-{tag()}.whl"
    texts = {"METADATA": METADATA.format(version=options.version),
             "WHEEL": WHEEL.format(version=options.version, tag=tag()),
             "entry_points.txt": ENTRY_POINTS, "top_level.txt": "headroom\n"}
    record = ""
    with zipfile.ZipFile(path, "w") as wheel:
        for name, file in sorted(package_files(options.staging).items()):
            is_program = name.startswith(("headroom/bin/", "headroom/lib/"))
            record += add(wheel, name, file.read_bytes(), is_program)
        for name, file in sorted(licence_files(options.staging).items()):
            record += add(wheel, f"{information}/licenses/{name}", file.read_bytes())
        for name, text in sorted(texts.items()):
            record += add(wheel, f"{information}/{name}", text.encode())
        add(wheel, f"{information}/RECORD", f"{record}{information}/RECORD,,\n".encode())
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
