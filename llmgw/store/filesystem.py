"""Which file system a path is on, and which of them are a network's."""

import os
from pathlib import Path

# Types as /proc/self/mountinfo names them; none of them keeps SQLite's shared memory coherent between hosts.
NETWORK = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.juicefs", "fuse.sshfs", "glusterfs",
    "gpfs", "lustre", "nfs", "nfs4", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "wekafs",
})  # fmt: skip


def filesystem_of(mountinfo: str, path: str) -> str:
    """The type of the file system that an absolute, resolved path is on; empty where the text does not tell.

    `mountinfo` is the text of /proc/self/mountinfo (proc_pid_mountinfo(5)); the last mount over a folder counts.
    """
    best, kind = "", ""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, tail = before.split(), after.split()
        if len(fields) < 5 or not tail:
            continue
        point = fields[4].encode().decode("unicode_escape")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, tail[0]
    return kind


def network_filesystem(path: Path) -> str:
    """The type of the network file system that `path` is or would be on; empty on a local one."""
    here = path
    while not here.exists() and here != here.parent:
        here = here.parent
    mountinfo = Path("/proc/self/mountinfo").read_text(errors="replace")
    kind = filesystem_of(mountinfo, os.path.realpath(here))
    return kind if kind in NETWORK else ""
