#!/usr/bin/env python3
"""Checks what a compiler does not: layers, labels, and names that may occur in some files only.

Usage: layout_test.py [ROOT] | --self-test
Prints every violation as file:line: text and exits with 1 if there is one. The self-test breaks each rule in a
temporary tree, where just that rule must answer, and checks that a tree which keeps them passes.
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LAYERS = ["core", "io", "market", "kernels", "agent", "evaluator", "trainer", "audit", "app"]
SOURCE_FOLDERS = ("vulpes/", "tests/", "bench/", "examples/")
SOURCE = re.compile(r"\.(cpp|hpp|h|cu|cuh)$")
CUDA_NAME = re.compile(
    r"\b(cuda[A-Z]\w*|cu(Ctx|Device|Graph|Stream|Event|Module|Launch)[A-Z]\w*|cuda_runtime\w*|Kokkos::Cuda\w*"
    r"|cublas\w*|cupti\w*|nccl\w*|nvtx\w*|__(global|device|host|shared)__|__CUDA\w*|KOKKOS_ENABLE_CUDA\w*)",
)
BACK_END = re.compile(r"\b(KOKKOS_ENABLE_(CUDA|OPENMP|SERIAL|THREADS|HIP|SYCL)\w*|__CUDA\w*|__NVCC__|_OPENMP"
                      r"|__HIP\w*|__AVX\w*|VULPES_HOST_GEMM\w*)")
BACK_END_FILE = re.compile(r"(^vulpes/core/spaces\w*\.hpp|^vulpes/core/pack\.hpp|_(cuda|openblas|kokkos_kernels)\w*\.\w+)$")
NESTED_POLICY = re.compile(r"(Kokkos::)?(Team|Thread)\w*Range\b")
# Written in pieces, so that this file keeps its own rule.
REGISTRIES = re.compile("|".join(re.escape(".".join(host)) for host in [
    ("pypi", "org"), ("files", "pythonhosted", "org"), ("crates", "io"), ("registry", "npmjs", "org"),
    ("proxy", "golang", "org"), ("deb", "debian", "org"), ("security", "debian", "org"), ("archive", "ubuntu", "com"),
    ("conda", "anaconda", "org"), ("repo", "maven", "apache", "org"), ("rubygems", "org"), ("ghcr", "io"),
    ("registry", "hub", "docker", "com")]))
MACHINE_PATH = re.compile(r"(?<![\w.~$}/-])/(?:work|root|home/\w+|tmp/\w+)(?=/)")


def project_files(root):
    """Paths of tracked files and of those not ignored, relative to root; all files where there is no repository."""
    git = subprocess.run(["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                         capture_output=True, check=False)
    if git.returncode == 0:
        names = {n for n in git.stdout.decode().split("\0") if n}
    else:
        hidden = {".git", ".deps", "build", "runs", "__pycache__"}
        names = {p.relative_to(root).as_posix() for p in root.rglob("*") if not hidden & set(p.relative_to(root).parts)}
    return sorted(n for n in names if (root / n).is_file() and not (root / n).is_symlink())


def text_of(path):
    """The file's text; None for a binary file."""
    data = path.read_bytes()
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def without_comments(text):
    """Comments become blanks (lines and columns stay); strings are kept."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.DOTALL)

    def blank(match):
        token = match.group()
        return re.sub(r"[^\n]", " ", token) if token.startswith("/") else token

    return pattern.sub(blank, text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def arguments(code, opening):
    """The top-level arguments of the call whose bracket opens at `opening`."""
    parts, depth, start = [], 0, opening + 1
    string = False
    i = opening
    while i < len(code):
        c = code[i]
        if string:
            if c == "\\":
                i += 1
            elif c == '"':
                string = False
        elif c == '"':
            string = True
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth == 0:
                parts.append(code[start:i].strip())
                return parts
        elif c == "," and depth == 1:
            parts.append(code[start:i].strip())
            start = i + 1
        i += 1
    return parts


def is_label(argument, qualified):
    """Begins with a string literal (qualified: 'vulpes::...') or with something that is called a label."""
    literal = re.match(r'(?:std::string\s*[({]\s*)?"([^"]+)"', argument)
    if literal:
        return literal[1].startswith("vulpes::") or not qualified
    return bool(re.match(r"[\w.]*label", argument))


def check_includes(name, code):
    layer = name.split("/")[1] if name.count("/") > 1 else None
    for number, line in enumerate(code.splitlines(), 1):
        include = re.match(r'\s*#\s*include\s+(["<])([^">]+)[">]', line)
        if not include:
            continue
        quoted, path = include[1] == '"', include[2]
        if quoted and not path.startswith("vulpes/"):
            yield number, f'include "{path}" does not begin with vulpes/'
        parts = path.split("/")
        if path.startswith("vulpes/") and layer in LAYERS and len(parts) > 2:
            if parts[1] not in LAYERS:
                yield number, f"include of {path}: {parts[1]} is no layer"
            elif LAYERS.index(parts[1]) > LAYERS.index(layer):
                yield number, f"layer {layer} may not use {parts[1]}: include of {path}"
    if layer and layer not in LAYERS:
        yield 1, f"folder {layer} is no layer"


def check_labels(name, code):
    qualified = name.startswith("vulpes/")
    for call in re.finditer(r"\bKokkos::parallel_(for|reduce|scan)\s*\(", code):
        first = (arguments(code, call.end() - 1) or [""])[0]
        if not NESTED_POLICY.match(first) and not is_label(first, qualified):
            yield line_of(code, call.start()), f"Kokkos::parallel_{call[1]} without a label" + qualified * ' "vulpes::..."'
    for call in re.finditer(r"\bKokkos::view_alloc\s*\(", code):
        if not any(is_label(a, qualified) for a in arguments(code, call.end() - 1)):
            yield line_of(code, call.start()), "Kokkos::view_alloc without a label"
    for call in re.finditer(r"\b(allocate(?:_zeroed)?)\s*<", code):
        opening = closing_angle(code, call.end() - 1)
        if opening is None or not re.match(r"\s*\(", code[opening:]) or declares(code, call.start()):
            continue
        opening = code.index("(", opening)
        second = (arguments(code, opening) + ["", ""])[1]
        if not is_label(second, qualified):
            yield line_of(code, call.start()), f"{call[1]} without a label"
    for call in re.finditer(r"(?:\bKokkos::|\.)fence\s*\(", code):
        given = arguments(code, call.end() - 1)
        if not given or not is_label(given[0], qualified):
            yield line_of(code, call.start()), "fence without a label"


def closing_angle(code, opening):
    """Position after the '>' that closes the '<' at `opening`; None when it is no template list."""
    depth = 0
    for i in range(opening, min(len(code), opening + 400)):
        if code[i] == "<":
            depth += 1
        elif code[i] == ">":
            depth -= 1
            if depth == 0:
                return i + 1
        elif code[i] in ";{":
            return None
    return None


def declares(code, position):
    """True for a definition or an explicit instantiation rather than a call."""
    line = code[code.rfind("\n", 0, position) + 1:position]
    return bool(re.match(r"\s*(template|extern)\b", line))


def check_source(name, text):
    code = without_comments(text)
    if name.startswith("vulpes/"):
        yield from check_includes(name, code)
        if name.endswith((".hpp", ".h", ".cuh")) and not re.search(r"^\s*#\s*pragma\s+once\b", code, re.MULTILINE):
            yield 1, "header without #pragma once"
    yield from check_labels(name, code)
    cuda_file = "cuda" in name.rsplit("/", 1)[-1]
    # Comments and strings count: portable code needs none of these names in any form.
    for number, line in enumerate(text.splitlines(), 1):
        if not cuda_file:
            for found in CUDA_NAME.finditer(line):
                yield number, f"{found[0]}: CUDA's names belong into files with 'cuda' in their name"
    for number, line in enumerate(join_continued(code), 1):
        if not re.match(r"\s*#\s*(if|ifdef|ifndef|elif)\b", line):
            continue
        if re.search(r"\bKOKKOS_VERSION(_\w+)?\b", line) and name != "vulpes/core/compat.hpp":
            yield number, "KOKKOS_VERSION is tested in vulpes/core/compat.hpp only"
        found = BACK_END.search(line)
        if found and name.startswith("vulpes/") and not BACK_END_FILE.search(name):
            yield number, f"#if on {found[0]} outside the files of a back end"


def join_continued(code):
    """Lines, a continued one with what follows it appended."""
    lines = code.splitlines()
    for i in range(len(lines) - 2, -1, -1):
        if lines[i].endswith("\\"):
            lines[i] = lines[i][:-1] + lines[i + 1]
    return lines


def check_text(text):
    for number, line in enumerate(text.splitlines(), 1):
        for found in REGISTRIES.finditer(line):
            yield number, f"{found[0]}: hosts of package registries are not named"
        for found in MACHINE_PATH.finditer(line):
            yield number, f"{found[0]}/...: an absolute path of one machine"


def violations(root):
    for name in project_files(root):
        text = text_of(root / name)
        if text is None:
            continue
        found = list(check_text(text))
        if SOURCE.search(name) and name.startswith(SOURCE_FOLDERS):
            found += check_source(name, text)
        for number, message in sorted(found):
            yield f"{name}:{number}: {message}"


# --- Self-test -----------------------------------------------------------------------------------------

CLEAN = {
    "vulpes/core/compat.hpp": "#pragma once\n#if KOKKOS_VERSION < 40500\n#endif\n",
    "vulpes/core/spaces_" + "cuda.hpp": "#pragma once\n#if defined(KOKKOS_ENABLE_" + "CUDA)\n#endif\n",
    "vulpes/core/spaces.hpp": '#pragma once\n#include "vulpes/core/compat.hpp"\n#if defined(KOKKOS_ENABLE_OPENMP)\n#endif\n',
    "vulpes/kernels/loss.cpp": '#include "vulpes/market/bars.hpp"\n// not Kokkos::parallel_for(range)\n'
                               'Kokkos::parallel_for(\n  "vulpes::loss::rows", range(space, 3), f);\n'
                               "Kokkos::parallel_for(Kokkos::TeamThreadRange(team, n), f);\nKokkos::parallel_for(label, p, f);\n"
                               'auto v = allocate<Matrix<float, Space>>(space, label + "::v", 3);\n'
                               'space.fence("vulpes::loss");\nconst char* s = "cuda";\n',
    "vulpes/market/bars.hpp": "#pragma once\n",
    "tests/core/spaces_test.cpp": '#if defined(KOKKOS_ENABLE_OPENMP)\n#endif\nspace.fence("test");\n',
    "README.md": "Put runs under $HOME/wo" + "rk/vulpes or ./tmp/runs; see docs/wo" + "rk/notes and https://example.org/wo" + "rk/x.\n",
}

# name of the rule, file, text, line of the only violation, part of its message
SEEDS = [
    ("layer", "vulpes/market/a.cpp", '#include "vulpes/io/table.hpp"\n#include "vulpes/kernels/loss.hpp"\n', 2, "may not use kernels"),
    ("layer of a header", "vulpes/core/a.hpp", '#pragma once\n\n#include <vulpes/io/a.hpp>\n', 3, "may not use io"),
    ("relative include", "vulpes/io/a.cpp", '#include "a.hpp"\n', 1, "does not begin"),
    ("unknown layer", "vulpes/utils/a.cpp", "int a;\n", 1, "no layer"),
    ("CUDA call", "vulpes/core/a.cpp", "\nauto e = cuda" + "GetLastError();\n", 2, "CUDA's names"),
    ("CUDA space", "bench/a.cpp", "Kokkos::" + "Cuda space;\n", 1, "CUDA's names"),
    ("CUDA library", "tests/core/a.cpp", "// as cublas" + "Sgemm does\n", 1, "CUDA's names"),
    ("CUDA keyword", "vulpes/core/a.cpp", "__glob" + "al__ void f();\n", 1, "CUDA's names"),
    ("NCCL", "vulpes/core/a.cpp", "nccl" + "Comm_t comm;\n", 1, "CUDA's names"),
    ("pragma once", "vulpes/core/a.hpp", "// #pragma once\nint a;\n", 1, "pragma once"),
    ("kernel label", "vulpes/core/a.cpp", "\nKokkos::parallel_for(\n    range(space, 3), f);\n", 2, "without a label"),
    ("unqualified label", "vulpes/core/a.cpp", 'Kokkos::parallel_scan("rows", range(space, 3), f);\n', 1, "without a label"),
    ("label behind a bracket", "vulpes/core/a.cpp", 'Kokkos::parallel_reduce(range(space, f("vulpes::x")), g);\n', 1, "without a label"),
    ("View label", "vulpes/core/a.cpp", "View v(Kokkos::view_alloc(space, Kokkos::WithoutInitializing), 3);\n", 1, "view_alloc"),
    ("allocation label", "vulpes/core/a.cpp", "auto v = allocate_zeroed<Vector<float, Space>>(space, name, 3);\n", 1, "allocate_zeroed"),
    ("fence label", "vulpes/core/a.cpp", "space.fence();\n", 1, "fence"),
    ("Kokkos version", "vulpes/io/a.cpp", "#if KOKKOS_VERSION >= 50000\n#endif\n", 1, "KOKKOS_VERSION"),
    ("continued version test", "tests/io/a.cpp", "#if defined(A) && \\\n  KOKKOS_VERSION_GREATER_EQUAL(5, 0, 0)\n#endif\n", 1, "KOKKOS_VERSION"),
    ("back end", "vulpes/trainer/a.cpp", "\n#ifdef KOKKOS_ENABLE_OPENMP\n#endif\n", 2, "back end"),
    ("back end by elif", "vulpes/core/a.cpp", "#if 0\n#elif defined(__AVX512F__)\n#endif\n", 2, "back end"),
    ("registry", "docs/a.md", "first\nfrom https://" + "pypi" + ".org/simple\n", 2, "registries"),
    ("machine path", "scripts/a", "cd " + "/work" + "/main\n", 1, "absolute path"),
    ("root's path", "CMakeLists.txt", 'set(X "' + "/root" + '/.deps")\n', 1, "absolute path"),
    ("home path", "docs/a.md", "see (" + "/home" + "/someone/runs)\n", 1, "absolute path"),
]


def violations_of(files):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        return list(violations(root))


def self_test():
    failures = [f"a clean tree: {v}" for v in violations_of(CLEAN)]
    for rule, name, text, number, message in SEEDS:
        found = violations_of({**CLEAN, name: text})
        if len(found) != 1 or not found[0].startswith(f"{name}:{number}: ") or message not in found[0]:
            failures.append(f"{rule}: expected {name}:{number}: ...{message}..., got {found}")
    print("\n".join(failures) or f"layout_test: {len(SEEDS)} seeded violations are found, a clean tree passes")
    return 1 if failures else 0


def main(argv):
    if argv == ["--self-test"]:
        return self_test()
    if len(argv) > 1 or (argv and argv[0].startswith("-")):
        print(__doc__, file=sys.stderr)
        return 2
    root = Path(argv[0] if argv else Path(__file__).parent.parent).resolve()
    found = list(violations(root))
    for violation in found:
        print(violation)
    if not project_files(root):
        print(f"layout_test: no files in {root}", file=sys.stderr)
        return 2
    print(f"layout_test: {len(found)} violations" if found else "layout_test: clean")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
