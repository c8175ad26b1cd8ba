"""The words of the reports, taken from the sources, each with an entry in the glossary."""

import json
import re

GLOSSARY = "docs/guide/glossary.md"
ACCOUNT = "headroom/memory/account.cpp"
CATEGORIES = "headroom/memory/types.cpp"
VERDICTS = "docs/format/doctor.schema.json"
STRING = r'"((?:[^"\\]|\\.)*)"'

# Words that anybody knows, and those that only join others.
PLAIN = """
a add added after all allocation an and another as at before below beside by byte call differ
difference each error event file for format from has held holds in its last layer log memory ms no
ns of on op or other out per pid plain process product python pytorch reads record recording returns
run scale second share shared size takes the thread to us use used what when where with without
wrong
""".split()

# Words of sentences, which no label has: where one is printed, it has an entry.
TERMS = ("cushion", "enough for this request", "expandable segment", "handle", "limit", "magazine",
         "micro-batch", "not replayed", "no annotation", "no stack", "page", "policy", "pool",
         "proved by replay", "retry", "segment", "site", "slab", "step", "stream", "tie", "trim",
         "went on")


def stem(word):
    word = word.lower()
    for end, instead in (("ies", "y"), ("ches", "ch"), ("xes", "x"), ("s", "")):
        if word.endswith(end) and not word.endswith("ss") and len(word) > len(end) + 1:
            return word[:-len(end)] + instead
    return word


def words_of(text):
    return [stem(word) for word in re.findall(r"[A-Za-z][A-Za-z]+", text)]


def entries_of(text):
    """The terms of the glossary as tuples of words: bold ones, and those in brackets behind."""
    found = set()
    for match in re.finditer(r"\*\*([^*]+)\*\*(?: \(([^)]*)\))?", text):
        for part in re.split(r",", ",".join(filter(None, match.groups()))):
            if words_of(part):
                found.add(tuple(words_of(part)))
    return found


def uncovered(label, entries):
    """The words of a label that are neither plain nor part of an entry that the label has whole."""
    words = words_of(label)
    plain = {stem(word) for word in PLAIN}
    covered = [word in plain for word in words]
    for length in range(len(words), 0, -1):
        for at in range(len(words) - length + 1):
            if tuple(words[at:at + length]) in entries:
                covered[at:at + length] = [True] * length
    return [word for word, is_covered in zip(words, covered) if not is_covered]


def constructor_strings(text):
    """The strings of every `Table name({...})`: its headings."""
    for match in re.finditer(r"\bTable\s+\w+\s*\(\s*(?=\{)", text):
        depth, at = 0, match.end()
        while at < len(text):
            string = re.match(STRING, text[at:])
            if string:
                yield string.group(1)
                at += string.end()
                continue
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
            if depth == 0:
                break


def labels_of(root, files):
    """(where, label) of what reports print: lines of the account, categories, verdicts, headings of
    tables, legends of bars, and terms of sentences."""
    def text_of(name):
        return (root / name).read_text(encoding="utf-8") if name in files else ""

    for label in re.findall(rf"\bline\({STRING}", text_of(ACCOUNT)):
        yield ACCOUNT, label
    body = re.search(r"to_string\(Category \w+\)[^{]*\{.*?\n\}", text_of(CATEGORIES), re.DOTALL)
    for label in re.findall(rf"return {STRING}", body.group(0) if body else ""):
        yield CATEGORIES, label.replace("_", " ")
    if VERDICTS in files:
        for label in verdicts_of(json.loads(text_of(VERDICTS))):
            yield VERDICTS, label
    for name in sorted(files):
        if re.match(r"(cli|benchmarks|headroom/report)/.*\.cpp$", name):
            text = text_of(name)
            for label in [*constructor_strings(text), *re.findall(rf"\.title = {STRING}", text),
                          *re.findall(rf"BarPart\{{{STRING}", text)]:
                yield name, re.sub(r"\{[^}]*\}", "", label)
    printers = [name for name in files if re.match(r"(cli|benchmarks|headroom/(report|memory))/.*\.cpp$", name)]
    printed = " ".join(re.findall(STRING, "\n".join(text_of(name) for name in printers)))
    for term in TERMS:
        if term in printed:
            yield "cli", term


def verdicts_of(schema):
    """The values of every property `verdict`."""
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "verdict" and isinstance(value, dict):
                yield from value.get("enum", [])
            yield from verdicts_of(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from verdicts_of(value)


def complaints(root, files):
    files = set(files)
    if GLOSSARY not in files:
        return
    entries = entries_of((root / GLOSSARY).read_text(encoding="utf-8"))
    told = set()
    for where, label in labels_of(root, files):
        missing = uncovered(label, entries)
        if missing and label not in told:
            told.add(label)
            yield f"{where}: '{label}' has no entry in {GLOSSARY}: {' '.join(missing)}"
