//! What containerd has recorded of a container.

use containerd_client::services::v1::containers_client::ContainersClient;
use containerd_client::services::v1::{GetContainerRequest, ListContainersRequest};

use super::link::{Containerd, ContainerdError, found, refused};

impl Containerd {
    /// The name of the image that the container was made of; none when there is no such container.
    ///
    /// # Errors
    /// containerd can't be reached or refuses.
    pub async fn container_image(&self, id: &str) -> Result<Option<String>, ContainerdError> {
        let link = self.link().await?;
        let request = GetContainerRequest { id: id.to_owned() };
        let answer = ContainersClient::new(link.client.channel())
            .get(link.call(request))
            .await;
        let answer = found(answer).map_err(refused("look a container up"))?;
        let container = answer.and_then(|answer| answer.into_inner().container);
        Ok(container.map(|container| container.image))
    }
    /// The ids of all containers in our namespace.
    ///
    /// # Errors
    /// containerd can't be reached or refuses.
    pub async fn containers(&self) -> Result<Vec<String>, ContainerdError> {
        let link = self.link().await?;
        let request = ListContainersRequest { filters: Vec::new() };
        let answer = ContainersClient::new(link.client.channel())
            .list(link.call(request))
            .await;
        let containers = answer.map_err(refused("list containers"))?.into_inner().containers;
        Ok(containers.into_iter().map(|container| container.id).collect())
    }
}
