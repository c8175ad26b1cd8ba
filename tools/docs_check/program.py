"""The program whose documents are checked, in a folder with what their commands read."""

import functools
import os
import pathlib
import re
import subprocess
import threading

OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")
LISTED = re.compile(r"^  ([a-z]+)  ")

# Names that documents use for a recording of the reader's own, and the sample they are here.
RECORDINGS = {"snapshot.pickle": "leak_loss.pickle.zst", "run.pickle": "leak_loss.pickle.zst",
              "other.pickle": "gpt2_varlen.pickle.zst"}


class Program:
    """Runs `headroom`, and the same as `./run`, in `folder`."""

    def __init__(self, binary, root, folder):
        self.binary = binary
        self.root = root
        self.folder = pathlib.Path(folder)
        self._done = {}
        self._lock = threading.Lock()
        tools = self.folder / "bin"
        tools.mkdir()
        (tools / "headroom").symlink_to(binary)

    def scratch(self, name):
        """A folder for the commands of one page, which may write there."""
        folder = self.folder / name
        (folder / "docs" / "guide").mkdir(parents=True)
        # The command names it as it is found from the folder that it runs in.
        (folder / "docs" / "guide" / "glossary.md").symlink_to(
            self.root / "docs" / "guide" / "glossary.md")
        (folder / "samples").symlink_to(self.root / "samples")
        (folder / "run").symlink_to(self.binary)
        for alias, sample in RECORDINGS.items():
            (folder / alias).symlink_to(self.root / "samples" / sample)
        files = self.root / "tests" / "tools" / "docs"
        for file in sorted(files.iterdir()) if files.is_dir() else []:
            (folder / file.name).symlink_to(file)
        return folder

    def run(self, folder, command):
        """What a shell prints for `command`, and its exit status; run once, wherever it stands."""
        if not is_the_same_everywhere(command):
            return self._run(folder, command)
        with self._lock:
            lock = self._done.setdefault(command, threading.Lock())
        if isinstance(lock, tuple):
            return lock
        with lock:
            if not isinstance(self._done[command], tuple):
                self._done[command] = self._run(folder, command)
            return self._done[command]

    def _run(self, folder, command):
        called_as = "./run" if re.search(r"(^|\s)\./run\b", command) else "headroom"
        environment = {"PATH": f"{self.folder / 'bin'}:{os.environ.get('PATH', '')}",
                       "HEADROOM_SAMPLES": str(self.root / "samples"),
                       "COLUMNS": "80", "LC_ALL": "C.UTF-8", "HEADROOM_CALLED_AS": called_as}
        done = subprocess.run(["bash", "-c", command], cwd=folder, text=True, env=environment,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=300, check=False)
        lines = [line.rstrip() for line in done.stdout.rstrip("\n").split("\n")]
        return lines, done.returncode

    @functools.lru_cache(maxsize=None)
    def help(self, command=""):
        done = subprocess.run([self.binary, *([command] if command else []), "--help"], text=True,
                              env={"COLUMNS": "80"}, stdin=subprocess.DEVNULL, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.stdout

    def commands(self):
        return {match.group(1) for line in self.help().split("\n")
                if (match := LISTED.match(line))}

    def options(self, command):
        return set(OPTION.findall(self.help(command)))

    def all_options(self):
        return set().union(*(self.options(command) for command in self.commands()),
                           OPTION.findall(self.help()))


def is_the_same_everywhere(command):
    """It reads samples at most and writes nothing."""
    endings = re.compile(r"\.(pickle|hrt|html|csv|json|txt|md|zst)\b")
    files = [word for word in command.split() if endings.search(word)]
    return all(word.startswith("samples/") for word in files) and ">" not in command
