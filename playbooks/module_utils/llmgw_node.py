# Copyright llmgw developers. Apache-2.0.
"""What llmgw's modules share on a node: bounded commands, runs and their marks, the supervisors, GPUs, ports.

A run is one rank of a replica. Its folder is RUN_DIR/UNIT: `marks.json` says whose it is, `start` is what the
supervisor executes, `pid` names the process where there is no systemd. Python 3.8 and later, standard library only.
"""

import errno
import fcntl
import glob
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import time

UNIT = re.compile(r"llmgw-[A-Za-z0-9][A-Za-z0-9._:-]*\Z")
SUPERVISORS = ["auto", "systemd", "systemd-user", "process"]
MARKS = ("replica", "rank", "plan", "action", "spec")
SHARED_MEMORY = ("nccl-*", "psm_*", "torch_*", "vllm_*", "sem.mp-*", "sglang_*")
# Run by the supervisor, as the engines' account, when nothing of a run is left. A file that any process has mapped or
# open stays.
SWEEP = """#!/bin/sh
cd /dev/shm || exit 0
for file in %s; do
    [ -f "$file" ] && [ -O "$file" ] || continue
    grep -qsF "/dev/shm/$file" /proc/[0-9]*/maps && continue
    find /proc/[0-9]*/fd -lname "/dev/shm/$file" 2>/dev/null | grep -q . && continue
    rm -f -- "$file"
done
exit 0
""" % " ".join(SHARED_MEMORY)
PROPERTIES = ("Id", "LoadState", "ActiveState", "SubState", "MainPID", "Result", "ExecMainStatus", "Environment")


class Problem(Exception):
    """What an admin can mend, in one line."""


def run(argv, timeout=20, env=None):
    """Exit status, stdout and stderr of a command; 127 where there is no such program, 124 where it took too long."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=timeout,
            env=env,
        )
    except subprocess.TimeoutExpired:
        return 124, "", "%s did not answer in %d s" % (argv[0], timeout)
    except OSError as error:
        return 127, "", "%s: %s" % (argv[0], error.strerror)
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


def privileged(argv, timeout=20):
    """As run, as root: directly where this is root, else through sudo, which may not ask for a password."""
    return run(argv if os.geteuid() == 0 else ["sudo", "-n"] + argv, timeout)


def where(name):
    """The absolute path of a program, as sudoers lines name it."""
    return shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin:" + os.environ.get("PATH", "")) or name


def each_rank(module, act, idle):
    """End the module with what `act(rank, check_mode)` did for each of its ranks; what is in `idle` changed nothing."""
    results, changed, failed = {}, False, []
    for rank in module.params["ranks"]:
        try:
            results[rank["unit"]] = dict(act(rank, module.check_mode), ok=True)
            changed = changed or results[rank["unit"]]["did"] not in idle
        except (Problem, OSError) as error:
            results[rank["unit"]] = {"ok": False, "why": str(error)}
            failed.append("%s: %s" % (rank["unit"], str(error).splitlines()[0]))
    (module.fail_json if failed else module.exit_json)(changed=changed, ranks=results, msg="; ".join(failed))


# -- supervisors ---------------------------------------------------------------------------------------------------
def supervisor_here(wanted):
    """The supervisor to use: what the inventory says, or for `auto` what the node has."""
    if wanted != "auto":
        return wanted
    if os.path.isdir("/run/systemd/system"):
        return "systemd"
    return "process"


class Systemd(object):
    """Transient units of the system's manager, or of the account's own (`systemd-user`)."""

    def __init__(self, user):
        self.user = user

    def _systemctl(self, verb, *units, **more):
        argv = [where("systemctl")] + (["--user"] if self.user else []) + [verb] + list(units)
        if self.user:
            return run(argv, more.get("timeout", 20), self._environment())
        return (run if verb in ("show", "list-units") else privileged)(argv, more.get("timeout", 20))

    @staticmethod
    def _environment():
        return dict(os.environ, XDG_RUNTIME_DIR="/run/user/%d" % os.getuid())

    def start(self, unit, folder, marks, account, stop_s):
        argv = [where("systemd-run")] + (["--user"] if self.user else [])
        argv += ["--quiet", "--unit=" + unit]
        if not self.user:
            argv += ["--uid=" + account, "--gid=" + account]
        argv += [
            "--slice=llmgw.slice",
            "--property=Type=exec",
            "--property=KillMode=mixed",
            "--property=TimeoutStopSec=%d" % stop_s,
            "--property=LimitMEMLOCK=infinity",
            "--property=LimitNOFILE=1048576",
            "--property=OOMScoreAdjust=500",
            "--property=SyslogIdentifier=" + unit,
            "--property=ExecStopPost=-" + os.path.join(folder, "sweep"),
        ]
        argv += ["--setenv=LLMGW_%s=%s" % (key.upper(), marks[key]) for key in MARKS]
        argv += ["--", os.path.join(folder, "start")]
        rc, _, err = run(argv, 60, self._environment()) if self.user else privileged(argv, 60)
        if rc:
            raise Problem("systemd-run: " + (err.strip().splitlines() or ["exit status %d" % rc])[-1])

    def states(self, units):
        """What systemd says of each unit, by name; a unit that it does not know is missing."""
        if not units:
            return {}
        rc, out, err = self._systemctl("show", "--property=" + ",".join(PROPERTIES), *units)
        if rc:
            raise Problem("systemctl show: " + err.strip()[-300:])
        found = {}
        for block in out.split("\n\n"):
            values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
            if values.get("LoadState") not in (None, "not-found"):
                found[values["Id"][: -len(".service")]] = values
        return found

    def known_units(self):
        """The llmgw units that systemd has loaded, with or without a folder of ours."""
        rc, out, _ = self._systemctl("list-units", "--all", "--plain", "--no-legend", "--full", "llmgw-*.service")
        return (
            [line.split()[0][: -len(".service")] for line in out.splitlines() if line.split()] if rc == 0 else []
        )

    def state(self, unit, folder):
        """running | stopping | exited, the main pid, and how it ended."""
        return self.reading(self.states([unit + ".service"]).get(unit))

    @staticmethod
    def reading(values):
        if values is None:
            return "exited", None, ""
        pid = int(values.get("MainPID") or 0) or None
        if values["ActiveState"] in ("active", "activating", "reloading"):
            return "running", pid, ""
        if values["ActiveState"] == "deactivating":
            return "stopping", pid, ""
        return "exited", None, "%s, status %s" % (values.get("Result", ""), values.get("ExecMainStatus", ""))

    def terminate(self, unit, folder):
        self._act("stop", "--no-block", unit + ".service")

    def kill(self, unit, folder):
        self._act("kill", "--kill-whom=all", "--signal=SIGKILL", unit + ".service")

    def _act(self, verb, *words):
        rc, _, err = self._systemctl(verb, *words)
        if rc and "not loaded" not in err:
            raise Problem("systemctl %s: %s" % (verb, (err.strip().splitlines() or ["exit status %d" % rc])[-1]))

    def forget(self, unit, folder):
        """Drop a failed unit that systemd keeps for us to read."""
        if self.states([unit + ".service"]):
            self._systemctl("reset-failed", unit + ".service")

    def group(self, unit, folder):
        """Processes of the unit that are still there; systemd ends them all, or says `deactivating`."""
        state, pid, _ = self.state(unit, folder)
        return [] if state == "exited" else [pid or 0]

    def sweep(self, folder, account):
        """Nothing: the unit itself does it, as ExecStopPost."""

    def log(self, unit, folder, lines):
        """The engine's last lines of this start, without those of systemd itself."""
        since = (read_marks(folder) or {}).get("started_at", 0)
        argv = [where("journalctl")] + (["--user"] if self.user else [])
        argv += ["--identifier=" + unit, "--since=@%d" % since, "--lines=%d" % lines]
        argv += ["--output=cat", "--no-pager", "--quiet"]
        rc, out, _ = run(argv, 20, self._environment()) if self.user else privileged(argv)
        return out.splitlines()[-lines:] if rc == 0 else []


class Process(object):
    """A process in a session of its own, for nodes without systemd: pid file, log file."""

    def start(self, unit, folder, marks, account, stop_s):
        keep_log(folder)
        log = os.path.join(folder, "log")
        argv = as_account(account, [os.path.join(folder, "start")])
        environment = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}
        environment.update({"LLMGW_" + key.upper(): str(marks[key]) for key in MARKS})
        environment["LLMGW_UNIT"] = unit
        _detached(argv, environment, log, os.path.join(folder, "pid"))

    def state(self, unit, folder):
        pid = self._pid(folder)
        if pid is None:
            return "exited", None, ""
        return ("stopping" if os.path.exists(os.path.join(folder, "stopping")) else "running"), pid, ""

    @staticmethod
    def _pid(folder):
        """The run's main process, if the pid is still its."""
        try:
            with open(os.path.join(folder, "pid")) as file:
                kept = json.load(file)
        except (OSError, ValueError):
            return None
        return kept["pid"] if born(kept["pid"]) == kept["born"] else None

    def terminate(self, unit, folder):
        pid = self._pid(folder)
        if pid:
            with open(os.path.join(folder, "stopping"), "w"):
                pass
            _signal(pid, signal.SIGTERM)

    def kill(self, unit, folder):
        for pid in self.group(unit, folder):
            _signal(pid, signal.SIGKILL)

    def forget(self, unit, folder):
        for name in ("pid", "stopping"):
            if os.path.exists(os.path.join(folder, name)):
                os.unlink(os.path.join(folder, name))

    def group(self, unit, folder):
        """Every process of the run: of its session, or carrying its marks in its environment."""
        try:
            with open(os.path.join(folder, "pid")) as file:
                session = json.load(file)["pid"]
        except (OSError, ValueError):
            session = None
        kept = read_marks(folder) or {}
        words = {"LLMGW_UNIT": unit, "LLMGW_PLAN": kept.get("plan"), "LLMGW_ACTION": kept.get("action")}
        marks = {("%s=%s" % (name, value)).encode() for name, value in words.items() if value is not None}
        return [
            pid for pid in pids() if (session and session_of(pid) == session) or marks <= set(environment_of(pid))
        ]

    def sweep(self, folder, account):
        """Give back the shared memory that the run left behind."""
        program = os.path.join(folder, "sweep")
        if account and os.path.exists(program):
            run(as_account(account, [program]), 30)

    def log(self, unit, folder, lines):
        try:
            with open(os.path.join(folder, "log"), "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - 256 * 1024))
                return file.read().decode("utf-8", "replace").splitlines()[-lines:]
        except OSError:
            return []


def as_account(account, argv):
    """The command as the engines' account runs it: by setpriv where this is root, else as it is."""
    if os.geteuid() != 0 or account == "root":
        return argv
    entry = pwd.getpwnam(account)
    ids = ["--reuid=%d" % entry.pw_uid, "--regid=%d" % entry.pw_gid, "--init-groups"]
    return [where("setpriv")] + ids + argv


def keep_log(folder):
    """Put a run's log where it stays when the folder goes, or a new start writes its own: FOLDER.log."""
    log = os.path.join(folder, "log")
    if os.path.exists(log):
        os.replace(log, folder + ".log")


def _detached(argv, environment, log, pid_file):
    """Start a program as the leader of a session of its own; it writes its pid and birth down before it starts."""
    between = os.fork()
    if between:
        os.waitpid(between, 0)
        return
    try:
        if os.fork():
            os._exit(0)
        os.setsid()
        os.chdir("/")
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, nothing), (1, output), (2, output)):
            os.dup2(source, target)
        os.closerange(3, 4096)
        with open(pid_file + ".new", "w") as file:
            json.dump({"pid": os.getpid(), "born": born(os.getpid())}, file)
        os.replace(pid_file + ".new", pid_file)
        os.execve(argv[0], argv, environment)
    finally:
        os._exit(127)


def make_supervisor(kind):
    return Process() if kind == "process" else Systemd(user=kind == "systemd-user")


# -- processes -----------------------------------------------------------------------------------------------------
def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid):
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def born(pid):
    """A process's start, clock ticks after boot: proc_pid_stat(5), field 22. None for a dead one and a zombie."""
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] != "Z" else None


def session_of(pid):
    fields = _stat(pid)
    return int(fields[3]) if fields and fields[0] != "Z" else None


def environment_of(pid):
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def marked_processes():
    """The marks of every process that carries some in its environment and may be looked at, by pid."""
    found = {}
    for pid in pids():
        words = dict(
            word[6:].split(b"=", 1) for word in environment_of(pid) if word[:6] == b"LLMGW_" and b"=" in word
        )
        if b"UNIT" in words:
            found[pid] = {key.decode().lower(): value.decode("utf-8", "replace") for key, value in words.items()}
    return found


def _signal(pid, number):
    try:
        os.kill(pid, number)
    except OSError as error:
        if error.errno != errno.ESRCH:
            raise Problem("signal %d to pid %d: %s" % (number, pid, error.strerror))


# -- runs ----------------------------------------------------------------------------------------------------------
def check_unit(unit):
    if not UNIT.match(unit) or len(unit) > 200:
        raise Problem("%r is no unit of llmgw" % unit)
    return unit


def read_marks(folder):
    """The marks of a run; None where there are none that can be read."""
    try:
        with open(os.path.join(folder, "marks.json")) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def runs_in(run_dir):
    """The units that have a folder with marks, and those marks."""
    found = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(run_dir), "llmgw-*", "marks.json"))):
        marks = read_marks(os.path.dirname(path))
        if marks:
            found[os.path.basename(os.path.dirname(path))] = marks
    return found


class Held(object):
    """One module at a time on a run: a second start that comes while the first is under way waits for it."""

    def __init__(self, run_dir, unit):
        self.path = os.path.join(run_dir, "." + unit + ".lock")

    def __enter__(self):
        self.file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
        deadline = time.time() + 60
        while True:
            try:
                fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return self
            except OSError:
                if time.time() > deadline:
                    raise Problem("another step on this run has been under way for 60 s")
                time.sleep(0.1)

    def __exit__(self, *_):
        os.close(self.file)


# -- GPUs and ports ------------------------------------------------------------------------------------------------
def gpu_query(nvidia_smi):
    """The two listings of nvidia-smi as text, and what went wrong (empty where there are no GPUs at all)."""
    if not (os.path.exists(nvidia_smi) or shutil.which(nvidia_smi)):
        return "", "", ""
    rc, gpus, err = run(
        [nvidia_smi, "--query-gpu=index,uuid,name,memory.total,pci.bus_id", "--format=csv,noheader,nounits"], 30
    )
    if rc:
        return "", "", "nvidia-smi: " + (err or gpus).strip()[-300:]
    rc, apps, err = run(
        [
            nvidia_smi,
            "--query-compute-apps=gpu_uuid,pid,used_memory,process_name",
            "--format=csv,noheader,nounits",
        ],
        30,
    )
    return gpus, apps, "" if rc == 0 else "nvidia-smi: " + (err or apps).strip()[-300:]


def gpu_holders(nvidia_smi, indices):
    """Who holds the GPUs: a list of (index, pid, name). Problem where nvidia-smi does not answer."""
    if not indices:
        return []
    gpus, apps, problem = gpu_query(nvidia_smi)
    if problem or not gpus:
        raise Problem(problem or "there is no %s, but GPUs are asked for" % nvidia_smi)
    by_uuid = {}
    for line in gpus.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) >= 2 and fields[0].isdigit():
            by_uuid[fields[1]] = int(fields[0])
    missing = sorted(set(indices) - set(by_uuid.values()))
    if missing:
        raise Problem("there is no GPU %s" % ", ".join(map(str, missing)))
    holders = []
    for line in apps.splitlines():
        fields = [field.strip() for field in line.split(",", 3)]
        if len(fields) == 4 and by_uuid.get(fields[0]) in indices and fields[1].isdigit():
            holders.append((by_uuid[fields[0]], int(fields[1]), fields[3]))
    return holders


def listening():
    """The TCP ports that something listens on, from /proc/net/tcp and tcp6 (state 0A)."""
    found = set()
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(path) as file:
                next(file, None)
                for line in file:
                    fields = line.split(None, 4)
                    if fields[3] == "0A":
                        found.add(int(fields[1].rpartition(":")[2], 16))
        except OSError:
            pass
    return sorted(found)


def taken_ports(ports):
    """Those of the ports that cannot be listened on now."""
    busy = set(listening())
    found = [port for port in ports if port in busy]
    for port in ports:
        if port not in busy:
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("0.0.0.0", port))
                except OSError:
                    found.append(port)
    return sorted(found)
