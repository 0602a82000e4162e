//! Looks over the network: the API server, and every source of the plan.

use std::time::Duration;

use futures::future::join_all;
use hostexec::Host;
use image::{oci::Platform, on_disk::OnDisk};
use tokio::time::timeout;

use super::{LIMIT, Look, Subject, a_look, blocking, server};
use crate::{
    bundle::{self, Purpose},
    config::{self, At, OfflineArchive, OfflineSource, Settings},
    containerd::{self, PullError, Registries, Why, resolve_image},
    fetch::{self, Fetcher},
    model::Arch,
    offline::Bundle,
    preflight::{
        Check, Finding, Seen, Unseen,
        judge::{self, Offline, Source, words},
    },
    step::{Origin, Proof, Step},
    store::selection::hosts_dir,
};

/// How long a source may take for an answer.
const ANSWER: Duration = Duration::from_secs(8);
/// How long a registry may be silent; that its name can't be resolved is found out after it, within [`LIMIT`].
const SILENT: Duration = Duration::from_secs(6);
/// How long a bundle of offline artifacts may take to be opened, before all else: the plan comes of it. With what the looks take, no more than 20 s.
const BUNDLE: Duration = Duration::from_secs(4);
/// How long a name may take that is looked up to say why there was none.
const NAME: Duration = Duration::from_millis(1500);

pub(super) fn looks(subject: &Subject) -> Vec<Look<'_>> {
    const CHECKS: &[Check] = &[
        Check::Dns,
        Check::ApiServerReachable,
        Check::Clock,
        Check::BootstrapToken,
        Check::OciImage,
        Check::KubernetesArtifacts,
        Check::CriArtifacts,
        Check::CniArtifacts,
        Check::NpdArtifact,
    ];
    vec![a_look(CHECKS, look(subject))]
}

async fn look(subject: &Subject) -> Vec<Finding> {
    let (server, image, components) = tokio::join!(server::look(subject), image(subject), components(subject));
    let unnamed = |seen: &Seen<Source>| matches!(seen, Ok(Source::Unnamed));
    let mut nameless: Vec<&'static str> = components
        .iter()
        .filter(|(_, seen)| unnamed(seen))
        .map(|(name, _)| *name)
        .collect();
    if image.as_ref().is_some_and(unnamed) {
        nameless.push("the machine's image");
    }
    let mut found = judge::dns(&server.reached, server.named, &nameless);
    found.push(judge::api_server(&server.reached));
    found.push(judge::clock(&server.reached));
    found.push(judge::token(server.token));
    found.push(match image {
        Some(seen) => judge::oci_image(&seen),
        None => Check::OciImage.skip("the configuration makes no plan"),
    });
    found.extend(judge::sources(&components));
    found
}

/// The bundle of offline artifacts, if the settings name one.
pub async fn offline(host: &Host, settings: &Settings, arch: Arch) -> (Offline, Option<Bundle>) {
    let Some(source) = settings.offline_artifacts() else {
        return (Offline::NotAsked, None);
    };
    if let OfflineSource::Archive(archive) = source {
        let is_unpacked = {
            let archive = archive.clone();
            blocking(host, move |host| bundle::is_unpacked(host, &archive)).await
        };
        match is_unpacked {
            Ok(true) => {}
            Ok(false) => return (packed(host, archive).await, None),
            Err(why) => {
                return (
                    Offline::Unusable(format!("the offline bundle can't be had: {why}")),
                    None,
                );
            }
        }
    }
    let limits = containerd::Limits {
        overall: BUNDLE,
        idle: BUNDLE,
    };
    let Ok(opened) = timeout(BUNDLE, bundle::open(host, source, arch, limits, Purpose::Look)).await else {
        let late = Unseen::Late(BUNDLE);
        return (
            Offline::Unusable(format!("the offline bundle can't be had: {late}")),
            None,
        );
    };
    match opened {
        Ok(bundle) => (Offline::Whole, Some(bundle)),
        Err(bundle::Error::Pull(error)) => (
            Offline::Unusable(format!("the offline bundle can't be had: {}", refusal(&error))),
            None,
        ),
        Err(error) => (Offline::Unusable(crate::model::chain(&error).to_string()), None),
    }
}

/// Whether an archive is there: to open it takes longer than a look may.
async fn packed(host: &Host, archive: &OfflineArchive) -> Offline {
    let away = |why: String| Offline::Unusable(format!("the offline archive can't be had: {why}"));
    match &archive.at {
        At::Host(path) => {
            let path = path.clone();
            let found = blocking(host, move |host| Ok(host.metadata(&path)?.is_file()));
            match found.await {
                Ok(true) => Offline::Packed,
                Ok(false) => away("it is no file".into()),
                Err(why) => away(why.to_string()),
            }
        }
        At::Url(url) => {
            let roots = blocking(host, |host| Ok(fetch::roots(host))).await;
            let limits = fetch::Limits {
                total: BUNDLE,
                idle: BUNDLE,
                connect: BUNDLE,
                tries: 1,
                ..fetch::Limits::default()
            };
            let fetcher = match roots.map(|roots| Fetcher::new(roots, limits)) {
                Ok(Ok(fetcher)) => fetcher,
                Ok(Err(_)) => return away("TLS can't be set up".into()),
                Err(why) => return away(why.to_string()),
            };
            let Err(error) = fetcher.reaches(url).await else {
                return Offline::Packed;
            };
            match self::away(&error, url).await {
                Source::Away(why) => away(why),
                Source::Reachable | Source::Packed | Source::Unnamed => {
                    away("its server's name can't be resolved".into())
                }
            }
        }
    }
}

/// The machine's image: what describes it, and no layer.
async fn image(subject: &Subject) -> Option<Seen<Source>> {
    let plan = subject.plan.as_ref()?;
    let image = plan.tasks().into_iter().find_map(|task| {
        let Step::Rootfs { image, .. } = &task.step else {
            return None;
        };
        Some(image.as_str())
    })?;
    if let Some((folder, select)) = config::on_host(image) {
        let found = blocking(&subject.host, move |host| {
            let dir = host.open_dir(&folder)?;
            let layout = OnDisk::open(dir.path());
            Ok(layout.and_then(|layout| layout.find(select.as_ref(), &Platform::here())))
        });
        return Some(match found.await {
            Ok(Ok(_)) => Ok(Source::Reachable),
            Ok(Err(error)) => Ok(Source::Away(error.to_string())),
            Err(why) => Err(why),
        });
    }
    let registries = blocking(&subject.host, |host| {
        let dir = hosts_dir(host)?;
        Ok(Registries::load(host, dir.as_ref()).map_err(|error| crate::model::chain(&error)))
    });
    let registries = match registries.await {
        Ok(Ok(registries)) => registries,
        Ok(Err(why)) => return Some(Ok(Source::Away(why))),
        Err(why) => return Some(Err(why)),
    };
    let limits = containerd::Limits {
        overall: ANSWER,
        idle: SILENT,
    };
    let asked = timeout(LIMIT, resolve_image(image, &registries, limits)).await;
    Some(match asked {
        Err(_) => Err(Unseen::Late(LIMIT)),
        Ok(Ok(())) => Ok(Source::Reachable),
        Ok(Err(PullError::Registry { why: Why::Unnamed, .. })) => Ok(Source::Unnamed),
        Ok(Err(error)) => Ok(Source::Away(refusal(&error))),
    })
}

/// Why an image was not had, without its name and its registry's.
fn refusal(error: &PullError) -> String {
    match error {
        PullError::Reference(_) => "its name is none of an image".to_owned(),
        PullError::Registry {
            why: Why::Transport(said),
            ..
        } => words(said).to_owned(),
        PullError::Registry { why, .. } => why.to_string(),
        PullError::Image(error) => error.to_string(),
        PullError::Digest { .. } => "the registry gives another image for its digest".to_owned(),
        PullError::Registries(_)
        | PullError::Overall { .. }
        | PullError::NoRoom { .. }
        | PullError::Unpack(_)
        | PullError::Keep(_)
        | PullError::Containerd(_) => "the registry could not be asked".to_owned(),
    }
}

/// Every download of the plan, and the checksum that goes with it.
async fn components(subject: &Subject) -> Vec<(&'static str, Seen<Source>)> {
    let Some(plan) = &subject.plan else { return Vec::new() };
    let downloads: Vec<_> = plan
        .tasks()
        .into_iter()
        .filter_map(|task| {
            let Step::Download(download) = &task.step else {
                return None;
            };
            Some(download)
        })
        .collect();
    let limits = fetch::Limits {
        total: ANSWER,
        idle: ANSWER,
        connect: ANSWER,
        tries: 1,
        ..fetch::Limits::default()
    };
    let roots = blocking(&subject.host, |host| Ok(fetch::roots(host))).await;
    let fetcher = roots.map(|roots| Fetcher::new(roots, limits));
    let offline = subject.settings.offline_artifacts().is_some();
    let asked = downloads.into_iter().map(async |download| {
        let seen = match &fetcher {
            // Its archive was not opened, and so the plan does not know where in it.
            _ if offline && matches!(download.origin, Origin::Url { .. }) => Ok(Source::Packed),
            Err(why) => Err(why.clone()),
            Ok(Err(_)) => Ok(Source::Away("TLS can't be set up".to_owned())),
            Ok(Ok(fetcher)) => {
                let (url, proof) = match &download.origin {
                    Origin::Url { url, proof } => (url, proof),
                    // The bundle was opened, and has it.
                    Origin::File { .. } | Origin::Blob { .. } => return (download.component, Ok(Source::Reachable)),
                };
                let proof = async {
                    match proof {
                        Proof::Tls => Ok(()),
                        Proof::Sha256At(proof) => fetcher.reaches(proof).await,
                    }
                };
                match tokio::try_join!(fetcher.reaches(url), proof) {
                    Ok(_) => Ok(Source::Reachable),
                    Err(error) => Ok(away(&error, url).await),
                }
            }
        };
        (download.component, seen)
    });
    join_all(asked).await
}

/// Why a file was not had, without its address.
async fn away(error: &fetch::Error, url: &str) -> Source {
    use fetch::Error as E;
    let silent = match error {
        E::Transport { source, .. } => source.is_connect() || source.is_timeout(),
        E::Slow { .. } => true,
        E::Url
        | E::Tls(_)
        | E::Client(_)
        | E::Status { .. }
        | E::Large { .. }
        | E::Mismatch { .. }
        | E::Checksum { .. }
        | E::Keep { .. } => false,
    };
    if silent
        && let Ok(url) = reqwest::Url::parse(url)
        && let Some(host) = url.host_str()
        && !server::resolves(host, url.port_or_known_default().unwrap_or(443), NAME).await
    {
        return Source::Unnamed;
    }
    Source::Away(match error {
        E::Status { status, .. } => format!("its server answers HTTP status {}", status.as_u16()),
        E::Slow { limit, .. } => format!("no answer within {} s", limit.as_secs()),
        E::Transport { source, .. } => words(&server::said(source)).to_owned(),
        E::Url
        | E::Tls(_)
        | E::Client(_)
        | E::Large { .. }
        | E::Mismatch { .. }
        | E::Checksum { .. }
        | E::Keep { .. } => "it could not be asked for".to_owned(),
    })
}
