#!/usr/bin/env python3
# -*- coding: utf-8 -*-
"""Set up and start the KV cache workbook. Needs nothing but Python 3.11 or newer.

    python run.py lab      open the workbook in JupyterLab
    python run.py test     run the tests
    python run.py check    one glance: what is right and wrong on this laptop
    python run.py store    run the notebooks and store their pictures and tables
    python run.py bench    measure how fast the engine is
    python run.py site     make the pages that need no kernel and no network, in _site/

    python run.py fresh 03 keep a notebook that was worked in, and put the original back
    python run.py learner  make the learners' blank exercises from the solutions
    python run.py bundle   fetch the packages for other laptops, to install without a network

The first start makes the folder .venv beside this file and fetches the packages into it.
Later starts need no network. Further arguments go to JupyterLab, pytest, the notebooks' runner or the benchmark.
KV_VENV names another folder for .venv, KV_BROWSER another Chromium for the browser tests.
"""
# Written so that any Python since 2.7 can read it, and an old one can say what is wrong.
from __future__ import print_function

import os
import sys

OLDEST = (3, 11)


def newer_pythons():
    """Names of Pythons on this computer that are new enough."""
    names = ["python3.{0}".format(minor) for minor in range(20, OLDEST[1] - 1, -1)]
    folders = os.environ.get("PATH", "").split(os.pathsep)
    return [name for name in names if any(os.access(os.path.join(f, name), os.X_OK) for f in folders)]


def too_old():
    """One sentence for a Python older than OLDEST."""
    found = newer_pythons()
    way = ("start it with {0} run.py instead.".format(found[0]) if found
           else "install a newer one (python.org, or your system's package manager) and start run.py with that.")
    return "The workbook needs Python {0}.{1} or newer, and this is Python {2}.{3}: {4}".format(
        OLDEST[0], OLDEST[1], sys.version_info[0], sys.version_info[1], way)


if sys.version_info < OLDEST:
    sys.exit(too_old())

import collections
import hashlib
import importlib.util
import json
import shutil
import subprocess
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent
FIRST_NOTEBOOK = "notebooks/00_start_here.ipynb"
WINDOWS = os.name == "nt"


class Trouble(Exception):
    """Something the reader can mend: what is wrong, and what to do."""


def say(text=""):
    print(text, flush=True)


def command_line(rest):
    """How this reader types a command: the name of their Python, then run.py."""
    return "{0} run.py {1}".format(Path(sys.executable).stem if WINDOWS else Path(sys.executable).name, rest)


# --- the environment: .venv, and what is in it -------------------------------------------------

def environment_folder():
    return Path(os.environ.get("KV_VENV") or ROOT / ".venv").absolute()


def environment_python(folder):
    return folder / ("Scripts/python.exe" if WINDOWS else "bin/python")


def child_environment(folder=None):
    """Variables for the programs started here: this project's packages and no others."""
    env = dict(os.environ)
    for name in ("PYTHONHOME", "PYTHONPATH", "PIP_TARGET", "PIP_PREFIX", "__PYVENV_LAUNCHER__"):
        env.pop(name, None)
    env["PIP_USER"] = "0"
    # On Windows, text files and pipes are read as UTF-8 in every language.
    env.setdefault("PYTHONUTF8", "1")
    if folder is not None:
        env["VIRTUAL_ENV"] = str(folder)
        env["PATH"] = str(environment_python(folder).parent) + os.pathsep + env.get("PATH", "")
        # Found also where the folder was moved, or its name is one Python's .pth files cannot hold.
        env["PYTHONPATH"] = str(ROOT)
    return env


Found = collections.namedtuple("Found", "version has_pip")


def look_into(python):
    """The version of an environment's Python and whether it has pip; None if it does not run."""
    probe = "import sys, importlib.util as u; print(sys.version_info[0], sys.version_info[1], u.find_spec('pip') is not None)"
    try:
        text = subprocess.run([str(python), "-c", probe], env=child_environment(), capture_output=True,
                              text=True, timeout=60, check=True).stdout
        major, minor, pip = text.split()
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return Found((int(major), int(minor)), pip == "True")


def stamp_file(folder):
    return folder / "kv-stamp.json"


def stamp(version):
    """What an up-to-date environment is stamped with: pyproject.toml and Python's version."""
    text = (ROOT / "pyproject.toml").read_bytes()
    return hashlib.sha256(text + "{0}.{1}".format(*version).encode()).hexdigest()


def stamped(folder):
    """Extras that are installed, each with its stamp; "" is the plain package."""
    try:
        found = json.loads(stamp_file(folder).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_stamp(folder, extra, value):
    stamps = {} if extra == "" else {"": value}
    for name, old in stamped(folder).items():
        if old == value:
            stamps[name] = old
    stamps[extra] = value
    stamp_file(folder).write_text(json.dumps(stamps, indent=1), encoding="utf-8")


def requirements(extra=""):
    """The lines of pyproject.toml that an extra needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project["dependencies"] + (project["optional-dependencies"][extra] if extra else [])


HOW_TO_GET_VENV = """\
  Debian, Ubuntu   sudo apt install python3-venv python3-pip
  Fedora           sudo dnf install python3 python3-pip
  macOS            brew install python, or the installer of python.org
  Windows          the installer of python.org, with "pip" ticked
  without rights   a Python from python.org, conda or uv in your own home has both"""


def make_environment(folder):
    """Make an empty environment; also where Debian's venv module lacks its half with pip."""
    if folder.exists() and any(folder.iterdir()) and not (folder / "pyvenv.cfg").exists():
        raise Trouble("The folder {0} is in the way: it is not a Python environment. Move it, "
                      "or name another folder in the variable KV_VENV.".format(folder))
    if importlib.util.find_spec("venv") is None:
        raise Trouble("This Python has no venv module, so it cannot make an environment. To get it:\n" + HOW_TO_GET_VENV)
    bare = importlib.util.find_spec("ensurepip") is None
    if bare and importlib.util.find_spec("pip") is None:
        raise Trouble("This Python has no pip, so it cannot fetch packages. To get it:\n" + HOW_TO_GET_VENV)
    command = [sys.executable, "-m", "venv", "--clear"] + (["--without-pip"] if bare else []) + [str(folder)]
    done = subprocess.run(command, env=child_environment(), capture_output=True, text=True, errors="replace")
    if done.returncode:
        text = done.stdout + done.stderr
        if "ensurepip" in text:
            raise Trouble("This Python's venv module lacks its half with pip. To get it:\n" + HOW_TO_GET_VENV)
        if "ermission" in text or "Read-only" in text:
            raise Trouble("The folder {0} cannot be written. Copy the project to a folder of your own, "
                          "or name a folder in the variable KV_VENV.".format(folder))
        raise Trouble("Python could not make the environment {0}. It said:\n{1}".format(folder, text.strip()))


def pip_command(folder, found):
    """pip of the environment, else the caller's own pip working on it."""
    python = str(environment_python(folder))
    return [python, "-m", "pip"] if found.has_pip else [sys.executable, "-m", "pip", "--python", python]


# What pip prints, and what it means to the reader.
PIP_TROUBLE = (
    (("No space left", "Errno 28"), "The disk is full: the packages need about 600 MB."),
    (("Long Path", "long path"), "Windows refused a path that is too long: move the project to a short folder such as "
                                 "C:\\kv, or name one in the variable KV_VENV."),
    (("CERTIFICATE_VERIFY_FAILED",), "A proxy or firewall stands between this computer and the packages, and its certificate "
                                     "is not known here: ask your administrator for pip's settings."),
    (("ProxyError", "407 Proxy"), "The packages could not be fetched: the proxy that this computer is set to use does not answer. "
                                  "The first start needs the network; later ones do not. Mend it and give the same command again."),
    (("NewConnectionError", "name resolution", "getaddrinfo failed", "nodename nor servname", "Network is unreachable",
      "ConnectTimeoutError", "Failed to establish", "ConnectionResetError", "Connection refused", "ReadTimeoutError"),
     "The packages could not be fetched: there is no network. The first start needs it; later ones do not. "
     "Connect and give the same command again."),
    (("(from versions: none)",), "The packages could not be fetched: pip finds none at all, so there is no network or pip is set to "
                                 "a package index that lacks them. The first start needs the network; later ones do not."),
    (("requires a different Python", "Requires-Python"), "A package does not exist for this Python. Start run.py with another one, "
                                                        "3.11 to 3.13 for certain."),
    (("ermission denied",), "The environment cannot be written: delete the folder .venv and give the command again as its owner."),
)


def explain_pip(text):
    """One sentence for what stopped pip."""
    for signs, sentence in PIP_TROUBLE:
        if any(sign in text for sign in signs):
            return sentence
    tail = [line for line in text.splitlines() if line.strip() and "WARNING" not in line][-8:]
    return "pip could not install the packages. Its last lines:\n  " + "\n  ".join(tail)


def pip(folder, found, arguments, show=False):
    """Run pip; returns (worked, what it printed). With show, one changing line tells how far it is."""
    command = pip_command(folder, found) + arguments
    moving = show and sys.stdout.isatty()
    lines = []
    process = subprocess.Popen(command, cwd=str(ROOT), env=child_environment(), stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, encoding="utf-8", errors="replace")
    with process:
        for line in process.stdout:
            lines.append(line)
            words = line.split()
            if moving and words and words[0] in ("Collecting", "Downloading", "Installing", "Building"):
                print("\r  {0:<60.60}".format(" ".join(words[:2])), end="", flush=True)
    if moving:
        print("\r" + " " * 64 + "\r", end="", flush=True)
    return process.returncode == 0, "".join(lines)


def carried():
    """The folder of packages that `bundle` fetched and somebody brought along, or None."""
    folder = ROOT / "wheels"
    return folder if folder.is_dir() and any(folder.glob("*.whl")) else None


def have_all(folder, found, extra):
    """Whether the environment already holds all that an extra needs; asks no network."""
    quiet = ["install", "--dry-run", "--no-index", "--disable-pip-version-check"]
    return pip(folder, found, quiet + requirements(extra))[0]


def set_up(extra=""):
    """Make the environment fit for an extra, unless it is; returns its Python."""
    folder = environment_folder()
    python = environment_python(folder)
    found = look_into(python) if python.exists() else None
    known = stamped(folder)
    if found and known.get(extra) == stamp(found.version):
        return python
    if found is None or found.version < OLDEST:
        say("Making the folder {0} for the workbook's packages ...".format(folder.name))
        make_environment(folder)
        found = look_into(python)
        if found is None:
            raise Trouble("The new environment's Python ({0}) does not run. Delete {1} and try once more; "
                          "a virus scanner may be holding it.".format(python, folder))
    elif known and have_all(folder, found, extra):
        write_stamp(folder, extra, stamp(found.version))
        return python
    started = time.monotonic()
    target = ".[{0}]".format(extra) if extra else "."
    # Python compiles each module when it is first used; compiling all of them now would take 10 s more.
    command = ["install", "--disable-pip-version-check", "--no-input", "--no-compile", "-e", target]
    worked, text = False, ""
    if carried():
        say("Installing the packages that were brought along, without the network; it takes a minute or two ...")
        worked, text = pip(folder, found, command + ["--no-index", "--find-links", str(carried())], show=True)
    if not worked:
        say("Fetching the packages, once; it takes a minute or two and needs the network ...")
        worked, text = pip(folder, found, command, show=True)
    log = folder / "install.log"
    log.write_text(text, encoding="utf-8")
    if not worked:
        raise Trouble("{0}\n(All that pip said: {1})".format(explain_pip(text), log))
    write_stamp(folder, extra, stamp(found.version))
    say("Done in {0:.0f} s.".format(time.monotonic() - started))
    return python


# --- JupyterLab ------------------------------------------------------------------------------

# Shown to every reader unless they change it: no news pop-up, no question about updates, and whole pages, so that a link
# into a notebook lands where it points and a search finds all.
LAB_SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
}


def write_json(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")


def lab_config(state, root, first=None):
    """Write Lab's settings under `state`, for a Lab that shows the folder `root`."""
    write_json(state / "lab" / "overrides.json", LAB_SETTINGS)
    start = "/lab/tree/" + first if first and (root / first).exists() else "/lab"
    write_json(state / "config" / "jupyter_lab_config.json", {
        "LabApp": {
            "app_settings_dir": str(state / "lab"),
            "default_url": start,
            "news_url": None,
            "check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
            "extension_manager": "readonly",
            "log_level": "WARN",
        },
        "ServerApp": {
            "root_dir": str(root),
            "log_level": "WARN",
            "kernel_websocket_connection_class": "kvlib.lab_server.PromptConnection",
        },
        # Looking for language servers would start Node.js, where it is installed.
        "LanguageServerManager": {"autodetect": False},
    })


def lab_environment(state, env):
    """Variables that keep Lab's files under `state`, out of the reader's home."""
    places = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime",
              "JUPYTERLAB_SETTINGS_DIR": "settings", "JUPYTERLAB_WORKSPACES_DIR": "workspaces", "IPYTHONDIR": "ipython"}
    return dict(env, **{name: str(state / place) for name, place in places.items()})


def workbook_environment():
    """Variables for what runs in .venv: its packages, and all of Jupyter's files in it too."""
    folder = environment_folder()
    state = folder / "jupyter"
    state.mkdir(exist_ok=True)  # IPython wants to find it
    return lab_environment(state, child_environment(folder))


def lab_command(python, extra_arguments=()):
    command = [str(python), "-m", "jupyterlab"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    return command + list(extra_arguments)


def become(command, env):
    """Hand over to another program, so that Ctrl-C and a kill reach it and nothing is left behind."""
    os.chdir(str(ROOT))
    if not WINDOWS:
        os.execve(command[0], command, env)
    with subprocess.Popen(command, env=env) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                continue


def lab(arguments):
    python = set_up()
    keep_originals()
    lab_config(environment_folder() / "jupyter", ROOT, FIRST_NOTEBOOK)
    say("JupyterLab is starting. Leave this window open; Ctrl-C twice ends it.")
    return become(lab_command(python, arguments), workbook_environment())


# --- tests -----------------------------------------------------------------------------------

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome",
            "microsoft-edge", "microsoft-edge-stable", "msedge")
MAC_BROWSERS = ("Google Chrome", "Chromium", "Microsoft Edge")
WINDOWS_BROWSERS = (r"Google\Chrome\Application\chrome.exe", r"Microsoft\Edge\Application\msedge.exe",
                    r"Chromium\Application\chrome.exe")

HOW_TO_GET_BROWSER = ("install Chromium, Chrome or Edge (Debian: sudo apt install chromium), "
                      "or name its program in the variable KV_BROWSER")


def find_browser():
    """The program of a Chromium, Chrome or Edge, or None."""
    named = os.environ.get("KV_BROWSER")
    if named:
        return shutil.which(named)
    candidates = list(BROWSERS)
    if sys.platform == "darwin":
        for name in MAC_BROWSERS:
            for top in ("/Applications", os.path.expanduser("~/Applications")):
                candidates.append("{0}/{1}.app/Contents/MacOS/{1}".format(top, name))
    if WINDOWS:
        for top in ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA"):
            if os.environ.get(top):
                candidates += [os.path.join(os.environ[top], name) for name in WINDOWS_BROWSERS]
    return next((path for path in map(shutil.which, candidates) if path), None)


def on_ci():
    return os.environ.get("CI", "").lower() in ("1", "true", "yes")


def test_command(python, arguments):
    """pytest on two workers; the heavy browser suite has a command of its own."""
    return [str(python), "-m", "pytest", "-n", "2", "--dist", "loadgroup", "-m", "not browser", "-rs"] + list(arguments)


def say_without_browser(otherwise):
    if find_browser() is None:
        say("There is no browser for the browser tests: {0}.".format(HOW_TO_GET_BROWSER))
        say("On CI they fail without one." if on_ci() else otherwise)


def test(arguments):
    python = set_up("test")
    say_without_browser("They are skipped; all others run.")
    return become(test_command(python, arguments), workbook_environment())


def test_browser(arguments):
    """One browser at a time, so no workers; the journeys belong to `test`."""
    python = set_up("test")
    say_without_browser("They are skipped.")
    command = [str(python), "-m", "pytest", "-m", "browser", "-rs"] + list(arguments)
    return become(command, workbook_environment())


def store(arguments):
    python = set_up("test")
    return become([str(python), str(ROOT / "tests" / "notebook_store.py")] + list(arguments), workbook_environment())


def site(arguments):
    python = set_up("site")
    return become([str(python), "-m", "kvlib.website"] + list(arguments), workbook_environment())


def bench(arguments):
    """The engine; with --panels the controls, in a real browser."""
    panels, rest = "--panels" in arguments, [word for word in arguments if word != "--panels"]
    if panels and find_browser() is None:
        raise Trouble("There is no browser to measure the controls in: {0}.".format(HOW_TO_GET_BROWSER))
    python = set_up("test")
    program = ROOT / "tests" / ("browser/bench_panels.py" if panels else "bench/bench.py")
    return become([str(python), str(program)] + rest, workbook_environment())


# --- for a class -------------------------------------------------------------------------------

def kept_originals():
    return environment_folder() / "originals"


def keep_originals():
    """Copy notebooks that are new here, before anybody works in them: `fresh` puts them back where git cannot."""
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        copy = kept_originals() / path.name
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(path), str(copy))


def original(path):
    """A notebook as it was handed out: what git holds, else the copy of the first start; None if neither is there."""
    try:
        done = subprocess.run(["git", "show", "HEAD:./notebooks/" + path.name], cwd=str(ROOT), capture_output=True)
        if done.returncode == 0:
            return done.stdout
    except OSError:
        pass
    copy = kept_originals() / path.name
    return copy.read_bytes() if copy.exists() else None


def fresh(arguments):
    folder = ROOT / "notebooks"
    names = sorted(path.name for path in folder.glob("*.ipynb"))
    if not arguments:
        raise Trouble("Say which notebook, by the beginning of its name: {0}".format(command_line("fresh 03")))
    for beginning in arguments:
        chosen = [folder / name for name in names if name.startswith(beginning)]
        if not chosen:
            raise Trouble("No notebook begins with {0!r}; there are {1}.".format(beginning, ", ".join(names)))
        for path in chosen:
            put_back(path)
    return 0


def put_back(path):
    before = original(path)
    if before is None:
        raise Trouble("The original of {0} is not at hand: unpack or clone the project again beside this one.".format(path.name))
    if path.read_bytes() == before:
        say("{0} is as it was handed out.".format(path.name))
        return
    mine = path.parent / "mine" / "{0}-{1}.ipynb".format(path.stem, time.strftime("%Y-%m-%d-%H%M%S"))
    mine.parent.mkdir(exist_ok=True)
    shutil.copyfile(str(path), str(mine))
    path.write_bytes(before)
    say("Yours is kept as notebooks/mine/{0}, and {1} is as it was handed out.".format(mine.name, path.name))
    say("Is it open in JupyterLab? Then choose File, Reload Notebook from Disk.")


def learner(arguments):
    python = set_up("test")
    return become([str(python), str(ROOT / "tests" / "learner.py")] + list(arguments), workbook_environment())


def bundle(arguments):
    python = set_up("test")
    return become([str(python), str(ROOT / "tests" / "bundle.py")] + list(arguments), workbook_environment())


# --- check -----------------------------------------------------------------------------------

def probe(_arguments):
    """Run by the environment's own Python: what it has, as JSON."""
    from importlib import metadata
    packages = {}
    for line in requirements():
        try:
            from packaging.requirements import Requirement
        except ImportError:
            packages[line] = None
            continue
        wanted = Requirement(line)
        try:
            version = metadata.version(wanted.name)
        except metadata.PackageNotFoundError:
            version = None
        packages[wanted.name] = {"found": version, "wanted": line[len(wanted.name):],
                                 "right": version is not None and wanted.specifier.contains(version, prereleases=True)}
    print(json.dumps({"packages": packages, "kernel": kernel_answers()}))
    return 0


def kernel_answers():
    """Seconds until a fresh kernel has imported kvlib, or what went wrong."""
    started = time.monotonic()
    try:
        from jupyter_client.manager import start_new_kernel
        manager, client = start_new_kernel(kernel_name="python3", startup_timeout=60)
        try:
            reply = client.execute_interactive("import kvlib", timeout=60, output_hook=lambda message: None)["content"]
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
    except Exception as error:
        return "{0}: {1}".format(type(error).__name__, error)
    if reply["status"] != "ok":
        return "{0}: {1}".format(reply.get("ename"), reply.get("evalue"))
    return round(time.monotonic() - started, 1)


def ask_environment():
    """(the answer of `probe`, None), or (None, what to do)."""
    folder = environment_folder()
    python = environment_python(folder)
    if not python.exists():
        if importlib.util.find_spec("jupyterlab") is None:
            return None, "the packages are not here yet: run {0} (it fetches them, once)".format(command_line("lab"))
        env = dict(child_environment(), PYTHONPATH=str(ROOT))
        python = Path(sys.executable)
    else:
        env = workbook_environment()
    done = subprocess.run([str(python), str(ROOT / "run.py"), "_probe"], cwd=str(ROOT), env=env,
                          capture_output=True, text=True, encoding="utf-8", errors="replace")
    try:
        return json.loads(done.stdout.strip().splitlines()[-1]), None
    except (ValueError, IndexError):
        return None, "the environment is broken: delete the folder {0} and run {1}".format(folder.name, command_line("lab"))


def check(_arguments):
    to_do = []

    def line(name, right, text, remedy=None):
        say("{0} {1:<20} {2}".format("ok " if right else "NO ", name, text))
        if not right and remedy:
            to_do.append(remedy)

    line("Python", True, "{0}, {1}".format(sys.version.split()[0], sys.platform))
    answer, remedy = ask_environment()
    if answer is None:
        line("packages", False, "not found", remedy)
    else:
        again = "a package is missing or of the wrong version: run {0} with the network on".format(command_line("lab"))
        for name, package in answer["packages"].items():
            package = package or {"found": None, "wanted": "", "right": False}
            line(name, package["right"], "{0} (wanted {1})".format(package["found"] or "missing", package["wanted"]), again)
        kernel = answer["kernel"]
        if isinstance(kernel, str):
            line("kernel", False, kernel, "the notebooks' Python does not start ({0}): delete the folder {1} and run {2}".format(
                kernel, environment_folder().name, command_line("lab")))
        else:
            line("kernel", True, "answers after {0:.1f} s".format(kernel))
    models = len(list((ROOT / "data" / "models").glob("*.json")))
    incomplete = "the project's folder is not complete: unpack or clone it again"
    line("data", models > 0, "{0} model configs".format(models), incomplete)
    line("notebooks", (ROOT / FIRST_NOTEBOOK).exists(), "{0} notebooks".format(len(list((ROOT / "notebooks").glob("*.ipynb")))), incomplete)
    browser = find_browser()
    say("{0} {1:<20} {2}".format("ok " if browser else "-  ", "browser",
                                 browser or "none; only the browser tests need one: " + HOW_TO_GET_BROWSER))
    say()
    if to_do:
        say("NOT READY: " + to_do[0] + ".")
        return 1
    say("READY: start with {0}".format(command_line("lab")))
    return 0


# --- the commands ----------------------------------------------------------------------------

COMMANDS = {
    "lab": (lab, "open the workbook in JupyterLab"),
    "test": (test, "run the tests"),
    "test-browser": (test_browser, "run the heavy browser suite"),
    "check": (check, "one glance: what is right and wrong on this laptop"),
    "store": (store, "run the notebooks and store their pictures and tables"),
    "bench": (bench, "measure how fast the engine is"),
    "site": (site, "make the pages that need no kernel and no network, in _site/"),
}
CLASSROOM = {
    "fresh": (fresh, "keep a notebook that was worked in, put the original back"),
    "learner": (learner, "make the learners' blank exercises from the solutions"),
    "bundle": (bundle, "fetch the packages for other laptops, to install without a network"),
}
HIDDEN = {"_probe": probe}


def usage():
    lines = [["  {0:<44} {1}".format(command_line(name), text) for name, (_, text) in some.items()] for some in (COMMANDS, CLASSROOM)]
    return "The KV cache workbook. Commands:\n" + "\n".join(lines[0]) + "\n\nFor a class:\n" + "\n".join(lines[1])


def main(arguments):
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        say(usage())
        return 0
    name, rest = arguments[0], arguments[1:]
    commands = dict(COMMANDS, **CLASSROOM)
    action = commands[name][0] if name in commands else HIDDEN.get(name)
    if action is None:
        print("There is no command {0!r}.\n{1}".format(name, usage()), file=sys.stderr)
        return 2
    try:
        return action(rest)
    except Trouble as trouble:
        print(trouble, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
