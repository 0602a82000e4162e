//! `bed.faulty-registry`: the faulty registry goes wrong as it is told, for one host, one kind of request, as often as said, and no more.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::Context;
use crate::cloud::faulty::{At, Door, Fault, Guard, HOST, How, Kind, PLAIN_PORT, PORT, Redirect, SIGNATURE};
use crate::host::{Host, Options};

/// What hosts trust.
const TRUSTED: &str = "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem";
const ACCEPT: &str = "Accept: application/vnd.oci.image.manifest.v1+json";
const LIMIT: Duration = Duration::from_secs(20);
/// curl's words for how a transfer ended. Source: curl(1), "EXIT CODES".
const WELL: &str = "0";
const SHORT: &str = "18";
const TIMED_OUT: &str = "28";
const REDIRECTED: &str = "47";
const RESET: [&str; 2] = ["52", "56"];
const CERTIFICATE: &str = "60";

/// What curl on a host got.
#[derive(Debug, PartialEq, Eq)]
struct Got {
    exit: String,
    status: String,
    /// Bytes of the body.
    size: u64,
    /// The sum of the body.
    sum: String,
    /// Bytes a second.
    speed: u64,
}

/// One image of the registry, seen from one host.
struct Seen<'a> {
    host: &'a Host,
    manifest: String,
    layer: String,
}

impl Seen<'_> {
    async fn get(&self, path: &str, more: &str) -> Result<Got> {
        let line = format!(
            "curl --cacert {TRUSTED} --silent --location --max-redirs 5 --max-time 3 --output /run/got {more} \
             --write-out '%{{exitcode}} %{{http_code}} %{{size_download}} %{{speed_download}} ' https://{HOST}:{PORT}{path} || true; \
             sha256sum < /run/got; rm /run/got"
        );
        let said = self.host.sh(&format!("touch /run/got; {line}")).await?;
        let words: Vec<&str> = said.split_whitespace().collect();
        let [exit, status, size, speed, sum, ..] = words[..] else {
            anyhow::bail!("curl said {said:?}")
        };
        Ok(Got {
            exit: exit.to_owned(),
            status: status.to_owned(),
            size: size.parse()?,
            sum: sum.to_owned(),
            speed: speed.parse()?,
        })
    }

    async fn manifest(&self) -> Result<Got> {
        self.get(&self.manifest, &format!("--header '{ACCEPT}'")).await
    }

    async fn layer(&self) -> Result<Got> {
        self.get(&self.layer, "").await
    }
}

pub(super) async fn faulty_registry(context: &Context) -> Result<()> {
    let host = context.host(Options::default()).await?;
    let faulty = &context.cloud().faulty;
    let image = faulty.image(&context.cloud().images.busybox)?;
    let digest = image.digest.to_string();
    let repository = format!("/v2/{}", image.repository.path());
    let mut seen = Seen {
        host: &host,
        manifest: format!("{repository}/manifests/{digest}"),
        layer: String::new(),
    };

    // Honest.
    let honest = seen.manifest().await?;
    ensure!(
        honest.exit == WELL && honest.status == "200" && format!("sha256:{}", honest.sum) == digest,
        "an honest manifest: {honest:?}"
    );
    let text = host
        .sh(&format!(
            "curl --cacert {TRUSTED} -sS --header '{ACCEPT}' https://{HOST}:{PORT}{}",
            seen.manifest
        ))
        .await?;
    let document: Value = serde_json::from_str(&text)?;
    let named = |what: &Value| {
        what["digest"]
            .as_str()
            .context("a blob has no digest")
            .map(str::to_owned)
    };
    let (layer, config) = (named(&document["layers"][0])?, named(&document["config"])?);
    let size = document["layers"][0]["size"].as_u64().context("a layer has no size")?;
    seen.layer = format!("{repository}/blobs/{layer}");
    let whole = seen.layer().await?;
    ensure!(
        format!("sha256:{}", whole.sum) == layer && whole.size == size,
        "an honest layer: {whole:?}"
    );

    // A status, twice, for one host alone; another kind is not hit.
    faulty.set(&host, Fault::of(Kind::Manifest, How::Status(503)).times(2))?;
    let elsewhere = format!("https://{HOST}:{PORT}{}", seen.manifest);
    let resolve = format!("{HOST}:{PORT}:{}", context.bed.net.gateway());
    let other = context
        .bed
        .net
        .command("curl")
        .args(["-sSk", "--header", ACCEPT, "--resolve", &resolve, &elsewhere]);
    ensure!(
        other.read().await?.contains("schemaVersion"),
        "another address is hit too"
    );
    let mark = faulty.mark();
    let (first, blob) = (seen.manifest().await?, seen.layer().await?);
    let (second, third) = (seen.manifest().await?, seen.manifest().await?);
    let statuses = [&first, &blob, &second, &third].map(|got| got.status.as_str());
    ensure!(statuses == ["503", "200", "503", "200"], "503 twice: {statuses:?}");
    let logged: Vec<_> = faulty
        .requests(&host, mark)?
        .iter()
        .map(|request| request.status)
        .collect();
    ensure!(logged == [503, 200, 503, 200], "the log has {logged:?}");

    // What comes of a body.
    let half = size / 2;
    let body = async |how| {
        faulty.set(&host, Fault::of(Kind::Layer, how))?;
        seen.layer().await
    };
    let got = body(How::Reset(At::Byte(half))).await?;
    ensure!(
        RESET.contains(&got.exit.as_str()) && got.size == half,
        "a reset: {got:?}"
    );
    let got = body(How::Short(At::Percent(50))).await?;
    ensure!(
        [SHORT, "56"].contains(&got.exit.as_str()) && got.size == half,
        "a short body: {got:?}"
    );
    let got = body(How::Flip(At::Byte(half))).await?;
    ensure!(
        got.exit == WELL && got.size == size && got.sum != whole.sum,
        "a wrong byte: {got:?}"
    );
    let got = body(How::Longer(100)).await?;
    ensure!(got.exit == WELL && got.size == size + 100, "too long a body: {got:?}");
    let got = body(How::Endless).await?;
    ensure!(got.exit == TIMED_OUT && got.size > size, "an endless body: {got:?}");
    let got = body(How::Slow(50_000)).await?;
    ensure!(got.exit == TIMED_OUT && got.speed < 60_000, "a slow body: {got:?}");

    // Held at a byte, seen to be held, let go: it goes on.
    let mark = faulty.mark();
    faulty.set(&host, Fault::of(Kind::Layer, How::Hold(At::Byte(half))))?;
    let healed = async {
        let sent = faulty.held(&host, Kind::Layer, mark, LIMIT).await?;
        faulty.heal(&host)?;
        Ok::<_, anyhow::Error>(sent)
    };
    let (got, sent) = tokio::join!(seen.layer(), healed);
    let (got, sent) = (got?, sent?);
    ensure!(
        sent == half && got.sum == whole.sum,
        "held at {sent} of {size} bytes: {got:?}"
    );
    // A part that begins beyond is held before its first byte.
    faulty.set(&host, Fault::of(Kind::Layer, How::Hold(At::Byte(half))))?;
    let got = seen.get(&seen.layer, &format!("--range {}-", half + 1)).await?;
    ensure!(
        got.exit == TIMED_OUT && got.size == 0,
        "the rest of what is held: {got:?}"
    );

    // Configs are told from layers, once a manifest has named them.
    faulty.set(&host, Fault::of(Kind::Config, How::Status(404)))?;
    let got = seen.get(&format!("{repository}/blobs/{config}"), "").await?;
    ensure!(
        got.status == "404" && seen.layer().await?.status == "200",
        "a config: {got:?}"
    );

    // Redirects.
    let led = async |to| {
        faulty.set(&host, Fault::of(Kind::Layer, How::Redirect(to)))?;
        seen.layer().await
    };
    let got = led(Redirect::Loop).await?;
    ensure!(got.exit == REDIRECTED, "a loop: {got:?}");
    for to in [Redirect::Plain, Redirect::Signed] {
        let mark = faulty.mark();
        let got = led(to).await?;
        let last = faulty.requests(&host, mark)?.pop().context("nothing was asked for")?;
        ensure!(
            got.sum == whole.sum && last.kind == Some(Kind::Signed) && last.plain == (to == Redirect::Plain),
            "{to:?}: {got:?}, {last:?}"
        );
    }
    let plain = host
        .sh(&format!(
            "curl --cacert {TRUSTED} -sS --head http://{HOST}:{PLAIN_PORT}{}?{SIGNATURE}",
            seen.layer
        ))
        .await?;
    ensure!(plain.contains(&format!("{size}")), "without TLS: {plain}");

    // Tokens.
    let login = "who:what".to_owned();
    faulty.set(&host, Fault::guarded(Guard { login, uses: Some(1) }))?;
    ensure!(seen.layer().await?.status == "401", "without a token");
    ensure!(
        seen.get("/token", "--user who:other").await?.status == "401",
        "with another login"
    );
    let token = host
        .sh(&format!(
            "curl --cacert {TRUSTED} -sS --user who:what https://{HOST}:{PORT}/token"
        ))
        .await?;
    let token: Value = serde_json::from_str(&token)?;
    let bearer = format!(
        "--header 'Authorization: Bearer {}'",
        token["token"].as_str().unwrap_or_default()
    );
    let statuses = [
        seen.get(&seen.layer, &bearer).await?.status,
        seen.get(&seen.layer, &bearer).await?.status,
    ];
    ensure!(
        statuses == ["200", "401"],
        "with a token that is good once: {statuses:?}"
    );

    // Doors.
    for door in [Door::Early, Door::Late, Door::Stranger, Door::OtherName] {
        faulty.set(&host, Fault::door(door))?;
        let got = seen.layer().await?;
        ensure!(got.exit == CERTIFICATE, "{door:?}: {got:?}");
    }
    faulty.set(&host, Fault::door(Door::Mute))?;
    let got = seen.layer().await?;
    ensure!(got.exit == TIMED_OUT, "a mute door: {got:?}");
    faulty.heal(&host)?;
    let got = seen.layer().await?;
    ensure!(got.sum == whole.sum, "healed: {got:?}");
    Ok(())
}
