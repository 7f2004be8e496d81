//! The client of the operators' socket.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use super::{Failure, Question, socket_path};
use crate::disk::Disk;
use crate::journal::{CLUSTER_NAME, DataDirectory, OpenError};

/// Timeout for an answer.
const PATIENCE: Duration = Duration::from_mins(1);

/// Maximum size of an answer, in bytes: ten times the size of a full list.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// An error from asking a server.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No server is listening on the data folder's socket.
    #[error(
        "no server runs on {folder}: start it with `paperbourse serve --data {folder}`, or name \
         the folder of one that runs with --data",
        folder = data.display()
    )]
    NoServer {
        /// The data folder.
        data: PathBuf,
    },
    /// The node on this data folder is a standby, which has no operators' socket.
    #[error(
        "the node on {} is a standby: run this on the machine of the serving node, which the \
         header X-Paperbourse-Owner of an answer names",
        data.display()
    )]
    StandsBy {
        /// The data folder.
        data: PathBuf,
    },
    /// This user may not open the socket.
    #[error("{} belongs to another user: run this as the user of the server", path.display())]
    NotAllowed {
        /// The path of the socket.
        path: PathBuf,
    },
    /// The connection failed. The server may still have carried out the command.
    #[error("the server did not answer on {}: {reason}", path.display())]
    Broken {
        /// The path of the socket.
        path: PathBuf,
        /// The cause of the failure.
        reason: String,
    },
    /// The server refused the question.
    #[error("{} ({})", .0.message, .0.error)]
    Refused(Failure),
}

/// Returns the error for a folder in which no server listens.
fn nobody(data: PathBuf) -> AskError {
    let is_of_node = Disk::System.exists(&data.join(CLUSTER_NAME)).unwrap_or_default();
    // This briefly takes the folder's lock, so it is tried only if the folder belongs to a node.
    let is_in_use = || {
        let free = DataDirectory::require_free(&Disk::System, &data);
        matches!(free, Err(OpenError::InUse { .. }))
    };
    if is_of_node && is_in_use() {
        AskError::StandsBy { data }
    } else {
        AskError::NoServer { data }
    }
}

/// Sends a question to the server on this data folder, and waits up to a minute for its answer.
pub fn ask<A: DeserializeOwned>(data: &Path, question: &Question) -> Result<A, AskError> {
    let path = socket_path(data);
    let broken = |reason: String| AskError::Broken { path: path.clone(), reason };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| broken(error.to_string()))?;
    runtime.block_on(async {
        let asked = tokio::time::timeout(PATIENCE, send(&path, question));
        let asked = asked.await.map_err(|_| {
            broken(format!(
                "nothing came within {} s; it may still do what was asked",
                PATIENCE.as_secs()
            ))
        })?;
        let (is_success, bytes) = match asked {
            Ok(answer) => answer,
            Err(Unsent::Connect(error)) => {
                return Err(match error.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                        nobody(data.to_owned())
                    }
                    io::ErrorKind::PermissionDenied => AskError::NotAllowed { path: path.clone() },
                    _ => broken(error.to_string()),
                });
            }
            Err(Unsent::Lost(reason)) => return Err(broken(reason)),
        };
        let unreadable = |error: serde_json::Error| broken(format!("an unknown answer: {error}"));
        if is_success {
            serde_json::from_slice(&bytes).map_err(unreadable)
        } else {
            Err(AskError::Refused(serde_json::from_slice(&bytes).map_err(unreadable)?))
        }
    })
}

enum Unsent {
    Connect(io::Error),
    Lost(String),
}

impl Unsent {
    fn lost(error: &hyper::Error) -> Self {
        Self::Lost(format!("{error}; it may still do what was asked"))
    }
}

/// Sends the question. Returns whether it succeeded, and the body of the answer.
async fn send(path: &Path, question: &Question) -> Result<(bool, Bytes), Unsent> {
    let stream = UnixStream::connect(path).await.map_err(Unsent::Connect)?;
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| Unsent::lost(&error))?;
    let connection = tokio::spawn(connection);
    let request = Request::builder()
        .method(Method::POST)
        .uri("/")
        .header(HOST, "paperbourse")
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(super::serve::json(question))))
        .expect("a valid request");
    let response = sender.send_request(request).await;
    let response = response.map_err(|error| Unsent::lost(&error))?;
    let is_success = response.status().is_success();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| Unsent::Lost(error.to_string()))?;
    connection.abort();
    Ok((is_success, body.to_bytes()))
}
