"""bytecode: the compiled modules of what a test and its programs import.

Nothing can write a __pycache__ inside the sandbox, so every process of every test would compile
the modules of this repository again: 0.75 of the second in which the coordinator's start, 0.27 of
the 0.35 in which a worker's do. docs/adr/0002-hermetic-python.md.
"""

_PYTHON = "@bazel_tools//tools/python:toolchain_type"

# Of the interpreter in WORKSPACE; compile_modules.py refuses another.
_CACHE_TAG = "cpython-311"

_BytecodeInfo = provider("Compiled modules.", fields = {"files": "depset of files"})

def _compile(target, ctx):
    """One action for the sources of a library, each beside its source in the runfiles."""
    package = target.label.package
    sources = []
    outputs = []
    options = ctx.actions.args()
    options.add_all(["-I", "-S", ctx.file._tool, "--cache-tag", _CACHE_TAG])
    for source in ctx.rule.files.srcs:
        # A file of another package would need a folder that is not this package's to write.
        if source.extension != "py" or source.owner.package != package:
            continue
        folder, _, name = source.short_path[len(package):].lstrip("/").rpartition("/")
        stem = name.removesuffix(".py")
        output = ctx.actions.declare_file("{}{}__pycache__/{}.{}.pyc".format(
            folder,
            "/" if folder else "",
            stem,
            _CACHE_TAG,
        ))
        options.add_all([source.short_path, source.path, output.path])
        sources.append(source)
        outputs.append(output)
    if outputs:
        runtime = ctx.toolchains[_PYTHON].py3_runtime
        ctx.actions.run(
            outputs = outputs,
            inputs = depset(sources + [ctx.file._tool], transitive = [runtime.files]),
            executable = runtime.interpreter,
            tools = [runtime.interpreter],
            arguments = [options],
            mnemonic = "PyCompile",
            progress_message = "Compiling %{label}",
            # The interpreter is the host's.
            execution_requirements = {"no-remote-exec": "1"},
        )
    return outputs

def _aspect_impl(target, ctx):
    below = [
        dependency[_BytecodeInfo].files
        for attribute in ("data", "deps")
        for dependency in getattr(ctx.rule.attr, attribute, [])
        if _BytecodeInfo in dependency
    ]
    # Wheels bring theirs (wheel_tree.bzl).
    ours = ctx.rule.kind == "py_library" and not target.label.workspace_name
    outputs = _compile(target, ctx) if ours else []
    return [_BytecodeInfo(files = depset(outputs, transitive = below))]

_bytecode_aspect = aspect(
    implementation = _aspect_impl,
    attr_aspects = [
        "data",
        "deps",
    ],
    attrs = {
        "_tool": attr.label(
            default = "//tools/python:compile_modules.py",
            allow_single_file = True,
        ),
    },
    toolchains = [_PYTHON],
)

def _bytecode_impl(ctx):
    files = depset(transitive = [
        target[_BytecodeInfo].files
        for target in ctx.attr.targets
        if _BytecodeInfo in target
    ])
    return [DefaultInfo(files = files, runfiles = ctx.runfiles(transitive_files = files))]

bytecode = rule(
    implementation = _bytecode_impl,
    doc = "The compiled modules of these targets and of all that they depend on.",
    attrs = {
        "targets": attr.label_list(allow_files = True, aspects = [_bytecode_aspect]),
    },
)
