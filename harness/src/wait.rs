//! Waiting for a condition, with a deadline. Nothing here sleeps for a time in the hope that something is done by then.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How long between two looks.
const PAUSE: Duration = Duration::from_millis(80);

/// Looks again and again until `look` yields a value.
///
/// # Errors
/// Nothing by the deadline, with the last error that `look` met; `look`'s error if it is a `Stop`.
pub(crate) async fn until<T>(
    what: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        let seen = look().await;
        match seen {
            Ok(Some(value)) => return Ok(value),
            Err(error) if error.is::<Stop>() => return Err(error),
            Ok(None) if start.elapsed() > limit => bail!("{what}: not within {limit:?}"),
            Err(error) if start.elapsed() > limit => return Err(error.context(format!("{what}: not within {limit:?}"))),
            Ok(None) | Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// As `until`, for a plain condition.
///
/// # Errors
/// As `until`.
pub(crate) async fn until_true(what: &str, limit: Duration, mut look: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    until(what, limit, async || Ok(look().await?.then_some(()))).await
}

/// An error that no further look can mend.
#[derive(Debug)]
pub(crate) struct Stop(pub(crate) String);

impl std::fmt::Display for Stop {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(&self.0)
    }
}

impl std::error::Error for Stop {}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_looks_until_there_is_a_value() {
        let mut left = 2;
        let found = until("a value", Duration::from_secs(5), async || {
            left -= 1;
            Ok((left == 0).then_some("here"))
        });
        assert_eq!(found.await.unwrap(), "here");
    }

    #[tokio::test]
    async fn the_deadline_is_an_error_that_names_the_condition_and_the_last_fault() {
        let error = until_true("the door", Duration::ZERO, async || bail!("shut"))
            .await
            .unwrap_err();
        assert_eq!(format!("{error:#}"), "the door: not within 0ns: shut");
    }

    #[tokio::test]
    async fn a_stop_ends_the_wait_at_once() {
        let error = until_true("it", Duration::from_secs(60), async || Err(Stop("dead".into()).into()))
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "dead");
    }
}
