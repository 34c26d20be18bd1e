"""What the hosts' disks start with: accounts, keys, sshd, sudo, units. host.sh copies it from the machine."""

import os
import secrets
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.lab.hosts import USERS, Host, Init
from tests.lab.layer import REPOSITORY
from tests.lab.spaces import Spaces
from tests.lab.stand_ins import write_stand_ins
from tests.lab.state import Places

# "lab", hashed by openssl passwd -6 -salt llmgwlab
PASSWORD_HASH = (
    "$6$llmgwlab$UEKfPIPMvj8A6zi/pPGOXZ1r3wc9qL6DGouxQRBQWtUWZXQPGP.JuJq.hCRmC2WchaaFpzUPkKntEvzyVDZL10"
)
# Of these folders a host has its own and sees nothing of the machine's: what is set up there is the machine's
# business, and a test that passes because host and controller share a file proves nothing.
OWN_FOLDERS = (
    "/root",
    "/home",
    "/mnt",
    "/media",
    "/opt",
    "/srv",
    "/var/tmp",
    "/etc/ssh",
    "/etc/sudoers.d",
    "/etc/systemd/system",
)
SYSTEM_FOLDERS = ("bin", "boot", "dev", "etc", "lib", "lib64", "proc", "run", "sbin", "sys", "tmp", "usr", "var")
SSHD = """\
Port 22
HostKey /etc/ssh/lab_host_key
AuthorizedKeysFile /etc/ssh/lab_authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM yes
PrintMotd no
MaxSessions 100
MaxStartups 100:30:200
LogLevel VERBOSE
PidFile /run/sshd.pid
Subsystem sftp /usr/lib/openssh/sftp-server
"""
SUDOERS = """\
Defaults env_reset
Defaults secure_path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
root ALL=(ALL:ALL) ALL
@includedir /etc/sudoers.d
"""
# The mounts and settings below are of the machine's own kernel; a host leaves them alone. Timers would call apt.
MASKED_UNITS = (
    "dev-hugepages.mount",
    "sys-fs-fuse-connections.mount",
    "sys-kernel-config.mount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "systemd-journal-flush.service",
    "systemd-modules-load.service",
    "systemd-remount-fs.service",
    "systemd-sysctl.service",
    "systemd-sysusers.service",
    "systemd-timesyncd.service",
    "systemd-tmpfiles-setup-dev.service",
    "systemd-udevd.service",
    "systemd-update-utmp.service",
    "timers.target",
)
TARGET = """\
[Unit]
Description=A host of llmgw's lab
Requires=basic.target
Wants=ssh.service dbus.socket systemd-logind.service systemd-user-sessions.service
After=basic.target ssh.service
AllowIsolate=yes
"""
# Before that, pam_nologin turns everybody but root away.
SSH_ORDER = "[Unit]\nAfter=systemd-user-sessions.service\n"
JOURNAL = "[Journal]\nStorage=volatile\nRuntimeMaxUse=16M\nRateLimitIntervalSec=0\n"


def put(path: Path, text: str, mode: int = 0o644) -> Path:
    """The file, written, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def write_seed(places: Places, hosts: Sequence[Host], addresses: dict[str, str], spaces: Spaces) -> None:
    """Everything that host.sh reads, but for the machine folders: seed/ for all hosts, hosts/NAME for each."""
    places.folder.mkdir(parents=True)
    places.folder.chmod(0o755)
    for folder in ("disks", "fabrics"):
        (places.folder / folder).mkdir()
    keys = [places.key, *(places.host(host.name) / "own/etc/ssh/lab_host_key" for host in hosts)]
    _make_keys(keys, ["lab-controller", *(host.name for host in hosts)])
    roots = [root for root in (spaces.layer, spaces.base) if root]
    _write_common(places, addresses, roots, spaces)
    write_stand_ins(places.seed, roots)
    for host in hosts:
        _write_own(places.host(host.name), host)
    _write_known_hosts(places, addresses)


def _make_keys(paths: Sequence[Path], comments: Sequence[str]) -> None:
    running = []
    for path, comment in zip(paths, comments, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
        running.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL))
    for process in running:
        if process.wait():
            raise subprocess.CalledProcessError(process.returncode, process.args)


def _write_common(places: Places, addresses: dict[str, str], roots: Sequence[Path], spaces: Spaces) -> None:
    seed, etc = places.seed, places.seed / "etc"
    for folder in own_folders(spaces.base):
        (seed / folder.lstrip("/")).mkdir(parents=True)
        os.setxattr(seed / folder.lstrip("/"), "trusted.overlay.opaque", b"y")
    (seed / "root").chmod(0o700)
    (seed / "var/tmp").chmod(0o1777)
    _write_accounts(seed, roots)
    put(etc / "ssh/sshd_config", SSHD)
    put(etc / "ssh/lab_authorized_keys", places.key.with_suffix(".pub").read_text())
    put(etc / "sudoers", SUDOERS, 0o440)
    put(etc / "sudoers.d/lab", "".join(f"{user.sudo}\n" for user in USERS if user.sudo), 0o440)
    lines = [f"{address} {name}" for name, address in addresses.items()]
    put(etc / "hosts", "\n".join(["127.0.0.1 localhost", f"{spaces.controller} controller", *lines, ""]))
    put(etc / "resolv.conf", "# a lab has no name servers\n")
    _write_units(etc / "systemd")


def own_folders(base: Path) -> list[str]:
    """The folders of which a host has its own, with the one that this checkout lies in."""
    top = REPOSITORY.parts[1]
    checkout = str(REPOSITORY) if top in SYSTEM_FOLDERS else f"/{top}"
    return [folder for folder in dict.fromkeys((*OWN_FOLDERS, checkout)) if (base / folder.lstrip("/")).is_dir()]


def _write_accounts(seed: Path, roots: Sequence[Path]) -> None:
    def lines(name: str) -> list[str]:
        source = next(root / "etc" / name for root in roots if (root / "etc" / name).exists())
        return source.read_text().splitlines()

    passwd, group = lines("passwd"), lines("group")
    shadow = [f"{line.partition(':')[0]}:*:19000:0:99999:7:::" for line in passwd]  # none of the machine's own
    for user in USERS:
        passwd.append(f"{user.name}:x:{user.uid}:{user.uid}::/home/{user.name}:/bin/bash")
        group.append(f"{user.name}:x:{user.uid}:")
        shadow.append(f"{user.name}:{PASSWORD_HASH}:19000:0:99999:7:::")
        home = seed / "home" / user.name
        home.mkdir(parents=True)
        os.chown(home, user.uid, user.uid)
    for name, content, mode in (("passwd", passwd, 0o644), ("group", group, 0o644), ("shadow", shadow, 0o600)):
        put(seed / "etc" / name, "\n".join([*content, ""]), mode)


def _write_units(systemd: Path) -> None:
    put(systemd / "system/lab.target", TARGET)
    put(systemd / "system/ssh.service.d/lab.conf", SSH_ORDER)
    put(systemd / "journald.conf.d/lab.conf", JOURNAL)
    for unit in MASKED_UNITS:
        (systemd / "system" / unit).symlink_to("/dev/null")


def _write_own(folder: Path, host: Host) -> None:
    own = folder / "own"
    put(own / "etc/hostname", f"{host.name}\n")
    put(own / "etc/machine-id", f"{secrets.token_hex(16)}\n")
    if host.init is Init.LIGHT:
        for word, signal_name in (("reboot", "HUP"), ("poweroff", "TERM")):
            put(own / "usr/sbin" / word, f"#!/bin/sh\nkill -{signal_name} 1\n", 0o755)
    put(folder / "host.env", f"HOST_INIT={host.init.value}\nHOST_DISK={host.disk}\n")
    put(folder / "shares", "".join(_share_lines(host)))
    (folder / "machine").mkdir(exist_ok=True)


def _share_lines(host: Host) -> Iterable[str]:
    for share in host.shares:
        yield f"{'rw' if share.writable else 'ro'}\t{share.source}\t{share.target}\n"


def _write_known_hosts(places: Places, addresses: dict[str, str]) -> None:
    lines = []
    for name, address in addresses.items():
        public = (places.host(name) / "own/etc/ssh/lab_host_key.pub").read_text()
        kind, key, _ = public.split()
        lines.append(f"{name},{address} {kind} {key}\n")
    put(places.known_hosts, "".join(lines))
