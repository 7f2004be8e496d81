//! The cluster options: the cluster's file and the node's name.

use std::path::PathBuf;

use clap::Args;

/// The cluster options of `paperbourse serve`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterServeArgs {
    /// Join the cluster that this file describes: follow its log, and serve when no other node
    /// does. Requires a build with the feature `cluster`
    #[arg(hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_CLUSTER", value_name = "FILE")]
    pub cluster: Option<PathBuf>,

    /// Name of this node, unique within the cluster
    #[arg(hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_NODE", value_name = "NAME")]
    pub node: Option<String>,
}

/// An error in the cluster options.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClusterConfigError {
    /// `--cluster` in a binary without the feature `cluster`.
    #[error(
        "--cluster has no effect: this binary was built without cluster support. Build it with \
         `cargo build --release --features cluster`, or leave out the flag"
    )]
    NotBuilt,
    /// `--cluster` without `--node`.
    #[error("--cluster needs --node NAME: a name for this node, unique within the cluster")]
    NoNode,
    /// `--node` without `--cluster`.
    #[error("--node has no effect without --cluster FILE")]
    NoCluster,
    /// `--cluster` with `--data memory`.
    #[error("--cluster needs a data folder for its copy of the log: --data memory has none")]
    NoFolder,
}

impl ClusterServeArgs {
    /// Rejects options that contradict each other or that this binary does not support.
    pub(super) fn check(&self, has_folder: bool) -> Result<(), ClusterConfigError> {
        match (&self.cluster, &self.node) {
            (None, Some(_)) => Err(ClusterConfigError::NoCluster),
            (Some(_), _) if !cfg!(feature = "cluster") => Err(ClusterConfigError::NotBuilt),
            (Some(_), None) => Err(ClusterConfigError::NoNode),
            (Some(_), Some(_)) if !has_folder => Err(ClusterConfigError::NoFolder),
            (None, None) | (Some(_), Some(_)) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        cluster: ClusterServeArgs,
    }

    #[test]
    fn a_node_of_a_cluster_has_a_name_and_a_folder() {
        for (line, has_folder, expected) in [
            ("", false, None),
            ("--node a", true, Some("--node has no effect without --cluster")),
            ("--cluster file", true, Some("--cluster needs --node")),
            ("--cluster file --node a", false, Some("--cluster needs a data folder")),
            ("--cluster file --node a", true, None),
        ] {
            let words = std::iter::once("serve").chain(line.split_whitespace());
            let line = Line::try_parse_from(words).unwrap().cluster;
            let error = line.check(has_folder).err().map(|error| error.to_string());
            let expected = match expected {
                _ if line.cluster.is_some() && !cfg!(feature = "cluster") => {
                    Some("built without cluster support")
                }
                expected => expected,
            };
            assert_eq!(error.is_some(), expected.is_some(), "{line:?}: {error:?}");
            assert!(error.unwrap_or_default().contains(expected.unwrap_or_default()), "{line:?}");
        }
    }
}
