"""Commands that documents show: each exists with its options and files; what can be run is run."""

import json
import re
import shlex

from docs_check.examples import OUTPUT_DEPENDS

SHELLS = {"", "sh", "bash", "shell", "console", "text"}
NOT_RUN = re.compile(r"^not run: \S")
ASSIGNMENTS = re.compile(r"^(?:[A-Z][A-Z0-9_]*=(?:'[^']*'|\"[^\"]*\"|\S*) )*")
OURS = re.compile(r"^(?:headroom|\./run|build/headroom)(?= |$)")
SCRIPT = re.compile(r"^(?:python3 )?"
                    r"(\./test|\.ci/run|(?:tools|bindings|tests|docs)/[\w./-]+\.(?:py|sh))\b")
PLACEHOLDER = re.compile(r"^[\[<]|\.\.\.|^[A-Z][A-Z_]*$|^[A-Z]+\.\w+$|=[A-Z]+$")

# They measure, for minutes, and have tests of their own.
MEASURE = {"bench", "demo"}


def shell_lines(block):
    """(number, command) of each command of a block, those with output included."""
    if block.language not in SHELLS:
        return
    has_prompt = any(line.startswith("$ ") for line in block.lines)
    number = 0
    while number < len(block.lines):
        line, first = block.lines[number], number
        while line.endswith("\\") and number + 1 < len(block.lines):
            number += 1
            line = line[:-1] + block.lines[number].strip()
        number += 1
        if has_prompt:
            if not line.startswith("$ "):
                continue
            line = line[2:]
        for part in re.split(r" && | \| ", line.strip()):
            yield block.first + first, part.strip()


def words_of(command):
    try:
        return shlex.split(ASSIGNMENTS.sub("", command), comments=True)
    except ValueError:
        return []


class Commands:
    def __init__(self, program, root, files):
        self.program = program
        self.root = root
        self.files = set(files)
        self.cmake = "".join((root / name).read_text(encoding="utf-8") for name in files
                             if name.endswith("CMakeLists.txt"))

    # --- what is wrong with a command, or ""

    def problem(self, command):
        """Of any command in a code block or in backticks."""
        plain = ASSIGNMENTS.sub("", command)
        if OURS.match(plain):
            return self.problem_of_ours(words_of(plain)[1:])
        script = SCRIPT.match(plain)
        if script:
            return self.problem_of_script(script.group(1), plain)
        words = words_of(plain)
        if words and words[0] in ("cmake", "ctest"):
            return self.problem_of_preset(words)
        if words and words[0] == "ninja":
            return self.problem_of_targets(words)
        return ""

    def problem_of_ours(self, words):
        known = self.program.commands()
        if not words or words[0].startswith("-"):
            return self.problem_of_options("headroom", words, self.program.all_options())
        if PLACEHOLDER.search(words[0]) or re.search(r"[./]", words[0]):
            return self.problem_of_options("doctor", words, self.program.options("doctor"))
        if words[0] not in known:
            return f"there is no command '{words[0]}'"
        problem = self.problem_of_options(words[0], words[1:], self.program.options(words[0]))
        if not problem and words[0] == "bench":
            problem = self.problem_of_bench(words[1:])
        return problem

    def problem_of_bench(self, words):
        what = next((word for word in words if re.fullmatch(r"[a-z]+", word)), None)
        choices = re.search(r"\{([a-z,]+)\}", self.program.help("bench"))
        if what and choices and what not in choices.group(1).split(","):
            return f"bench measures no '{what}'"
        return ""

    def problem_of_options(self, command, words, options):
        for word in words:
            option = word.split("=")[0]
            if re.match(r"^--?[a-zA-Z]", option) and option not in options:
                return f"'{command}' has no option {option}"
        return ""

    def problem_of_script(self, name, command):
        path = name.removeprefix("./")
        if path not in self.files:
            return f"there is no {name}"
        text = (self.root / path).read_text(encoding="utf-8")
        for word in words_of(command.split(" -- ")[0]):
            if word.startswith("--") and word.split("=")[0] not in text:
                return f"{name} has no option {word.split('=')[0]}"
        return ""

    def problem_of_preset(self, words):
        presets = json.loads((self.root / "CMakePresets.json").read_text(encoding="utf-8"))
        names = {one["name"] for key in ("configurePresets", "testPresets", "buildPresets")
                 for one in presets.get(key, [])}
        for option, value in zip(words, words[1:]):
            if option == "--preset" and not PLACEHOLDER.search(value) and value not in names:
                return f"there is no preset {value}"
        return ""

    def problem_of_targets(self, words):
        for word, before in zip(words[1:], words):
            if word.startswith("-") or before in ("-C", "-j", "-t"):
                continue
            name = word.removeprefix("example_")
            if not re.search(rf"[\s(]{re.escape(name)}[\s)]", self.cmake):
                return f"there is no target {word}"
        return ""

    # --- what is in a page

    def can_run(self, command, note):
        """Of a command without output below it."""
        plain = ASSIGNMENTS.sub("", command)
        words = words_of(plain)
        if not OURS.match(plain) or len(words) < 2 or NOT_RUN.match(note) or note == OUTPUT_DEPENDS:
            return False
        if words[1] in MEASURE or any(word.startswith("cuda") for word in words):
            return False
        return not any(PLACEHOLDER.search(word) for word in words)

    def to_run(self, page):
        """(number, command) of what a page shows without output."""
        for block in page.blocks:
            if any(line.startswith("$ ") for line in block.lines):
                continue
            for number, command in shell_lines(block):
                if self.can_run(command, block.note):
                    yield number, re.sub(r"^((?:\S+=\S+ )*)build/headroom", r"\1headroom", command)

    def complaints(self, page):
        for block in page.blocks:
            for number, command in shell_lines(block):
                problem = self.problem(command)
                if problem:
                    yield f"{page.place(number)}: {problem}"
        for number, span in page.spans():
            problem = self.problem_of_span(span)
            if problem:
                yield f"{page.place(number)}: `{span}`: {problem}"

    def problem_of_span(self, span):
        words = words_of(span)
        if words and words[0] in self.program.commands() and re.search(r" --?[a-z]", span):
            return self.problem_of_ours(words)
        if re.fullmatch(r"--[a-z][a-z-]*( .*)?", span):
            if words and words[0].split("=")[0] not in self.every_option():
                return f"no command has the option {words[0]}"
            return ""
        return self.problem(span)

    def every_option(self):
        """Of our commands and of our scripts."""
        if not hasattr(self, "_options"):
            self._options = self.program.all_options()
            for name in self.files:
                if name in ("test", "run") or re.match(r"(tools|bindings|docs)/.*\.(py|sh)$", name):
                    text = (self.root / name).read_text(encoding="utf-8")
                    self._options |= set(re.findall(r"--[a-z][a-z-]*", text))
        return self._options


def run_complaint(program, folder, page, number, command):
    """Of a command that is shown without output: that it does not run."""
    lines, status = program.run(folder, command)
    if status in (0, 3):
        return ""
    shown = "\n".join(lines[-8:])
    return f"{page.place(number)}: {command}\nexits with {status}:\n{shown}"
