//! Container images that a machine gets from its host and not from a registry. Source: node-agent specification, 5.4.4.

use hostexec::HostPath;

use super::{Goal, Programs, join};
use crate::{
    offline::path,
    step::{Archive, File, Place, Plan, Step},
};

/// Where archives of container images are kept, and where a machine is shown them.
pub(super) const FOLDER: HostPath = HostPath::fixed("/var/lib/unbounded/container-images");
/// What machines are shown: a link, by the reference's name.
pub(super) const CURRENT: &str = "current";
/// The folder it leads to. Always the same, for a machine that runs sees the folder that was there when it started.
const STAGED: &str = "staged";

/// Puts the archives on the host. The folder must be there also when nothing is in it.
pub(super) fn staged(goal: &Goal, programs: &Programs) -> [Plan; 2] {
    let folder = join(&FOLDER, STAGED);
    let current = File::link(Place::Host, join(&FOLDER, CURRENT), folder.as_str());
    let archives = archives(goal, programs)
        .into_iter()
        .map(|(archive, _)| archive)
        .collect();
    [
        Plan::task("stage-container-images", Step::Archives { folder, archives }),
        Plan::task("show-container-images", Step::Files(vec![current])),
    ]
}

/// Has the machine's containerd take them over; none where there are none.
pub(super) fn imported(goal: &Goal, programs: &Programs) -> Option<Plan> {
    let images: Vec<_> = archives(goal, programs)
        .into_iter()
        .map(|(archive, image)| (join(&FOLDER, &archive.name).to_string(), image))
        .collect();
    let machine = goal.machine;
    (!images.is_empty()).then(|| Plan::task("import-container-images", Step::ImagesImported { machine, images }))
}

/// Each archive, and the image in it.
fn archives(goal: &Goal, programs: &Programs) -> Vec<(Archive, String)> {
    let Some(bundle) = &programs.bundle else {
        return Vec::new();
    };
    let images = bundle.manifest.images.iter().enumerate();
    images
        .map(|(number, image)| {
            let archive = Archive {
                name: format!("image-{number}.tar"),
                origin: bundle.origin(&path::image(goal.arch, image)),
            };
            (archive, image.clone())
        })
        .collect()
}
