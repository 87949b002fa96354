"""One page with every error and verdict sentence that the project can say, read off its source.

    python tests/sentences.py > page.md

What is put in at run time stands as {name}. Errors are what is raised, or kept for raising; verdicts are the texts of functions
whose name says that they judge, advise or explain.
"""
import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
JUDGES = re.compile(r"verdict|judge|outcome|reason|advice|refus|settles|explain|because|check|improve|remed|hold|answer|note", re.IGNORECASE)
MODULES_OF_WORDS = ("explanation", "remedies", "improve", "exercise", "ready", "take_along", "fit")


def text_of(node):
    """The template behind a string expression, or None."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "{" + ast.unparse(part.value)[:40] + "}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = text_of(node.left), text_of(node.right)
        return (left or "{…}") + (right or "{…}") if left or right else None
    if isinstance(node, ast.IfExp):
        parts = [text_of(node.body), text_of(node.orelse)]
        return " / ".join(filter(None, parts)) or None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "html" and node.args:
        return text_of(node.args[0])
    return None


def is_error(node):
    return isinstance(node, ast.Call) and re.search(r"(Error|Trouble|Unsupported|Refused|problem|refuse|_error|wrong)$", ast.unparse(node.func))


def sentence(text):
    """Is it something said to a reader, rather than a key, a pattern or a fragment of markup?"""
    return len(text.split()) >= 3 and not re.search(r"^\s*[<^]|\\[(d]|\(\?", text) and re.search(r"[a-z]{3}", text)


def docstrings(tree):
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and node.body and isinstance(node.body[0], ast.Expr):
            found.add(id(node.body[0].value))
    return found


def said_in(path):
    """(line, "error" or "verdict", text) of a module, in order."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skip, found = docstrings(tree), {}

    def look(node, judging):
        if id(node) in skip:
            return
        if is_error(node):
            for argument in [*node.args, *[keyword.value for keyword in node.keywords]]:
                text = text_of(argument)
                if text and sentence(text):
                    found.setdefault(text, (node.lineno, "error"))
        elif judging and (text := text_of(node)) and sentence(text):
            found.setdefault(text, (node.lineno, "verdict"))
            return
        inside = judging or isinstance(node, ast.FunctionDef) and bool(JUDGES.search(node.name))
        for child in ast.iter_child_nodes(node):
            look(child, inside)

    look(tree, path.stem in MODULES_OF_WORDS)
    return sorted((line, kind, " ".join(text.split())) for text, (line, kind) in found.items())


def page():
    """The page, as Markdown."""
    parts = ["# What the project can say"]
    for kind, heading in (("error", "Errors"), ("verdict", "Verdicts, reasons and advice")):
        parts.append(f"\n## {heading}")
        for path in [ROOT / "run.py", *sorted((ROOT / "kvlib").rglob("*.py"))]:
            lines = [f"- {line}: {text}" for line, what, text in said_in(path) if what == kind]
            if lines:
                parts += [f"\n### {path.relative_to(ROOT).as_posix()}\n", *lines]
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page() + "\n")
