//! `host-exec TOOL ARG…`, or a link to it named after the tool: runs a tool of the host from within the container.

fn main() -> std::process::ExitCode {
    hostexec::shim::main(std::env::args_os())
}
