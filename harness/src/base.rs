//! The base of every host: a Debian tree made to look like Azure Container Linux, `/usr` as one read-only image.
