"""A real JupyterLab and a real browser for tests: own port, own files, nothing leaves the machine.

    with running_lab(folder) as lab, running_browser() as browser, guarded_page(browser) as page:
        notebook = open_notebook(page, lab, "00_start_here.ipynb")
        notebook.run_all()
        assert notebook.errors() == []

Lab runs with the settings and the command of run.py, so what is tested is what a reader gets.
"""
import contextlib
import itertools
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import run

WALL = Path(__file__).with_name("wall")
# What a browser may ask for: this machine, and what it already holds.
INSIDE = re.compile(r"(data:|blob:|about:|(http|ws)://(127\.0\.0\.1|localhost)[:/])")

BROWSER_FLAGS = [
    "--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--disable-domain-reliability",
    "--disable-extensions", "--disable-gpu", "--disable-sync", "--no-default-browser-check", "--no-first-run",
    # Nothing but loopback is found, by name or by number, whoever asks.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost",
]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def walled(env, log):
    """Variables that make each Python started with them refuse, and write to `log`, connections to outside."""
    path = os.pathsep.join(filter(None, [str(WALL), env.get("PYTHONPATH")]))
    return dict(env, PYTHONPATH=path, KV_WALL_LOG=str(log))


def end_group(process, patience=15):
    """End a program that was started in a session of its own, and all that it started."""
    def tell(name):
        if os.name == "nt":
            process.terminate() if name == "SIGTERM" else process.kill()
        else:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, getattr(signal, name))
    tell("SIGTERM")
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        pass
    tell("SIGKILL")
    process.wait()


class Lab:
    """A running JupyterLab. `root` is the folder it shows, a copy of notebooks/."""

    def __init__(self, folder, port, token):
        self.folder, self.url, self.token = folder, f"http://127.0.0.1:{port}", token
        self.root, self.log, self.wall_log = folder / "notebooks", folder / "lab.log", folder / "wall.log"
        self.count = itertools.count(1)

    def ask(self, path, method="GET"):
        request = urllib.request.Request(self.url + path, method=method, headers={"Authorization": "token " + self.token})
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def wait_until_up(self, process, seconds=120):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if process.poll() is not None:
                break
            with contextlib.suppress(OSError):
                return self.ask("/api/status")
            time.sleep(0.1)
        raise RuntimeError("JupyterLab did not answer. It said:\n" + self.log.read_text(errors="replace")[-3000:])

    def connections_out(self):
        """What the server and the kernels tried to reach outside this machine."""
        return self.wall_log.read_text(encoding="utf-8").splitlines() if self.wall_log.exists() else []

    def fresh_copy(self, name):
        """Copy a stored notebook into a folder of its own; returns its path below `root`.

        So no test sees the kernel, the outputs or the edits of another."""
        place = Path(f"run{next(self.count)}") / name
        (self.root / place).parent.mkdir(parents=True)
        shutil.copy2(self.root / name, self.root / place)
        return place.as_posix()

    def write_notebook(self, name, cells):
        """Make a small notebook in `root` from strings: code, or Markdown where one starts with "#md"."""
        from nbformat import v4
        made = [v4.new_markdown_cell(text[3:].lstrip()) if text.startswith("#md") else v4.new_code_cell(text) for text in cells]
        kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
        book = v4.new_notebook(cells=made, metadata={"kernelspec": kernel})
        (self.root / name).write_text(v4.writes(book), encoding="utf-8")
        return name

    def end_kernels(self):
        for session in self.ask("/api/sessions"):
            with contextlib.suppress(urllib.error.HTTPError):
                self.ask("/api/sessions/" + session["id"], "DELETE")


@contextlib.contextmanager
def running_lab(folder, python=sys.executable):
    """Start JupyterLab on a copy of notebooks/ under `folder`; all its files stay there."""
    folder = Path(folder)
    lab = Lab(folder, free_port(), secrets.token_hex(16))
    stored = run.ROOT / "notebooks"
    if stored.exists():
        shutil.copytree(stored, lab.root, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    lab.root.mkdir(parents=True, exist_ok=True)
    state = folder / "jupyter"
    run.lab_config(state, lab.root)
    env = run.lab_environment(state, run.child_environment())
    env["PATH"] = str(Path(python).parent) + os.pathsep + env["PATH"]
    env["PYTHONPATH"] = str(run.ROOT)
    env["JUPYTER_TOKEN"] = lab.token
    port = lab.url.rsplit(":", 1)[1]
    command = run.lab_command(python, ["--no-browser", "--ip=127.0.0.1", "--port=" + port, "--ServerApp.port_retries=0",
                                       "--LabApp.expose_app_in_browser=True"])
    with open(lab.log, "w") as log:
        process = subprocess.Popen(command, env=walled(env, lab.wall_log), cwd=lab.root, stdout=log,
                                   stderr=subprocess.STDOUT, start_new_session=True)
    try:
        lab.wait_until_up(process)
        yield lab
    finally:
        end_group(process)

CONTEXT = {"viewport": {"width": 1280, "height": 1000}, "locale": "en-US"}


@contextlib.contextmanager
def running_browser(program=None, headless=True):
    from playwright.sync_api import sync_playwright
    flags = list(BROWSER_FLAGS)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        flags.append("--no-sandbox")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program or run.find_browser(), headless=headless, args=flags)
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def guarded_page(browser, **context_options):
    """A page that reaches this machine only. Tries to go further are listed in `page.outside`, scripts' errors in
    `page.script_errors` and what else the browser's console calls an error in `page.console_errors`.

    `browser` may be a context too: its pages share a cache, so Lab loads faster."""
    if hasattr(browser, "new_context"):
        context = browser.new_context(**{**CONTEXT, **context_options})
        page = context.new_page()
    else:
        context, page = None, browser.new_page()
    page.outside, page.script_errors, page.console_errors = [], [], []

    def note(request):
        if not INSIDE.match(request.url):
            page.outside.append(request.url)

    # Refused by BROWSER_FLAGS; a route would do it too, but turns off the cache.
    page.on("request", note)
    page.on("websocket", note)
    page.on("pageerror", lambda error: page.script_errors.append(str(error)[:500]))
    page.on("console", lambda message: page.console_errors.append(message.text[:500]) if message.type == "error" else None)
    page.set_default_timeout(30_000)
    try:
        yield page
    finally:
        (context or page).close()


CURRENT = "window.jupyterapp && window.jupyterapp.shell.currentWidget"
READY = f"""() => {{
  const w = {CURRENT};
  return !!(w && w.context && w.context.isReady && w.content.widgets);
}}"""
IDLE = f"""() => {{
  const session = {CURRENT}.context.sessionContext.session;
  return !!(session && session.kernel && session.kernel.connectionStatus === 'connected' && session.kernel.status === 'idle');
}}"""
ALL_RAN = f"""() => Array.from({CURRENT}.context.model.cells).every(cell =>
  cell.type !== 'code' || cell.executionState === 'idle' && (cell.executionCount !== null || !cell.sharedModel.getSource().trim()))"""
MODEL_ERRORS = f"""() => Array.from({CURRENT}.context.model.cells).flatMap((cell, index) => cell.type !== 'code' ? [] :
  cell.outputs.toJSON().filter(o => o.output_type === 'error').map(o => `cell ${{index}}: ${{o.ename}}: ${{o.evalue}}`))"""
# Errors that a reader sees although no cell failed: inside Output widgets, on stderr, or in place of a widget.
SEEN_ERRORS = ".jp-Notebook [data-mime-type='application/vnd.jupyter.error'], .jp-Notebook [data-mime-type='application/vnd.jupyter.stderr']"


class Notebook:
    """A notebook that is open in Lab. Cells count from 0, Markdown cells included."""

    def __init__(self, page, path):
        self.page, self.path = page, path

    def wait_idle(self, timeout=60_000):
        """Wait until the kernel is connected and has nothing to do; keys pressed before that are lost."""
        self.page.wait_for_function(IDLE, timeout=timeout)

    def command(self, name):
        """Run a command of Lab's menus, such as "notebook:run-all-cells"; one that never ends is not waited for."""
        self.page.evaluate("""name => Promise.race([window.jupyterapp.commands.execute(name),
                                                    new Promise(done => setTimeout(done, 150_000))]).then(() => null)""", name)

    def run_all(self, timeout=180_000):
        """Run > Run All Cells; returns when the last cell has ended. A failing cell ends it too."""
        self.command("notebook:run-all-cells")
        end = time.monotonic() + timeout / 1000
        while not self.page.evaluate(ALL_RAN):
            if self.page.evaluate(MODEL_ERRORS) and self.page.evaluate(IDLE):
                break  # Lab runs no cell after one that failed.
            if time.monotonic() > end:
                raise TimeoutError(f"{self.path}: cells still running after {timeout / 1000:.0f} s")
            self.page.wait_for_timeout(100)
        self.wait_idle()

    def errors(self):
        """What went wrong, as a reader would see it; [] when nothing did."""
        found = self.page.evaluate(MODEL_ERRORS)
        found += [text.strip()[:300] for text in self.page.locator(SEEN_ERRORS).all_inner_texts()]
        if self.page.locator(".jp-Notebook").get_by_text("Error displaying widget").count():
            found.append("a widget could not be displayed")
        return list(dict.fromkeys(found))

    def cell(self, index):
        """A cell's element."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(index)

    def save_and_reload(self, words):
        """Save, load the page anew, and wait for the card that has `words`.

        On a busy machine Lab itself may ask the kernel too early, and says "model not found": then once more."""
        self.command("docmanager:save")
        self.page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")
        card = self.page.locator(".kv-card", has_text=words).first
        for _ in range(3):
            self.page.reload()
            self.page.wait_for_function(READY, timeout=60_000)
            self.wait_idle()
            card.or_(self.page.get_by_text("model not found").first).first.wait_for(timeout=60_000)
            if self.page.get_by_text("model not found").count() == 0:
                return

    def output(self, index):
        """The element under a code cell in which its results stand."""
        return self.cell(index).locator(".jp-OutputArea").first

    def add_and_run(self, code, timeout=60_000):
        """Add a code cell at the end, run it, and return its index."""
        index = self.page.evaluate(f"""async code => {{
          const w = {CURRENT};
          const cells = w.context.model.sharedModel.cells;
          w.context.model.sharedModel.insertCell(cells.length, {{cell_type: 'code', source: code}});
          w.content.activeCellIndex = w.content.widgets.length - 1;
          await window.jupyterapp.commands.execute('notebook:run-cell');
          return w.content.widgets.length - 1;
        }}""", code)
        self.wait_idle(timeout)
        return index


def open_notebook(page, lab, name, timeout=90_000):
    """Open a fresh copy of a notebook with a kernel of its own; returns when the kernel is idle."""
    path = lab.fresh_copy(name)
    workspace = "test" + path.partition("/")[0]
    page.goto(f"{lab.url}/lab/workspaces/{workspace}/tree/{path}?reset&token={lab.token}", timeout=timeout)
    page.wait_for_function(READY, timeout=timeout)
    notebook = Notebook(page, path)
    notebook.wait_idle(timeout)
    return notebook
