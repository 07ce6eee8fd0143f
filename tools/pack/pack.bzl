"""py_dist: all that a py_binary needs but the interpreter, as one tar; and the tests of such a tar."""

load("//tools/python:py.bzl", "pytest_test")

_WORKSPACE = "rankproof"

# NumPy's compiled modules for later versions of CPython, to lie beside those of the build's.
_NUMPY = "../pypi_numpy/"
_OTHER_NUMPY = [
    "@numpy_cp312//:tree",
    "@numpy_cp313//:tree",
    "@numpy_cp314//:tree",
]

# Its place in the archive is taken by a launcher of the machine's own CPython (pack.py).
_INTERPRETER = "../python3_11/"

def _entry(file):
    """A line for pack.py: the path among the runfiles, a tab, the file."""
    path = file.short_path
    if path.startswith(_INTERPRETER) or path.endswith(".pyi"):
        return None
    return "{}\t{}".format(path[3:] if path.startswith("../") else _WORKSPACE + "/" + path, file.path)

def _entries(file, expander):
    # A wheel is one directory: its files are known when the action runs.
    lines = [_entry(inner) for inner in expander.expand(file)]
    return [line for line in lines if line]

def _other_entries(file, expander):
    return [
        "{}site-packages/{}\t{}".format(_NUMPY[3:], inner.tree_relative_path, inner.path)
        for inner in expander.expand(file)
    ]

def _py_dist_impl(ctx):
    binary = ctx.attr.binary
    program = ctx.executable.binary
    name = ctx.attr.program or program.basename
    archive = ctx.actions.declare_file(ctx.attr.archive or name + ".tar")
    files = binary[DefaultInfo].default_runfiles.files
    options = ctx.actions.args()
    options.add("--out", archive)
    options.add("--name", name)
    options.add("--program", "{}/{}".format(_WORKSPACE, program.short_path))
    entries = ctx.actions.args()
    entries.use_param_file("%s", use_always = True)
    entries.set_param_file_format("multiline")
    entries.add_all(files, map_each = _entries, expand_directories = False)
    uses_numpy = any([file.short_path.startswith(_NUMPY) for file in files.to_list()])
    other = ctx.files._other_numpy if uses_numpy else []
    entries.add_all(other, map_each = _other_entries, expand_directories = False)
    ctx.actions.run(
        outputs = [archive],
        inputs = depset(other, transitive = [files]),
        executable = ctx.executable._pack,
        arguments = [options, entries],
        env = ctx.attr.env,
        mnemonic = "PyDist",
        progress_message = "Packing %{label}",
    )
    return [DefaultInfo(files = depset([archive]))]

py_dist = rule(
    implementation = _py_dist_impl,
    attrs = {
        "archive": attr.string(doc = "name of the file; by default that of the program and .tar"),
        "binary": attr.label(
            doc = "the py_binary; the programs in its data come along",
            cfg = "target",
            executable = True,
            mandatory = True,
        ),
        "env": attr.string_dict(
            doc = "environment of the packing; py_dist_test varies it, and the bytes must not change",
        ),
        "program": attr.string(doc = "name of the program and its folder; by default the binary's"),
        "_other_numpy": attr.label_list(default = _OTHER_NUMPY),
        "_pack": attr.label(
            default = "//tools/pack",
            cfg = "exec",
            executable = True,
        ),
    },
)

def py_dist_test(name, dist, binary, run, prints_digest_of = None, program = None, **kwargs):
    """Tests an archive: rebuilt in another environment it has the same bytes, and it runs unpacked.

    Args:
      name: of the test target.
      dist: the py_dist.
      binary: the py_binary that it packs.
      run: arguments with which the program exits 0, in an empty environment.
      prints_digest_of: a file whose SHA-256 the program prints then.
      program: as the py_dist has it.
      **kwargs: further attributes of the test.
    """
    rebuilt = name + "_rebuilt"
    py_dist(
        name = rebuilt,
        testonly = True,
        archive = rebuilt + ".tar",
        binary = binary,
        env = {
            "LC_ALL": "C",
            "PYTHONHASHSEED": "7",
            "TZ": "Asia/Tokyo",
            "USER": "someone",
        },
        program = program,
        tags = ["manual"],
        visibility = ["//visibility:private"],
    )
    pytest_test(
        name = name,
        srcs = ["//tools/pack:archive_test.py"],
        data = [dist, rebuilt] + ([prints_digest_of] if prints_digest_of else []),
        env = {
            "ARCHIVE": "$(rootpath {})".format(dist),
            "REBUILT": "$(rootpath {})".format(rebuilt),
            "RUN": " ".join(run),
        } | ({
            "PRINTS_DIGEST_OF": "$(rootpath {})".format(prints_digest_of),
        } if prints_digest_of else {}),
        **kwargs
    )
