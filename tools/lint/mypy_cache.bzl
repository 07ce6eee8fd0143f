"""mypy_cache: what mypy knows of the wheels and of the standard library, as one directory."""

def _mypy_cache_impl(ctx):
    folder = ctx.actions.declare_directory(ctx.label.name)
    ctx.actions.run(
        outputs = [folder],
        inputs = [ctx.file.config],
        executable = ctx.executable.program,
        arguments = [ctx.file.config.path, folder.path],
        mnemonic = "MypyCache",
        progress_message = "Checking the types of all wheels",
        # The interpreter is the host's.
        execution_requirements = {"no-remote-exec": "1"},
    )
    return [DefaultInfo(files = depset([folder]), runfiles = ctx.runfiles([folder]))]

mypy_cache = rule(
    implementation = _mypy_cache_impl,
    attrs = {
        "config": attr.label(allow_single_file = True, mandatory = True),
        "program": attr.label(
            cfg = "exec",
            executable = True,
            mandatory = True,
        ),
    },
)
