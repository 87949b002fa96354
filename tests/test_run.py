"""run.py: its messages, its stamps, and a start with the network cut."""
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import run

SCRIPT = run.ROOT / "run.py"
ODD_NAME = "Übung 1 – naïve 日本"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """run.py pointed at a small project in a folder with spaces and letters of several scripts."""
    root = tmp_path / ODD_NAME
    root.mkdir()
    shutil.copy(run.ROOT / "pyproject.toml", root)
    monkeypatch.setattr(run, "ROOT", root)
    monkeypatch.delenv("KV_VENV", raising=False)
    return root


@pytest.fixture
def calls(monkeypatch):
    """pip, recorded instead of run; `calls.answer` is what it says."""
    class Calls(list):
        answer = (True, "")
        satisfied = False

    made = Calls()

    def pip(folder, found, arguments, show=False):
        made.append(arguments)
        return (made.satisfied, "") if "--dry-run" in arguments else made.answer

    monkeypatch.setattr(run, "pip", pip)
    return made


@pytest.fixture
def tiny(project):
    """An environment without any package."""
    folder = run.environment_folder()
    venv.create(folder, with_pip=False)
    return folder


def installs(calls):
    return [arguments for arguments in calls if "--dry-run" not in arguments]


# --- any Python --------------------------------------------------------------------------------

def test_an_old_python_can_read_the_script():
    """Nothing that came after Python 2.7: an old Python must get as far as the sentence."""
    text = SCRIPT.read_text(encoding="utf-8")
    newer = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.Nonlocal, ast.AsyncFunctionDef, ast.YieldFrom, ast.MatMult, ast.Match)

    def too_new(node):
        match node:
            case ast.Call():
                return any(isinstance(value, ast.Starred) for value in node.args[:-1])
            case ast.List() | ast.Tuple() | ast.Set():
                return any(isinstance(value, ast.Starred) for value in node.elts)
            case ast.Dict():
                return None in node.keys
            case ast.FunctionDef():
                return node.args.kwonlyargs or node.args.posonlyargs or node.returns or any(a.annotation for a in node.args.args)
            case ast.Raise():
                return node.cause
            case ast.ClassDef():
                return node.keywords
        return isinstance(node, newer)

    assert [ast.unparse(node) for node in ast.walk(ast.parse(text)) if too_new(node)] == []
    assert text.index("sys.exit(too_old())") < text.index("import tomllib")


def test_an_old_python_gets_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(run, "OLDEST", (99, 0))
    assert run.too_old() == "The workbook needs Python 99.0 or newer, and this is Python {}.{}: install a newer one (python.org, or " \
                            "your system's package manager) and start run.py with that.".format(*sys.version_info[:2])


@pytest.mark.skipif(os.name == "nt", reason="names of programs differ there")
def test_an_old_python_names_the_newer_one_that_is_there(monkeypatch, tmp_path):
    (tmp_path / "python3.12").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run.too_old().endswith("start it with python3.12 run.py instead.")


# --- the environment ---------------------------------------------------------------------------

def test_first_start_makes_the_environment_and_installs_once(project, calls, monkeypatch, capsys):
    monkeypatch.setattr(run, "make_environment", lambda folder: venv.create(folder, with_pip=False))
    python = run.set_up()
    assert python.exists() and str(python).startswith(str(project))
    assert [arguments[-2:] for arguments in calls] == [["-e", "."]]
    assert "Fetching the packages, once" in capsys.readouterr().out

    assert run.set_up() == python
    assert len(calls) == 1, "the second start does not call pip"
    assert capsys.readouterr().out == ""


def test_what_tests_need_is_more_than_what_the_notebooks_need(tiny, calls):
    run.set_up("test")
    assert installs(calls)[0][-1] == ".[test]"
    run.set_up()
    run.set_up("test")
    assert len(calls) == 1


def test_notebooks_first_then_tests(tiny, calls):
    run.set_up()
    run.set_up("test")
    assert [arguments[-1] for arguments in installs(calls)] == [".", ".[test]"]
    run.set_up()
    assert len(installs(calls)) == 2


def test_a_change_of_pyproject_installs_again(tiny, calls, project):
    run.set_up()
    (project / "pyproject.toml").write_text((project / "pyproject.toml").read_text() + "\n# changed\n")
    run.set_up()
    assert len(installs(calls)) == 2


def test_a_change_that_needs_no_package_needs_no_network(tiny, calls, project):
    run.set_up("test")
    (project / "pyproject.toml").write_text((project / "pyproject.toml").read_text() + "\n# changed\n")
    calls.satisfied = True
    run.set_up()
    assert len(installs(calls)) == 1
    assert "--no-index" in calls[-1]
    asked = len(calls)
    run.set_up()
    assert len(calls) == asked
    run.set_up("test")
    assert len(calls) == asked + 1, "the tests' packages are looked at again too"


def test_a_failed_install_is_tried_again(tiny, calls):
    calls.answer = (False, "ERROR: something")
    for _ in range(2):
        with pytest.raises(run.Trouble):
            run.set_up()
    assert len(installs(calls)) == 2
    assert (tiny / "install.log").read_text() == "ERROR: something"


def test_a_broken_environment_is_made_anew(tiny, calls, monkeypatch):
    run.set_up()
    run.environment_python(tiny).unlink()
    made = []
    monkeypatch.setattr(run, "make_environment", lambda folder: (made.append(folder), venv.create(folder, with_pip=False, clear=True)))
    run.set_up()
    assert made == [tiny]
    assert len(installs(calls)) == 2


def test_a_damaged_stamp_is_no_stamp(tiny):
    for text in ("", "[1]", "{"):
        run.stamp_file(tiny).write_text(text)
        assert run.stamped(tiny) == {}


def test_a_foreign_folder_is_left_alone(project, monkeypatch):
    folder = project / ".venv"
    folder.mkdir()
    (folder / "thesis.txt").write_text("precious")
    with pytest.raises(run.Trouble, match="is in the way.*KV_VENV"):
        run.set_up()
    assert (folder / "thesis.txt").read_text() == "precious"


def test_another_folder_can_be_named(project, monkeypatch, tmp_path):
    monkeypatch.setenv("KV_VENV", str(tmp_path / "elsewhere"))
    assert run.environment_folder() == tmp_path / "elsewhere"


def without(monkeypatch, *modules):
    find = run.importlib.util.find_spec
    monkeypatch.setattr(run.importlib.util, "find_spec", lambda name: None if name in modules else find(name))


def test_no_venv_module(project, monkeypatch):
    without(monkeypatch, "venv")
    with pytest.raises(run.Trouble) as caught:
        run.set_up()
    text = str(caught.value)
    for words in ("no venv module", "apt install python3-venv", "dnf install", "macOS", "Windows"):
        assert words in text


def test_neither_pip_nor_ensurepip(project, monkeypatch):
    without(monkeypatch, "ensurepip", "pip")
    with pytest.raises(run.Trouble, match="no pip"):
        run.set_up()


def test_debian_without_python3_venv_uses_the_pip_that_is_there(project, monkeypatch, calls):
    without(monkeypatch, "ensurepip")
    python = run.set_up()
    found = run.look_into(python)
    assert found == (sys.version_info[:2], False)
    assert run.pip_command(run.environment_folder(), found) == [sys.executable, "-m", "pip", "--python", str(python)]


@pytest.mark.parametrize("said, meant", [
    ("Error: [Errno 13] Permission denied: '.venv'", "cannot be written.*KV_VENV"),
    ("Error: [Errno 30] Read-only file system: '.venv'", "cannot be written.*KV_VENV"),
    ("The virtual environment was not created successfully because ensurepip is not available.", "lacks its half with pip"),
    ("Error: a thing nobody foresaw", "a thing nobody foresaw"),
])
def test_an_environment_that_cannot_be_made(project, monkeypatch, said, meant):
    monkeypatch.setattr(run.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1, "", said))
    with pytest.raises(run.Trouble, match=meant):
        run.set_up()


@pytest.mark.parametrize("said, meant", [
    ("NewConnectionError('<...>: Failed to establish a new connection: [Errno -3] Temporary failure in name resolution')", "there is no network"),
    ("Failed to establish a new connection: [WinError 11001] getaddrinfo failed", "there is no network"),
    ("ProxyError('Cannot connect to proxy.', NewConnectionError(...))", "the proxy"),
    ("ERROR: Could not find a version that satisfies the requirement hatchling (from versions: none)", "pip finds none at all"),
    ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk is full"),
    ("HINT: This error might have occurred since this system does not have Windows Long Path support enabled.", "too long"),
    ("SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] ...", "certificate"),
    ("ERROR: Ignored the following versions that require a different python version: 3.0 Requires-Python >=3.12", "for this Python"),
    ("WARNING: x\nERROR: a thing nobody foresaw", "a thing nobody foresaw"),
])
def test_what_pip_says_in_plain_words(said, meant):
    text = run.explain_pip(said)
    assert meant in text
    assert "Traceback" not in text


def test_children_see_this_project_and_no_other_packages(monkeypatch, project):
    for name, value in {"PYTHONHOME": "/x", "PYTHONPATH": "/x", "PIP_TARGET": "/x", "PIP_USER": "1"}.items():
        monkeypatch.setenv(name, value)
    env = run.child_environment(run.environment_folder())
    assert "PYTHONHOME" not in env and "PIP_TARGET" not in env
    assert (env["PIP_USER"], env["PYTHONPATH"]) == ("0", str(project))
    assert env["PATH"].startswith(str(run.environment_python(run.environment_folder()).parent))


# --- commands ----------------------------------------------------------------------------------

def test_help_names_every_command(capsys):
    assert run.main([]) == 0
    text = capsys.readouterr().out
    assert all("run.py " + name in text for name in run.COMMANDS)
    makefile = (run.ROOT / "Makefile").read_text()
    assert re.search(r"^lab test.*:$", makefile, re.MULTILINE).group().rstrip(":").split() == [*run.COMMANDS, *run.CLASSROOM]


def test_an_unknown_command(capsys):
    assert run.main(["labb"]) == 2
    assert "There is no command 'labb'" in capsys.readouterr().err


def test_trouble_is_a_sentence_and_not_a_traceback(monkeypatch, capsys):
    def fail(arguments):
        raise run.Trouble("The disk is full.")
    monkeypatch.setitem(run.COMMANDS, "lab", (fail, ""))
    assert run.main(["lab"]) == 1
    assert capsys.readouterr().err == "The disk is full.\n"


@pytest.fixture
def ready(tiny, calls, monkeypatch):
    """A set-up project whose commands are recorded instead of started."""
    run.set_up("test")
    started = []
    monkeypatch.setattr(run, "become", lambda command, env: started.append((command, env)) or 0)
    return started


def test_lab_passes_its_arguments_on(ready, project):
    (project / "notebooks").mkdir()
    (project / "notebooks" / "00_start_here.ipynb").touch()
    assert run.main(["lab", "--no-browser", "--port", "9999"]) == 0
    command, env = ready[0]
    assert command[1:3] == ["-m", "jupyterlab"]
    assert command[-3:] == ["--no-browser", "--port", "9999"]
    as_root = hasattr(os, "geteuid") and os.geteuid() == 0
    assert ("--allow-root" in command) == as_root
    settings = json.loads((Path(env["JUPYTER_CONFIG_DIR"]) / "jupyter_lab_config.json").read_text(encoding="utf-8"))
    assert settings["LabApp"]["default_url"] == "/lab/tree/notebooks/00_start_here.ipynb"
    assert settings["ServerApp"]["root_dir"] == str(project)
    assert settings["ServerApp"]["kernel_websocket_connection_class"] == "kvlib.lab_server.PromptConnection"
    news = json.loads((Path(settings["LabApp"]["app_settings_dir"]) / "overrides.json").read_text(encoding="utf-8"))
    assert news["@jupyterlab/apputils-extension:notification"] == {"fetchNews": "false", "checkForUpdates": False}


def test_lab_writes_nothing_into_the_home(ready, project):
    run.main(["lab"])
    env = ready[0][1]
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_SETTINGS_DIR",
                 "JUPYTERLAB_WORKSPACES_DIR", "IPYTHONDIR"):
        assert env[name].startswith(str(project / ".venv"))


def test_tests_run_on_two_workers_without_the_heavy_suite(ready, monkeypatch):
    monkeypatch.setattr(run, "find_browser", lambda: "/usr/bin/chromium")
    run.main(["test", "-k", "units"])
    assert ready[0][0][1:] == ["-m", "pytest", "-n", "2", "--dist", "loadgroup", "-m", "not browser", "-rs", "-k", "units"]


def test_the_heavy_suite_runs_alone_and_takes_arguments(ready, monkeypatch):
    monkeypatch.setattr(run, "find_browser", lambda: "/usr/bin/chromium")
    run.main(["test-browser", "-k", "dark"])
    assert ready[0][0][1:] == ["-m", "pytest", "-m", "browser", "-rs", "-k", "dark"]


@pytest.mark.parametrize("ci, words", [("", "They are skipped; all others run."), ("true", "On CI they fail without one.")])
def test_a_missing_browser_is_said_before_the_tests(ready, monkeypatch, capsys, ci, words):
    monkeypatch.setattr(run, "find_browser", lambda: None)
    monkeypatch.setenv("CI", ci)
    run.main(["test"])
    text = capsys.readouterr().out
    assert "There is no browser for the browser tests: install Chromium" in text
    assert words in text


def test_a_browser_can_be_named(monkeypatch):
    monkeypatch.setenv("KV_BROWSER", sys.executable)
    assert run.find_browser() == sys.executable
    monkeypatch.setenv("KV_BROWSER", "/nowhere/chromium")
    assert run.find_browser() is None


def test_check_before_the_first_start(project, capsys, monkeypatch):
    without(monkeypatch, "jupyterlab")
    assert run.main(["check"]) == 1
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert last.startswith("NOT READY: the packages are not here yet: run python")


def test_check_of_an_empty_environment_names_the_way_out(tiny, project, capsys):
    shutil.copy(SCRIPT, project)
    assert run.main(["check"]) == 1
    text = capsys.readouterr().out
    assert "NO  kernel" in text
    assert re.search(r"NOT READY: a package is missing or of the wrong version: run python[0-9.]* run.py lab with the network on\.$", text.strip())


def test_check_when_all_is_well(project, capsys, monkeypatch):
    for place in ("notebooks/00_start_here.ipynb", "data/models/x.json"):
        (project / place).parent.mkdir(parents=True)
        (project / place).touch()
    packages = {"jupyterlab": {"found": "4.6.6", "wanted": ">=4.3,<5", "right": True}}
    monkeypatch.setattr(run, "ask_environment", lambda: ({"packages": packages, "kernel": 1.2}, None))
    assert run.main(["check"]) == 0
    text = capsys.readouterr().out
    assert text.strip().splitlines()[-1].startswith("READY: start with python")
    packages["jupyterlab"]["right"] = False
    assert run.main(["check"]) == 1


# --- for real ----------------------------------------------------------------------------------

DEAD_PROXY = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9") | {"no_proxy": "", "NO_PROXY": ""}


def test_first_start_without_a_network_says_so(tmp_path):
    """A real pip, told to go through a proxy that is not there."""
    root = tmp_path / ODD_NAME
    root.mkdir()
    for name in ("run.py", "pyproject.toml"):
        shutil.copy(run.ROOT / name, root)
    folder = root / ".venv"
    venv.create(folder, with_pip=False)
    # A pip for the tiny environment without unpacking one: this Python's own.
    import pip
    site = next(folder.glob("[Ll]ib/**/site-packages"))
    (site / "borrowed.pth").write_text(str(Path(pip.__file__).parent.parent))
    env = dict(os.environ, **DEAD_PROXY, PIP_RETRIES="1", PIP_CACHE_DIR=str(tmp_path / "cache"), PIP_CONFIG_FILE=os.devnull)
    for name in ("KV_VENV", "PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        env.pop(name, None)
    done = subprocess.run([sys.executable, "run.py", "lab"], cwd=root, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "The packages could not be fetched" in done.stderr
    assert "later ones do not" in done.stderr
    assert "Traceback" not in done.stderr


# Runs inside the cut-off: takes the port, starts run.py, and tells what answered.
DRIVER = r"""
import json, os, re, signal, socket, struct, subprocess, sys, time, urllib.error, urllib.request
if "alone" in sys.argv:  # a network of its own has its loopback switched off
    import fcntl
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", b"lo", 0x41))
taken = socket.socket()
taken.bind(("127.0.0.1", 0))
taken.listen()
port = taken.getsockname()[1]
start = time.monotonic()
lab = subprocess.Popen([sys.executable, "run.py", "lab", "--no-browser", "--ip=127.0.0.1", "--port=%d" % port],
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8", errors="replace", start_new_session=True)
said, page, url = [], "", ""
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

def first_page(url):  # Lab names its address before it listens there
    while True:
        try:
            return opener.open(url, timeout=30).read().decode()
        except urllib.error.URLError:
            if lab.poll() is not None or time.monotonic() - start > 60:
                raise
            time.sleep(0.1)

try:
    for line in lab.stdout:
        said.append(line)
        found = re.search(r"http://127\.0\.0\.1:\d+/\S+", line)
        if found:
            url = found.group()
            page = first_page(url)
            break
finally:
    lab.terminate()
    code = lab.wait(30)
print(json.dumps({"url": url, "port": port, "page": page[:4000], "said": "".join(said), "seconds": time.monotonic() - start, "code": code}))
"""


def environment_like_this_one(folder):
    """This Python's own environment under another name, with a stamp of its own and nothing copied."""
    if os.name == "nt":
        return Path(sys.prefix)  # links need rights there; `run.py test` has stamped this one
    folder.mkdir()
    for entry in Path(sys.prefix).iterdir():
        if entry.name not in ("jupyter", "kv-stamp.json"):
            (folder / entry.name).symlink_to(entry)
    run.write_stamp(folder, "", run.stamp(sys.version_info[:2]))
    return folder


def test_lab_answers_with_the_network_cut(tmp_path):
    """The second start, for real: no network, no pip, the port taken, an odd folder, and a page all the same."""
    root = tmp_path / ODD_NAME
    (root / "notebooks").mkdir(parents=True)
    for name in ("run.py", "pyproject.toml"):
        shutil.copy(run.ROOT / name, root)
    shutil.copytree(run.ROOT / "kvlib", root / "kvlib")
    book = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (root / run.FIRST_NOTEBOOK).write_text(json.dumps(book))
    home = tmp_path / "home"
    home.mkdir()
    env = dict(os.environ, **DEAD_PROXY, HOME=str(home), KV_VENV=str(environment_like_this_one(tmp_path / "env")))
    alone = [shutil.which("unshare"), "--net", "--map-root-user"]
    cut = alone[0] and subprocess.run([*alone, "true"], capture_output=True, check=False).returncode == 0
    command = [*alone, sys.executable, "-c", DRIVER, "alone"] if cut else [sys.executable, "-c", DRIVER]
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert "/lab/tree/notebooks/00_start_here.ipynb?token=" in answer["url"], answer["said"]
    assert str(answer["port"]) not in answer["url"], "the port was taken"
    assert "<title>JupyterLab" in answer["page"]
    assert "Fetching" not in answer["said"]
    assert "Traceback" not in answer["said"]
    assert list(home.iterdir()) == [], "nothing is written into the reader's home"
