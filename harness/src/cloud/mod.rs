//! The cloud of a run: registry, names, downloads and cluster, on the hosts' network.
