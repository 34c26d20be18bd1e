"""What hosts have in place of hardware: nvidia-smi, and the real fabric tools led to simulated fabrics."""

import os
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
FABRIC_TOOLS = (
    "ibnetdiscover",
    "iblinkinfo",
    "ibportstate",
    "ibqueryerrors",
    "ibstat",
    "perfquery",
    "saquery",
    "sminfo",
    "smpquery",
)
CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE = 2, 19


def write_stand_ins(seed: Path, roots: Sequence[Path]) -> None:
    """Put them into what hosts' disks start with. `roots` are where the real tools are looked for, in order."""
    lab = seed / "usr/lib/lab"
    (lab / "fabric").mkdir(parents=True)
    sbin, bin_ = seed / "usr/sbin", seed / "usr/bin"
    sbin.mkdir(parents=True, exist_ok=True)
    bin_.mkdir(parents=True, exist_ok=True)
    for tool in FABRIC_TOOLS:
        if real := _find(f"usr/sbin/{tool}", roots):
            _program(real, lab / "fabric" / tool)
            _program(HERE / "ibtool", sbin / tool)
    _program(HERE / "nvidia-smi", bin_ / "nvidia-smi")
    if python := _find("usr/bin/python3", roots):
        _let_see_all(_program(python, lab / "python3"))


def _program(source: Path, target: Path) -> Path:
    shutil.copyfile(source, target)
    target.chmod(0o755)
    return target


def _find(path: str, roots: Sequence[Path]) -> Path | None:
    return next((root / path for root in roots if (root / path).exists()), None)


def _let_see_all(program: Path) -> None:
    """Let it read every process's environment, whoever runs it: nvidia-smi needs no root to see who has a GPU.

    Source of the format: Linux, include/uapi/linux/capability.h, struct vfs_cap_data of revision 2.
    """
    effective, permitted = 0x02000001, 1 << CAP_DAC_READ_SEARCH | 1 << CAP_SYS_PTRACE
    os.setxattr(program, "security.capability", struct.pack("<5I", effective, permitted, 0, 0, 0))
