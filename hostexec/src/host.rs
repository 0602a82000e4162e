//! [`Host`]: the capability without which nothing of the host can be changed or asked.

use crate::{
    Call, HostPath, Output, Tool, ToolError,
    call::Ends,
    environment::{self, SEARCH},
};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use std::{
    fs, io,
    os::{fd::AsRawFd, unix::fs::PermissionsExt},
    path::{Path, PathBuf},
    pin::pin,
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    process::{Child, Command},
    time::{sleep, timeout},
};

/// The program that enters the host, in the agent's image.
const SHIM: &str = "/usr/bin/host-exec";
/// Where the units mount the host's root into the container.
pub(crate) const ROOT: &str = "/host";
/// The most of a tool's output that is kept.
const STDOUT_LIMIT: usize = 16 << 20;
/// The most of a tool's complaints that is kept: their end.
const STDERR_LIMIT: usize = 4 << 10;
/// How long a tool has between being asked to end and being killed, and its streams after its end.
const GRACE: Duration = Duration::from_secs(1);
/// How long a program that is being written is waited for, and how often it is tried.
const BUSY: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(10);

/// The host underneath, by its root and by the way its tools are run.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
    enter: Enter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Enter {
    /// Through the program `host-exec`.
    Shim,
    /// Tools are run as they lie below the root.
    Directly,
}

impl Host {
    /// The host as the agent's container sees it: its root at `/host`, its tools through `host-exec`.
    #[must_use]
    pub fn container() -> Self {
        Self {
            root: ROOT.into(),
            enter: Enter::Shim,
        }
    }

    /// The host whose root is this folder, and whose tools are run directly: the binary install (`/`), or a test.
    #[must_use]
    pub fn rooted(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            enter: Enter::Directly,
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where the tool's program is, links resolved within the host's root; none if the host does not have it.
    #[must_use]
    pub fn find(&self, tool: Tool) -> Option<PathBuf> {
        SEARCH.iter().find_map(|folder| {
            let path = HostPath::new(format!("{folder}/{}", tool.name())).ok()?;
            let fd = self.open_in_root(&path, nix::fcntl::OFlag::O_PATH).ok()?;
            let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
            let found = fs::metadata(&link).ok()?;
            let runs = found.is_file() && found.permissions().mode() & 0o111 != 0;
            if runs { fs::read_link(link).ok() } else { None }
        })
    }

    /// Runs a tool with nothing to read, within its time limit.
    ///
    /// # Errors
    /// It is not there, could not be run, took too long, or ended with anything but 0.
    pub async fn run(&self, tool: Tool, args: &[&str]) -> Result<Output, ToolError> {
        self.call(Call::new(tool, args)).await
    }

    /// Runs a tool. Dropping the future ends the tool and whatever it started.
    ///
    /// # Errors
    /// It is not there, could not be run, took too long, printed too much, or ended in a way the call does not accept.
    pub async fn call(&self, call: Call<'_>) -> Result<Output, ToolError> {
        let program = self.find(call.tool).ok_or(ToolError::Missing(call.tool))?;
        let started = Instant::now();
        let line = call.line();
        let result = self.spawn_and_wait(&call, &program, &line).await;
        let elapsed = started.elapsed();
        match &result {
            Ok(output) => tracing::debug!(line, code = output.code, ?elapsed, "ran"),
            Err(error) => tracing::debug!(line, %error, ?elapsed, "ran"),
        }
        result
    }

    async fn spawn_and_wait(&self, call: &Call<'_>, program: &Path, line: &str) -> Result<Output, ToolError> {
        let failed = |source| ToolError::Run {
            line: line.to_owned(),
            source,
        };
        let mut running = Running::start(self.command(call, program)).await.map_err(failed)?;
        let Answer { status, stdout, stderr } = match timeout(call.limit, running.answer(call.stdin)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(Trouble::Io(source))) => return Err(failed(source)),
            Ok(Err(Trouble::Flood)) => {
                return Err(ToolError::Flood {
                    line: line.to_owned(),
                    limit: STDOUT_LIMIT,
                });
            }
            Err(_) => {
                running.end().await;
                return Err(ToolError::Slow {
                    line: line.to_owned(),
                    limit: call.limit,
                });
            }
        };
        let accepted = status.success() || (call.ends == Ends::AnyCode && status.code().is_some());
        if !accepted {
            return Err(ToolError::Failed {
                line: line.to_owned(),
                status,
                stderr: on_one_line(&stderr),
            });
        }
        Ok(Output {
            code: status.code(),
            stdout: String::from_utf8_lossy(&stdout).into_owned(),
            stderr,
        })
    }

    /// The one place where a process is made.
    fn command(&self, call: &Call<'_>, program: &Path) -> Command {
        let mut command = match self.enter {
            Enter::Shim => {
                let mut command = Command::new(SHIM);
                command.arg(call.tool.name());
                command
            }
            Enter::Directly => {
                let mut command = Command::new(program);
                // Programs of many names (`xtables-nft-multi`, `kmod`) go by it.
                command.arg0(call.tool.name());
                command
            }
        };
        command.args(call.args).current_dir("/").env_clear();
        command.envs(std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(environment::passes)));
        // Answers are parsed: they must read the same everywhere.
        command
            .env("PATH", environment::PATH)
            .env("HOME", environment::HOME)
            .env("LC_ALL", "C.UTF-8");
        command
            .stdin(if call.stdin.is_some() {
                Stdio::piped()
            } else {
                Stdio::null()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        command
    }
}

struct Answer {
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: String,
}

enum Trouble {
    Io(io::Error),
    Flood,
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A tool under way, and the process group it leads.
struct Running {
    child: Child,
    /// None once the tool was waited for: the number may then be another's.
    group: Option<Pid>,
}

impl Running {
    /// A program that somebody writes at this moment can't be run ([`io::ErrorKind::ExecutableFileBusy`]), and can soon after: an
    /// update writes it, or a process that is being made holds its writer's file for a moment longer.
    async fn start(mut command: Command) -> io::Result<Self> {
        let until = Instant::now() + BUSY;
        let child = loop {
            match command.spawn() {
                Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && Instant::now() < until => {
                    sleep(AGAIN).await;
                }
                spawned => break spawned?,
            }
        };
        let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        Ok(Self { child, group })
    }

    /// Feeds it, reads it, waits for it. Cancelled by its time limit; [`Running`] then still ends the group.
    async fn answer(&mut self, stdin: Option<&[u8]>) -> Result<Answer, Trouble> {
        let (input, stdout, stderr) = (
            self.child.stdin.take(),
            self.child.stdout.take(),
            self.child.stderr.take(),
        );
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let status = {
            let mut streams = pin!(async {
                tokio::try_join!(
                    feed(input, stdin),
                    read(stdout, &mut out, Keep::Start(STDOUT_LIMIT)),
                    read(stderr, &mut err, Keep::End(STDERR_LIMIT))
                )
            });
            let mut read_all = false;
            let status = loop {
                tokio::select! {
                    ended = self.child.wait() => break ended?,
                    result = &mut streams, if !read_all => {
                        result?;
                        read_all = true;
                    }
                }
            };
            self.group = None;
            if !read_all && let Ok(result) = timeout(GRACE, streams).await {
                // Else something it left behind holds its streams open: what was said by now is the answer.
                result?;
            }
            status
        };
        Ok(Answer {
            status,
            stdout: out,
            stderr: String::from_utf8_lossy(&err).into_owned(),
        })
    }

    /// Asks the group to end, then ends it.
    async fn end(mut self) {
        self.signal(Signal::SIGTERM);
        let _ = timeout(GRACE, self.child.wait()).await;
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // It may have ended by itself.
            let _ = killpg(group, signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}

async fn feed(stdin: Option<impl AsyncWrite + Unpin>, bytes: Option<&[u8]>) -> Result<(), Trouble> {
    if let (Some(mut stdin), Some(bytes)) = (stdin, bytes) {
        // A tool that does not want it all says so by its exit code.
        let _ = stdin.write_all(bytes).await;
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Keep {
    Start(usize),
    End(usize),
}

async fn read(stream: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>, keep: Keep) -> Result<(), Trouble> {
    let Some(mut stream) = stream else { return Ok(()) };
    let mut part = vec![0; 16 << 10];
    loop {
        let read = stream.read(&mut part).await?;
        if read == 0 {
            return Ok(());
        }
        kept.extend_from_slice(&part[..read]);
        match keep {
            Keep::Start(limit) if kept.len() > limit => return Err(Trouble::Flood),
            Keep::End(limit) if kept.len() > limit => drop(kept.drain(..kept.len() - limit)),
            Keep::Start(_) | Keep::End(_) => {}
        }
    }
}

/// The last lines, for a log or a status.
fn on_one_line(stderr: &str) -> String {
    const LINES: usize = 10;
    let lines: Vec<_> = stderr.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match lines.as_slice() {
        [] => "it said nothing on stderr".to_owned(),
        lines => lines[lines.len().saturating_sub(LINES)..].join("; "),
    }
}

#[cfg(test)]
mod tests;
