"""What a candidate's process can see, do and leave behind, at each level of what the system allows."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from mm32.verify import Report, Verdict, verify
from mm32.verify.processes import launch, sandbox, supervisor
from mm32.verify.processes.process import Limits, WorkerProcess
from support.verify.fixtures import REFERENCE, RIGHT, Leftovers, Run, forward
from support.verify.pages import page

LEVELS = launch.LEVELS
Write = Callable[[str, str], Path]
MODULE = "\nclass ModelNew(__import__('torch').nn.Module): pass\n"


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., WorkerProcess]]:
    """Yield a function that starts a candidate and lets it load a script with this source."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    workers = []

    def call(source: str, hidden: Path | None = None) -> WorkerProcess:
        script = tmp_path / "candidate.py"
        script.write_text(source + MODULE + "__import__('sys').stdout.flush()\n")
        worker = WorkerProcess("candidate", Limits(60.0, 8.0), script=script, hidden=hidden)
        workers.append(worker)
        worker.ask("load", path=str(script), class_name="ModelNew", kernel=None)
        return worker

    yield call
    for worker in workers:
        worker.close()


def printed(worker: WorkerProcess) -> Any:
    """Return the JSON that a worker has printed, once it is there."""
    give_up = time.monotonic() + 10
    while time.monotonic() < give_up:
        with contextlib.suppress(ValueError):
            return json.loads(worker.output())
        time.sleep(0.01)
    raise AssertionError(worker.output())


def parents(*workers: WorkerProcess) -> set[int]:
    return {psutil.Process(worker.launched.supervisor).ppid() for worker in workers}


def level(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(launch, "LEVELS", LEVELS[number:])


LOOK = """
import json, os, socket
from pathlib import Path

def attempt(do):
    try:
        return str(do())
    except OSError as error:
        return type(error).__name__

outside, hidden, tool = {outside!r}, {hidden!r}, {tool}
caps = [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Cap")]
print(json.dumps({{
    "user": os.getuid(),
    "processes": len([name for name in os.listdir("/proc") if name.isdigit()]),
    "sees the tool": os.path.exists(f"/proc/{{tool}}"),
    "parent": os.getppid(),
    "capabilities": sorted(set(caps)),
    "network": attempt(lambda: [name for _, name in socket.if_nameindex()]),
    "writes outside": attempt(lambda: Path(outside, "x").write_text("x")),
    "writes beside": attempt(lambda: Path(__file__).with_name("x").write_text("x")),
    "writes home": attempt(lambda: (Path.home() / "x").write_text("x")),
    "writes temporary": attempt(lambda: Path("/tmp/x-of-a-test").write_text("x")),
    "hidden": attempt(lambda: Path(hidden).read_text()),
    "environment of the parent": attempt(lambda: Path("/proc", str(os.getppid()), "environ").read_bytes()),
    "memory of the tool": attempt(lambda: open(f"/proc/{{tool}}/mem", "rb").close()),
    "kills the parent": attempt(lambda: os.kill(os.getppid(), 9)) if {kill} else "",
    "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + name)),
    "agent": "SSH_AUTH_SOCK" in os.environ,
}}, indent=1))
"""


def look(
    start: Callable[..., WorkerProcess], tmp_path: Path, kill: bool = False
) -> tuple[dict[str, Any], WorkerProcess]:
    outside = Path(__file__).parent
    hidden = tmp_path / "reference.py"
    hidden.write_text("SECRET")
    source = LOOK.format(outside=str(outside), hidden=str(hidden), tool=os.getpid(), kill=kill)
    worker = start(source, hidden)
    found = printed(worker)
    (outside / "x").unlink(missing_ok=True)
    Path("/tmp/x-of-a-test").unlink(missing_ok=True)
    return found, worker


def test_what_a_candidate_sees_and_may_do(
    start: Callable[..., WorkerProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/nowhere")
    found, worker = look(start, tmp_path)
    words = worker.isolation
    assert found["memory of the tool"] in ("PermissionError", "FileNotFoundError")
    assert found["writes home"] == "1"
    assert found["descriptors"] == [0, 1, 2, 3]
    assert found["agent"] is False
    if sandbox.PID_NAMESPACE in words:
        assert found["parent"] == 1
        assert found["environment of the parent"] == "PermissionError"
    if sandbox.PID_NAMESPACE in words and sandbox.VIEW in words:
        assert found["sees the tool"] is False
        assert found["processes"] == 2
    if "no network" in words:
        assert found["network"] == "['lo']"
    if sandbox.VIEW in words:
        assert found["writes outside"] == "OSError"  # read-only file system
        assert found["hidden"] in ("", "FileNotFoundError")
        assert not Path("/tmp/x-of-a-test").exists()
    if sandbox.USER in words:
        assert found["user"] not in (0, os.getuid())
    if sandbox.PID_NAMESPACE in words or sandbox.USER in words:
        found, worker = look(start, tmp_path, kill=True)
        assert found["kills the parent"] in ("PermissionError", "None")  # None: ignored by a namespace's first process
        worker.ask("get_inputs")  # it has not died
    if sandbox.CAPABILITIES in words:
        assert found["capabilities"] == ["0" * 16]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("number", range(len(LEVELS)))
def test_every_level_works(
    start: Callable[..., WorkerProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    level(monkeypatch, number)
    found, worker = look(start, tmp_path)
    assert found["writes home"] == "1"
    assert found["memory of the tool"] in ("PermissionError", "FileNotFoundError")
    # What the system refused is not claimed, and what is claimed is true.
    assert (sandbox.USER in worker.isolation) == (found["user"] != os.getuid())
    assert (sandbox.PID_NAMESPACE in worker.isolation) == (found["parent"] == 1)
    assert (sandbox.VIEW in worker.isolation) == (found["writes outside"] == "OSError")
    if not any(user for _, _, user in LEVELS[number:]):
        assert sandbox.USER not in worker.isolation
    if number == len(LEVELS) - 1:
        assert worker.isolation == [sandbox.CAPABILITIES]


def test_a_level_that_does_not_work_out_is_given_up(
    start: Callable[..., WorkerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = launch.needed
    # Only root can read /proc/1/mem.
    monkeypatch.setattr("mm32.verify.processes.process.needed", lambda: [*usual(), "/proc/1/mem"])
    worker = start("print('1')")
    assert sandbox.USER not in worker.isolation
    assert printed(worker) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_folder_that_an_attempt_gave_to_another_user_is_taken_back(
    start: Callable[..., WorkerProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in a container or chroot without mounts, with Python below a home folder: another user is tried, and cannot read it.
    usual = launch.needed
    monkeypatch.setattr("mm32.verify.processes.process.needed", lambda: [*usual(), "/proc/1/mem"])
    monkeypatch.setattr(launch, "LEVELS", tuple(chosen for chosen in LEVELS if not chosen[1]))
    found, worker = look(start, tmp_path)
    assert sandbox.USER not in worker.isolation
    assert sandbox.CAPABILITIES in worker.isolation  # so that root may not write where it likes
    assert found["writes home"] == "1"


@pytest.mark.skipif(torch.cuda.is_available(), reason="where CUDA starts, the first level should work")
def test_where_cuda_does_not_start_less_is_confined(
    start: Callable[..., WorkerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if this machine had a GPU: CUDA is tried at every level but the last, and starts at none."""
    monkeypatch.setattr(launch, "_has_cuda", lambda: True)
    monkeypatch.setattr(launch, "_works", {})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")  # CUDA is not tried for a worker that is to see no GPU
    worker = start("print('1')")
    assert worker.isolation == [sandbox.CAPABILITIES]
    assert printed(worker) == 1
    assert launch._works == {(LEVELS, True): len(LEVELS) - 1}


DAEMONS = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            sys.stdout.close()
            os.execvp("sh", ["sh", "-c", "while true; do :; done # {mark}"])
        time.sleep(1000)
    os._exit(0)
time.sleep(0.3)
print(1)
"""


def busy(mark: str) -> list[psutil.Process]:
    return [one for one in psutil.process_iter(["cmdline"]) if mark in " ".join(one.info["cmdline"] or [])]


# Timers that send SIGCONT every few ms: the kernel then continues a process that was stopped. Each time it works for 1 ms. One
# timer is not enough: it is dead for good if its signal is pending when SIGSTOP comes.
TIMER = """
import ctypes, signal, time

def work(*_):
    end = time.perf_counter() + 0.001
    while time.perf_counter() < end:
        pass

signal.signal(signal.SIGCONT, work)
event = (ctypes.c_int * 16)()
event[2], event[3] = signal.SIGCONT, 0  # SIGEV_SIGNAL
libc = ctypes.CDLL(None)
for number in range(12):
    timer, every = ctypes.c_void_p(), 3000000 + 1700000 * number
    assert libc.timer_create(1, event, ctypes.byref(timer)) == 0
    assert libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, every, 0, every), None) == 0
"""


@pytest.mark.parametrize("number", range(len(LEVELS)))
def test_a_process_that_its_own_timer_continues_has_not_stood_still(
    start: Callable[..., WorkerProcess], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    level(monkeypatch, number)
    worker = start(TIMER)
    with worker.paused() as pause:
        time.sleep(0.3)
    assert not pause.still
    quiet = start("")
    with quiet.paused() as pause:
        time.sleep(0.3)
    assert pause.still


@pytest.mark.parametrize("number", [0, len(LEVELS) - 1])
def test_daemons_are_stopped_with_the_worker_and_end_with_it(
    start: Callable[..., WorkerProcess], monkeypatch: pytest.MonkeyPatch, number: int, leftovers: Leftovers
) -> None:
    level(monkeypatch, number)
    mark = f"mm32-test-{os.getpid()}-{number}"
    worker = start(DAEMONS.format(mark=mark))
    assert printed(worker) == 1
    (daemon,) = busy(mark)
    with worker.paused() as pause:
        assert pause.still
        before = daemon.cpu_times()
        assert daemon.status() == psutil.STATUS_STOPPED
        time.sleep(0.3)
        assert daemon.cpu_times() == before
    give_up = time.monotonic() + 10
    while daemon.cpu_times() == before and time.monotonic() < give_up:
        time.sleep(0.05)
    assert daemon.cpu_times() != before
    worker.close()
    assert busy(mark) == []
    assert not leftovers()


def test_a_system_without_descriptors_of_processes(
    start: Callable[..., WorkerProcess], monkeypatch: pytest.MonkeyPatch, leftovers: Leftovers
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    mark = f"mm32-test-{os.getpid()}-no-pidfd"
    worker = start(DAEMONS.format(mark=mark))
    assert printed(worker) == 1
    assert len(busy(mark)) == 1
    worker.close()
    assert busy(mark) == []
    assert not leftovers()


def living(worker: WorkerProcess) -> set[int]:
    """Return the ids of the worker's processes, without dead ones, which its supervisor takes away at any time."""
    found = set()
    for one in worker._members():
        with contextlib.suppress(psutil.Error):
            if one.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                found.add(one.pid)
    return found


FORKING = """
import os, time
print(1, flush=True)
end = time.monotonic() + 20
while time.monotonic() < end:  # always another process, never the same for long
    if os.fork() != 0:
        os._exit(0)
    os.setsid()
"""


@pytest.mark.parametrize("number", [0, len(LEVELS) - 1])
def test_a_process_that_flees_by_forking_is_stopped_and_ended(
    start: Callable[..., WorkerProcess], monkeypatch: pytest.MonkeyPatch, number: int, leftovers: Leftovers
) -> None:
    level(monkeypatch, number)
    worker = start("import os\nif os.fork() == 0:" + FORKING.replace("\n", "\n    "))
    assert printed(worker) == 1
    for _ in range(10):
        with worker.paused() as pause:
            if not pause.still:  # on a busy machine it may take longer than a pause waits; times are then suspect
                continue
            before, later = set(), living(worker)
            give_up = time.monotonic() + 2
            while later != before and time.monotonic() < give_up:
                time.sleep(0.1)  # a process that was about to end ends, and a look just then may miss its child
                before, later = later, living(worker)
            assert later == before  # if something still forked, these would not stay the same
            assert len(later) >= 2  # the worker, and a process that flees by forking, perhaps in the middle of a fork
            break
    else:
        pytest.fail("it was never stopped")
    worker.close()
    assert not leftovers()


def test_nothing_outlives_a_tool_that_is_killed(write: Write) -> None:
    mark = f"mm32-test-{os.getpid()}-orphan"
    candidate = write("c.py", DAEMONS.format(mark=mark).replace("print(1)", "time.sleep(1000)"))
    code = "import sys; from mm32.verify import verify; verify(sys.argv[1], sys.argv[2])"
    environment = {**os.environ, "TMPDIR": str(candidate.parent)}  # its folders stay behind there
    arguments = [sys.executable, "-c", code, str(write("r.py", REFERENCE)), str(candidate)]
    tool = subprocess.Popen(arguments, env=environment)
    give_up = time.monotonic() + 60
    while not busy(mark) and time.monotonic() < give_up:
        time.sleep(0.1)
    assert busy(mark)
    below = psutil.Process(tool.pid).children(recursive=True)
    tool.send_signal(signal.SIGKILL)
    tool.wait()
    _, alive = psutil.wait_procs(below, timeout=10)
    assert not alive
    assert not busy(mark)


def test_a_server_that_is_killed_is_started_again(start: Callable[..., WorkerProcess]) -> None:
    server, before = launch.shared(), launch._imports
    server.process.kill()
    worker = start("print(1)")
    assert printed(worker) == 1
    assert launch._imports == before
    assert launch.shared() is not server


@pytest.mark.slow
def test_where_a_server_cannot_fork_workers_import_for_themselves(
    start: Callable[..., WorkerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "_imports", 0)
    usual = launch.Server

    def server(modules: Sequence[str]) -> launch.Server:
        return usual(["mm32.verify.no_such_module"] if modules else ())

    monkeypatch.setattr(launch, "Server", server)
    monkeypatch.setattr(launch, "_shared", None)
    worker = start("import json, sys\nprint(json.dumps('mm32.verify.worker.main' in sys.modules))")
    assert launch._imports == len(launch.PRELOADED) - 1
    assert printed(worker) is True
    assert launch._shared[1].process.poll() is not None


def test_a_server_that_has_used_cuda_does_not_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    from mm32.verify.processes import forkserver

    assert forkserver.uses_cuda() == torch.cuda.is_initialized()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    code = (
        "import sys; from mm32.verify.processes import forkserver; forkserver.uses_cuda = lambda: True; "
        f"forkserver.main(['{theirs.fileno()}', '[]'])"
    )
    done = subprocess.run([sys.executable, "-c", code], pass_fds=[theirs.fileno()], check=False)
    assert done.returncode == launch.UNFIT
    ours.close()
    theirs.close()


def test_without_any_server_it_is_an_error_of_the_tool(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    def refuse(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(launch, "_imports", 0)
    monkeypatch.setattr(launch.Server, "send", refuse)
    with pytest.raises(launch.NoStart, match="a process for the scripts could not be started: no server came up"):
        run(RIGHT)


def test_the_second_verification_imports_nothing_anew(start: Callable[..., WorkerProcess]) -> None:
    first = start("pass")
    server = launch.shared().process.pid
    second = start("import sys, json\nprint(json.dumps('torch' in sys.modules))")
    assert launch.shared().process.pid == server
    # The process in between, which forks the supervisor, ends once it has reported that.
    give_up = time.monotonic() + 10
    while time.monotonic() < give_up and parents(first, second) != {server}:
        time.sleep(0.01)
    assert parents(first, second) == {server}


def test_a_server_is_kept_for_variables_that_libraries_do_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    one = launch.shared()
    monkeypatch.setenv("MM32_OF_A_TEST", "1")
    assert launch.shared() is one
    monkeypatch.setenv("OMP_NUM_THREADS", str(int(os.environ.get("OMP_NUM_THREADS", "2")) + 1))
    other = launch.shared()
    assert other is not one
    assert one.process.poll() is not None


def test_verifications_in_several_threads(write: Write, monkeypatch: pytest.MonkeyPatch, leftovers: Leftovers) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    reference = write("reference.py", REFERENCE)
    wrong = [write(f"c{i}.py", forward(f"return torch.full((64, 96), {i}.0)")) for i in range(3)]
    reports: list[Report] = []
    threads = [
        threading.Thread(target=lambda path=path: reports.append(verify(reference, path, trials=1))) for path in wrong
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [report.verdict for report in reports] == [Verdict.DIFFERENT] * 3
    assert sandbox.prctl(sandbox.PR_GET_DUMPABLE) == 1
    assert not leftovers()


def test_the_report_and_the_page_say_how_it_was_confined(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    report = run(forward("return torch.zeros(64, 96)"), trials=1)
    assert report.as_dict()["isolation"] == report.isolation
    assert f"  candidate confined by: {', '.join(report.isolation)}" in page(report, width=300)
    report.isolation = []
    assert "confined by: nothing: it ran as you, with your rights" in page(report, width=300)


def test_the_python_interface_needs_no_import_of_its_own() -> None:
    code = (
        "import mm32, sys\n"
        "assert not [name for name in sys.modules if name.startswith('mm32.verify')]\n"
        "print(mm32.verify.verify.__name__, mm32.verify.Verdict.FASTER.exit_code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["verify", "0"], done.stderr


def test_a_process_whose_first_thread_has_ended_still_lives() -> None:
    code = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "print('on', flush=True)\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            until = time.monotonic() + 10
            while supervisor._status(f"/proc/{process.pid}/stat")[0] not in supervisor.DEAD:
                assert time.monotonic() < until
                time.sleep(0.01)
            assert supervisor._of_threads(str(process.pid), "Z") not in supervisor.DEAD
        finally:
            process.kill()
