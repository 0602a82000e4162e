//! Running programs: a line, a limit, and an error that says what was run and what it answered.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::AsyncWriteExt;

/// The limit of a program that was given none.
const LIMIT: Duration = Duration::from_secs(120);

/// The `PATH` of programs that run in another root, whatever ours is.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a program left behind.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    /// The exit code; none if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Output {
    /// Whether the exit code was 0.
    pub(crate) fn ok(&self) -> bool {
        self.code == Some(0)
    }
}

/// A program to run, with its arguments, standard input and limit. Its environment is ours.
pub(crate) struct Command {
    inner: tokio::process::Command,
    line: String,
    stdin: Vec<u8>,
    limit: Duration,
}

impl Command {
    /// Starts a line with the program's name or path.
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        let program = program.as_ref();
        let mut inner = tokio::process::Command::new(program);
        inner.kill_on_drop(true);
        Self {
            inner,
            line: program.to_string_lossy().into_owned(),
            stdin: Vec::new(),
            limit: LIMIT,
        }
    }

    /// A program that ends with us, however we end: what builds for minutes must not go on for nobody. What it started itself is told by it,
    /// or comes to its own end.
    pub(crate) fn tied(program: impl AsRef<OsStr>) -> Self {
        // The kernel tells it when the thread that started it ends: ours is the first one, the only one of the runtime.
        Self::line(&["setpriv", "--pdeathsig=TERM", "--"]).arg(program)
    }

    /// A whole line at once.
    pub(crate) fn line<S: AsRef<OsStr>>(line: &[S]) -> Self {
        let (program, args) = line.split_first().expect("a line names its program");
        Self::new(program).args(args)
    }

    pub(crate) fn arg(self, arg: impl AsRef<OsStr>) -> Self {
        self.args([arg])
    }

    pub(crate) fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        for arg in args {
            self.line.push(' ');
            self.line.push_str(&arg.as_ref().to_string_lossy());
            self.inner.arg(arg);
        }
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.inner.env(name, value);
        self
    }

    /// A variable of ours that it does not get.
    pub(crate) fn without(mut self, name: impl AsRef<OsStr>) -> Self {
        self.inner.env_remove(name);
        self
    }

    pub(crate) fn dir(mut self, dir: &Path) -> Self {
        self.inner.current_dir(dir);
        self
    }

    pub(crate) fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    pub(crate) fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs it to its end, whatever its exit code.
    ///
    /// # Errors
    /// It could not be started, or did not end within its limit: it is killed then.
    pub(crate) async fn output(mut self) -> Result<Output> {
        let line = self.line;
        self.inner.stdin(if self.stdin.is_empty() {
            Stdio::null()
        } else {
            Stdio::piped()
        });
        self.inner.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self
            .inner
            .spawn()
            .with_context(|| format!("could not start `{line}`"))?;
        if let Some(mut stdin) = child.stdin.take() {
            let bytes = self.stdin;
            // A program that does not read all of it says so by its exit code.
            tokio::spawn(async move { stdin.write_all(&bytes).await });
        }
        let ended = tokio::time::timeout(self.limit, child.wait_with_output()).await;
        let output = ended
            .with_context(|| format!("`{line}` did not end within {:?}", self.limit))?
            .with_context(|| format!("`{line}` was lost"))?;
        Ok(Output {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Runs it and hands back its standard output.
    ///
    /// # Errors
    /// As `output`, and any exit code but 0.
    pub(crate) async fn read(self) -> Result<String> {
        let line = self.line.clone();
        let output = self.output().await?;
        if !output.ok() {
            let said = if output.stderr.trim().is_empty() {
                &output.stdout
            } else {
                &output.stderr
            };
            let end: String = match output.code {
                Some(code) => format!("exit code {code}"),
                None => "ended by a signal".to_owned(),
            };
            bail!("`{line}`: {end}: {}", last(said.trim_end(), 2000));
        }
        Ok(output.stdout)
    }

    /// Runs it; its exit code must be 0.
    ///
    /// # Errors
    /// As `read`.
    pub(crate) async fn run(self) -> Result<()> {
        self.read().await.map(drop)
    }

    /// Runs it with our own standard streams, for people.
    ///
    /// # Errors
    /// It could not be started.
    pub(crate) async fn show(mut self) -> Result<Option<i32>> {
        let status = self
            .inner
            .status()
            .await
            .with_context(|| format!("could not start `{}`", self.line))?;
        Ok(status.code())
    }

    /// The command as tokio has it, for what runs on by itself (`process::Daemon`).
    pub(crate) fn into_inner(self) -> tokio::process::Command {
        self.inner
    }
}

/// The last `most` bytes of a text, cut at a character.
fn last(text: &str, most: usize) -> &str {
    let mut from = text.len().saturating_sub(most);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failure_carries_the_line_the_code_and_what_was_said() {
        let error = Command::line(&["sh", "-c", "echo no such thing >&2; exit 5"])
            .run()
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "`sh -c echo no such thing >&2; exit 5`: exit code 5: no such thing"
        );
    }

    #[tokio::test]
    async fn a_program_that_does_not_end_is_an_error_at_its_limit() {
        let error = Command::line(&["sleep", "9"])
            .limit(Duration::from_millis(20))
            .run()
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "`sleep 9` did not end within 20ms");
    }

    #[tokio::test]
    async fn a_tied_program_is_told_when_who_started_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let told = folder.path().join("told");
        let script = format!(
            "trap 'touch {}; exit' TERM; echo on; while :; do sleep 0.05; done",
            told.display()
        );
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let mut command = Command::tied("sh").args(["-c", &script]).into_inner();
                let child = command.kill_on_drop(false).stdout(Stdio::piped()).spawn().unwrap();
                // Until it traps the signal.
                tokio::io::AsyncReadExt::read_u8(&mut child.stdout.unwrap())
                    .await
                    .unwrap();
            });
        });
        thread.join().unwrap();
        crate::wait::until_true("it is told", Duration::from_secs(20), async || Ok(told.exists()))
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn standard_input_passes_through() {
        assert_eq!(Command::new("cat").stdin("words").read().await.unwrap(), "words");
    }
}
