"""The one place where ansible-runner is used: a playbook in, the answer of each host out, as it comes.

Every run has a fresh private folder that is gone afterwards, checks host keys, never waits for a prompt, is bounded
in time, and leaves no worker behind. What is passed to hosts is data: nothing in it is ever read as a template.
"""

import configparser
import json
import os
import queue
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from llmgw.base import LlmgwError, natural, visible
from llmgw.remote.scratch import run_folder

PLAYBOOKS = Path(__file__).resolve().parent.parent / "playbooks"
GRACE_S = 10.0
FORKS_PER_PROCESSOR = 5
MOST_FORKS = 50
EVENT_BYTES = 256 << 20  # ansible-runner drops a result above MAX_EVENT_RES without a word; its default is 700 kB
_ANSWERS = {
    "runner_on_ok": "ok",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
}

Outcome = Literal["ok", "failed", "unreachable", "unanswered"]


@dataclass(frozen=True, slots=True)
class Play:
    """One playbook on some hosts. `by_host` is what each host gets, under the name that the playbook reads."""

    playbook: str
    variable: str
    by_host: Mapping[str, Any]
    deadline_s: float
    check: bool = False


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """How a play ended on one host. `result` is the module's own; `why` one or more lines for a person."""

    host: str
    outcome: Outcome
    result: Mapping[str, Any]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    """Runs of playbooks on one inventory that share SSH connections: those whose sockets are in one folder."""

    inventory: Path
    sockets: Path
    connect_s: int = 10


@contextmanager
def open_session(inventory: Path, *, connect_s: int = 10) -> Iterator[Session]:
    """A session on that inventory. Its connections end with it, or by themselves a minute after a killed llmgw."""
    with run_folder(_short_folder()) as sockets:
        try:
            yield Session(inventory.absolute(), sockets, connect_s)  # Ansible runs in the playbooks' folder
        finally:
            _end_connections(sockets)


def _end_connections(sockets: Path) -> None:
    for socket in sockets.iterdir():
        subprocess.run(
            ["ssh", "-o", f"ControlPath={socket}", "-O", "exit", "llmgw"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=5,
            check=False,
        )


def _short_folder() -> Path:
    """A folder whose path leaves room for a socket's name: Unix sockets end at 108 bytes."""
    for folder in (os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir()):
        if folder and len(folder) < 40 and os.access(folder, os.W_OK):
            return Path(folder)
    return Path("/tmp")  # noqa: S108


def run_play(session: Session, play: Play, *, stopped: Callable[[], bool] = lambda: False) -> Iterator[HostAnswer]:
    """Each host's answer as it arrives; `unanswered` for those of which none came before the deadline or the stop.

    LlmgwError where Ansible could not begin: no inventory, an error in it, no ansible-playbook.
    """
    answers: queue.SimpleQueue[HostAnswer | BaseException | None] = queue.SimpleQueue()
    began = time.monotonic()
    worker = threading.Thread(
        target=_work, args=(session, play, answers, stopped), name=f"llmgw-{play.playbook}", daemon=True
    )
    worker.start()
    waiting = dict.fromkeys(natural(play.by_host))
    while (answer := answers.get()) is not None:
        if isinstance(answer, BaseException):
            worker.join()
            raise answer
        waiting.pop(answer.host, None)
        yield answer
    worker.join()
    late = time.monotonic() - began >= play.deadline_s
    why = f"no answer within {play.deadline_s:.0f} s" if late else "Ansible left it out: is it in the inventory?"
    for host in waiting:
        yield HostAnswer(host, "unanswered", {}, why)


def _work(
    session: Session,
    play: Play,
    answers: "queue.SimpleQueue[HostAnswer | BaseException | None]",
    stopped: Callable[[], bool],
) -> None:
    try:
        with run_folder() as folder:
            _run(session, play, folder, answers, stopped)
        answers.put(None)
    except BaseException as error:
        answers.put(error)


def _run(
    session: Session,
    play: Play,
    folder: Path,
    answers: "queue.SimpleQueue[HostAnswer | BaseException | None]",
    stopped: Callable[[], bool],
) -> None:
    import ansible_runner

    variables = folder / "variables.json"
    variables.touch(mode=0o600)
    variables.write_text(json.dumps({play.variable: literal(play.by_host)}))
    ending = _Ending(time.monotonic() + play.deadline_s, stopped)
    listener = _Listener(folder, answers, ending)
    run = ansible_runner.run(
        private_data_dir=str(folder),
        project_dir=str(PLAYBOOKS),
        playbook=f"{play.playbook}.yml",
        inventory=str(session.inventory),
        cmdline=_options(variables, check=play.check),
        envvars=_environment(session, folder),
        settings={"pexpect_timeout": 0.2, "pexpect_use_poll": True},
        forks=forks(session.inventory.parent / "ansible.cfg", len(play.by_host)),
        suppress_env_files=True,
        quiet=True,
        event_handler=listener.event,
        status_handler=listener.status,
        cancel_callback=ending.cancel,
    )
    if not listener.began and not ending.asked:
        raise LlmgwError(
            f"ansible-playbook could not begin ({run.rc}): {_last_words(run)}",
            hint=f"try: ansible-inventory -i {session.inventory} --list",
        )


def _options(variables: Path, *, check: bool) -> str:
    """Of ansible-playbook. The check of a role's arguments (its tag is `always`) is for those who run it by hand."""
    return f"-e @{shlex.quote(str(variables))} --skip-tags always" + (" --check --diff" if check else "")


def forks(settings: Path, hosts: int) -> int | None:
    """How many hosts Ansible works on at once; None where the environment or the site's ansible.cfg says it.

    A worker takes a third of a second of a processor for a host and 13 MB of its own (ansible-core 2.19): more than
    five for each processor would only take memory.
    """
    own = configparser.ConfigParser(interpolation=None)
    with suppress(configparser.Error):  # which ansible-playbook will put in its own words
        own.read(settings)
    if os.environ.get("ANSIBLE_FORKS") or own.has_option("defaults", "forks"):
        return None
    return max(1, min(FORKS_PER_PROCESSOR * (os.cpu_count() or 1), MOST_FORKS, hosts))


class _Ending:
    """When a run is over although it goes on: SIGTERM to ansible-playbook, which ends its workers; later the axe."""

    def __init__(self, deadline: float, stopped: Callable[[], bool]) -> None:
        self.deadline = deadline
        self.stopped = stopped
        self.pid: int | None = None
        self.asked = 0.0

    def cancel(self) -> bool:
        now = time.monotonic()
        if not self.asked and (now > self.deadline or self.stopped()):
            self.asked = now
            if self.pid:
                os.kill(self.pid, signal.SIGTERM)
        return bool(self.asked) and now - self.asked > (GRACE_S if self.pid else 0)


class _Listener:
    """Turns ansible-runner's events into answers."""

    def __init__(
        self, folder: Path, answers: "queue.SimpleQueue[HostAnswer | BaseException | None]", ending: _Ending
    ) -> None:
        self.folder = folder
        self.answers = answers
        self.ending = ending
        self.began = False

    def status(self, status: Mapping[str, Any], runner_config: Any) -> None:
        """ansible-runner writes its whole environment to a file: away with it as soon as it is there."""
        if status["status"] == "running":
            Path(runner_config.artifact_dir, "command").unlink(missing_ok=True)

    def event(self, event: Mapping[str, Any]) -> bool:
        """False: the event is not kept in a file."""
        kind = event["event"]
        self.ending.pid = event.get("pid") or self.ending.pid
        if kind == "playbook_on_play_start":
            self.began = True
        if kind in _ANSWERS:
            self._answer(kind, event["event_data"])
        return False

    def _answer(self, kind: str, found: Mapping[str, Any]) -> None:
        action = str(found.get("task_action", ""))
        last = "llmgw_" in action or kind != "runner_on_ok"
        if not last or found.get("ignore_errors"):
            return
        result = found.get("res") or {}
        why = "" if kind == "runner_on_ok" else _why(result)
        self.answers.put(HostAnswer(found["host"], _ANSWERS[kind], result, why))  # type: ignore[arg-type]


_PREAMBLE = re.compile(
    r"^(Task failed: )?"
    r'((Data could not be sent to remote host "[^"]*"\. Make sure this host can be reached over ssh|'
    r"Failed to connect to the host via ssh): )?"
)
"""What Ansible's ssh connection (ansible-core 2.19 to 2.21, plugins/connection/ssh.py) says before SSH's own words."""


def _why(result: Mapping[str, Any]) -> str:
    """The words of a failed task: its own message, else the end of what its module wrote."""
    words = [str(result.get(key, "")).strip() for key in ("msg", "module_stderr", "module_stdout", "stderr")]
    return next((_PREAMBLE.sub("", word)[-2000:] for word in words if word), "no reason given")


def _last_words(run: Any) -> str:
    """The end of what ansible-playbook printed, for a run that did not begin."""
    try:
        text = run.stdout.read()
    except (OSError, AttributeError, ValueError):
        return "it printed nothing"
    lines = [line for line in visible(text.replace("\r", "").replace("\n", "\0")).split("\\x00") if line.strip()]
    return " ".join(lines[-6:])[-1200:] or "it printed nothing"


def literal(value: Any) -> Any:
    """The value with every text marked as what Ansible must not read as a template (`__ansible_unsafe`)."""
    if isinstance(value, str):
        return {"__ansible_unsafe": value}
    if isinstance(value, Mapping):
        return {str(key): literal(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [literal(item) for item in value]
    return value


def _environment(session: Session, folder: Path) -> dict[str, str]:
    """What makes Ansible check keys, not hang, not ask, and find itself under cron."""
    keep = {
        "ANSIBLE_CACHE_PLUGIN": "memory",
        "ANSIBLE_DEPRECATION_WARNINGS": "False",
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        "ANSIBLE_LOCALHOST_WARNING": "False",
        "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
        "ANSIBLE_NOCOLOR": "True",
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_RETRY_FILES_ENABLED": "False",
        "ANSIBLE_SSH_ARGS": ssh_arguments(session.connect_s),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(session.sockets),
        "ANSIBLE_SSH_RETRIES": "0",
        "ANSIBLE_TIMEOUT": str(session.connect_s),
        "LC_ALL": "C.UTF-8",
        "MAX_EVENT_RES": str(EVENT_BYTES),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "/usr/bin:/bin")]),
    }
    settings = session.inventory.parent / "ansible.cfg"
    return keep | ({"ANSIBLE_CONFIG": str(settings)} if settings.is_file() else {})


def ssh_arguments(connect_s: int) -> str:
    """Options of ssh under which a silent node is noticed: in a third of a minute at the default of 10 s."""
    alive = max(2, connect_s // 2)
    return (
        "-o ControlMaster=auto -o ControlPersist=60s -o BatchMode=yes -o ForwardAgent=no "
        f"-o StrictHostKeyChecking=yes -o ServerAliveInterval={alive} -o ServerAliveCountMax=3"
    )
