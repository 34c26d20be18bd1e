"""The lab itself: hosts of their own, faults that are what they say, nothing left behind."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.lab.doorway import open_door
from tests.lab.hosts import Gpu, Holder, numbered
from tests.lab.kernel import LabError, alive, cgroup2, wait_until
from tests.lab.lab import Lab
from tests.lab.layer import REPOSITORY
from tests.lab.node import Node
from tests.lab.state import Places, inotify_needed

pytestmark = pytest.mark.lab


def processes_of(name: str) -> list[int]:
    """The machine's processes that were started for a lab of that name."""
    mark = f"LLMGW_LAB={name}\0".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes() + b"\0":
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def remains(name: str) -> list[str]:
    """What of a lab of that name can be found on the machine."""
    places = Places(name)
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if f"llmgw-lab/{name}" in line]
    folders = [str(path) for path in (places.folder, places.cgroup) if path.exists()]
    return [*map(str, processes_of(name)), *mounts, *folders]


def test_hosts_are_hosts_of_their_own(lab: Lab) -> None:
    names = [lab.ssh(node, "hostname").stdout.strip() for node in lab.nodes.values()]
    assert names == list(lab.nodes)
    boots = {node.sh("cat /proc/sys/kernel/random/boot_id") for node in lab.nodes.values()}
    machines = {node.sh("cat /etc/machine-id") for node in lab.nodes.values()}
    assert len(boots) == len(machines) == len(lab.nodes)
    assert Path("/proc/sys/kernel/random/boot_id").read_text() not in boots


def test_a_host_sees_nothing_of_the_checkout_and_of_homes(lab: Lab) -> None:
    seen = lab.nodes["n1"].console(f"ls -A /root /mnt {REPOSITORY} 2>&1").stdout
    assert "pyproject.toml" not in seen
    assert ".bashrc" not in seen


def test_systemd_hosts_are_running_and_the_light_one_has_none(lab: Lab) -> None:
    assert lab.nodes["n1"].sh("systemctl is-system-running").strip() == "running"
    assert lab.nodes["l1"].console("systemctl is-system-running").returncode != 0
    assert lab.nodes["l1"].console("test -d /run/systemd/system").returncode == 1


@pytest.mark.parametrize(
    ("user", "command", "expected"),
    [
        ("root", "id -u", 0),
        ("ops", "sudo -n id -u", 0),
        ("ask", "sudo -n id -u", 1),
        ("ask", "echo lab | sudo -S -p '' id -u", 0),
        ("plain", "echo lab | sudo -S -p '' id -u", 1),
        ("limited", "sudo -n id -u", 1),
    ],
)
def test_users_may_do_with_sudo_what_is_said_of_them(lab: Lab, user: str, command: str, expected: int) -> None:
    assert lab.ssh(lab.nodes["n1"], command, user=user).returncode == expected


def test_limited_may_run_exactly_the_given_commands(lab: Lab, node: Node) -> None:
    node.allow("limited", "/usr/bin/systemctl start llmgw-*", "/usr/bin/id -u")
    assert lab.ssh(node, "sudo -n /usr/bin/id -u", user="limited").stdout == "0\n"
    assert lab.ssh(node, "sudo -n /usr/bin/id", user="limited").returncode == 1
    with pytest.raises(LabError, match="visudo"):
        node.allow("limited", "not/an/absolute/path")


def test_a_unit_outlives_ssh_and_ends_with_the_power(lab: Lab, node: Node) -> None:
    started = lab.ssh(
        node, "sudo -n systemd-run --unit=outlives --collect sleep 600; echo kept >/tmp/k", user="ops"
    )
    assert started.returncode == 0
    assert node.sh("systemctl is-active outlives").strip() == "active"
    node.write("/var/lib/kept", "kept")
    node.off()
    assert node.init_pid() == 0
    node.on()
    assert node.console("systemctl is-active outlives").stdout.strip() == "inactive"
    assert node.sh("cat /var/lib/kept") == "kept"


def test_a_reboot_is_another_boot_with_the_same_disk(lab: Lab, node: Node) -> None:
    before, boots = node.sh("cat /proc/sys/kernel/random/boot_id"), node.boots()
    node.write("/var/lib/kept", "kept")
    node.reboot()
    assert node.boots() == boots + 1
    assert node.sh("cat /proc/sys/kernel/random/boot_id") != before
    assert node.sh("cat /var/lib/kept") == "kept"


def test_the_light_host_reboots_too(lab: Lab) -> None:
    boots = lab.nodes["l1"].boots()
    lab.nodes["l1"].reboot()
    assert lab.nodes["l1"].boots() == boots + 1


@pytest.mark.parametrize("fault", ["off", "freeze", "cut"])
def test_a_broken_host_is_unreachable_and_the_rest_go_on(lab: Lab, node: Node, fault: str) -> None:
    getattr(node, fault)()
    assert lab.ssh(node, "true").returncode == 255
    assert all(lab.ssh(other, "true").returncode == 0 for other in lab.nodes.values() if other is not node)
    node.restore()
    assert lab.ssh(node, "true").returncode == 0


def test_a_frozen_host_accepts_and_says_nothing_and_a_cut_one_does_not_accept(lab: Lab, node: Node) -> None:
    probe = (
        f"import socket; s = socket.create_connection(('{node.address}', 22), 2); print('connected', flush=True); "
        "s.settimeout(2); s.recv(4)"
    )

    def knock() -> tuple[str, str]:
        done = lab.run([sys.executable, "-c", probe], capture_output=True, text=True)
        return done.stdout, done.stderr.strip().rpartition("\n")[2]

    node.freeze()
    assert knock() == ("connected\n", "TimeoutError: timed out")
    node.thaw()
    assert knock() == ("connected\n", "")
    node.cut()
    assert knock() == ("", "TimeoutError: timed out")


def test_a_long_cable_is_long_and_a_slow_one_slow(lab: Lab, node: Node) -> None:
    def ping_ms() -> float:
        code = (
            f"import socket, time; t = time.monotonic(); socket.create_connection(('{node.address}', 22), 5); "
            "print((time.monotonic() - t) * 1000)"
        )
        return float(lab.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)

    ping_ms()  # ARP
    node.delay(60)
    ping_ms()
    assert ping_ms() >= 120
    node.slow(200)
    began = time.monotonic()
    assert len(lab.ssh(node, "head -c 100000 /dev/zero").stdout) == 100000
    assert time.monotonic() - began >= 2.5  # 800 kbit at 200 kbit a second, less what the queue holds


def test_a_lossy_cable_loses_and_tcp_gets_through(lab: Lab, node: Node) -> None:
    node.lose(20)
    assert len(lab.ssh(node, "head -c 300000 /dev/zero").stdout) == 300000
    sent = node.sh("cat /proc/net/snmp | grep ^Tcp: | tail -1").split()
    assert int(sent[12]) > 0  # RetransSegs


def test_a_full_disk_takes_nothing_and_an_emptied_one_does(lab: Lab, node: Node) -> None:
    node.fill_disk()
    assert node.console("echo more >/var/lib/more").returncode != 0
    node.free_disk()
    assert node.console("echo more >/var/lib/more").returncode == 0


def test_shares_are_the_machines_folders_and_read_only(lab: Lab) -> None:
    node = lab.nodes["n1"]
    assert "tiny.gguf" in node.sh("ls /models")
    assert node.console("touch /models/new").returncode != 0
    assert node.sh("/opt/llmgw/engines/vllm-0.33.0/bin/vllm --version").strip() == "0.33.0"


def test_nvidia_smi_shows_who_holds_a_gpu_to_anybody(lab: Lab, node: Node) -> None:
    node.sh("systemd-run --unit=holder --collect --setenv=CUDA_VISIBLE_DEVICES=1,2 sleep 600")
    node.hardware.hold(Holder(gpu=3, pid=4711, name="someone's job"))
    query = "nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory,process_name --format=csv,noheader,nounits"
    held = lab.ssh(node, query, user="plain").stdout.splitlines()
    uuids = [
        line.split(", ")[1]
        for line in lab.ssh(node, "nvidia-smi --query-gpu=index,uuid --format=csv").stdout.splitlines()[1:]
    ]
    assert [line.split(", ")[0] for line in held] == uuids[1:]
    assert [line.split(", ")[3] for line in held] == ["/usr/bin/sleep", "/usr/bin/sleep", "someone's job"]
    node.sh("systemctl stop holder")
    assert len(lab.ssh(node, query, user="plain").stdout.splitlines()) == 1


def test_gpus_can_be_set_while_the_host_runs(lab: Lab, node: Node) -> None:
    node.hardware.set_gpus([Gpu("NVIDIA A100-SXM4-40GB", 40960)] * 2)
    query = "nvidia-smi --query-gpu=index,name,memory.total,pci.bus_id --format=csv,noheader,nounits"
    assert node.sh(query).splitlines() == [
        "0, NVIDIA A100-SXM4-40GB, 40960, 00000000:1B:00.0",
        "1, NVIDIA A100-SXM4-40GB, 40960, 00000000:43:00.0",
    ]
    assert "\tNV18\t" in node.sh("nvidia-smi topo -m")
    node.hardware.set_gpus([])
    assert node.console("nvidia-smi -L").returncode == 9
    assert node.console("nvidia-smi --query-gpu=nonsense --format=csv,noheader,nounits").returncode == 9


def test_a_door_leads_from_the_machines_loopback_into_the_lab(lab: Lab, node: Node) -> None:
    node.sh("systemd-run --unit=web --collect python3 -m http.server 8000 --directory /etc/ssh")
    wait_until(lambda: "8000" in node.sh("ss -ltn"), lambda: "no web server", timeout_s=10)
    door = open_door(lab.spaces, 0, (node.address, 8000))
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{door.port}/lab_host_key.pub", timeout=10) as answer:
            assert answer.read().decode() == node.sh("cat /etc/ssh/lab_host_key.pub")
        with pytest.raises(LabError, match="Address already in use"):
            open_door(lab.spaces, door.port, (node.address, 8000))
    finally:
        door.shut()
    node.sh("systemctl stop web")


def test_the_command_line_drives_the_same_lab(lab: Lab, node: Node) -> None:
    def lab_command(*argv: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "tests.lab", "--name", lab.name, *argv]
        return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)

    assert f"{node.name}      {node.address}    systemd  up" in lab_command("status").stdout
    assert lab_command("console", node.name, "hostname").stdout == f"{node.name}\n"
    assert lab_command("off", node.name).returncode == 0
    assert f"{node.name}      {node.address}    systemd  off" in lab_command("status").stdout
    assert lab_command("restore").returncode == 0
    assert json.loads(lab_command("inventory").stdout) == lab.inventory()
    assert lab_command("freeze", "nobody").returncode == 1
    assert (
        lab_command("run", "ip", "-br", "addr", "show", "br0").stdout.split()[2] == f"{lab.spaces.controller}/24"
    )


DOOMED = f"doomed-{os.getpid()}"
OWNER = f"""
import sys, time
from tests.lab.hosts import Host, Init, numbered
from tests.lab.lab import Lab
lab = Lab("{DOOMED}", (*numbered(1), Host("l1", Init.LIGHT))).up()
lab.nodes["n1"].delay(5)
print(lab.spaces.switch_pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("victim", ["owner", "keeper"])
def test_nothing_is_left_when_the_owner_or_the_keeper_is_killed(victim: str) -> None:
    needed = inotify_needed()
    owner = subprocess.Popen([sys.executable, "-c", OWNER], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    assert owner.stdout
    switch = int(owner.stdout.readline())
    places = Places(DOOMED)
    assert alive(switch)
    assert inotify_needed() == needed + 16
    os.kill(owner.pid if victim == "owner" else places.read()["keeper"], signal.SIGKILL)
    if victim == "keeper":  # the kernel ends the hosts; folders stay for whoever comes next
        wait_until(lambda: not alive(switch), lambda: "the switch lives on", timeout_s=10)
        owner.kill()
        owner.wait()
        wait_until(lambda: not processes_of(DOOMED), lambda: str(remains(DOOMED)), timeout_s=10)
        Lab(DOOMED, ()).down()
    owner.wait()
    owner.stdout.close()
    wait_until(lambda: not remains(DOOMED), lambda: str(remains(DOOMED)), timeout_s=20)
    assert inotify_needed() == needed


def test_two_labs_at_once_share_a_subnet_and_nothing_else(lab: Lab) -> None:
    name = f"second-{os.getpid()}"
    with Lab(name, numbered(1)) as second:
        assert second.nodes["n1"].address == lab.nodes["n1"].address
        keys = {one.nodes["n1"].sh("cat /etc/ssh/lab_host_key.pub") for one in (lab, second)}
        assert len(keys) == 2
        assert second.ssh(second.nodes["n1"], "hostname").stdout == "n1\n"
    assert not remains(name)


def test_a_second_lab_of_the_same_name_is_refused_and_the_first_goes_on(lab: Lab) -> None:
    with pytest.raises(LabError, match=f"a lab named {lab.name} is up"):
        Lab(lab.name, numbered(1)).up()
    assert lab.ssh(lab.nodes["n1"], "true").returncode == 0


@pytest.mark.slow
def test_thirty_two_hosts_come_up() -> None:
    needed = inotify_needed()
    name = f"many-{os.getpid()}"
    with Lab(name, numbered(32)) as lab:
        running = [node.sh("systemctl is-system-running || true").strip() for node in lab.nodes.values()]
        assert running == ["running"] * 32
        assert lab.ssh(lab.nodes["n32"], "hostname").stdout == "n32\n"
    assert not remains(name)
    assert inotify_needed() == needed
    assert not list(cgroup2().glob(f"llmgw-lab-{name}*"))
